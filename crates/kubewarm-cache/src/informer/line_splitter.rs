//! Splits a watch response into lines while the bytes arrive. For a line above the size limit, the
//! splitter returns only the line's first bytes.

use super::json_list_splitter::{HEAD, SplitItem, keep};
use memchr::memchr;

pub(super) struct LineSplitter {
    cap: usize,
    partial: Vec<u8>,
    skipped: usize,
    is_handed_out: bool,
}

impl LineSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, partial: Vec::new(), skipped: 0, is_handed_out: false }
    }

    pub(super) fn is_partial(&self) -> bool {
        !self.is_handed_out && !self.partial.is_empty()
    }

    /// Consumes `chunk` up to the end of the next line.
    ///
    /// Returns the number of consumed bytes, and the line that ended, if any, without its line end.
    /// Skips empty lines. The caller then passes the rest of the chunk.
    pub(super) fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> (usize, Option<SplitItem<'a>>) {
        if self.is_handed_out {
            // Thousands of watches are open, so a large line must not leave a large buffer behind.
            if self.partial.capacity() > HEAD {
                self.partial = Vec::new();
            }
            self.partial.clear();
            self.skipped = 0;
            self.is_handed_out = false;
        }
        let Some(end) = memchr(b'\n', chunk) else {
            self.keep(chunk);
            return (chunk.len(), None);
        };
        let line = chunk.get(..end).unwrap_or_default();
        let consumed = end + 1;
        if self.partial.is_empty() && line.len() <= self.cap {
            let line = line.trim_ascii();
            return (consumed, (!line.is_empty()).then_some(SplitItem::Whole(line)));
        }
        self.keep(line);
        self.is_handed_out = true;
        let item = if self.skipped > 0 {
            SplitItem::Oversized(&self.partial)
        } else {
            SplitItem::Whole(self.partial.trim_ascii())
        };
        (consumed, Some(item))
    }

    fn keep(&mut self, bytes: &[u8]) {
        keep(&mut self.partial, &mut self.skipped, self.cap, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunk_sizes_do_not_change_the_lines(
            lines in prop::collection::vec("[a-z]{0,30}", 0..10),
            size in 1..40_usize,
        ) {
            let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
            let mut splitter = LineSplitter::new(20);
            let mut found = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let (consumed, item) = splitter.feed(rest);
                    match item {
                        Some(SplitItem::Whole(line)) => found.push(String::from_utf8_lossy(line).into_owned()),
                        Some(SplitItem::Oversized(head)) => found.push(format!("+{}", head.len())),
                        None => {}
                    }
                    rest = &rest[consumed..];
                }
            }
            let expected: Vec<_> = lines.iter().filter(|line| !line.is_empty()).map(|line| {
                if line.len() > 20 { format!("+{}", line.len().min(20)) } else { line.clone() }
            }).collect();
            let short = |all: &[String]| -> Vec<String> {
                all.iter().map(|l| if l.starts_with('+') { "+".to_owned() } else { l.clone() }).collect()
            };
            prop_assert_eq!(short(&found), short(&expected));
            prop_assert!(!splitter.is_partial());
        }
    }
}
