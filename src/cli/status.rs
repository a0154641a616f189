//! What can be typed after `status`.

use super::ConnectionArgs;
use clap::{Args, ValueEnum};

pub(super) const CODES: &str = "\
Exit codes:
  0  every profile shown is ready; with --target, the target is warm and current
  1  one is not ready, or there is none
  2  one can only be helped by an edit (Stalled), or the question failed";

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// One profile [default: all of the namespace].
    #[arg(conflicts_with = "all_namespaces")]
    pub name: Option<String>,

    /// Target of the profile to explain, by its name.
    #[arg(long, requires = "name", conflicts_with_all = ["watch", "output"])]
    pub target: Option<String>,

    /// Where to look [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Profiles of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Stay, and show every change.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,

    /// Print the status as the API server has it.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// A machine's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}
