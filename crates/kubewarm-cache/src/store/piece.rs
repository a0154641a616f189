//! Rows of one moment: taken under the table's lock, and looked at outside of it.

use super::{
    codec::Context,
    contents::Contents,
    dictionary::Dictionary,
    query::{Seen, key},
    record::{Packing, Record},
    table::Table,
};
use kubewarm_api::model::ObjectKey;
use std::{hint::black_box, sync::Arc};

/// Rows in the order in which they were taken. Their records are the table's own, which stay as they are
/// whatever becomes of the table: 16 bytes a row, and nothing of the bodies is copied.
#[derive(Debug, Default)]
pub(super) struct Piece {
    rows: Vec<Taken>,
    namespaces: Vec<Arc<str>>,
    /// Rarely more than one.
    dictionaries: Vec<Arc<Dictionary>>,
}

/// Records that are fetched together.
pub(super) const AHEAD: usize = 16;

#[derive(Debug)]
struct Taken {
    record: Record,
    /// Which of the piece's.
    namespace: u32,
}

impl Piece {
    /// Of these rows, those that there are.
    pub(super) fn of(contents: &Contents, numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut piece = Self::default();
        let numbers: Vec<u32> = numbers.into_iter().collect();
        for some in numbers.chunks(AHEAD) {
            fetch(some.iter().filter_map(|number| contents.slab.get(*number)).map(|it| &it.record));
            for number in some {
                piece.take(contents, *number);
            }
        }
        piece
    }

    /// Has the records of these rows fetched, of up to [`AHEAD`].
    pub(super) fn fetch(&self, rows: &[usize]) {
        let rows = rows.iter().take(AHEAD);
        fetch(rows.filter_map(|row| self.rows.get(*row)).map(|taken| &taken.record));
    }

    /// Takes one more row, if it exists.
    pub(super) fn take(&mut self, contents: &Contents, number: u32) {
        let Some(row) = contents.slab.get(number) else { return };
        let namespaces = &contents.namespaces;
        let namespace = (namespaces.name(row.namespace), || namespaces.shared_name(row.namespace));
        self.push(namespace, &row.record, contents.dictionary(row.record.packing()));
    }

    /// Takes a record that the table holds or held, and the dictionary that it needs.
    pub(super) fn push(
        &mut self,
        (namespace, shared): (&str, impl FnOnce() -> Arc<str>),
        record: &Record,
        dictionary: Option<&Arc<Dictionary>>,
    ) {
        if let Some(dictionary) = dictionary
            && self.dictionary(record.packing()).is_none()
        {
            self.dictionaries.push(Arc::clone(dictionary));
        }
        // In key order those of a namespace stand together.
        if self.namespaces.last().is_none_or(|last| **last != *namespace) {
            self.namespaces.push(shared());
        }
        let Ok(namespace) = u32::try_from(self.namespaces.len() - 1) else { return };
        self.rows.push(Taken { record: record.clone(), namespace });
    }

    /// One row, unpacked into `body`; `None` if it does not decode.
    pub(super) fn seen<'a>(
        &'a self,
        row: usize,
        table: &Table,
        context: &mut Context,
        body: &'a mut Vec<u8>,
    ) -> Option<Seen<'a>> {
        let taken = self.rows.get(row)?;
        let record = &taken.record;
        let body = table.unpack(record, self.dictionary(record.packing()), context, body)?;
        Some(Seen { namespace: self.namespace(taken), name: record.name(), body })
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The key of a row, by its place here.
    pub(super) fn key_of(&self, row: usize) -> Option<ObjectKey> {
        let taken = self.rows.get(row)?;
        Some(key(self.namespace(taken), taken.record.name()))
    }

    fn namespace(&self, taken: &Taken) -> &str {
        self.namespaces.get(taken.namespace as usize).map_or("", |name| &**name)
    }

    fn dictionary(&self, packing: Packing) -> Option<&Dictionary> {
        let Packing::Dictionary(generation) = packing else { return None };
        let found = self.dictionaries.iter().find(|it| it.generation() == generation);
        found.map(|it| &**it)
    }
}

/// Has the processor fetch what records begin with. Those of a large table are in no cache, and each by itself would
/// be waited for; those that are asked for at once come in little more than the time of one.
fn fetch<'a>(records: impl Iterator<Item = &'a Record>) {
    for record in records {
        black_box(record.packing());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Catalog, Reader,
        samples::{body, cell, remove, upsert},
    };
    use kubewarm_api::model::DeltaSink as _;
    use std::collections::BTreeSet;

    fn piece(reader: &Reader) -> Piece {
        let contents = reader.table.contents.read();
        let all: Vec<_> = contents.all().iter().collect();
        Piece::of(&contents, all)
    }

    fn shown(piece: &Piece, reader: &Reader) -> Vec<String> {
        let table = &reader.table;
        table.codec.with(|context, into| {
            let mut shown = Vec::new();
            for row in 0..piece.len() {
                let seen = piece.seen(row, table, context, into).unwrap();
                let name = String::from_utf8_lossy(seen.name);
                let body = String::from_utf8_lossy(seen.body);
                shown.push(format!("{}/{name}: {body}", seen.namespace));
            }
            shown
        })
    }

    #[test]
    fn all_pieces_hold_the_tables_own_records_whatever_becomes_of_it() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&cell("pods"), &BTreeSet::new());
        let reader = catalog.reader(&cell("pods")).unwrap();
        let keys = ["a/x", "a/y", "b/x"];
        let text = "text".repeat(64);
        let first = body(r#"{"app":"web"}"#, &format!(r#","text":"{text}""#));
        for key in keys {
            writer.apply(upsert(key, 1, "5", &first));
        }
        let pieces = [piece(&reader), piece(&reader)];
        for piece in &pieces {
            let packed = piece.rows.first().unwrap().record.packed();
            assert_eq!((packed.as_ptr() as usize, packed.len()), reader.place_of(0));
        }
        writer.apply(upsert("a/x", 1, "6", "{}"));
        for key in keys {
            writer.apply(remove(key, "7"));
        }
        drop(writer);
        catalog.close(&cell("pods"));
        let expected = keys.map(|key| format!("{key}: {first}"));
        for piece in &pieces {
            assert_eq!(shown(piece, &reader), expected);
        }
    }
}
