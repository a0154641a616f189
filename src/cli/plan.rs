//! What can be typed after `plan`.

use super::{ConnectionArgs, HomeArgs, Output};
use crate::model::Subject;
use clap::Args;
use std::path::PathBuf;

pub(super) const CODES: &str = "\
Exit codes:
  0  said
  1  said, and permissions are missing, or a target would be refused
  2  the question failed, or a profile would be refused";

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A profile of the cluster.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub name: Option<String>,

    /// A file with one CacheProfile or more, YAML or JSON; - reads standard input. Other kinds in
    /// it are skipped.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Ask the cluster: of a file, for what a spec alone cannot say; of a profile in mode Plan,
    /// instead of printing what kubewarm has found.
    #[arg(long)]
    pub live: bool,

    /// Whose permissions are looked at: system:serviceaccount:NAMESPACE:NAME, the name of a user, or
    /// group:NAME [default: the account that the profile names, else the ServiceAccount kubewarm in
    /// the operator's namespace].
    #[arg(long, value_parser = super::rbac::subject)]
    pub subject: Option<Subject>,

    /// Where the operator is.
    #[command(flatten)]
    pub home: HomeArgs,

    /// What `kubewarm run` is given: the namespaces whose profiles are run, separated by commas.
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = super::value::namespace
    )]
    pub watch_namespaces: Vec<String>,

    /// Where the profile is [default: the namespace of the context]; of profiles in a file that
    /// name none [default: default].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Print numbers for a machine: bytes and milliseconds.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
