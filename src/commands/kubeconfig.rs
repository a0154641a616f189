//! `kubeconfig` writes a kubeconfig with which clients use the read API.

use super::{
    CommandError,
    cache::{self, CacheArgs},
    cluster::ConnectionArgs,
    output::{OutputArgs, OutputFormat},
    print::{print, tell},
    report::CommandExitCode,
};
use clap::Args;
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Output file with mode 0600 [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Replace an existing file.
    #[arg(long, requires = "output_file")]
    pub overwrite: bool,

    /// File with a bearer token, such as a pod's ServiceAccount token, instead of the user of the context. Clients
    /// read it again when it changes.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub cache: CacheArgs,

    /// Source of the user, and connection for the CA.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Writes the kubeconfig to a file, or prints it.
///
/// # Errors
///
/// [`CommandError`] if there is no configuration or no CA, or if the file exists and `--overwrite` is not set.
pub async fn kubeconfig(args: &KubeconfigArgs) -> Result<CommandExitCode, CommandError> {
    let is_json = match args.output.format {
        None | Some(OutputFormat::Yaml) => false,
        Some(OutputFormat::Json) => true,
        Some(OutputFormat::Name | OutputFormat::Wide) => {
            return Err(CommandError::new("a kubeconfig is YAML or JSON; use -o yaml or -o json"));
        }
    };
    let token_file = args.token_file.as_deref();
    let (made, remark) = cache::kubeconfig(&args.cache, &args.connection, token_file).await?;
    if let Some(remark) = remark {
        tell(&remark);
    }
    let unwritable = "cannot write the kubeconfig";
    let text = Zeroizing::new(if is_json {
        serde_json::to_string_pretty(&made)
            .map_err(|error| CommandError::caused(unwritable, error))?
    } else {
        serde_saphyr::to_string(&made).map_err(|error| CommandError::caused(unwritable, error))?
    });
    let Some(path) = &args.output_file else {
        print(&text)?;
        return Ok(CommandExitCode::Good);
    };
    write(path, &text, args).map_err(|source| {
        let file = path.display();
        if source.kind() == io::ErrorKind::AlreadyExists {
            return CommandError::new(format!("{file} exists; --overwrite replaces it"));
        }
        CommandError::caused(format!("cannot write {file}"), source)
    })?;
    tell(&format!("wrote {}", path.display()));
    Ok(CommandExitCode::Good)
}

/// Writes a temporary file with mode 0600 and renames it. So no client reads a partial file, and the mode of a replaced
/// file has no effect.
fn write(path: &Path, text: &str, args: &KubeconfigArgs) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let named = if args.overwrite { file.persist(path) } else { file.persist_noclobber(path) };
    named.map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn only_the_owner_can_read_a_kubeconfig_and_only_overwrite_replaces_it() {
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
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
    }
}
