//! A line of text in tones, cut to the width of a terminal.

use super::text::wrapped;

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// ANSI colours.
    On,
    /// Text only.
    Off,
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

/// A line, without its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pieces: Vec<(Tone, String)>,
}

impl Line {
    /// A line of one piece.
    pub(super) fn of(tone: Tone, text: String) -> Self {
        Self { pieces: vec![(tone, text)] }
    }

    /// `text` behind `rail`, in as many lines as it takes; those after the first are indented.
    pub(super) fn hanging(rail: &str, tone: Tone, text: &str, width: usize) -> Vec<Self> {
        const INDENT: &str = "  ";
        let room = width.saturating_sub(rail.chars().count() + INDENT.len());
        let line = |(at, text): (usize, String)| {
            let mut line = Self::of(Tone::Quiet, rail.to_owned());
            line.push(tone, if at == 0 { text } else { INDENT.to_owned() + &text });
            line
        };
        wrapped(text, room).into_iter().enumerate().map(line).collect()
    }

    /// Adds a piece, which must be escaped already.
    pub(super) fn push(&mut self, tone: Tone, text: impl Into<String>) {
        self.pieces.push((tone, text.into()));
    }

    /// The line with its end, at most `width` characters long (0: no limit); what is cut off is
    /// replaced by `…`.
    pub(super) fn paint(&self, width: usize, colour: Colour) -> String {
        let total: usize = self.pieces.iter().map(|(_, text)| text.chars().count()).sum();
        let is_cut = width > 0 && total > width;
        let mut left = if is_cut { width - 1 } else { total };
        let mut line = String::new();
        for (tone, text) in &self.pieces {
            let end = text.char_indices().nth(left).map_or(text.len(), |(at, _)| at);
            let (shown, _) = text.split_at(end);
            left -= shown.chars().count();
            match tone.code().filter(|_| colour == Colour::On && !shown.is_empty()) {
                Some(code) => {
                    line.push_str(code);
                    line.push_str(shown);
                    line.push_str("\u{1b}[0m");
                }
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

impl Tone {
    /// Colours of the 16 that every terminal has, so that the user's own palette decides.
    fn code(self) -> Option<&'static str> {
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
