//! `crd`: the `CustomResourceDefinition` of this version.

use super::{
    Error,
    output::{OutputArgs, manifests},
    print::print,
    report::Verdict,
};
use clap::Args;
use kubewarm_api::manifests::crd_yaml;

/// Arguments of `crd`.
#[derive(Debug, Args)]
pub struct CrdArgs {
    /// Output flags.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints the `CustomResourceDefinition`.
///
/// # Errors
///
/// [`Error`] if the output cannot be written.
pub fn crd(args: &CrdArgs) -> Result<Verdict, Error> {
    print(&manifests(crd_yaml()?, args.output.format)?)?;
    Ok(Verdict::Good)
}
