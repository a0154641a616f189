//! Text of others made fit for one line of a log: nothing in it can end the line or colour it.

use std::fmt::{self, Write};

/// Passes text on with control characters, line separators and changes of direction escaped.
pub(super) struct Printable<W>(pub(super) W);

impl<W: Write> Write for Printable<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_active(c)) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            write!(self.0, "{}", c.escape_debug())?;
            rest = from.split_at(c.len_utf8()).1;
        }
        self.0.write_str(rest)
    }
}

/// `text` as it may be logged. Cost: one pass; nothing is copied if nothing is escaped.
pub(super) fn printable(text: String) -> String {
    if !text.contains(is_active) {
        return text;
    }
    let mut out = Printable(String::with_capacity(text.len() + 16));
    // Writing to a string does not fail.
    let _written = out.write_str(&text);
    out.0
}

/// Whether a terminal does something else with `c` than to show it.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped_and_the_rest_is_kept() {
        let text = "a\r\nINFO forged \u{1b}[31m\u{202e}\u{85}".to_owned();
        let expected = r"a\r\nINFO forged \u{1b}[31m\u{202e}\u{85}";
        assert_eq!(printable(text), expected);
        let plain = r#"größer "als" \ 'hier' …"#.to_owned();
        assert_eq!(printable(plain.clone()), plain);
    }
}
