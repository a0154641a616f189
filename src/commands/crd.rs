//! `crd` prints the `CustomResourceDefinition` of this version.

use super::{
    CommandError,
    output::{OutputArgs, manifests},
    print::print,
    report::CommandExitCode,
};
use clap::Args;
use kubewarm_api::manifests::render_crd;

#[derive(Debug, Args)]
pub struct CrdArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints the CRD of CacheProfile.
///
/// # Errors
///
/// [`CommandError`] if the output cannot be written.
pub fn crd(args: &CrdArgs) -> Result<CommandExitCode, CommandError> {
    print(&manifests(render_crd()?, args.output.format)?)?;
    Ok(CommandExitCode::Good)
}
