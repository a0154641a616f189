//! Renders reports: alignment, wrapping, colours and escapes.

use super::{
    super::{CommandError, text::wrapped},
    CommandReport, FactDisplay, ReportFact, ReportRow, ReportSection, RowMark, TextTone,
    document::{document, sections_as_data},
};
use kubewarm_api::{model::escape, v1alpha1::InformerCounts};
use serde_json::Value;
use std::{borrow::Cow, fmt::Write as _};

/// Minimum width of a terminal with progress bars of 20 columns, in columns. Narrower terminals get
/// progress bars of 10 columns.
const WIDE: usize = 80;
/// Space between two columns of a row.
const GAP: &str = "  ";
/// Indent of the commands and RBAC rules that users copy.
const COPIED: &str = "    ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Text for people.
    Text(TerminalLayout),
    /// Text for people, with all columns.
    Wide(TerminalLayout),
    /// A line of `key=value` pairs per row, for logs, pipes and programs.
    Lines,
    /// Kinds and names of the report's objects, one per line.
    Names,
    Json,
    Yaml,
}

/// Layout of text output for people. The default layout is for files and pipes: it has no maximum
/// width and no colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalLayout {
    /// Width in columns; 0 means no limit. Longer lines are wrapped, or cut if they cannot be
    /// wrapped.
    pub width: usize,
    pub height: usize,
    pub has_colours: bool,
}

/// Writes `report` in the output `format`. Escapes control characters, so that texts from the
/// cluster cannot control the terminal.
///
/// # Errors
///
/// [`CommandError`] if YAML cannot represent the data, or if the format prints names and the report
/// has no names.
pub fn render(report: &CommandReport, format: ReportFormat) -> Result<String, CommandError> {
    Ok(match format {
        ReportFormat::Text(terminal) => text(&narrow(&report.sections), terminal),
        ReportFormat::Wide(terminal) => text(&report.sections, terminal),
        ReportFormat::Lines => lines(&report.sections),
        ReportFormat::Names => names(report)?,
        ReportFormat::Json | ReportFormat::Yaml if report.data.is_null() => {
            return document(&sections_as_data(report), format);
        }
        ReportFormat::Json | ReportFormat::Yaml => return document(&report.data, format),
    })
}

fn names(report: &CommandReport) -> Result<String, CommandError> {
    let Some(names) = &report.names else {
        return Err(CommandError::new("this output has no names; use -o json, yaml or wide"));
    };
    Ok(names.iter().flat_map(|name| [escape(name), Cow::Borrowed("\n")]).collect())
}

/// Removes the facts that only the wide format shows.
fn narrow(sections: &[ReportSection]) -> Vec<ReportSection> {
    let mut sections = sections.to_vec();
    for section in &mut sections {
        for row in [&mut section.head].into_iter().chain(&mut section.rows) {
            row.facts.retain(|fact| !fact.is_wide);
        }
    }
    sections
}

fn text(sections: &[ReportSection], terminal: TerminalLayout) -> String {
    let mut text = String::new();
    for section in sections {
        let lines = section_lines(section, terminal.width);
        if !text.is_empty() && !lines.is_empty() {
            text.push('\n');
        }
        text.extend(lines.iter().map(|line| line.paint(terminal)));
    }
    text
}

fn section_lines(section: &ReportSection, width: usize) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let head = visible(&section.head);
    if !head.is_empty() {
        let mut line = StyledLine::default();
        for (at, fact) in head.iter().enumerate() {
            line.push(fact.tone, if at == 0 { "" } else { GAP });
            line.push(fact.tone, fact.text());
        }
        lines.push(line);
    }
    let indent = if head.is_empty() { "" } else { GAP };
    lines.extend(section.head.details.iter().flat_map(|detail| hanging(indent, detail, width)));
    let columns = columns(&section.rows);
    let last = section.rows.len().saturating_sub(1);
    for (at, row) in section.rows.iter().enumerate() {
        let (tone, sign, rail) = row.mark.signs(at == last, indent);
        lines.extend(row_lines(row, StyledLine::of(tone, sign), rail, &columns, width));
        lines.extend(row.details.iter().flat_map(|detail| hanging(rail, detail, width)));
        lines.extend(row.next.iter().map(|command| StyledLine::copied(command)));
    }
    lines
}

