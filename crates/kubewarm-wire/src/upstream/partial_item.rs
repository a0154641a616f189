//! Collects the chunks of a list item or a watch event. Of an item above the size limit, keeps only
//! the first bytes, which contain its name.

use std::mem;

/// Maximum size of an object, in bytes. By default, etcd rejects an object above 1.5 MiB. This
/// limit is higher, because conversion between API versions can increase an object's size.
pub const MAX_OBJECT: usize = 16 << 20;
/// Number of bytes that [`PartialItem`] keeps of an item above its size limit, to read the object's
/// name.
const HEAD: usize = 4 << 10;

/// One item of a list, or one event of a watch.
#[derive(Clone, Copy)]
pub enum SplitItem<'a> {
    /// The complete item.
    Whole(&'a [u8]),
    /// The first bytes of an item or an event above the size limit.
    Oversized(&'a [u8]),
}

impl<'a> SplitItem<'a> {
    /// The item's bytes in memory. Of an item above the size limit, only the first bytes are in
    /// memory.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Whole(bytes) | Self::Oversized(bytes) => bytes,
        }
    }
}

/// The bytes of an item that arrives in several parts.
///
/// The items of a list share one buffer. Separate buffers for large items would leave gaps between
/// the stored objects in memory. The process would then need more memory than the stores' limit
/// allows for.
pub(super) struct PartialItem {
    cap: usize,
    bytes: Vec<u8>,
    is_oversized: bool,
    /// Whether the item is complete. Its bytes stay in memory until the next item begins, because
    /// the caller still reads them.
    is_complete: bool,
}

impl PartialItem {
    /// Creates a buffer for items of at most `cap` bytes.
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, bytes: Vec::new(), is_oversized: false, is_complete: false }
    }

    /// Whether no part of an incomplete item has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete || self.bytes.is_empty()
    }

    /// Appends a part of the item that is not its last part.
    pub(super) fn push(&mut self, part: &[u8]) {
        if mem::take(&mut self.is_complete) {
            self.bytes.clear();
            self.is_oversized = false;
        }
        if self.is_oversized {
            return;
        }
        self.bytes.extend_from_slice(part);
        if self.bytes.len() > self.cap {
            self.is_oversized = true;
            self.bytes.truncate(HEAD);
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns the item, whose last part is `last`. The next call begins the next item.
    ///
    /// If the item arrived in one part, the function does not copy the item, and frees the buffer.
    /// Thousands of watches are open, so no watch must keep the buffer of an earlier large event.
    pub(super) fn complete<'a>(&'a mut self, last: &'a [u8]) -> SplitItem<'a> {
        if self.is_empty() && last.len() <= self.cap {
            self.bytes = Vec::new();
            return SplitItem::Whole(last);
        }
        self.push(last);
        self.is_complete = true;
        if self.is_oversized {
            SplitItem::Oversized(&self.bytes)
        } else {
            SplitItem::Whole(&self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_items_share_a_buffer_that_the_next_small_item_frees() {
        let mut partial = PartialItem::new(MAX_OBJECT);
        let half = vec![7; 1 << 20];
        let mut buffers = Vec::new();
        for _ in 0..3 {
            partial.push(&half);
            let item = partial.complete(&half);
            assert!(item.bytes().len() == 2 << 20 && matches!(item, SplitItem::Whole(_)));
            buffers.push(item.bytes().as_ptr());
            assert!(partial.is_empty());
        }
        buffers.dedup();
        assert_eq!(buffers.len(), 1);
        assert_eq!(partial.complete(b"small").bytes(), b"small");
        assert_eq!(partial.bytes.capacity(), 0);
    }

    #[test]
    fn an_item_after_an_oversized_one_is_whole() {
        let mut partial = PartialItem::new(10);
        partial.push(&[1; 8]);
        assert!(matches!(partial.complete(&[2; 8]), SplitItem::Oversized(_)));
        partial.push(&[3; 2]);
        assert!(matches!(partial.complete(&[4; 2]), SplitItem::Whole([3, 3, 4, 4])));
    }
}
