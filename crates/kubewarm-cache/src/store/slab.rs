//! The rows of a store by number, in chunks, so that growth never copies existing rows.

use super::packed_object::PackedObject;
use std::collections::BTreeSet;

/// Rows in a chunk. A chunk takes 10 KiB, which is the most that a store wastes after its last row.
const CHUNK: usize = 256;

/// One object of a store. A row takes 40 bytes, including a pointer to the packed object.
#[derive(Debug)]
pub(super) struct StoreRow {
    /// The UID as 16 bytes. Unused if `is_odd` is true.
    pub(super) uid: [u8; 16],
    /// The resource version. Unused if `is_odd` is true.
    pub(super) version: u64,
    pub(super) record: PackedObject,
    /// Number of the namespace in `NamespaceInterner`.
    pub(super) namespace: u32,
    /// Whether the UID is not a UUID or the version is not a number. `StoreContents` then stores both outside the row.
    pub(super) is_odd: bool,
}

/// Rows by number. The number of a removed row is used again; the lowest chunk is filled first.
#[derive(Debug, Default)]
pub(super) struct RowSlab {
    chunks: Vec<RowChunk>,
    /// Indexes of chunks with a free row number.
    open: BTreeSet<u32>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct RowChunk {
    rows: Vec<Option<StoreRow>>,
    live: usize,
}

impl RowSlab {
    /// Bytes allocated for rows, without the packed objects.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, number: u32) -> Option<&StoreRow> {
        let (chunk, at) = split(number);
        self.chunks.get(chunk)?.rows.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut StoreRow> {
        let (chunk, at) = split(number);
        self.chunks.get_mut(chunk)?.rows.get_mut(at)?.as_mut()
    }

    /// Stores a row and returns its number, or `None` when no number is free.
    pub(super) fn insert(&mut self, row: StoreRow) -> Option<u32> {
        let index = match self.open.first() {
            Some(&index) => index,
            None => u32::try_from(self.chunks.len()).ok().filter(|&at| at < u32::MAX / 256)?,
        };
        let at = index as usize;
        if at == self.chunks.len() {
            self.chunks.push(RowChunk::default());
            self.open.insert(index);
        }
        let chunk = self.chunks.get_mut(at)?;
        let before = chunk.rows.capacity();
        let position = if chunk.rows.len() < CHUNK {
            if at > 0 {
                chunk.rows.reserve_exact(CHUNK - chunk.rows.len());
            }
            chunk.rows.push(Some(row));
            chunk.rows.len() - 1
        } else {
            let position = chunk.rows.iter().position(Option::is_none)?;
            *chunk.rows.get_mut(position)? = Some(row);
            position
        };
        chunk.live += 1;
        if chunk.live == CHUNK {
            self.open.remove(&index);
        }
        self.bytes += (chunk.rows.capacity() - before) * size_of::<Option<StoreRow>>();
        u32::try_from(at * CHUNK + position).ok()
    }

    /// Removes a row, and frees the memory of its chunk if the chunk is empty.
    pub(super) fn remove(&mut self, number: u32) -> Option<StoreRow> {
        let (index, at) = split(number);
        let chunk = self.chunks.get_mut(index)?;
        let row = chunk.rows.get_mut(at)?.take()?;
        chunk.live -= 1;
        if chunk.live == 0 {
            self.bytes -= chunk.rows.capacity() * size_of::<Option<StoreRow>>();
            chunk.rows = Vec::new();
        }
        self.open.insert(number / 256);
        while self.chunks.last().is_some_and(|chunk| chunk.live == 0) {
            self.chunks.pop();
            if let Ok(gone) = u32::try_from(self.chunks.len()) {
                self.open.remove(&gone);
            }
        }
        Some(row)
    }

    /// Returns the numbers of all rows from `from`, in ascending order.
    pub(super) fn numbers_from(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        let (first, at) = split(from);
        let chunks = self.chunks.iter().enumerate().skip(first);
        chunks
            .flat_map(move |(index, chunk)| {
                let skip = if index == first { at } else { 0 };
                let rows = chunk.rows.iter().enumerate().skip(skip);
                rows.filter(|(_, row)| row.is_some()).map(move |(at, _)| index * CHUNK + at)
            })
            .filter_map(|number| u32::try_from(number).ok())
    }
}

fn split(number: u32) -> (usize, usize) {
    ((number / 256) as usize, (number % 256) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> StoreRow {
        StoreRow {
            uid: [0; 16],
            version: 1,
            record: PackedObject::plain("a", b"{}"),
            namespace: 0,
            is_odd: false,
        }
    }

    #[test]
    fn a_row_takes_forty_bytes() {
        assert_eq!(size_of::<Option<StoreRow>>(), 40);
    }

    #[test]
    fn row_numbers_are_reused_and_memory_is_freed() {
        let mut slab = RowSlab::default();
        let numbers: Vec<_> = (0..2000).map(|_| slab.insert(row()).unwrap()).collect();
        assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
        for number in (0..2000).filter(|number| !(256..512).contains(number)) {
            assert!(slab.remove(number).is_some());
            assert!(slab.remove(number).is_none());
        }
        assert_eq!(slab.bytes(), 256 * 40);
        assert!(slab.numbers_from(300).eq(300..512));
        assert_eq!(slab.insert(row()), Some(0));
        for number in slab.numbers_from(0).collect::<Vec<_>>() {
            slab.remove(number);
        }
        assert_eq!(slab.bytes(), 0);
    }
}