/// Returns the widths of the columns in characters. The last text of a row does not count, because
/// no column follows it.
fn columns(rows: &[ReportRow]) -> Vec<usize> {
    let mut widths = Vec::<usize>::new();
    for row in rows {
        let facts = visible(row);
        for (at, fact) in facts.iter().enumerate() {
            if widths.len() == at {
                widths.push(0);
            }
            let is_open = at + 1 == facts.len() && matches!(fact.shown, Some(FactDisplay::Text(_)));
            if let Some(width) = widths.get_mut(at).filter(|_| !is_open) {
                *width = (*width).max(fact.text().chars().count());
            }
        }
    }
    widths
}

/// Returns the output lines of a row. The first line begins with the text `line`, and each later
/// line begins with the text `rail`. A long last column is wrapped within the column.
fn row_lines(
    row: &ReportRow,
    mut line: StyledLine,
    rail: &str,
    columns: &[usize],
    width: usize,
) -> Vec<StyledLine> {
    let facts = visible(row);
    let Some((last, before)) = facts.split_last() else { return Vec::new() };
    for (fact, &column) in before.iter().zip(columns) {
        fact.push(&mut line, column, width);
        line.push(TextTone::Plain, GAP);
    }
    let begin = line.width();
    let column = columns.get(before.len()).copied().unwrap_or_default();
    if !matches!(last.shown, Some(FactDisplay::Text(_))) {
        last.push(&mut line, column, width);
        return vec![line];
    }
    let mut lines = Vec::new();
    for text in wrapped(&last.text(), width.saturating_sub(begin)) {
        line.push(last.tone, text);
        let pad = " ".repeat(begin.saturating_sub(rail.chars().count()));
        let next = StyledLine::of(TextTone::Quiet, rail.to_owned() + &pad);
        lines.push(std::mem::replace(&mut line, next));
    }
    lines
}

/// Returns the output lines of `detail`, a remark below a row. Each line begins with the text
/// `rail`, and lines after the first are indented.
fn hanging(rail: &str, detail: &ReportRow, width: usize) -> Vec<StyledLine> {
    let text_width = width.saturating_sub(rail.chars().count() + GAP.len());
    let mut lines = Vec::new();
    for fact in visible(detail) {
        for text in wrapped(&fact.text(), text_width) {
            let indent = if lines.is_empty() { "" } else { GAP };
            let mut line = StyledLine::of(TextTone::Quiet, rail);
            line.push(fact.tone, indent.to_owned() + &text);
            lines.push(line);
        }
    }
    lines
}

fn visible(row: &ReportRow) -> Vec<&ReportFact> {
    row.facts.iter().filter(|fact| fact.shown.is_some()).collect()
}

/// Returns a `key=value` line for each row, and for each remark that has keys.
fn lines(sections: &[ReportSection]) -> String {
    let mut text = String::new();
    for section in sections {
        for row in [&section.head].into_iter().chain(&section.rows) {
            for row in [row].into_iter().chain(&row.details) {
                let keyed: Vec<_> = row.facts.iter().filter(|fact| !fact.key.is_empty()).collect();
                for (at, fact) in keyed.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { " " });
                    pair(&mut text, fact.key, &fact.value);
                }
                text.push_str(if keyed.is_empty() { "" } else { "\n" });
            }
        }
    }
    text
}

/// Appends `key=value` to `text`. Quotes a value that is empty or contains a space, a quote or an
/// equals sign, because programs split the line at spaces.
fn pair(text: &mut String, key: &str, value: &Value) {
    // `Value` prints a text in quotes, with escapes of its own.
    let value = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
    let value = escape(&value);
    let is_plain = !value.is_empty() && !value.contains([' ', '"', '=']);
    let _infallible = if is_plain {
        write!(text, "{key}={value}")
    } else {
        write!(text, "{key}=\"{}\"", value.replace('"', "\\\""))
    };
}

impl ReportFact {
    /// Returns the text that people see, with control characters escaped. The text is empty for a
    /// progress bar.
    fn text(&self) -> Cow<'_, str> {
        match &self.shown {
            Some(FactDisplay::Text(text) | FactDisplay::Number(text)) => escape(text),
            Some(FactDisplay::Bar(_)) | None => Cow::Borrowed(""),
        }
    }

    /// Appends this fact, one cell of a report's row, to `line`, and pads the cell to `column`
    /// characters. `width` is the terminal's width, which determines the length of a progress bar.
    fn push(&self, line: &mut StyledLine, column: usize, width: usize) {
        match &self.shown {
            Some(FactDisplay::Text(_)) => line.push(self.tone, format!("{:<column$}", self.text())),
            Some(FactDisplay::Number(_)) => {
                line.push(self.tone, format!("{:>column$}", self.text()));
            }
            Some(FactDisplay::Bar(informers)) => {
                line.push_bar(informers, if width == 0 || width >= WIDE { 20 } else { 10 });
            }
            None => {}
        }
    }
}

