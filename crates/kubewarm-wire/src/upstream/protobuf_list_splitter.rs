//! Splits a list response in protobuf into its items while the bytes arrive. Buffers at most one
//! item, as the splitter of JSON lists does.

use super::{
    json_list_splitter::MAX_FRAME,
    metadata::ListMetadata,
    partial_item::{PartialItem, SplitItem},
};
use crate::protobuf::{FieldHead, ITEMS, ListHead, METADATA, message_of_kind};
use kubewarm_api::model::{FaultReason, MessageId, RequestFault};

/// Splits a `runtime.Unknown` whose `raw` is a list: a message with the fields `metadata` (1) and
/// `items` (2).
pub(super) struct ProtobufListSplitter {
    position: ProtobufListPosition,
    /// The received bytes of the current head: the head of the list, or the tag and length of a
    /// field in the list.
    head: Vec<u8>,
    /// The bytes of the current field's value that arrived in previous chunks.
    partial: PartialItem,
    /// Number of bytes of the list after the current value. Between values, the bytes in `head` are
    /// not yet subtracted.
    left: usize,
    message: Option<MessageId>,
    metadata: Option<ListMetadata>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProtobufListPosition {
    /// Before the first field of the list.
    Start,
    /// At a field of the list, or behind the last one if no bytes are left.
    Field,
    /// In the value of a field. `left` bytes of the value have not arrived yet.
    Value { number: u32, left: usize },
}

impl ProtobufListSplitter {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            position: ProtobufListPosition::Start,
            head: Vec::new(),
            partial: PartialItem::new(cap),
            left: 0,
            message: None,
            metadata: None,
        }
    }

    /// The message of the list's items. `None` until the head of the list has arrived, and for a
    /// kind that the field tables lack.
    pub(super) fn message(&self) -> Option<MessageId> {
        self.message
    }

    pub(super) fn metadata(&self) -> Option<&ListMetadata> {
        self.metadata.as_ref()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.position == ProtobufListPosition::Field && self.left == 0
    }

    /// Consumes `chunk` up to the end of the next item. Also stops behind the list's metadata, so
    /// that the caller can first read the metadata.
    ///
    /// Returns the number of consumed bytes, and the complete item if one ended. The caller then
    /// passes the rest of the chunk.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Malformed`] for bytes that cannot be a list, [`FaultReason::TooLarge`] for
    /// metadata above 64 KiB.
    pub(super) fn feed<'a>(
        &'a mut self,
        chunk: &'a [u8],
    ) -> Result<(usize, Option<SplitItem<'a>>), RequestFault> {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            match self.position {
                ProtobufListPosition::Start => {
                    at += 1;
                    self.start(byte)?;
                }
                // The list has ended. Only `contentEncoding` and `contentType` follow, which are
                // empty.
                ProtobufListPosition::Field if self.left == 0 => at = chunk.len(),
                ProtobufListPosition::Field => {
                    at += 1;
                    self.field(byte)?;
                }
                ProtobufListPosition::Value { number, left } => {
                    let rest = chunk.get(at..).unwrap_or_default();
                    let part = rest.get(..left).unwrap_or(rest);
                    at += part.len();
                    if part.len() < left {
                        self.partial.push(part);
                        self.position =
                            ProtobufListPosition::Value { number, left: left - part.len() };
                        break;
                    }
                    self.position = ProtobufListPosition::Field;
                    let item = self.partial.complete(part);
                    if number == ITEMS {
                        return Ok((at, Some(item)));
                    }
                    let metadata = ListMetadata::of_protobuf(item.bytes());
                    self.metadata = Some(metadata.ok_or_else(malformed)?);
                    return Ok((at, None));
                }
            }
        }
        Ok((at, None))
    }

    fn start(&mut self, byte: u8) -> Result<(), RequestFault> {
        self.head.push(byte);
        if self.head.len() > MAX_FRAME {
            return Err(malformed());
        }
        let Some(head) = ListHead::parse(&self.head).map_err(|_| malformed())? else {
            return Ok(());
        };
        let kind = head.kind.strip_suffix("List").ok_or_else(malformed)?;
        self.message = message_of_kind(head.api_version, kind);
        self.left = head.length;
        self.head.clear();
        self.position = ProtobufListPosition::Field;
        Ok(())
    }

    fn field(&mut self, byte: u8) -> Result<(), RequestFault> {
        self.head.push(byte);
        let Some(FieldHead { number, length }) =
            FieldHead::parse(&self.head).map_err(|_| malformed())?
        else {
            return Ok(());
        };
        let left = self.left.checked_sub(self.head.len()).and_then(|left| left.checked_sub(length));
        match number {
            METADATA if length > MAX_FRAME => {
                return Err(RequestFault::new(
                    FaultReason::TooLarge,
                    "the metadata of the list exceeds 64 KiB",
                ));
            }
            METADATA | ITEMS => {}
            _ => return Err(malformed()),
        }
        self.left = left.ok_or_else(malformed)?;
        self.head.clear();
        self.position = ProtobufListPosition::Value { number, left: length };
        Ok(())
    }
}

