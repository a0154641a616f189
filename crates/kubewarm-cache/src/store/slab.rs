//! The rows of a store by number. Each row contains one object. Rows are allocated in chunks, so a
//! growing store never copies existing rows.

use super::packed_object::PackedObject;
use std::collections::BTreeSet;

/// Number of rows, each with one object, in a chunk. A chunk takes 10 KiB, so a store wastes at
/// most 10 KiB after its last row.
const CHUNK: usize = 256;

/// One object of a store. A row takes 40 bytes, which include the pointer to the packed object but
/// not the object.
#[derive(Debug)]
pub(super) struct StoreRow {
    pub(super) uid: [u8; 16],
    /// The resource version as a number. Not used if `is_odd` is true.
    pub(super) version: u64,
    pub(super) record: PackedObject,
    /// Number of the row's namespace in `NamespaceInterner`.
    pub(super) namespace: u32,
    /// Whether the UID is not a UUID, or the version is not a number. If so, `StoreContents` keeps
    /// the UID and the version outside the row.
    pub(super) is_odd: bool,
}

/// Rows of a store, each with a number. An inserted row takes a free number in the first chunk with
/// a free number, so numbers of removed rows are reused.
#[derive(Debug, Default)]
pub(super) struct RowSlab {
    chunks: Vec<RowChunk>,
    /// Indexes of the chunks that have a free row number.
    open: BTreeSet<u32>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct RowChunk {
    rows: Vec<Option<StoreRow>>,
    live: usize,
}

impl RowSlab {
    /// Returns the bytes allocated for rows, without the objects to which the rows point.
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

    /// Removes and returns a row. If the row's chunk is then empty, the chunk's memory is freed.
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
