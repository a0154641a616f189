//! Prints reports to standard output, and messages to standard error.

use super::{
    CommandError,
    output::OutputFormat,
    report::{CommandExitCode, CommandReport, ReportFormat, TerminalLayout, render},
};
use kubewarm_api::model::escape;
use std::{
    env,
    io::{self, IsTerminal, Write as _},
};

/// Writes `report` to standard output in the format of `-o`, which is text by default.
pub(super) fn show(
    report: &CommandReport,
    output: Option<OutputFormat>,
) -> Result<CommandExitCode, CommandError> {
    let format = match output {
        None => ReportFormat::Text(terminal().unwrap_or_default()),
        Some(OutputFormat::Wide) => ReportFormat::Wide(terminal().unwrap_or_default()),
        Some(OutputFormat::Name) => ReportFormat::Names,
        Some(OutputFormat::Json) => ReportFormat::Json,
        Some(OutputFormat::Yaml) => ReportFormat::Yaml,
    };
    show_as(report, format)
}

pub(super) fn show_as(
    report: &CommandReport,
    format: ReportFormat,
) -> Result<CommandExitCode, CommandError> {
    print(&render(report, format)?)?;
    Ok(report.verdict)
}

/// Writes `text` to standard output and flushes it. Returns `Ok` if the reader, such as `head`, has
/// closed the pipe.
///
/// # Errors
///
/// [`CommandError`] if the output cannot be written.
pub fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::caused("cannot write the output", error))
        }
        _ => Ok(()),
    }
}

/// Writes a message for people to standard error, with control characters escaped. Ignores write
/// errors, because the exit code also shows the command's result.
pub(super) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape(line));
}

/// Returns the size and the colours of the terminal. Returns `None` if standard output is not a
/// terminal, or if `TERM` is empty or `dumb`.
///
/// The environment variable `NO_COLOR` disables colours if it is not empty.
pub(super) fn terminal() -> Option<TerminalLayout> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()
        .map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
    let has_colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Some(TerminalLayout { width, height, has_colours })
}
