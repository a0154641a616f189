//! Cuts a list into its items while the bytes arrive.
//!
//! Buffers no more than one item, and none that is larger than the cap: that one is passed over, and
//! the head of it handed out so that it can be named. Nothing here checks more of the syntax than it
//! needs to find ends; whoever decodes an item checks it.

use kubewarm_api::model::{Fault, Reason};
use memchr::memchr2;
use std::fmt;

/// The largest object that is taken, in bytes. etcd refuses requests above 1.5 MiB by default and
/// the API server objects above 3 MiB; conversion may add to that.
pub(super) const MAX_OBJECT: usize = 16 << 20;
/// How much of an oversized object is kept to name it.
pub(super) const HEAD: usize = 4 << 10;
/// The largest frame of a list (everything but the items): kind, version, continue token.
const MAX_FRAME: usize = 64 << 10;

/// Something cut out.
#[derive(PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// One complete item or line.
    Whole(&'a [u8]),
    /// The head of one that was larger than the cap.
    Oversized(&'a [u8]),
}

impl Piece<'_> {
    /// Bytes of it that are here.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) | Self::Oversized(bytes) => bytes.len(),
        }
    }
}

/// Cuts the items out of a Kubernetes list.
///
/// ```text
///  {"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{…},{…}]}
///  └───────────────── frame ─────────────────────────────────────┘└items┘└ frame
/// ```
pub(super) struct ListSplitter {
    cap: usize,
    depth: u32,
    string: InString,
    place: Place,
    /// The frame so far, items left out.
    frame: Vec<u8>,
    /// The item that began in an earlier chunk.
    partial: Vec<u8>,
    /// How much of the item under way has been passed over because of the cap.
    skipped: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Frame,
    Items,
    Item,
}

impl ListSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            depth: 0,
            string: InString::No,
            place: Place::Frame,
            frame: Vec::new(),
            partial: Vec::new(),
            skipped: 0,
        }
    }

    /// The frame as far as it has come, closed so that it parses: once the items have begun, all
    /// that stood before them.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = self.frame.clone();
        match self.place {
            Place::Frame => {}
            Place::Items | Place::Item => frame.extend_from_slice(b"]}"),
        }
        frame
    }

    /// Whether the items have begun.
    pub(super) fn in_items(&self) -> bool {
        self.place != Place::Frame
    }

    /// Whether the list is closed and complete.
    pub(super) fn is_complete(&self) -> bool {
        self.depth == 0 && self.place == Place::Frame && self.frame.trim_ascii_end().ends_with(b"}")
    }

    /// Takes the next chunk up to and including the end of the next item, or up to where the items
    /// begin: there the frame is looked at before any item is.
    ///
    /// Returns the number of bytes consumed and the item that ended there, if one did. Call again
    /// with the rest until everything is consumed.
    ///
    /// # Errors
    ///
    /// [`Reason::Malformed`] for what cannot be a list, [`Reason::TooLarge`] for a frame above
    /// 64 KiB.
    pub(super) fn feed<'a>(
        &'a mut self,
        chunk: &'a [u8],
    ) -> Result<(usize, Option<Piece<'a>>), Fault> {
        if self.place != Place::Item && !self.partial.is_empty() {
            // The item handed out by the last call.
            self.partial.clear();
            self.skipped = 0;
        }
        let mut at = 0;
        let mut start = 0;
        while let Some(&byte) = chunk.get(at) {
            if self.string != InString::No {
                at = self.pass_string(chunk, at);
                continue;
            }
            at += 1;
            match byte {
                b'"' => self.string = InString::Yes,
                b'{' | b'[' => {
                    if self.place == Place::Items {
                        if byte == b'[' {
                            return Err(malformed("an item that is no object"));
                        }
                        self.place = Place::Item;
                        start = at - 1;
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth =
                        self.depth.checked_sub(1).ok_or_else(|| malformed("a stray bracket"))?;
                    if self.place == Place::Item && self.depth == 2 {
                        self.place = Place::Items;
                        return Ok((at, Some(self.complete(chunk, start, at))));
                    }
                    if self.place == Place::Items && self.depth == 1 {
                        self.place = Place::Frame;
                    }
                }
                _ => {}
            }
            match self.place {
                Place::Frame => {
                    self.push_frame(byte)?;
                    if byte == b'[' && self.depth == 2 && self.opens_items() {
                        self.place = Place::Items;
                        return Ok((at, None));
                    }
                }
                Place::Items => {
                    if !matches!(byte, b',' | b' ' | b'\n' | b'\r' | b'\t') {
                        return Err(malformed("an item that is no object"));
                    }
                }
                Place::Item => {}
            }
        }
        if self.place == Place::Item {
            self.keep(chunk.get(start..).unwrap_or_default());
        }
        Ok((at, None))
    }

    /// Moves to the end of the string or of the chunk.
    fn pass_string(&mut self, chunk: &[u8], at: usize) -> usize {
        let rest = chunk.get(at..).unwrap_or_default();
        let end = if self.string == InString::Escape {
            self.string = InString::Yes;
            at + 1
        } else {
            match memchr2(b'"', b'\\', rest) {
                None => chunk.len(),
                Some(offset) => {
                    let quote = rest.get(offset) == Some(&b'"');
                    self.string = if quote { InString::No } else { InString::Escape };
                    at + offset + 1
                }
            }
        };
        if self.place == Place::Frame && self.frame.len() < MAX_FRAME {
            self.frame.extend_from_slice(chunk.get(at..end).unwrap_or_default());
        }
        end
    }

    fn push_frame(&mut self, byte: u8) -> Result<(), Fault> {
        if self.frame.len() >= MAX_FRAME {
            return Err(Fault::new(Reason::TooLarge, "the frame of the list exceeds 64 KiB"));
        }
        self.frame.push(byte);
        Ok(())
    }

    /// Whether the `[` at the end of the frame opens the member `items`.
    fn opens_items(&self) -> bool {
        let before = self.frame.strip_suffix(b"[").unwrap_or_default().trim_ascii_end();
        let key = before.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
        key.ends_with(b"\"items\"")
    }

    fn keep(&mut self, bytes: &[u8]) {
        keep(&mut self.partial, &mut self.skipped, self.cap, bytes);
    }

    fn complete<'a>(&'a mut self, chunk: &'a [u8], start: usize, end: usize) -> Piece<'a> {
        let last = chunk.get(start..end).unwrap_or_default();
        if self.partial.is_empty() && last.len() <= self.cap {
            return Piece::Whole(last);
        }
        self.keep(last);
        if self.skipped > 0 { Piece::Oversized(&self.partial) } else { Piece::Whole(&self.partial) }
    }
}

