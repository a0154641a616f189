//! What can be typed after `check`.

use super::{ConnectionArgs, HomeArgs, value};
use clap::Args;

pub(super) const CODES: &str = "\
Marks:
  ✔  well
  ✗  wrong; what to do stands below it
  !  works, and there is something to know
  ?  not checked, and why

Exit codes:
  0  nothing that was checked is wrong
  1  something is
  2  there is no cluster to ask";

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The only profile to look at [default: all].
    #[arg(conflicts_with = "pre")]
    pub name: Option<String>,

    /// Before installing: whether the cluster has what kubewarm needs, and whether you may install it.
    /// What would be created is sent as dry run: nothing is changed.
    #[arg(long)]
    pub pre: bool,

    /// Where the profiles are [default: everywhere; of a profile that is named, the namespace of the
    /// context].
    #[arg(short, long, conflicts_with = "pre")]
    pub namespace: Option<String>,

    /// Where the operator is.
    #[command(flatten)]
    pub home: HomeArgs,

    /// What `kubewarm run` is given: the namespaces whose profiles are run, separated by commas.
    /// Without any ClusterRole, no right beyond them is looked for.
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = value::namespace
    )]
    pub watch_namespaces: Vec<String>,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
