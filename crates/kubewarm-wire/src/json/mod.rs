//! Reads JSON text with a cursor, without building a document in memory.

mod lenient;
mod paths;
mod values;

pub use self::paths::FieldPathSet;
pub(crate) use self::{
    lenient::{LenientValue, has_unread_part},
    paths::FieldPathNode,
};

use std::{borrow::Cow, ops::Range};

/// A position in JSON text. The methods return `None` if the text is not JSON, and never panic.
#[derive(Clone, Copy, Debug)]
pub struct JsonCursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonCursor<'a> {
    /// Creates a cursor at the start of `text`, before its first value.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Moves the cursor to the value of the member `field`, if the value at the cursor is an object
    /// with this member. Otherwise returns `Some(false)`.
    pub fn seek(&mut self, field: &str) -> Option<bool> {
        if self.peek()? != b'{' {
            return Some(false);
        }
        self.at += 1;
        if self.peek()? == b'}' {
            return Some(false);
        }
        loop {
            let name = self.string()?;
            self.take(b':')?;
            if name == field.as_bytes() || (name.contains(&b'\\') && unescape(name)? == field) {
                return Some(true);
            }
            self.skip()?;
            if !self.has_more(b'}')? {
                return Some(false);
            }
        }
    }

    /// Consumes the value at the cursor and returns the value's JSON text.
    pub fn raw(&mut self) -> Option<&'a [u8]> {
        let range = self.range()?;
        self.text.get(range)
    }

    fn range(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let from = self.at;
        self.skip()?;
        Some(from..self.at)
    }

    /// Reads an object of strings at the cursor. Calls `each` with the unescaped name and value of
    /// each member. If the value at the cursor is not an object, calls nothing. Returns `None` at
    /// the first member that is not a string; `each` has received all members before this one.
    pub fn strings(mut self, each: &mut impl FnMut(&str, &str)) -> Option<()> {
        if self.peek()? != b'{' {
            return Some(());
        }
        self.at += 1;
        if self.peek()? == b'}' {
            return Some(());
        }
        loop {
            let name = self.text()?;
            self.take(b':')?;
            each(&name, &self.text()?);
            if !self.has_more(b'}')? {
                return Some(());
            }
        }
    }

    pub(super) fn peek(&mut self) -> Option<u8> {
        #[cfg(test)]
        PEEKS.set(PEEKS.get() + 1);
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                &byte => return Some(byte),
            }
        }
    }

    /// Consumes the byte that [`JsonCursor::peek`] found.
    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    /// Consumes `byte`; returns `None` if the next byte that is not white space differs from
    /// `byte`.
    pub(super) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.step())
    }

    /// Consumes a comma or `close`, the bracket that ends a list or object. Returns `true` for a
    /// comma, `false` for `close`, and `None` for any other byte.
    pub(super) fn has_more(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        (byte == b',' || byte == close).then_some(byte == b',')
    }

    /// Consumes a string and returns the text between its quotes. Escapes in the text are
    /// unchanged.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let from = self.at;
        loop {
            let rest = self.text.get(self.at..)?;
            let hit = memchr::memchr2(b'"', b'\\', rest)?;
            self.at += hit + 1;
            if rest.get(hit) == Some(&b'"') {
                return self.text.get(from..self.at - 1);
            }
            self.at += 1;
        }
    }

    /// Consumes the string at the cursor and returns its unescaped text.
    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        unescape(self.string()?)
    }

    pub(super) fn skip(&mut self) -> Option<()> {
        self.step_over(0)
    }

    /// Moves the cursor behind the innermost `depth` lists and objects that contain the cursor's
    /// position. With depth 0, skips one value. The function counts brackets and does not recurse,
    /// so deeply nested input cannot overflow the stack.
    pub(super) fn step_over(&mut self, mut depth: usize) -> Option<()> {
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    self.at += 1;
                    depth += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b',' | b':' => return None,
                _ => {
                    let rest = self.text.get(self.at..)?;
                    let end = rest.iter().position(|b| b",:]} \t\n\r".contains(b));
                    self.at += end.unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

/// Returns the byte range of the value at `path`, a list of member names through nested objects.
/// Returns `None` if there is no member with this path.
pub(super) fn find(text: &[u8], path: &[&str]) -> Option<Range<usize>> {
    let mut at = JsonCursor::new(text);
    for name in path {
        at.seek(name)?.then_some(())?;
    }
    at.range()
}

/// Returns the text of a JSON string as Go reads it: each lone surrogate, and each byte that is not
/// UTF-8, becomes U+FFFD. Returns `None` for an invalid escape.
pub(super) fn unescape(string: &[u8]) -> Option<Cow<'_, str>> {
    if !string.contains(&b'\\')
        && let Ok(text) = std::str::from_utf8(string)
    {
        return Some(Cow::Borrowed(text));
    }
    let mut quoted = Vec::with_capacity(string.len() + 2);
    lenient::write_string(string, &mut quoted);
    serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
thread_local! {
    /// Number of calls of [`JsonCursor::peek`] in this thread, about four for each member of an
    /// object. With this number, tests measure the cost of a walk through JSON.
    pub(super) static PEEKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found<'a>(stored: &'a str, path: &[&str]) -> Option<&'a str> {
        find(stored.as_bytes(), path).and_then(|at| stored.get(at))
    }

    #[test]
    fn metadata_is_found_only_at_the_top_level() {
        for (stored, expected) in [
            (r#"{"metadata":{"name":"a"},"spec":{}}"#, Some(r#"{"name":"a"}"#)),
            (
                r#"{"spec":{"metadata":1},"metadata":{"a":["}",{"b":"\"]"}]}}"#,
                Some(r#"{"a":["}",{"b":"\"]"}]}"#),
            ),
            (r#" { "data" : [ 1, {"x": null} ] , "metadata" : { } } "#, Some("{ }")),
            (r#"{"a":"\\","b":true,"c":-1.5e3,"metadata":{}}"#, Some("{}")),
            (r#"{"metadata":null}"#, Some("null")),
            ("{}", None),
            ("", None),
            ("[]", None),
            (r#"{"spec":{}}"#, None),
            (r#"{"metadata""#, None),
            (r#"{"metadata":{"#, None),
            (r#"{"metadata":,}"#, None),
            (r#"{"a":"\"#, None),
        ] {
            assert_eq!(found(stored, &["metadata"]), expected, "{stored}");
        }
    }

    #[test]
    fn the_version_is_found_only_in_the_metadata_of_the_object() {
        for (stored, expected) in [
            (r#"{"metadata":{"name":"a","resourceVersion":"12"},"spec":{}}"#, Some("\"12\"")),
            (
                r#"{"resourceVersion":"1", "metadata" : {"a":{"resourceVersion":"2"},"resourceVersion" : "" }}"#,
                Some("\"\""),
            ),
            (r#"{"metadata":{"name":"a"},"resourceVersion":"1"}"#, None),
            (r#"{"metadata":{}}"#, None),
            (r#"{"metadata":null}"#, None),
            ("", None),
        ] {
            assert_eq!(found(stored, &["metadata", "resourceVersion"]), expected, "{stored}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\a1 ]{0,40}"#) {
            for stored in [&bytes[..], text.as_bytes(), format!("{{{text}").as_bytes()] {
                let _ = find(stored, &["metadata"]);
                let _ = find(stored, &["metadata", "resourceVersion"]);
            }
        }
    }
}
