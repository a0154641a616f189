//! Walks JSON text without building anything: finds labels and the values of a field path.

use crate::model::FieldStep;
use std::borrow::Cow;

/// A place in JSON text. Every step answers `None` where the text is not JSON; nothing panics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Before the first value of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Goes to the value of the member `field`; `Some(false)` if this is no object or has none.
    pub(super) fn seek(&mut self, field: &str) -> Option<bool> {
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
            if !self.more(b'}')? {
                return Some(false);
            }
        }
    }

    /// The text of the value here, which is stepped over.
    pub(super) fn raw(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let from = self.at;
        self.skip()?;
        self.text.get(from..self.at)
    }

    /// Calls `each` with every name and value of an object of strings, unescaped; what is no object
    /// has none. `None` at a member that is no string, after those before it.
    pub(super) fn strings(mut self, each: &mut impl FnMut(&str, &str)) -> Option<()> {
        if self.peek()? != b'{' {
            return Some(());
        }
        self.at += 1;
        if self.peek()? == b'}' {
            return Some(());
        }
        loop {
            let name = unescape(self.string()?)?;
            self.take(b':')?;
            each(&name, &unescape(self.string()?)?);
            if !self.more(b'}')? {
                return Some(());
            }
        }
    }

    /// Calls `each` with every scalar that `steps` lead to: strings unescaped, numbers and booleans
    /// as written. Objects, lists and nulls at the end of the path are no values.
    pub(super) fn values(
        mut self,
        steps: &[FieldStep<'_>],
        each: &mut impl FnMut(&str),
    ) -> Option<()> {
        for (at, step) in steps.iter().enumerate() {
            if !self.seek(step.field)? {
                return Some(());
            }
            if !step.each {
                continue;
            }
            let rest = steps.get(at + 1..).unwrap_or_default();
            if self.peek()? != b'[' {
                return Some(());
            }
            self.at += 1;
            if self.peek()? == b']' {
                return Some(());
            }
            loop {
                self.values(rest, each)?;
                self.skip()?;
                if !self.more(b']')? {
                    return Some(());
                }
            }
        }
        match self.peek()? {
            b'"' => each(&unescape(self.string()?)?),
            b'{' | b'[' | b'n' => (),
            _ => each(std::str::from_utf8(self.raw()?).ok()?),
        }
        Some(())
    }

    /// The next byte that is not white space, not stepped over.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                &byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Steps over a comma (`true`) or over `close` (`false`).
    fn more(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        (byte == b',' || byte == close).then_some(byte == b',')
    }

    /// A string without its quotes, escapes as written.
    fn string(&mut self) -> Option<&'a [u8]> {
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

    /// Steps over one value. Depth is counted, not recursed into: hostile nesting costs no stack.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
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

/// The text of a JSON string given without its quotes.
fn unescape(string: &[u8]) -> Option<Cow<'_, str>> {
    if !string.contains(&b'\\') {
        return std::str::from_utf8(string).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", string, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FieldPath;
    use proptest::prelude::*;

    fn values(json: &str, path: &str) -> Option<Vec<String>> {
        let path = FieldPath::parse(path).unwrap();
        let steps: Vec<_> = path.steps().collect();
        let mut seen = Vec::new();
        Cursor::new(json.as_bytes()).values(&steps, &mut |value| seen.push(value.to_owned()))?;
        Some(seen)
    }

    #[test]
    fn a_path_leads_to_scalars_through_every_element() {
        let json = r#"{"a":[{"x":[1,{"y":"]"}],"b":{"c":"p"}},{"b":{"c":true}},{"b":{}},
            {"b":{"c":null}}, {"b":{"c":[2]}},7 ,{"b":{"c":-1.5e3}},{"b":{"c":"q\"\u0041"}}]}"#;
        assert_eq!(values(json, ".a[*].b.c").unwrap(), ["p", "true", "-1.5e3", "q\"A"]);
        assert_eq!(values(r#"{"a":["x",2,[3],{}]}"#, ".a[*]").unwrap(), ["x", "2"]);
        assert_eq!(values(r#"{"\u0061":{"b":"v"}}"#, ".a.b").unwrap(), ["v"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_has_no_values() {
        for json in ["{}", "[]", "3", r#"{"a":{}}"#, r#"{"a":[]}"#, r#"{"a":"b"}"#] {
            assert_eq!(values(json, ".a.b").unwrap(), Vec::<String>::new(), "{json}");
            assert_eq!(values(json, ".a[*].b").unwrap(), Vec::<String>::new(), "{json}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_noticed() {
        for json in ["", "{", r#"{"a"#, r#"{"b":1"#, r#"{"b":,}"#, r#"{"a":{"b":"x}"#, r#"{"b":"\"#]
        {
            assert_eq!(values(json, ".a.b"), None, "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert_eq!(values(&format!(r#"{{"x":{deep}"#), ".a.b"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_panic(bytes: Vec<u8>, text in r#"[\[\]{}",:\\ab1 ]{0,40}"#) {
            let path = FieldPath::parse(".a[*].b").unwrap();
            let steps: Vec<_> = path.steps().collect();
            let _ = Cursor::new(&bytes).values(&steps, &mut |_| ());
            let _ = Cursor::new(&bytes).strings(&mut |_, _| ());
            let _ = Cursor::new(text.as_bytes()).strings(&mut |_, _| ());
            let _ = Cursor::new(text.as_bytes()).values(&steps, &mut |_| ());
        }
    }
}
