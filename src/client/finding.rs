//! What a check came to, and how that is written: a line, and what to do.

use super::{
    paint::{Colour, Line, Tone},
    text::{escape, wrapped},
};
use crate::model::Fault;
use std::process::ExitCode;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// Well.
    Good,
    /// There is something to know; nothing is wrong.
    Note,
    /// It could not be checked, such as for want of a permission.
    Unseen,
    /// Wrong.
    Bad,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) mark: Mark,
    pub(super) text: String,
    /// What to do: commands, a line each.
    pub(super) next: Vec<String>,
}

/// The checks of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) findings: Vec<Finding>,
}

/// Whether all is well; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing is known to be wrong.
    Well = 0,
    /// Something is.
    Ill = 1,
}

impl From<Health> for ExitCode {
    fn from(health: Health) -> Self {
        Self::from(health as u8)
    }
}

impl Finding {
    fn new(mark: Mark, text: impl Into<String>) -> Self {
        Self { mark, text: text.into(), next: Vec::new() }
    }

    pub(super) fn good(text: impl Into<String>) -> Self {
        Self::new(Mark::Good, text)
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::new(Mark::Note, text)
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(Mark::Bad, text)
    }

    /// `what` could not be checked.
    pub(super) fn unseen(what: &str, fault: &Fault) -> Self {
        Self::new(Mark::Unseen, format!("not checked: {what}: {fault}"))
    }

    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }
}

impl Mark {
    const fn sign(self) -> (Tone, &'static str) {
        match self {
            Self::Good => (Tone::Good, "✔ "),
            Self::Note => (Tone::Warning, "! "),
            Self::Unseen => (Tone::Quiet, "? "),
            Self::Bad => (Tone::Bad, "✗ "),
        }
    }
}

pub(super) fn health(sections: &[Section]) -> Health {
    let mut findings = sections.iter().flat_map(|section| &section.findings);
    if findings.any(|finding| finding.mark == Mark::Bad) { Health::Ill } else { Health::Well }
}

/// A heading for each section, and below it a line for each check; what to do is indented. Texts fit
/// `width` (0: any), commands are as long as they are, so that they can be copied. Text of the cluster
/// is escaped.
pub(super) fn written(sections: &[Section], width: usize, colour: Colour) -> String {
    let mut text = String::new();
    for section in sections.iter().filter(|section| !section.findings.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&Line::of(Tone::Strong, section.title.to_owned()).paint(0, colour));
        for finding in &section.findings {
            for line in lines(finding, width) {
                text.push_str(&line.paint(0, colour));
            }
        }
    }
    text.push('\n');
    text.push_str(&summary(sections).paint(0, colour));
    text
}

fn lines(finding: &Finding, width: usize) -> Vec<Line> {
    let (tone, sign) = finding.mark.sign();
    let said = escape(&finding.text);
    let wrapped = wrapped(&said, width.saturating_sub(2));
    let mut lines = Vec::new();
    for (at, text) in wrapped.into_iter().enumerate() {
        let mut line = Line::of(tone, if at == 0 { sign } else { "  " }.to_owned());
        line.push(Tone::Plain, text);
        lines.push(line);
    }
    for command in &finding.next {
        lines.push(Line::of(Tone::Strong, format!("    {}", escape(command))));
    }
    lines
}

fn summary(sections: &[Section]) -> Line {
    let all = || sections.iter().flat_map(|section| &section.findings);
    let count = |mark| all().filter(|finding| finding.mark == mark).count();
    let unseen = match count(Mark::Unseen) {
        0 => String::new(),
        some => format!("; {some} not checked"),
    };
    match count(Mark::Bad) {
        0 => Line::of(Tone::Good, format!("nothing is wrong{unseen}")),
        bad => Line::of(Tone::Bad, format!("{bad} of {} checks failed{unseen}", all().count())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;

    fn sections() -> Vec<Section> {
        vec![
            Section { title: "API server", findings: vec![Finding::good("answers")] },
            Section { title: "nothing to say", findings: vec![] },
            Section {
                title: "profiles",
                findings: vec![
                    Finding::bad("shop/a: \u{1b}[2J is not ready for a long reason")
                        .next("kubectl x"),
                    Finding::unseen("the lease", &Fault::new(Reason::Forbidden, "no")),
                    Finding::note("paused"),
                ],
            },
        ]
    }

    #[test]
    fn each_check_is_a_line_and_what_to_do_stands_below_it() {
        let expected = "\
API server
✔ answers

profiles
✗ shop/a: \\u{1b}[2J is not
  ready for a long reason
    kubectl x
? not checked: the lease: no
! paused

1 of 4 checks failed; 1 not checked
";
        assert_eq!(written(&sections(), 28, Colour::Off), expected);
    }

    #[test]
    fn only_what_is_wrong_fails() {
        let mut sections = sections();
        assert_eq!(health(&sections), Health::Ill);
        if let Some(last) = sections.last_mut() {
            last.findings.remove(0);
        }
        assert_eq!(health(&sections), Health::Well);
        assert!(
            written(&sections, 0, Colour::Off).ends_with("\nnothing is wrong; 1 not checked\n")
        );
    }
}
