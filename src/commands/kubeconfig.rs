//! `kubeconfig`: a file that points a client at the read API.

use super::{
    Error,
    cache::{self, CacheArgs},
    cluster::ConnectionArgs,
    output::{OutputArgs, OutputFormat},
    print::{print, tell},
    report::Verdict,
};
use clap::Args;
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Arguments of `kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Output file, which only its owner can read [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Replace the file if there is one.
    #[arg(long, requires = "output_file")]
    pub overwrite: bool,

    /// A file with a bearer token, which clients read again when it changes, in place of the user of the
    /// context: in a pod the token of its ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Output flags: yaml or json.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Where the read API is.
    #[command(flatten)]
    pub cache: CacheArgs,

    /// Whose user, and where the Secret is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Writes the kubeconfig, or prints it.
///
/// # Errors
///
/// [`Error`] where there is no configuration, no certificate to trust, or a file that stays as it is.
pub async fn kubeconfig(args: &KubeconfigArgs) -> Result<Verdict, Error> {
    let is_json = match args.output.format {
        None | Some(OutputFormat::Yaml) => false,
        Some(OutputFormat::Json) => true,
        Some(OutputFormat::Name | OutputFormat::Wide) => {
            return Err(Error::new("a kubeconfig is YAML or JSON; use -o yaml or -o json"));
        }
    };
    let token_file = args.token_file.as_deref();
    let (made, remark) = cache::kubeconfig(&args.cache, &args.connection, token_file).await?;
    if let Some(remark) = remark {
        tell(&remark);
    }
    let unwritable = "cannot write the kubeconfig";
    let text = Zeroizing::new(if is_json {
        serde_json::to_string_pretty(&made).map_err(|error| Error::caused(unwritable, error))?
    } else {
        serde_saphyr::to_string(&made).map_err(|error| Error::caused(unwritable, error))?
    });
    let Some(path) = &args.output_file else {
        print(&text)?;
        return Ok(Verdict::Good);
    };
    write(path, &text, args).map_err(|source| {
        let file = path.display();
        if source.kind() == io::ErrorKind::AlreadyExists {
            return Error::new(format!("{file} exists; --overwrite replaces it"));
        }
        Error::caused(format!("cannot write {file}"), source)
    })?;
    tell(&format!("wrote {}", path.display()));
    Ok(Verdict::Good)
}

/// Writes a file that only its owner can read. It takes its name when it is complete, so that nobody reads half of it,
/// and the mode of a file that it replaces does not matter.
fn write(path: &Path, text: &str, args: &KubeconfigArgs) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let named = if args.overwrite { file.persist(path) } else { file.persist_noclobber(path) };
    named.map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::{super::sample::parse, *};
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_file_is_readable_by_its_owner_alone_and_replaced_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let args = parse::<KubeconfigArgs>("--output-file config").unwrap();
        write(&path, "one", &args).unwrap();
        let error = write(&path, "two", &args).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let args = parse::<KubeconfigArgs>("--output-file config --overwrite").unwrap();
        write(&path, "three", &args).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
