//! `version` prints the version of this program.

use super::{
    CommandError,
    output::OutputArgs,
    print::show,
    report::{CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, TextTone},
};
use clap::Args;
use serde_json::json;

#[derive(Debug, Args)]
pub struct VersionArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// # Errors
///
/// [`CommandError`] if the output cannot be written.
pub fn version(args: &VersionArgs) -> Result<CommandExitCode, CommandError> {
    show(&report(), args.output.format)
}

pub(super) fn report() -> CommandReport {
    let version = env!("CARGO_PKG_VERSION");
    let head = ReportRow::of(vec![ReportFact::new(TextTone::Plain, format!("kubewarm {version}"))]);
    CommandReport {
        sections: vec![ReportSection { head, rows: Vec::new() }],
        data: json!({ "clientVersion": { "version": version } }),
        ..CommandReport::default()
    }
}
