//! What can be typed after `check`.

use super::{ConnectionArgs, OperatorArgs};
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

    /// How the operator runs.
    #[command(flatten)]
    pub operator: OperatorArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
