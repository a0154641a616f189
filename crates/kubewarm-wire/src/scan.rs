//! Finds one member of an object, or where it stands, without reading the rest of it.

use memchr::memchr2;
use std::ops::Range;

/// The bytes of `metadata`, as they are stored; `None` if there is none or this is not an object.
pub(super) fn metadata(stored: &[u8]) -> Option<&[u8]> {
    member(stored, b"metadata")
}

/// Where the version of a stored object stands, quotes included; `None` if it has none.
pub(super) fn version(stored: &[u8]) -> Option<Range<usize>> {
    let metadata = place(stored, b"metadata")?;
    let version = place(stored.get(metadata.clone())?, b"resourceVersion")?;
    Some(metadata.start + version.start..metadata.start + version.end)
}

/// The bytes of the member `wanted`, as they are written.
pub(super) fn member<'a>(object: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    object.get(place(object, wanted)?)
}

/// Where a member of an object stands.
fn place(object: &[u8], wanted: &[u8]) -> Option<Range<usize>> {
    let mut at = Scan { rest: object };
    at.take(b'{')?;
    loop {
        let name = at.string()?;
        at.take(b':')?;
        let value = at.value()?.len();
        if name == wanted {
            let end = object.len() - at.rest.len();
            return Some(end - value..end);
        }
        at.take(b',')?;
    }
}

/// What stands between the braces of an object, and the closing one; `None` if this is not an object.
pub(super) fn inside(stored: &[u8]) -> Option<&[u8]> {
    let mut at = Scan { rest: stored };
    at.take(b'{')?;
    at.skip_space();
    Some(at.rest)
}

/// A place in JSON.
struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Steps over `byte`, which has to come next.
    fn take(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    fn split(&mut self, length: usize) -> Option<&'a [u8]> {
        let (before, behind) = self.rest.split_at_checked(length)?;
        self.rest = behind;
        Some(before)
    }

    /// A string without its quotes, escapes as written.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let length = end_of_string(self.rest)?;
        let text = self.split(length)?;
        self.take(b'"')?;
        Some(text)
    }

    /// Any value as it is written. Depth is counted, not recursed into.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.skip_space();
        let (mut at, mut depth) = (0, 0_usize);
        loop {
            let rest = self.rest.get(at..)?;
            match rest.first()? {
                b'"' => at += end_of_string(rest.get(1..)?)? + 2,
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth > 0 => {
                    at += 1;
                    continue;
                }
                b',' | b':' => return None,
                _ => {
                    let ends = |b: &u8| b",:]}\" \t\n\r".contains(b);
                    at += rest.iter().position(ends).unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                return self.split(at);
            }
        }
    }
}

/// The length of a string whose opening quote has been taken.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn metadata_is_found_at_the_top_only() {
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
            let found = metadata(stored.as_bytes()).map(|it| std::str::from_utf8(it).unwrap());
            assert_eq!(found, expected, "{stored}");
        }
    }

    #[test]
    fn the_version_is_that_of_the_object() {
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
            assert_eq!(
                version(stored.as_bytes()).and_then(|at| stored.get(at)),
                expected,
                "{stored}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\a1 ]{0,40}"#) {
            for stored in [&bytes[..], text.as_bytes(), format!("{{{text}").as_bytes()] {
                let _ = metadata(stored);
                let _ = version(stored);
                let _ = inside(stored);
            }
        }
    }
}
