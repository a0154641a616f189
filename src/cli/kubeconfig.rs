//! What can be typed after `kubeconfig`.

use super::{CacheArgs, ConnectionArgs};
use clap::Args;
use std::path::PathBuf;

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