/// Adds to a partial item or line; of one above the cap only the head is kept.
pub(super) fn keep(partial: &mut Vec<u8>, skipped: &mut usize, cap: usize, bytes: &[u8]) {
    let cap = if *skipped > 0 { HEAD } else { cap };
    let room = cap.saturating_sub(partial.len()).min(bytes.len());
    partial.extend_from_slice(bytes.get(..room).unwrap_or_default());
    if room < bytes.len() {
        *skipped += bytes.len() - room;
        partial.truncate(HEAD);
        partial.shrink_to_fit();
    }
}

impl fmt::Debug for Piece<'_> {
    /// How much, never what: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(piece) => write!(f, "Whole({} bytes)", piece.len()),
            Self::Oversized(head) => write!(f, "Oversized({} bytes)", head.len()),
        }
    }
}

fn malformed(what: &str) -> Fault {
    Fault::new(Reason::Malformed, format!("the list has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(splitter: &mut ListSplitter, chunks: &[&[u8]]) -> Result<Vec<String>, Fault> {
        let mut items = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let (consumed, piece) = splitter.feed(rest)?;
                match piece {
                    Some(Piece::Whole(item)) => {
                        items.push(String::from_utf8_lossy(item).into_owned());
                    }
                    Some(Piece::Oversized(head)) => items.push(format!("oversized:{}", head.len())),
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
        let mut splitter = ListSplitter::new(1_000);
        let found = items(&mut splitter, &[LIST.as_bytes()]).unwrap();
        assert_eq!(found, [r#"{"a":"}]{\"\\"}"#, r#"{"b":[{},{"items":[{}]}]}"#]);
        assert!(splitter.is_complete());
        let frame: serde_json::Value = serde_json::from_slice(&splitter.frame()).unwrap();
        assert_eq!(frame["metadata"]["resourceVersion"], "7");
        assert_eq!(frame["x"][1]["y"], serde_json::json!([]));
    }

    #[test]
    fn the_frame_before_the_items_parses_while_they_arrive() {
        let mut splitter = ListSplitter::new(1_000);
        let cut = LIST.find("\"b\"").unwrap();
        assert_eq!(items(&mut splitter, &[&LIST.as_bytes()[..cut]]).unwrap().len(), 1);
        assert!(splitter.in_items() && !splitter.is_complete());
        let frame: serde_json::Value = serde_json::from_slice(&splitter.frame()).unwrap();
        assert_eq!(frame["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn an_oversized_item_is_passed_over_and_its_neighbours_live() {
        let big = format!(r#"{{"big":"{}"}}"#, "x".repeat(20_000));
        let list = format!(r#"{{"items":[{{"a":1}},{big},{{"c":3}}]}}"#);
        for size in [list.len(), 7, 1_000, 6_000] {
            let mut splitter = ListSplitter::new(10_000);
            let chunks: Vec<_> = list.as_bytes().chunks(size).collect();
            let found = items(&mut splitter, &chunks).unwrap();
            assert_eq!(found, [r#"{"a":1}"#, "oversized:4096", r#"{"c":3}"#], "chunks of {size}");
            assert!(splitter.is_complete());
        }
    }

    #[test]
    fn what_is_no_list_is_an_error_or_incomplete() {
        for text in [r#"{"items":[1]}"#, r#"{"items":[[]]}"#, "]"] {
            assert!(items(&mut ListSplitter::new(100), &[text.as_bytes()]).is_err(), "{text}");
        }
        for text in ["", "<html></html>", r#"{"items":[{"a":1}"#, r#"{"items":[]"#] {
            let mut splitter = ListSplitter::new(100);
            items(&mut splitter, &[text.as_bytes()]).unwrap();
            assert!(!splitter.is_complete(), "{text}");
        }
        let frame = format!(r#"{{"metadata":{{"continue":"{}"}}}}"#, "x".repeat(70_000));
        assert!(items(&mut ListSplitter::new(100), &[frame.as_bytes()]).is_err());
    }

    proptest! {
        #[test]
        fn where_chunks_end_does_not_matter(cuts in prop::collection::vec(0..LIST.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.extend([0, LIST.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|w| &LIST.as_bytes()[w[0]..w[1]]).collect();
            let mut splitter = ListSplitter::new(1_000);
            let found = items(&mut splitter, &chunks).unwrap();
            prop_assert_eq!(found.len(), 2);
            prop_assert!(splitter.is_complete());
        }
    }
}
