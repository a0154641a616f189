//! What can be typed after `plan`.

use super::{Output, SpecArgs, spec::one_of};
use clap::Args;
use kubewarm_api::model::Subject;

pub(super) const CODES: &str = "\
Exit codes:
  0  said
  1  said, and permissions are missing, or a target would be refused
  2  the question failed, or a profile would be refused";

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(group = one_of(["name", "file"]))]
pub struct PlanArgs {
    /// Which profiles.
    #[command(flatten)]
    pub spec: SpecArgs,

    /// Ask the cluster: of a file, for what a spec alone cannot say; of a profile in mode Plan,
    /// instead of printing what kubewarm has found.
    #[arg(long)]
    pub live: bool,

    /// Whose permissions are looked at: system:serviceaccount:NAMESPACE:NAME, the name of a user, or
    /// group:NAME [default: the account that the profile names, else the ServiceAccount kubewarm in
    /// the operator's namespace].
    #[arg(long, value_parser = super::rbac::subject)]
    pub subject: Option<Subject>,

    /// Print numbers for a machine: bytes and milliseconds.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,
}