fn malformed() -> RequestFault {
    RequestFault::new(FaultReason::Malformed, "the list is not valid protobuf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{ListMeta, item_length, write_item, write_list_head, write_list_tail};
    use proptest::prelude::*;

    fn list(kind: &str, items: &[Vec<u8>]) -> Vec<u8> {
        let length = items.iter().map(|item| item_length(item.len())).sum();
        let meta = ListMeta { version: "7", next: "more", remaining: Some(3) };
        let mut out = Vec::new();
        write_list_head("v1", kind, &meta, length, &mut out);
        for item in items {
            write_item(item, &mut out);
        }
        write_list_tail(&mut out);
        out
    }

    fn split(
        splitter: &mut ProtobufListSplitter,
        list: &[u8],
        size: usize,
    ) -> Result<Vec<String>, RequestFault> {
        let mut items = Vec::new();
        for chunk in list.chunks(size) {
            let mut rest = chunk;
            while !rest.is_empty() {
                let (consumed, item) = splitter.feed(rest)?;
                items.extend(item.map(|item| match item {
                    SplitItem::Whole(item) => String::from_utf8_lossy(item).into_owned(),
                    SplitItem::Oversized(head) => format!("oversized:{}", head.len()),
                }));
                rest = &rest[consumed..];
            }
        }
        Ok(items)
    }

    proptest! {
        #[test]
        fn chunk_sizes_do_not_change_the_items(
            texts in prop::collection::vec("[a-z]{0,300}", 0..8),
            size in 1..700_usize,
        ) {
            let items: Vec<_> = texts.iter().map(|text| text.clone().into_bytes()).collect();
            let mut splitter = ProtobufListSplitter::new(1_000);
            let parts = split(&mut splitter, &list("PodList", &items), size).unwrap();
            prop_assert_eq!(parts, texts);
            prop_assert!(splitter.is_complete());
            let metadata = splitter.metadata().unwrap();
            prop_assert_eq!((&*metadata.resource_version, &*metadata.token), ("7", "more"));
            prop_assert_eq!(metadata.remaining_item_count, Some(3));
            prop_assert_eq!(splitter.message(), message_of_kind("v1", "Pod"));
        }

        #[test]
        fn chunk_sizes_do_not_change_the_result_of_a_damaged_list(
            damage in prop::collection::vec(any::<u8>(), 1..12),
            start in any::<prop::sample::Index>(),
            size in 1..50_usize,
        ) {
            let mut list = list("PodList", &[b"abc".to_vec(), b"def".to_vec()]);
            let start = start.index(list.len() - damage.len());
            list.splice(start..start + damage.len(), damage);
            let read = |size| {
                let mut splitter = ProtobufListSplitter::new(100);
                (split(&mut splitter, &list, size), splitter.is_complete())
            };
            prop_assert_eq!(read(size), read(list.len()));
        }
    }

    #[test]
    fn an_oversized_item_is_skipped_and_the_other_items_are_returned() {
        let items = [b"a".to_vec(), vec![b'x'; 20_000], b"c".to_vec()];
        for size in [7, 1_000, 6_000, 100_000] {
            let mut splitter = ProtobufListSplitter::new(10_000);
            let parts = split(&mut splitter, &list("PodList", &items), size).unwrap();
            assert_eq!(parts, ["a", "oversized:4096", "c"], "chunks of {size}");
            assert!(splitter.is_complete());
        }
    }

    #[test]
    fn a_list_that_ends_early_is_not_complete() {
        let list = list("PodList", &[b"abc".to_vec(), b"def".to_vec()]);
        let end = list.len() - 4;
        for length in 0..end {
            let mut splitter = ProtobufListSplitter::new(100);
            split(&mut splitter, &list[..length], 5).unwrap();
            assert!(!splitter.is_complete(), "{length} of {end} bytes");
        }
        let mut other = ProtobufListSplitter::new(100);
        assert!(split(&mut other, &self::list("Pod", &[]), 100).is_err());
    }

    #[test]
    fn the_largest_lengths_do_not_overflow() {
        let head = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12";
        let max = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        let read = |bytes: &[u8]| split(&mut ProtobufListSplitter::new(100), bytes, 1_000);
        assert!(read(&[head, &max[..], b"\x12", max].concat()).is_err());
        // The item ends exactly where the list ends, so the list is valid: the item's length is the
        // list's length minus the 11 bytes of the item's head.
        let fits = [head, &max[..], b"\x12\xf4", &max[1..], b"abc"].concat();
        assert_eq!(read(&fits).unwrap(), [""; 0]);
    }
}
