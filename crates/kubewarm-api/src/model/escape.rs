//! Escaping of untrusted text, so that it stays on one line of a log and cannot control a terminal.

use std::borrow::Cow;

/// Escapes control characters, line separators, direction marks and invisible characters, in the
/// form `\n` or `\u{1b}`. Such characters can end a line, control a terminal or hide text.
///
/// # Examples
///
/// ```
/// assert_eq!(kubewarm_api::model::escape("a\u{1b}[2Jb\n"), r"a\u{1b}[2Jb\n");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Whether [`escape`] replaces `c`: a control character, a line separator, a character with
/// Unicode's property `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt`), an interlinear
/// annotation, or the empty Braille pattern.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (text, safe) in [
            ("plain, ünïcode 日本", "plain, ünïcode 日本"),
            (r#"größer "als" \ 'hier' …"#, r#"größer "als" \ 'hier' …"#),
            ("\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("two\nlines\r\t", r"two\nlines\r\t"),
            ("\u{9b}31m\u{7f}\u{85}", r"\u{9b}31m\u{7f}\u{85}"),
            ("a\u{ad}b\u{3164}c\u{fe0f}", r"a\u{ad}b\u{3164}c\u{fe0f}"),
            ("a\u{202e}b\u{200b}c\u{2028}", r"a\u{202e}b\u{200b}c\u{2028}"),
        ] {
            assert_eq!(escape(text), safe);
        }
    }

    #[test]
    fn escaped_text_contains_no_unsafe_character() {
        for c in ('\0'..=char::MAX).filter(|&c| is_unsafe(c)) {
            assert!(!escape(&c.to_string()).contains(is_unsafe), "{:x}", u32::from(c));
        }
    }
}
