//! `kubeconfig`: a file that points a client at the read API.

use super::{
    Error,
    cache::{self, CacheArgs},
    cluster::ConnectionArgs,
    print::{print, tell},
    report::Verdict,
};
use clap::Args;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Arguments of `kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Where to write it, readable by nobody else [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the file if there is one.
    #[arg(long, requires = "output")]
    pub overwrite: bool,

    /// A file with a bearer token, which clients read again when it changes, in place of the user of the
    /// context: in a pod the token of its ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Where the read API is.
    #[command(flatten)]
    pub cache: CacheArgs,

    /// Whose user, and where the Secret is.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Credentials stand in it.
const OWNER_ONLY: u32 = 0o600;

/// Writes the kubeconfig, or prints it.
///
/// # Errors
///
/// [`Error`] where there is no configuration, no certificate to trust, or a file that stays as it is.
pub async fn kubeconfig(args: &KubeconfigArgs) -> Result<Verdict, Error> {
    let token_file = args.token_file.as_deref();
    let (made, remark) = cache::kubeconfig(&args.cache, &args.connection, token_file).await?;
    if let Some(remark) = remark {
        tell(&remark);
    }
    let text = Zeroizing::new(
        serde_saphyr::to_string(&made)
            .map_err(|error| Error::caused("cannot write the kubeconfig", error))?,
    );
    let Some(path) = &args.output else {
        print(&text)?;
        return Ok(Verdict::Good);
    };
    let written = if args.overwrite { replace(path, &text) } else { create(path, &text) };
    written.map_err(|source| {
        let file = path.display();
        if source.kind() == io::ErrorKind::AlreadyExists {
            return Error::new(format!("{file} exists; --overwrite replaces it"));
        }
        Error::caused(format!("cannot write {file}"), source)
    })?;
    tell(&format!("wrote {}", path.display()));
    Ok(Verdict::Good)
}

/// Writes a file that is not there yet.
fn create(path: &Path, text: &str) -> io::Result<()> {
    write_new(path, text).map(drop)
}

/// Writes another in its place at once, so that nobody reads half of it, and the mode of the former one
/// does not matter.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.tmp", fastrand::u64(..)));
    let beside = path.with_file_name(name);
    write_new(&beside, text)?.sync_all()?;
    let renamed = std::fs::rename(&beside, path);
    if renamed.is_err() {
        // What could not be renamed holds a credential nobody knows of.
        let _best_effort = std::fs::remove_file(&beside);
    }
    renamed
}

fn write_new(path: &Path, text: &str) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_file_is_readable_by_its_owner_alone_and_replaced_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        create(&path, "one").unwrap();
        let error = create(&path, "two").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, "three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
