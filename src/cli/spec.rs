//! Which profiles a command is about, and how their operator runs: of several commands.

use super::{ConnectionArgs, HomeArgs, value};
use clap::{ArgGroup, Args};
use std::path::PathBuf;

/// Which profiles a command is about.
#[derive(Clone, Debug, Args)]
pub struct SpecArgs {
    /// A profile of the cluster.
    pub name: Option<String>,

    /// A file with one CacheProfile or more, YAML or JSON; - reads standard input. Other kinds in
    /// it are skipped.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Where the profile is [default: the namespace of the context]; of profiles in a file that
    /// name none [default: default].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// How the operator runs.
    #[command(flatten)]
    pub operator: OperatorArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// How the operator runs, for commands that cannot know it.
#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    /// Where it is.
    #[command(flatten)]
    pub home: HomeArgs,

    /// What `kubewarm run` is given: the namespaces whose profiles are run, separated by commas. It takes
    /// no ClusterRole then, except for a profile that reads as a ServiceAccount.
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = value::namespace
    )]
    pub watch_namespaces: Vec<String>,
}

/// One of `ways` to name a profile, and no other.
pub(super) fn one_of<const N: usize>(ways: [&'static str; N]) -> ArgGroup {
    ArgGroup::new("profiles").args(ways).required(true)
}
