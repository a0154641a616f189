//! Parses JSON that the API server accepts and `serde_json` rejects: deep nesting, lone surrogates,
//! bytes that are not UTF-8, and numbers beyond a float.

use super::JsonCursor;
use serde_json::Value;

/// Maximum number of nested lists and objects. `serde_json` rejects a text with more.
const MAX_DEPTH_OF_SERDE: usize = 127;
/// Number of nested lists and objects that [`LenientValue`] keeps of a text that `serde_json`
/// rejects. Functions recurse through the values, so more levels could overflow the stack.
const MAX_DEPTH: usize = 100;
/// The only member of the object with which [`LenientValue`] replaces a part that it does not keep.
/// If an object of a client has this member too, its cells in a `Table` are empty, which is
/// harmless.
const UNREAD: &str = "\0unread";
/// [`UNREAD`] in JSON.
const UNREAD_JSON: &[u8] = br#"{"\u0000unread":0}"#;

/// Maximum memory of a parsed value in bytes, as [`is_small`] estimates it. A replica parses one
/// object for each thread that serves reads, so the total memory is bounded. A
/// `CustomResourceDefinition` of 1 MB takes about 12 MB.
const MAX_VALUE_BYTES: usize = 16 << 20;
/// A text of this length in bytes needs no estimate, because its value takes at most 7 MB.
const SMALL_TEXT: usize = 64 << 10;
/// The estimated memory of an object with members: one leaf of a `BTreeMap<String, Value>`.
const OBJECT_BYTES: usize = 640;
/// The estimated memory of a list with elements: a `Vec<Value>` starts with space for four.
const LIST_BYTES: usize = 128;
/// The estimated memory of a further element or member. It includes unused memory, because a leaf
/// of a `BTreeMap` can be half empty, and so can a `Vec`.
const MEMBER_BYTES: usize = 128;
/// The estimated memory of a string, in addition to its characters.
const STRING_BYTES: usize = 32;

/// A parsed JSON value. Parts that are too deep or too large can be missing.
#[derive(Debug)]
pub(crate) struct LenientValue {
    pub(crate) value: Value,
    /// Whether `serde_json` rejected the text, so that parts of the value can be missing, see
    /// [`has_unread_part`].
    pub(crate) is_repaired: bool,
}

impl LenientValue {
    /// Parses `text`. If `serde_json` rejects the text, the value lacks the parts below
    /// [`MAX_DEPTH`] and numbers beyond a float, and strings are read as in Go. Returns `None` if
    /// `text` is not JSON, or if the value would take more than 16 MiB.
    ///
    /// # Cost
    ///
    /// The cost of `serde_json`; for text that it rejects, twice this cost and a copy of the text.
    /// Never recurses deeper than 127 levels. A text above 64 KiB costs about 1 ns a byte more.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > SMALL_TEXT && !is_small(text)? {
            return None;
        }
        if let Ok(value) = serde_json::from_slice(text) {
            return Some(Self { value, is_repaired: false });
        }
        let value = serde_json::from_slice(&repair(text)?).ok()?;
        Some(Self { value, is_repaired: true })
    }
}