impl RowMark {
    /// Returns the tone of the row's mark, the text before the first line of the row, and the text
    /// before each later line.
    const fn signs(self, is_last: bool, indent: &str) -> (TextTone, &str, &str) {
        match self {
            Self::Plain => (TextTone::Plain, indent, indent),
            Self::Branch if is_last => (TextTone::Quiet, "└── ", "    "),
            Self::Branch => (TextTone::Quiet, "├── ", "│   "),
            Self::Good => (TextTone::Good, "✔ ", GAP),
            Self::Note => (TextTone::Warning, "! ", GAP),
            Self::Unseen => (TextTone::Quiet, "? ", GAP),
            Self::Bad => (TextTone::Bad, "✗ ", GAP),
            Self::Gains => (TextTone::Good, "+ ", GAP),
            Self::Loses => (TextTone::Bad, "- ", GAP),
            Self::Keeps => (TextTone::Warning, "= ", GAP),
        }
    }
}

/// A line of output without a line feed. Each of its texts has a [`TextTone`].
#[derive(Clone, Debug, Default)]
struct StyledLine {
    pieces: Vec<(TextTone, String)>,
    /// Whether the line stays complete, even if it is longer than the terminal's width.
    is_whole: bool,
}

impl StyledLine {
    fn of(tone: TextTone, text: impl Into<String>) -> Self {
        Self { pieces: vec![(tone, text.into())], is_whole: false }
    }

    fn copied(command: &str) -> Self {
        Self { is_whole: true, ..Self::of(TextTone::Strong, COPIED.to_owned() + &escape(command)) }
    }

    fn push(&mut self, tone: TextTone, text: impl Into<String>) {
        self.pieces.push((tone, text.into()));
    }

    /// Appends a progress bar of `width` columns: `█` for synced informers, `▓` for stale
    /// informers, `░` for other informers. The columns are rounded down, so that the bar of an
    /// incomplete target is never full.
    fn push_bar(&mut self, informers: &InformerCounts, width: usize) {
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let (synced, stale, total) =
            (count(informers.synced), count(informers.stale), count(informers.total));
        let columns = |part: usize| match total {
            0 => 0,
            total => part.min(total).saturating_mul(width) / total,
        };
        let full = columns(synced);
        let half = columns(synced.saturating_add(stale)) - full;
        self.push(TextTone::Good, "█".repeat(full));
        self.push(TextTone::Warning, "▓".repeat(half));
        self.push(TextTone::Quiet, "░".repeat(width.saturating_sub(full + half)));
    }

    fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Returns the line with a line feed. A line with more than `width` characters is cut and ends
    /// with `…`. A width of 0 means no limit.
    fn paint(&self, TerminalLayout { width, has_colours, .. }: TerminalLayout) -> String {
        let total = self.width();
        let is_cut = width > 0 && total > width && !self.is_whole;
        let mut left = if is_cut { width - 1 } else { total };
        let mut line = String::new();
        for (tone, text) in &self.pieces {
            let end = text.char_indices().nth(left).map_or(text.len(), |(at, _)| at);
            let (shown, _) = text.split_at(end);
            left -= shown.chars().count();
            match tone.code().filter(|_| has_colours && !shown.is_empty()) {
                Some(code) => line.extend([code, shown, "\u{1b}[0m"]),
                None => line.push_str(shown),
            }
        }
        if is_cut {
            line.push('…');
        }
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        line
    }
}

impl TextTone {
    /// Returns the ANSI escape code that starts this tone. The codes use only the 16 standard
    /// colours, which follow the palette of the user's terminal.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("\u{1b}[1m"),
            Self::Quiet => Some("\u{1b}[2m"),
            Self::Good => Some("\u{1b}[32m"),
            Self::Warning => Some("\u{1b}[33m"),
            Self::Bad => Some("\u{1b}[31m"),
        }
    }
}
