//! Splits a list response in JSON into its items while the bytes arrive.
//!
//! The splitter buffers at most one item, and checks only the syntax that determines where items
//! end. The decoder checks the rest.

use super::partial_item::{PartialItem, SplitItem};
use kubewarm_api::model::{FaultReason, RequestFault};
use memchr::memchr2;

/// Maximum size of the frame of a list, in bytes. The frame is everything except the items, such as
/// kind, version and continue token. The limit bounds memory, because the splitter keeps the frame.
pub(super) const MAX_FRAME: usize = 64 << 10;

/// Splits a Kubernetes list into its items.
///
/// ```text
///  {"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{…},{…}]}
///  └───────────────── frame ─────────────────────────────────────┘└items┘└ frame
/// ```
pub(super) struct JsonListSplitter {
    depth: u32,
    string: JsonStringState,
    position: ListPosition,
    /// The frame received so far.
    frame: Vec<u8>,
    partial: PartialItem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonStringState {
    No,
    Yes,
    Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPosition {
    Frame,
    Items,
    Item,
}

impl JsonListSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            depth: 0,
            string: JsonStringState::No,
            position: ListPosition::Frame,
            frame: Vec::new(),
            partial: PartialItem::new(cap),
        }
    }

    /// Returns the frame: the received part of the list without its items. While items arrive, the
    /// end of the frame is missing, so the method appends `]}` to make the frame valid JSON.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = self.frame.clone();
        match self.position {
            ListPosition::Frame => {}
            ListPosition::Items | ListPosition::Item => frame.extend_from_slice(b"]}"),
        }
        frame
    }

    /// Whether the items of the list are arriving, and so the frame before them is complete.
    /// `false` before the first item and after the last item.
    pub(super) fn is_in_items(&self) -> bool {
        self.position != ListPosition::Frame
    }

    pub(super) fn is_complete(&self) -> bool {
        self.depth == 0
            && self.position == ListPosition::Frame
            && self.frame.trim_ascii_end().ends_with(b"}")
    }

    /// Consumes `chunk` up to the end of the next item. The method also stops before the first
    /// item, so that the caller can first read the frame (the list without its items).
    ///
    /// Returns the number of consumed bytes, and the complete item if one ended. The caller then
    /// passes the rest of the chunk.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`] for bytes that cannot be a list, [`FaultReason::TooLarge`] for a
    /// frame above 64 KiB.
    pub(super) fn feed<'a>(
        &'a mut self,
        chunk: &'a [u8],
    ) -> Result<(usize, Option<SplitItem<'a>>), RequestFault> {
        let mut at = 0;
        let mut start = 0;
        while let Some(&byte) = chunk.get(at) {
            if self.string != JsonStringState::No {
                at = self.pass_string(chunk, at);
                continue;
            }
            at += 1;
            match byte {
                b'"' => self.string = JsonStringState::Yes,
                b'{' | b'[' => {
                    if self.position == ListPosition::Items {
                        if byte == b'[' {
                            return Err(malformed("an item that is no object"));
                        }
                        self.position = ListPosition::Item;
                        start = at - 1;
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth =
                        self.depth.checked_sub(1).ok_or_else(|| malformed("a stray bracket"))?;
                    if self.position == ListPosition::Item && self.depth == 2 {
                        self.position = ListPosition::Items;
                        let last = chunk.get(start..at).unwrap_or_default();
                        return Ok((at, Some(self.partial.complete(last))));
                    }
                    if self.position == ListPosition::Items && self.depth == 1 {
                        self.position = ListPosition::Frame;
                    }
                }
                _ => {}
            }
            match self.position {
                ListPosition::Frame => {
                    self.push_frame(byte)?;
                    if byte == b'[' && self.depth == 2 && self.opens_items() {
                        self.position = ListPosition::Items;
                        return Ok((at, None));
                    }
                }
                ListPosition::Items => {
                    if !matches!(byte, b',' | b' ' | b'\n' | b'\r' | b'\t') {
                        return Err(malformed("an item that is no object"));
                    }
                }
                ListPosition::Item => {}
            }
        }
        if self.position == ListPosition::Item {
            self.partial.push(chunk.get(start..).unwrap_or_default());
        }
        Ok((at, None))
    }

    /// Skips a part of the current JSON string: an escaped character, or all bytes up to the next
    /// quote or backslash. Returns the position after this part, at most the chunk's length.
    fn pass_string(&mut self, chunk: &[u8], at: usize) -> usize {
        let rest = chunk.get(at..).unwrap_or_default();
        let end = if self.string == JsonStringState::Escape {
            self.string = JsonStringState::Yes;
            at + 1
        } else {
            match memchr2(b'"', b'\\', rest) {
                None => chunk.len(),
                Some(offset) => {
                    let quote = rest.get(offset) == Some(&b'"');
                    self.string = if quote { JsonStringState::No } else { JsonStringState::Escape };
                    at + offset + 1
                }
            }
        };
        if self.position == ListPosition::Frame && self.frame.len() < MAX_FRAME {
            self.frame.extend_from_slice(chunk.get(at..end).unwrap_or_default());
        }
        end
    }

    fn push_frame(&mut self, byte: u8) -> Result<(), RequestFault> {
        if self.frame.len() >= MAX_FRAME {
            return Err(RequestFault::new(
                FaultReason::TooLarge,
                "the frame of the list exceeds 64 KiB",
            ));
        }
        self.frame.push(byte);
        Ok(())
    }

    /// Whether the `[` that was received last opens the list's member `items`: the frame then ends
    /// with `"items":[`.
    fn opens_items(&self) -> bool {
        let before = self.frame.strip_suffix(b"[").unwrap_or_default().trim_ascii_end();
        let key = before.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        key.ends_with(b"\"items\"")
    }
}

