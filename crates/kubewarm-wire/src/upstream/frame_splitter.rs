//! Splits a watch response in protobuf into events. Four bytes before each event contain its
//! length, in big-endian order.

use super::partial_item::{PartialItem, SplitItem};

pub(super) struct FrameSplitter {
    /// The received bytes of the length before the current event. A chunk can end within these four
    /// bytes.
    length: Vec<u8>,
    /// Number of bytes of the current event that are still missing. `None` between events.
    left: Option<usize>,
    partial: PartialItem,
}

impl FrameSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self { length: Vec::new(), left: None, partial: PartialItem::new(cap) }
    }

    pub(super) fn is_partial(&self) -> bool {
        self.left.is_some() || !self.length.is_empty()
    }

    /// Consumes `chunk` up to the end of the next event. Returns the number of consumed bytes, and
    /// the event that ended, if any. The caller then passes the rest of the chunk.
    pub(super) fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> (usize, Option<SplitItem<'a>>) {
        let mut at = 0;
        if self.left.is_none() {
            at = chunk.len().min(4 - self.length.len());
            self.length.extend_from_slice(chunk.get(..at).unwrap_or_default());
            let Some(&length) = self.length.first_chunk() else { return (at, None) };
            self.left = usize::try_from(u32::from_be_bytes(length)).ok();
            self.length.clear();
        }
        let left = self.left.unwrap_or(0);
        let rest = chunk.get(at..).unwrap_or_default();
        let part = rest.get(..left).unwrap_or(rest);
        at += part.len();
        if part.len() < left {
            self.partial.push(part);
            self.left = Some(left - part.len());
            return (at, None);
        }
        self.left = None;
        (at, Some(self.partial.complete(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunk_sizes_do_not_change_the_events(
            texts in prop::collection::vec("[a-z]{0,60}", 0..8),
            size in 1..100_usize,
        ) {
            let mut stream = Vec::new();
            for text in &texts {
                stream.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(text.as_bytes());
            }
            let mut splitter = FrameSplitter::new(30);
            let mut items = Vec::new();
            for chunk in stream.chunks(size) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let (consumed, item) = splitter.feed(rest);
                    items.extend(item.map(|item| match item {
                        SplitItem::Whole(event) => String::from_utf8_lossy(event).into_owned(),
                        SplitItem::Oversized(_) => "oversized".to_owned(),
                    }));
                    rest = &rest[consumed..];
                }
            }
            let expected_item = |text: &String| if text.len() > 30 { "oversized".to_owned() } else { text.clone() };
            prop_assert_eq!(items, texts.iter().map(expected_item).collect::<Vec<_>>());
            prop_assert!(!splitter.is_partial());
        }
    }

    #[test]
    fn an_event_that_ends_early_is_partial() {
        for length in 1..=7 {
            let mut splitter = FrameSplitter::new(30);
            let (consumed, item) = splitter.feed(&[0, 0, 0, 3, 1, 2, 3][..length]);
            assert_eq!((consumed, item.is_some()), (length, length == 7));
            assert_eq!(splitter.is_partial(), length < 7, "{length}");
        }
    }
}
