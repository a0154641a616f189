//! The tables of the catalog, as informers open them: the one join of `informer` and `store`.

use crate::controller::Admission;
use kubewarm_api::model::{CellKey, DeltaSink, FieldPath, Projection};
use kubewarm_cache::{informer::Tables, store::Catalog};
use std::collections::BTreeSet;

/// Opens, indexes and closes the tables of a catalog.
#[derive(Clone, Debug)]
pub struct CatalogTables(pub Catalog);

impl Tables for CatalogTables {
    fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Box<dyn DeltaSink> {
        Box::new(self.0.open(key, indexes))
    }

    fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        self.0.set_indexes(key, indexes);
    }

    fn close(&self, key: &CellKey) {
        self.0.close(key);
    }
}

/// The same for the operator: of profiles, which it reads too, no more than are admitted.
#[derive(Clone, Debug)]
pub(super) struct OperatorTables {
    pub(super) tables: CatalogTables,
    pub(super) admission: Admission,
}

impl Tables for OperatorTables {
    fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Box<dyn DeltaSink> {
        if key.projection != Projection::Profile {
            return self.tables.open(key, indexes);
        }
        Box::new(self.admission.guard(self.tables.0.open(key, indexes), key))
    }

    fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        self.tables.set_indexes(key, indexes);
    }

    fn close(&self, key: &CellKey) {
        self.tables.close(key);
    }
}
