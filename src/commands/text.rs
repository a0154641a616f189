//! Formats numbers and durations for people, and wraps text.

use jiff::Timestamp;
use std::{error::Error, iter::successors, time::Duration};

/// Joins an error's text and the texts of its causes, the outermost first.
pub(crate) fn causes(error: &dyn Error) -> String {
    let all = successors(Some(error), |&cause| cause.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Formats a number with groups of three digits: `12345` as `12,345`.
pub(super) fn grouped(number: impl TryInto<i64>) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration with at most two units, rounded down: `340 ms`, `2.4 s`, `3 min 5 s`,
/// `2 h 4 min`.
pub(super) fn length(length: Duration) -> String {
    let (millis, seconds) = (length.as_millis(), length.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 => format!("{seconds}.{} s", millis % 1000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats the scope of a permission: the namespace, or the whole cluster if `namespace` is `None`.
pub(super) fn place(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("namespace {namespace}"),
        None => "the whole cluster".to_owned(),
    }
}

/// Returns the time from `from` to `to`, or zero if `to` is earlier.
pub(super) fn span(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

/// Wraps `text` at spaces into lines of at most `width` characters, and splits words that are
/// longer than a line. A width below 20 sets no limit, because shorter lines are unreadable.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    if width < 20 {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut rest = text.trim();
    while let Some((beyond, _)) = rest.char_indices().nth(width) {
        // The search for a space includes the character after the line. If that character is a
        // space, the whole line fits, and the text is split there.
        let upto = rest.get(..=beyond).or_else(|| rest.get(..beyond)).unwrap_or(rest);
        let at = upto.rfind(' ').filter(|at| *at > 0).unwrap_or(beyond);
        let (line, tail) = rest.split_at(at);
        lines.push(line.trim_end().to_owned());
        rest = tail.trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-12_345, "-12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (millis, text) in [
            (0, "0 ms"),
            (340, "340 ms"),
            (2_480, "2.4 s"),
            (59_999, "59 s"),
            (185_000, "3 min 5 s"),
            (7_440_000, "2 h 4 min"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn long_text_is_wrapped_at_spaces_without_loss() {
        let text =
            "not allowed to watch configmaps as system:serviceaccount:kubewarm-system:kubewarm";
        assert_eq!(
            wrapped(text, 24),
            [
                "not allowed to watch",
                "configmaps as",
                "system:serviceaccount:ku",
                "bewarm-system:kubewarm"
            ]
        );
        assert_eq!(wrapped("20 columns are just enough", 20), ["20 columns are just", "enough"]);
        assert_eq!(wrapped("is exactly as wide as", 21), ["is exactly as wide as"]);
        for width in [0, 19] {
            assert_eq!(wrapped(text, width), [text]);
        }
        for width in 20..90 {
            let lines = wrapped(&"日本語 ünï ".repeat(20), width);
            assert!(lines.iter().all(|line| line.chars().count() <= width && !line.is_empty()));
        }
    }
}
