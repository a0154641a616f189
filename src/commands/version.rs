//! `version` prints the version of this program.

use super::{
    Error,
    output::OutputArgs,
    print::show,
    report::{Fact, Report, ReportRow, Section, Tone, Verdict},
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
/// [`Error`] if the output cannot be written.
pub fn version(args: &VersionArgs) -> Result<Verdict, Error> {
    show(&report(), args.output.format)
}

pub(super) fn report() -> Report {
    let version = env!("CARGO_PKG_VERSION");
    let head = ReportRow::of(vec![Fact::new(Tone::Plain, format!("kubewarm {version}"))]);
    Report {
        sections: vec![Section { head, rows: Vec::new() }],
        data: json!({ "clientVersion": { "version": version } }),
        ..Report::default()
    }
}