/// Whether the value of `text` takes at most [`MAX_VALUE_BYTES`], by an estimate before parsing.
/// This is necessary, because an object such as `{"a":0}` takes 80 times as much memory as its
/// text. The estimate omits parts below 127 levels, which a value never contains. Returns `None` if
/// `text` is not JSON.
fn is_small(text: &[u8]) -> Option<bool> {
    let (mut at, mut bytes, mut depth) = (JsonCursor::new(text), text.len(), 0);
    while let Some(byte) = at.peek() {
        bytes += match byte {
            b'"' => {
                at.string()?;
                STRING_BYTES
            }
            b'{' | b'[' if depth == MAX_DEPTH_OF_SERDE => {
                at.skip()?;
                OBJECT_BYTES
            }
            b'{' | b'[' | b'}' | b']' | b',' | b':' => {
                step_nested(&mut at, byte, &mut depth)?;
                match byte {
                    b'{' if at.peek()? != b'}' => OBJECT_BYTES,
                    b'[' if at.peek()? != b']' => LIST_BYTES,
                    b',' => MEMBER_BYTES,
                    _ => 0,
                }
            }
            _ => {
                at.raw()?;
                0
            }
        };
        if bytes > MAX_VALUE_BYTES {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether [`LenientValue::parse`] has replaced a part of `value`, so that results from it can be
/// wrong.
pub(crate) fn has_unread_part(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key(UNREAD) || fields.values().any(has_unread_part)
        }
        Value::Array(items) => items.iter().any(has_unread_part),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Consumes `byte`, a bracket, comma or colon, and adjusts `depth`, the number of open lists and
/// objects. Returns `None` for a closing bracket without an opening one: the text is not JSON.
fn step_nested(at: &mut JsonCursor<'_>, byte: u8, depth: &mut usize) -> Option<()> {
    match byte {
        b'{' | b'[' => *depth += 1,
        b'}' | b']' => *depth = depth.checked_sub(1)?,
        _ => {}
    }
    at.step();
    Some(())
}

/// Copies JSON, and replaces what `serde_json` rejects, so that `serde_json` can parse the copy.
/// Does not recurse.
fn repair(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut at, mut depth) = (JsonCursor::new(text), 0);
    while let Some(byte) = at.peek() {
        match byte {
            b'"' => write_string(at.string()?, &mut out),
            b'{' | b'[' if depth == MAX_DEPTH => {
                at.skip()?;
                out.extend_from_slice(UNREAD_JSON);
            }
            b'{' | b'[' | b'}' | b']' | b',' | b':' => {
                step_nested(&mut at, byte, &mut depth)?;
                out.push(byte);
            }
            _ => {
                let scalar = at.raw()?;
                let is_number = matches!(byte, b'-' | b'0'..=b'9');
                let is_read = !is_number || serde_json::from_slice::<Value>(scalar).is_ok();
                out.extend_from_slice(if is_read { scalar } else { UNREAD_JSON });
            }
        }
    }
    Some(out)
}

/// Appends a JSON string with its quotes. `string` is the text between the quotes, with its
/// escapes. Each escape of a lone surrogate, and each byte that is not UTF-8, becomes `\ufffd`, as
/// Go reads them.
pub(super) fn write_string(string: &[u8], out: &mut Vec<u8>) {
    const REPLACEMENT: &[u8] = br"\ufffd";
    out.push(b'"');
    for chunk in string.utf8_chunks() {
        let mut rest = chunk.valid().as_bytes();
        while let Some(start) = memchr::memchr(b'\\', rest) {
            let (before, escape) = rest.split_at(start);
            out.extend_from_slice(before);
            let pair = (code_unit(escape), escape.get(6..).and_then(code_unit));
            let (written, length) = match pair {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (escape.get(..12), 12),
                (Some(0xd800..=0xdfff), _) => (Some(REPLACEMENT), 6),
                _ => (escape.get(..2), 2),
            };
            out.extend_from_slice(written.unwrap_or(escape));
            rest = escape.get(length..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(REPLACEMENT));
    }
    out.push(b'"');
}

/// Returns the UTF-16 code unit of an escape such as `\ud800` at the start of `text`.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &[u8]) -> Option<(Value, bool)> {
        LenientValue::parse(text).map(|parsed| (parsed.value, parsed.is_repaired))
    }

    #[test]
    fn strings_are_read_as_in_go() {
        for (text, expected) in [
            (&br#""\ud800""#[..], "\u{fffd}"),
            (br#""a\udc00b""#, "a\u{fffd}b"),
            (br#""\ud83d\ude00\uD83D\uDE00""#, "\u{1f600}\u{1f600}"),
            (br#""\ud800\ud800\u0041\ud800\n""#, "\u{fffd}\u{fffd}A\u{fffd}\n"),
            (br#""\\ud800\"""#, "\\ud800\""),
            (b"\"a\xff\xe2\x80b\"", "a\u{fffd}\u{fffd}\u{fffd}b"),
        ] {
            let (value, _) = parsed(text).unwrap();
            assert_eq!(value, json!(expected), "{}", text.escape_ascii());
        }
        assert_eq!(parsed(br#""\x""#), None);
        assert_eq!(
            parsed(br#"{"\ud800":"\ud800"}"#),
            Some((json!({"\u{fffd}": "\u{fffd}"}), true))
        );
    }

    #[test]
    fn parts_that_are_too_deep_or_too_large_are_unread() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for depth in [127, 128, 10_000, 500_000] {
            let text = format!(r#"{{"a":1,"deep":{},"b":[2]}}"#, deep(depth - 1));
            let LenientValue { value, is_repaired } = LenientValue::parse(text.as_bytes()).unwrap();
            assert_eq!((&value["a"], &value["b"]), (&json!(1), &json!([2])), "{depth}");
            assert_eq!((is_repaired, has_unread_part(&value["deep"])), (depth > 127, depth > 127));
            assert!(!has_unread_part(&value["b"]));
        }
        let (value, _) = parsed(br#"{"n":[1e999,-1e999],"m":1e9}"#).unwrap();
        assert!(has_unread_part(&value["n"]) && value["m"] == json!(1e9));
    }

    #[test]
    fn a_value_that_would_take_much_memory_is_none() {
        let list = |item: &str, count: usize| {
            format!("{{\"a\":[{}]}}", vec![item; count].join(",")).into_bytes()
        };
        for (item, count, expected) in [
            (r#"{"a":0}"#, 1_000, true),
            (r#"{"a":0}"#, 15_000, true),
            (r#"{"a":0}"#, 100_000, false),
            ("[0]", 200_000, false),
            ("0", 200_000, false),
            ("{}", 100_000, true),
            (&format!("{:?}", "{[,".repeat(100)), 4_000, true),
        ] {
            let text = list(item, count);
            assert_eq!(parsed(&text).is_some(), expected, "{item:.9} {count}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_none() {
        for text in ["", "{", "]", "[\"", r#"{"a":}"#, "{} {}", &"[".repeat(200_000)] {
            assert_eq!(parsed(text.as_bytes()), None, "{text:.9}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\ud8c0e1 ]{0,60}"#) {
            for text in [&bytes[..], text.as_bytes()] {
                let _ = LenientValue::parse(text);
            }
        }
    }
}
