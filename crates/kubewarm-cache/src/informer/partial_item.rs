//! Collects the chunks of a list item or a watch event. Of an item above the size limit, keeps only the first bytes,
//! which contain its name.

use std::{borrow::Cow, mem};

/// Maximum size of an object, in bytes. By default, etcd rejects an object above 1.5 MiB. This
/// limit is higher, because conversion between API versions can increase an object's size.
pub(super) const MAX_OBJECT: usize = 16 << 20;
/// Number of bytes that [`PartialItem`] keeps of an item above its size limit, to read the object's name.
const HEAD: usize = 4 << 10;

/// One item of a list, or one event of a watch.
pub(super) enum SplitItem<'a> {
    Whole(Cow<'a, [u8]>),
    /// The first bytes of an item or an event above the size limit.
    Oversized(Cow<'a, [u8]>),
}

impl SplitItem<'_> {
    /// The item's bytes in memory. Of an item above the size limit, only the first bytes are in memory.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) | Self::Oversized(bytes) => bytes,
        }
    }
}

/// The bytes of an item whose end has not arrived.
pub(super) struct PartialItem {
    cap: usize,
    bytes: Vec<u8>,
    is_oversized: bool,
}

impl PartialItem {
    /// Creates a buffer for items of at most `cap` bytes.
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, bytes: Vec::new(), is_oversized: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a part of the item that is not its last part.
    pub(super) fn push(&mut self, part: &[u8]) {
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

    /// Returns the item, whose last part is `last`, and begins the next item. Copies no item that arrived in one part.
    ///
    /// The buffer moves into the result. Thousands of watches are open, so a large event must not leave a large buffer
    /// behind.
    pub(super) fn complete<'a>(&mut self, last: &'a [u8]) -> SplitItem<'a> {
        if self.is_empty() && last.len() <= self.cap {
            return SplitItem::Whole(Cow::Borrowed(last));
        }
        self.push(last);
        let bytes = Cow::Owned(mem::take(&mut self.bytes));
        if mem::take(&mut self.is_oversized) {
            SplitItem::Oversized(bytes)
        } else {
            SplitItem::Whole(bytes)
        }
    }
}
