//! What a command found: the one value that every command builds, and the one way it is written.

mod document;
mod render;
#[cfg(test)]
mod tests;

pub use self::render::{Format, Terminal, render};

use kubewarm_api::{model::Fault, v1alpha1::InformerCounts};
use serde_json::Value;
use std::process::ExitCode;

/// What a command found. Its texts are the cluster's own; [`render`] makes them safe for a terminal.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(super) sections: Vec<Section>,
    pub(super) verdict: Verdict,
    /// The same facts for programs, printed as JSON or YAML. Without data the sections are printed.
    pub(super) data: Value,
    /// Kinds and names of the objects, such as `pod/a`. `None` if the report is not about objects.
    pub(super) names: Option<Vec<String>>,
}

/// How a command ends; the number is its exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All is as it should be.
    #[default]
    Good = 0,
    /// Something is not: not ready, wrong, missing or different.
    Bad = 1,
    /// Only an edit of the profile helps.
    Failed = 2,
    /// It was not ready in time.
    TimedOut = 3,
}

/// Rows below a heading.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    /// The heading. Without a visible fact there is none.
    pub(super) head: ReportRow,
    pub(super) rows: Vec<ReportRow>,
}

/// A line, and what belongs to it. Facts of the rows of a section line up.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportRow {
    pub(super) mark: Mark,
    pub(super) facts: Vec<Fact>,
    /// Remarks, written below and indented.
    pub(super) details: Vec<Self>,
    /// Commands and rules to copy, a line each: never broken and never cut.
    pub(super) next: Vec<String>,
}

/// What stands before a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// Nothing.
    #[default]
    Plain,
    /// A branch of a tree.
    Branch,
    /// All is well.
    Good,
    /// There is something to know; nothing is wrong.
    Note,
    /// It was not checked, such as for want of a permission.
    Unseen,
    /// Something is wrong.
    Bad,
    /// Somebody gains a permission.
    Gains,
    /// Somebody loses one.
    Loses,
    /// Somebody keeps one that is not needed.
    Keeps,
}

/// One fact: as a person reads it, as a program reads it in `key=value`, or both.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    tone: Tone,
    shown: Option<Appearance>,
    /// The key, and the value where it is not what is shown.
    key: &'static str,
    value: String,
    /// Whether a person sees the fact only in the wide format.
    is_wide: bool,
}

/// How a person sees a fact.
#[derive(Clone, Debug)]
enum Appearance {
    Text(String),
    /// Lined up to the right.
    Number(String),
    /// How much of the cells is there.
    Bar(InformerCounts),
}

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Quiet,
    Good,
    Warning,
    Bad,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(verdict as u8)
    }
}

impl Report {
    /// A report whose marks decide the verdict.
    pub(super) fn judged(sections: Vec<Section>) -> Self {
        let is_bad = sections.iter().any(|section| section.count(Mark::Bad) > 0);
        let verdict = if is_bad { Verdict::Bad } else { Verdict::Good };
        Self { sections, verdict, ..Self::default() }
    }
}

impl Section {
    pub(super) fn new(title: impl Into<String>, rows: Vec<ReportRow>) -> Self {
        Self { head: ReportRow::of(vec![Fact::new(Tone::Strong, title)]), rows }
    }

    pub(super) fn count(&self, mark: Mark) -> usize {
        self.rows.iter().filter(|row| row.mark == mark).count()
    }
}

impl ReportRow {
    pub(super) fn of(facts: Vec<Fact>) -> Self {
        Self { facts, ..Self::default() }
    }

    pub(super) fn marked(mark: Mark, text: impl Into<String>) -> Self {
        Self { mark, ..Self::of(vec![Fact::new(Tone::Plain, text)]) }
    }

    pub(super) fn good(text: impl Into<String>) -> Self {
        Self::marked(Mark::Good, text)
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::marked(Mark::Note, text)
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::marked(Mark::Bad, text)
    }

    /// `what` could not be checked.
    pub(super) fn unseen(what: &str, fault: &Fault) -> Self {
        Self::marked(Mark::Unseen, format!("not checked: {what}: {fault}"))
    }

    /// What was found, or that `what` could not be checked.
    pub(super) fn or_unseen(found: Result<Self, Fault>, what: &str) -> Self {
        found.unwrap_or_else(|fault| Self::unseen(what, &fault))
    }

    /// A name, and numbers behind it: a line of a table.
    pub(super) fn numbers<const N: usize>(name: &str, numbers: [String; N]) -> Self {
        let numbers = numbers.into_iter().map(Fact::number);
        Self::of([Fact::new(Tone::Plain, name)].into_iter().chain(numbers).collect())
    }

    /// A text beside its label.
    pub(super) fn labelled(label: &str, tone: Tone, text: impl Into<String>) -> Self {
        Self::of(vec![Fact::new(Tone::Quiet, label), Fact::new(tone, text)])
    }

    /// The visible facts as one line.
    pub(super) fn text(&self) -> String {
        let shown = self.facts.iter().filter_map(|fact| match fact.shown.as_ref()? {
            Appearance::Text(text) | Appearance::Number(text) => Some(text.as_str()),
            Appearance::Bar(_) => None,
        });
        shown.collect::<Vec<_>>().join("  ")
    }

    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }
}

impl Fact {
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        let shown = Some(Appearance::Text(text.into()));
        Self { tone, shown, key: "", value: String::new(), is_wide: false }
    }

    pub(super) fn number(text: impl Into<String>) -> Self {
        Self { shown: Some(Appearance::Number(text.into())), ..Self::new(Tone::Plain, "") }
    }

    pub(super) fn bar(cells: InformerCounts) -> Self {
        Self { shown: Some(Appearance::Bar(cells)), ..Self::new(Tone::Plain, "") }
    }

    /// A fact that only programs read.
    pub(super) fn hidden(key: &'static str, value: impl Into<String>) -> Self {
        Self { tone: Tone::Plain, shown: None, key, value: value.into(), is_wide: false }
    }

    /// The same fact for programs.
    pub(super) fn named(self, key: &'static str, value: impl Into<String>) -> Self {
        Self { key, value: value.into(), ..self }
    }

    /// The same fact, which a person sees only in the wide format.
    pub(super) fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }
}
