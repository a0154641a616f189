//! The way out: standard output, terminal or not, and what is told beside it.

use super::{
    Error,
    output::OutputFormat,
    report::{Format, Report, Terminal, Verdict, render},
};
use kubewarm_api::model::escape;
use std::{
    env,
    io::{self, IsTerminal, Write as _},
};

/// Writes `report` to standard output, in the format that the user chose or as text.
pub(super) fn show(report: &Report, output: Option<OutputFormat>) -> Result<Verdict, Error> {
    let format = match output {
        None => Format::Text(terminal().unwrap_or_default()),
        Some(OutputFormat::Wide) => Format::Wide(terminal().unwrap_or_default()),
        Some(OutputFormat::Name) => Format::Names,
        Some(OutputFormat::Json) => Format::Json,
        Some(OutputFormat::Yaml) => Format::Yaml,
    };
    show_as(report, format)
}

/// Writes `report` to standard output in `format`.
pub(super) fn show_as(report: &Report, format: Format) -> Result<Verdict, Error> {
    print(&render(report, format)?)?;
    Ok(report.verdict)
}

/// Writes `text` to standard output at once. A reader that went away, such as `head`, is no error.
///
/// # Errors
///
/// [`Error`] if the output cannot be written.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::caused("cannot write the output", error))
        }
        _ => Ok(()),
    }
}

/// Writes a line for people beside the output proper. Best effort: what is told here is also in the
/// exit code.
pub(super) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape(line));
}

/// The terminal that standard output is, if it is one that can draw.
///
/// `NO_COLOR`, when not empty, turns colours off.
pub(super) fn terminal() -> Option<Terminal> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()
        .map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
    let has_colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Some(Terminal { width, height, has_colours })
}
