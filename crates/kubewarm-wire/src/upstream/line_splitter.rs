//! Splits a watch response into lines while the bytes arrive.

use super::partial_item::{PartialItem, SplitItem};
use memchr::memchr;

pub(super) struct LineSplitter {
    partial: PartialItem,
}

impl LineSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self { partial: PartialItem::new(cap) }
    }

    pub(super) fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Consumes `chunk` up to the end of the next line.
    ///
    /// Returns the number of consumed bytes, and the line that ended, if any, without its line end.
    /// Skips empty lines. The caller then passes the rest of the chunk.
    pub(super) fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> (usize, Option<SplitItem<'a>>) {
        let Some(end) = memchr(b'\n', chunk) else {
            self.partial.push(chunk);
            return (chunk.len(), None);
        };
        let line = self.partial.complete(chunk.get(..end).unwrap_or_default());
        let is_empty = line.bytes().trim_ascii().is_empty();
        (end + 1, (!is_empty).then_some(line))
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
            let mut pieces = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let (consumed, item) = splitter.feed(rest);
                    match item {
                        Some(SplitItem::Whole(line)) => pieces.push(String::from_utf8_lossy(line).into_owned()),
                        Some(SplitItem::Oversized(head)) => pieces.push(format!("+{}", head.len())),
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
            prop_assert_eq!(short(&pieces), short(&expected));
            prop_assert!(!splitter.is_partial());
        }
    }
}
