//! The result of a command. The module `render` prints it in all output formats.

mod document;
mod render;
#[cfg(test)]
mod tests;

pub use self::render::{ReportFormat, TerminalLayout, render};

use kubewarm_api::{model::RequestFault, v1alpha1::InformerCounts};
use serde_json::Value;
use std::process::ExitCode;

/// The result of a command. Its texts can contain control characters from the cluster; [`render`]
/// escapes them.
#[derive(Clone, Debug, Default)]
pub struct CommandReport {
    pub(super) sections: Vec<ReportSection>,
    pub(super) verdict: CommandExitCode,
    /// Content of the JSON and YAML output. If `data` is null, JSON and YAML output contains the
    /// sections.
    pub(super) data: Value,
    /// Kinds and names of the objects that `-o name` prints, such as `pod/a`. If `None`, `-o name`
    /// is an error.
    pub(super) names: Option<Vec<String>>,
}

/// Outcome of a command. The number is the process's exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandExitCode {
    #[default]
    Good = 0,
    /// The command found a problem. An object or permission is missing, wrong, different or not
    /// ready yet.
    Bad = 1,
    /// The profile is stalled, so only an edit can make it ready. For `rbac --diff`, the manifests
    /// in the profile's status grant more than the profile needs.
    Failed = 2,
    /// `wait` reached its timeout.
    TimedOut = 3,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReportSection {
    /// Heading of the section. If all facts in `head` are hidden, the section has no heading.
    pub(super) head: ReportRow,
    pub(super) rows: Vec<ReportRow>,
}

/// A line of output, and the lines `details` and `next` below it. The facts of all rows in a
/// section form aligned columns.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportRow {
    pub(super) mark: RowMark,
    pub(super) facts: Vec<ReportFact>,
    /// Indented remarks below the row.
    pub(super) details: Vec<Self>,
    /// Commands and RBAC rules that users copy, one per line. The terminal's width neither wraps
    /// nor cuts these lines.
    pub(super) next: Vec<String>,
}

/// Sign at the start of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowMark {
    #[default]
    Plain,
    /// A branch of the tree that `status` prints, for instance before a target.
    Branch,
    Good,
    /// A remark without a failure.
    Note,
    /// A check that kubewarm could not run, for instance because of a missing permission.
    Unseen,
    Bad,
    /// A subject gains a permission when the user applies the manifests.
    Gains,
    /// A subject loses a permission when the user applies the manifests.
    Loses,
    /// A subject keeps a permission although the profile does not need this permission.
    Keeps,
}

/// A value in a row, such as a name or a count. People see it as a column, programs see it as a
/// `key=value` pair, or both.
#[derive(Clone, Debug)]
pub(super) struct ReportFact {
    tone: TextTone,
    shown: Option<FactDisplay>,
    /// Key of the `key=value` pair for programs. If the key is empty, programs do not see the
    /// value.
    key: &'static str,
    value: Value,
    /// Whether only the wide output format shows the fact as a column.
    is_wide: bool,
}

/// Appearance of a fact in text formats.
#[derive(Clone, Debug)]
enum FactDisplay {
    Text(String),
    /// Right-aligned text.
    Number(String),
    /// Progress bar of the synced informers.
    Bar(InformerCounts),
}

/// Meaning of a text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTone {
    Plain,
    Strong,
    Quiet,
    Good,
    Warning,
    Bad,
}

impl From<CommandExitCode> for ExitCode {
    fn from(verdict: CommandExitCode) -> Self {
        Self::from(verdict as u8)
    }
}

impl CommandReport {
    /// Returns a report that is `Bad` if a row has `RowMark::Bad`, else `Good`.
    pub(super) fn judged(sections: Vec<ReportSection>) -> Self {
        let is_bad = sections.iter().any(|section| section.count(RowMark::Bad) > 0);
        let verdict = if is_bad { CommandExitCode::Bad } else { CommandExitCode::Good };
        Self { sections, verdict, ..Self::default() }
    }
}

impl ReportSection {
    pub(super) fn new(title: impl Into<String>, rows: Vec<ReportRow>) -> Self {
        Self { head: ReportRow::of(vec![ReportFact::new(TextTone::Strong, title)]), rows }
    }

    pub(super) fn count(&self, mark: RowMark) -> usize {
        self.rows.iter().filter(|row| row.mark == mark).count()
    }
}

impl ReportRow {
    pub(super) fn of(facts: Vec<ReportFact>) -> Self {
        Self { facts, ..Self::default() }
    }

    pub(super) fn marked(mark: RowMark, text: impl Into<String>) -> Self {
        Self { mark, ..Self::of(vec![ReportFact::new(TextTone::Plain, text)]) }
    }

    pub(super) fn good(text: impl Into<String>) -> Self {
        Self::marked(RowMark::Good, text)
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::marked(RowMark::Note, text)
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::marked(RowMark::Bad, text)
    }

    /// Returns the row for a check that kubewarm could not run because of `fault`. `what` names the
    /// checked object.
    pub(super) fn unseen(what: &str, fault: &RequestFault) -> Self {
        Self::marked(RowMark::Unseen, format!("not checked: {what}: {fault}"))
    }

    /// Returns `row`, or for an error the result of [`Self::unseen`].
    pub(super) fn or_unseen(row: Result<Self, RequestFault>, what: &str) -> Self {
        row.unwrap_or_else(|fault| Self::unseen(what, &fault))
    }

    pub(super) fn numbers<const N: usize>(name: &str, numbers: [String; N]) -> Self {
        let numbers = numbers.into_iter().map(ReportFact::number);
        Self::of([ReportFact::new(TextTone::Plain, name)].into_iter().chain(numbers).collect())
    }

    pub(super) fn labelled(label: &str, tone: TextTone, text: impl Into<String>) -> Self {
        Self::of(vec![ReportFact::new(TextTone::Quiet, label), ReportFact::new(tone, text)])
    }

    /// Returns the visible texts of the row in one line, without progress bars.
    pub(super) fn text(&self) -> String {
        let shown = self.facts.iter().filter_map(|fact| match fact.shown.as_ref()? {
            FactDisplay::Text(text) | FactDisplay::Number(text) => Some(text.as_str()),
            FactDisplay::Bar(_) => None,
        });
        shown.collect::<Vec<_>>().join("  ")
    }

    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }
}

impl ReportFact {
    pub(super) fn new(tone: TextTone, text: impl Into<String>) -> Self {
        let shown = Some(FactDisplay::Text(text.into()));
        Self { tone, shown, key: "", value: Value::Null, is_wide: false }
    }

    pub(super) fn number(text: impl Into<String>) -> Self {
        Self { shown: Some(FactDisplay::Number(text.into())), ..Self::new(TextTone::Plain, "") }
    }

    pub(super) fn bar(informers: InformerCounts) -> Self {
        Self { shown: Some(FactDisplay::Bar(informers)), ..Self::new(TextTone::Plain, "") }
    }

    /// Returns a fact that only programs read.
    pub(super) fn hidden(key: &'static str, value: impl Into<Value>) -> Self {
        Self { tone: TextTone::Plain, shown: None, key, value: value.into(), is_wide: false }
    }

    /// Adds a `key=value` pair to the fact, for programs.
    pub(super) fn named(self, key: &'static str, value: impl Into<Value>) -> Self {
        Self { key, value: value.into(), ..self }
    }

    /// Shows the fact as a column only in the wide output format.
    pub(super) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }
}
