//! The tables of the catalog, as informers open them: the one join of `informer` and `store`.

use crate::{
    informer::Tables,
    model::{CellKey, DeltaSink, FieldPath},
    store::Catalog,
};
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
