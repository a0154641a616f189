//! Text of others made fit for one line of a log: nothing in it can end the line or colour it.

/// `text` with control characters, line separators and changes of direction escaped. Cost: one pass; nothing is
/// copied if nothing is escaped.
pub(super) fn printable(text: String) -> String {
    if !text.contains(is_active) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_active(c) {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    out
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
