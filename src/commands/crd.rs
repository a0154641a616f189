//! `crd` prints the `CustomResourceDefinition` of this version.

use super::{
    Error,
    output::{OutputArgs, manifests},
    print::print,
    report::Verdict,
};
use clap::Args;
use kubewarm_api::manifests::crd_yaml;

#[derive(Debug, Args)]
pub struct CrdArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// # Errors
///
/// [`Error`] if the output cannot be written.
pub fn crd(args: &CrdArgs) -> Result<Verdict, Error> {
    print(&manifests(crd_yaml()?, args.output.format)?)?;
    Ok(Verdict::Good)
}
