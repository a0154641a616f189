//! All tables by cell, and what those of one kind share.

use super::{
    codec::Codec,
    kind::Kind,
    query::{Reader, Usage},
    table::Table,
    upkeep::Upkeep,
    writer::Writer,
};
use crate::model::{CellKey, FieldPath, Projection, Resource};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

/// Declared indexes that one table takes; further ones are left out, in the order of their paths.
pub const INDEXES_PER_TABLE: usize = 32;

/// Kinds by what makes objects alike.
type Kinds = BTreeMap<(Resource, Projection), Weak<Kind>>;

/// The tables of the process. Cloning is cheap, and clones see the same tables.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tables: Arc<RwLock<BTreeMap<CellKey, Arc<Table>>>>,
    kinds: Arc<Mutex<Kinds>>,
    codec: Codec,
    upkeep: Upkeep,
}

impl Catalog {
    /// Without tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens an empty table, in the place of any other under this key; readers of that one keep it.
    #[must_use]
    pub fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Writer {
        let kind = self.kind(key);
        let table = Arc::new(Table::new(self.codec.clone(), Arc::clone(&kind)));
        kind.join(&table);
        table.declare(&wanted(key, indexes), &self.upkeep);
        let old = self.tables.write().insert(key.clone(), Arc::clone(&table));
        drop(old);
        Writer::new(table)
    }

    /// What tables of this kind share; the kinds of closed tables are forgotten.
    pub(super) fn kind(&self, key: &CellKey) -> Arc<Kind> {
        let mut kinds = self.kinds.lock();
        kinds.retain(|_, kind| kind.strong_count() > 0);
        let id = (key.resource.clone(), key.projection);
        if let Some(kind) = kinds.get(&id).and_then(Weak::upgrade) {
            return kind;
        }
        let kind = Arc::new(Kind::new(self.codec.clone(), self.upkeep.clone()));
        kinds.insert(id, Arc::downgrade(&kind));
        kind
    }

    /// A reader of the table under this key.
    #[must_use]
    pub fn reader(&self, key: &CellKey) -> Option<Reader> {
        self.tables.read().get(key).map(Arc::clone).map(Reader::new)
    }

    /// Closes a table; its memory goes with its writer and its last reader.
    pub fn close(&self, key: &CellKey) {
        let old = self.tables.write().remove(key);
        drop(old);
    }

    /// Changes which indexes an open table has. Dropped ones go at once; new ones are completed in
    /// the background, and are not answered from before.
    ///
    /// Cost: constant here; then about 4 µs a row and index on the store's own thread, with the
    /// table locked for well under a millisecond at a time.
    pub fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        let table = self.tables.read().get(key).map(Arc::clone);
        if let Some(table) = table {
            table.declare(&wanted(key, indexes), &self.upkeep);
        }
    }

    /// Waits until indexes are complete and records are packed as they should be: for tests and
    /// measurements, which want one answer.
    pub fn settle(&self) {
        self.upkeep.settle();
    }

    /// What every table holds, in the order of the keys.
    #[must_use]
    pub fn usage(&self) -> Vec<(CellKey, Usage)> {
        let tables: Vec<_> = self
            .tables
            .read()
            .iter()
            .map(|(key, table)| (key.clone(), Arc::clone(table)))
            .collect();
        tables.into_iter().map(|(key, table)| (key, table.usage())).collect()
    }
}

/// As many of `indexes` as a table takes.
fn wanted(key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Vec<FieldPath> {
    if indexes.len() > INDEXES_PER_TABLE {
        let declared = indexes.len();
        tracing::warn!(cell = %key, declared, limit = INDEXES_PER_TABLE, "too many indexes");
    }
    indexes.iter().take(INDEXES_PER_TABLE).cloned().collect()
}