fn malformed(what: &str) -> RequestFault {
    RequestFault::new(FaultReason::Malformed, format!("the list has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(
        splitter: &mut JsonListSplitter,
        chunks: &[&[u8]],
    ) -> Result<Vec<String>, RequestFault> {
        let mut items = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let (consumed, item) = splitter.feed(rest)?;
                match item {
                    Some(SplitItem::Whole(item)) => {
                        items.push(String::from_utf8_lossy(item).into_owned());
                    }
                    Some(SplitItem::Oversized(head)) => {
                        items.push(format!("oversized:{}", head.len()));
                    }
                    None => {}
                }
                rest = &rest[consumed..];
            }
        }
        Ok(items)
    }

    const LIST: &str = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","items":[1]},"items":[{"a":"}]{\"\\"},
        {"b":[{},{"items":[{}]}]} ],"x":[1,{"y":[]}]}
"#;

    #[test]
    fn a_list_is_cut_into_items_and_frame() {
        let mut splitter = JsonListSplitter::new(1_000);
        let parts = items(&mut splitter, &[LIST.as_bytes()]).unwrap();
        assert_eq!(parts, [r#"{"a":"}]{\"\\"}"#, r#"{"b":[{},{"items":[{}]}]}"#]);
        assert!(splitter.is_complete());
        let frame: serde_json::Value = serde_json::from_slice(&splitter.frame()).unwrap();
        assert_eq!(frame["metadata"]["resourceVersion"], "7");
        assert_eq!(frame["x"][1]["y"], serde_json::json!([]));
    }

    #[test]
    fn the_frame_before_the_items_parses_while_they_arrive() {
        let mut splitter = JsonListSplitter::new(1_000);
        let cut = LIST.find("\"b\"").unwrap();
        assert_eq!(items(&mut splitter, &[&LIST.as_bytes()[..cut]]).unwrap().len(), 1);
        assert!(splitter.is_in_items() && !splitter.is_complete());
        let frame: serde_json::Value = serde_json::from_slice(&splitter.frame()).unwrap();
        assert_eq!(frame["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn an_oversized_item_is_skipped_and_the_other_items_are_returned() {
        let big = format!(r#"{{"big":"{}"}}"#, "x".repeat(20_000));
        let list = format!(r#"{{"items":[{{"a":1}},{big},{{"c":3}}]}}"#);
        for size in [list.len(), 7, 1_000, 6_000] {
            let mut splitter = JsonListSplitter::new(10_000);
            let chunks: Vec<_> = list.as_bytes().chunks(size).collect();
            let parts = items(&mut splitter, &chunks).unwrap();
            assert_eq!(parts, [r#"{"a":1}"#, "oversized:4096", r#"{"c":3}"#], "chunks of {size}");
            assert!(splitter.is_complete());
        }
    }

    #[test]
    fn bytes_that_are_not_a_list_are_an_error_or_incomplete() {
        for text in [r#"{"items":[1]}"#, r#"{"items":[[]]}"#, "]"] {
            assert!(items(&mut JsonListSplitter::new(100), &[text.as_bytes()]).is_err(), "{text}");
        }
        for text in ["", "<html></html>", r#"{"items":[{"a":1}"#, r#"{"items":[]"#] {
            let mut splitter = JsonListSplitter::new(100);
            items(&mut splitter, &[text.as_bytes()]).unwrap();
            assert!(!splitter.is_complete(), "{text}");
        }
        let frame = format!(r#"{{"metadata":{{"continue":"{}"}}}}"#, "x".repeat(70_000));
        assert!(items(&mut JsonListSplitter::new(100), &[frame.as_bytes()]).is_err());
    }

    proptest! {
        #[test]
        fn chunk_ends_do_not_matter(cuts in prop::collection::vec(0..LIST.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.extend([0, LIST.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|w| &LIST.as_bytes()[w[0]..w[1]]).collect();
            let mut splitter = JsonListSplitter::new(1_000);
            let parts = items(&mut splitter, &chunks).unwrap();
            prop_assert_eq!(parts.len(), 2);
            prop_assert!(splitter.is_complete());
        }
    }
}
