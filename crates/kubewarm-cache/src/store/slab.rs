//! Rows by number, in chunks: growing never copies the rows that are there.

use super::record::Record;
use std::collections::BTreeSet;

/// Rows a chunk, 10 KiB: what a table of any size may waste at its end.
const CHUNK: usize = 256;

/// One object: 40 bytes, and its record behind a pointer.
#[derive(Debug)]
pub(super) struct Row {
    /// The UID, unless the row is odd.
    pub(super) uid: [u8; 16],
    /// The version, unless the row is odd.
    pub(super) version: u64,
    /// Name and body.
    pub(super) record: Record,
    /// Which of the table's namespaces.
    pub(super) namespace: u32,
    /// Whether the UID is no UUID or the version no number. The table then holds both in its odd identities.
    pub(super) is_odd: bool,
}

/// Rows by number. Numbers of removed rows are given out again, lowest chunk first.
#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Vec<Chunk>,
    /// Chunks with a free place.
    open: BTreeSet<u32>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    rows: Vec<Option<Row>>,
    live: usize,
}

impl Slab {
    /// Bytes allocated, without the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The row of this number.
    pub(super) fn get(&self, number: u32) -> Option<&Row> {
        let (chunk, at) = split(number);
        self.chunks.get(chunk)?.rows.get(at)?.as_ref()
    }

    /// The row of this number, to be changed.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Row> {
        let (chunk, at) = split(number);
        self.chunks.get_mut(chunk)?.rows.get_mut(at)?.as_mut()
    }

    /// Stores a row and answers its number; `None` once all 2^32 numbers are taken.
    pub(super) fn insert(&mut self, row: Row) -> Option<u32> {
        let index = match self.open.first() {
            Some(&index) => index,
            None => u32::try_from(self.chunks.len()).ok().filter(|&at| at < u32::MAX / 256)?,
        };
        let at = index as usize;
        if at == self.chunks.len() {
            self.chunks.push(Chunk::default());
            self.open.insert(index);
        }
        let chunk = self.chunks.get_mut(at)?;
        let before = chunk.rows.capacity();
        let place = if chunk.rows.len() < CHUNK {
            if at > 0 {
                chunk.rows.reserve_exact(CHUNK - chunk.rows.len());
            }
            chunk.rows.push(Some(row));
            chunk.rows.len() - 1
        } else {
            let place = chunk.rows.iter().position(Option::is_none)?;
            *chunk.rows.get_mut(place)? = Some(row);
            place
        };
        chunk.live += 1;
        if chunk.live == CHUNK {
            self.open.remove(&index);
        }
        self.bytes += (chunk.rows.capacity() - before) * size_of::<Option<Row>>();
        u32::try_from(at * CHUNK + place).ok()
    }

    /// Takes a row out; a chunk without rows gives its memory back.
    pub(super) fn remove(&mut self, number: u32) -> Option<Row> {
        let (index, at) = split(number);
        let chunk = self.chunks.get_mut(index)?;
        let row = chunk.rows.get_mut(at)?.take()?;
        chunk.live -= 1;
        if chunk.live == 0 {
            self.bytes -= chunk.rows.capacity() * size_of::<Option<Row>>();
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

    /// The numbers of all rows from `from` on, ascending.
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

    fn row() -> Row {
        Row {
            uid: [0; 16],
            version: 1,
            record: Record::plain("a", b"{}"),
            namespace: 0,
            is_odd: false,
        }
    }

    #[test]
    fn a_row_takes_forty_bytes() {
        assert_eq!(size_of::<Option<Row>>(), 40);
    }

    #[test]
    fn numbers_are_used_again_and_memory_is_given_back() {
        let mut slab = Slab::default();
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
