//! Lines of a text, and the positions in them.

/// The spaces before a position on its line; other characters, such as a dash, count as spaces.
pub(super) fn indent(text: &str, at: usize) -> String {
    let before = text.get(line_start(text, at)..at).unwrap_or_default();
    " ".repeat(before.chars().count())
}

/// The line end after a position.
pub(super) fn newline(text: &str, at: usize) -> &'static str {
    let line = text.get(at..).and_then(|rest| rest.split_inclusive('\n').next());
    if line.is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// End of the line without its line end.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let line = text.get(at..).and_then(|rest| rest.split('\n').next()).unwrap_or_default();
    at + line.strip_suffix('\r').unwrap_or(line).len()
}

pub(super) fn is_first_on_line(text: &str, at: usize) -> bool {
    let before = text.get(line_start(text, at)..at);
    before.is_some_and(|before| before.bytes().all(|byte| byte == b' '))
}

/// Start of the first of the comment lines directly above the line at `start`.
pub(super) fn above_comments(text: &str, mut start: usize) -> usize {
    while let Some(before) = start.checked_sub(1) {
        let above = line_start(text, before);
        if !text.get(above..before).is_some_and(|line| line.trim_start().starts_with('#')) {
            break;
        }
        start = above;
    }
    start
}

/// Position of the dash before the first byte of an item.
pub(super) fn dash(text: &str, item: usize) -> Option<usize> {
    let before = text.get(..item)?.trim_end_matches([' ', '\n', '\r']);
    before.ends_with('-').then(|| before.len() - 1)
}

/// Start of the line after a position. The position itself, if it is the start of a line.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    if line_start(text, at) == at {
        return at;
    }
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |newline| at + newline + 1)
}
