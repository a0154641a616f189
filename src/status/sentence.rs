//! Builds messages of bounded length for conditions, problems and Events.

use std::fmt::Write as _;

/// Maximum length of the message of a condition or an Event, in bytes.
pub(super) const MAX_MESSAGE: usize = 1024;

/// Maximum number of sentences or names in a message, because a message has at most [`MAX_MESSAGE`]
/// bytes. The message contains the number of the omitted ones.
const SHOWN: usize = 3;

/// Truncates `text` to at most `max` bytes at a character boundary, and appends an ellipsis.
pub(super) fn bounded(mut text: String, max: usize) -> String {
    if text.len() > max {
        let available = max.saturating_sub('…'.len_utf8());
        let end = (0..=available).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Joins the first three sentences. If there are more, appends a text such as `And 4 more targets`,
/// in which `things` is "targets". The result has at most [`MAX_MESSAGE`] bytes.
pub(super) fn join_first(sentences: &[String], things: &str) -> String {
    let mut text = String::new();
    // All of several sentences get the same maximum length, so that one long sentence displaces
    // neither the other sentences nor the number of omitted sentences.
    let max = if sentences.len() == 1 { MAX_MESSAGE } else { (MAX_MESSAGE - 64) / SHOWN };
    for sentence in sentences.iter().take(SHOWN) {
        if !text.is_empty() {
            text.push_str(". ");
        }
        text.push_str(&bounded(sentence.clone(), max));
    }
    if sentences.len() > SHOWN {
        let _infallible = write!(text, ". And {} more {things}", sentences.len() - SHOWN);
    }
    bounded(text, MAX_MESSAGE)
}

/// Returns `namespace "a"`, or `namespaces "a", "b", "c" and 4 more`.
pub(super) fn namespaces(names: &[&str]) -> String {
    let noun = if names.len() == 1 { "namespace" } else { "namespaces" };
    format!("{noun} {}", listed(names, |name| format!("{name:?}")))
}

/// Returns `a, b, c and 4 more`.
pub(super) fn listed<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    let shown = items.iter().take(SHOWN).map(write).collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let cut = bounded("é".repeat(100), 50);
        assert!(cut.len() <= 50 && cut.ends_with("é…"), "{cut}");
        assert_eq!(bounded("short".into(), 50), "short");
    }

    #[test]
    fn the_count_survives_long_sentences() {
        let long = vec!["x".repeat(5_000); 9];
        let text = join_first(&long, "targets");
        assert!(text.len() <= MAX_MESSAGE && text.ends_with("And 6 more targets"), "{text}");
    }

    #[test]
    fn the_first_namespaces_are_named_and_the_rest_counted() {
        assert_eq!(namespaces(&["a"]), r#"namespace "a""#);
        assert_eq!(namespaces(&["a", "b"]), r#"namespaces "a", "b""#);
        assert_eq!(
            namespaces(&["a", "b", "c", "d", "e"]),
            r#"namespaces "a", "b", "c" and 2 more"#
        );
    }
}
