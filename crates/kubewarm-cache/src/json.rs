//! Reads JSON text step by step without building anything.

use std::borrow::Cow;

/// A place in JSON text. Every step answers `None` where the text is not JSON; nothing panics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Before the first value of `text`.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Goes to the value of the member `field`; `Some(false)` if this is no object or has none.
    pub(crate) fn seek(&mut self, field: &str) -> Option<bool> {
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
    pub(crate) fn raw(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let from = self.at;
        self.skip()?;
        self.text.get(from..self.at)
    }

    /// Calls `each` with every name and value of an object of strings, unescaped; what is no object
    /// has none. `None` at a member that is no string, after those before it.
    pub(crate) fn strings(mut self, each: &mut impl FnMut(&str, &str)) -> Option<()> {
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
            if !self.more(b'}')? {
                return Some(());
            }
        }
    }

    /// The next byte that is not white space, not stepped over.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                &byte => return Some(byte),
            }
        }
    }

    /// Steps over the byte that [`Cursor::peek`] found.
    pub(crate) fn step(&mut self) {
        self.at += 1;
    }

    /// Steps over `byte`, which has to come next.
    pub(crate) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.step())
    }

    /// Steps over a comma (`true`) or over `close` (`false`).
    pub(crate) fn more(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        (byte == b',' || byte == close).then_some(byte == b',')
    }

    /// A string without its quotes, escapes as written.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
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

    /// The text of a string.
    pub(crate) fn text(&mut self) -> Option<Cow<'a, str>> {
        unescape(self.string()?)
    }

    /// Steps over one value.
    pub(crate) fn skip(&mut self) -> Option<()> {
        self.step_over(0)
    }

    /// Skips to the end of the innermost `depth` lists and objects. With depth 0, skips one value. A counter replaces
    /// recursion, so hostile nesting cannot overflow the stack.
    pub(crate) fn step_over(&mut self, mut depth: usize) -> Option<()> {
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
pub(crate) fn unescape(string: &[u8]) -> Option<Cow<'_, str>> {
    if !string.contains(&b'\\') {
        return std::str::from_utf8(string).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", string, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
thread_local! {
    /// How often this thread has looked what comes next in any text: some four times a member.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
