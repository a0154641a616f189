//! The tables of the catalog, as informers open them: the one join of `informer` and `store`.

use super::forgetting::Forgetting;
use crate::{
    controller::Sieve,
    informer::Tables,
    model::{CellKey, DeltaSink, FieldPath, Projection},
    store::{Catalog, Writer},
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

/// The same for the operator: of profiles, which it reads too, not more than it has room for, and of
/// namespaces that go whoever decides about callers is told.
#[derive(Clone, Debug)]
pub(super) struct OperatorTables {
    pub(super) tables: Forgetting<CatalogTables>,
    pub(super) profiles: Sieve<Writer>,
}

impl Tables for OperatorTables {
    fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Box<dyn DeltaSink> {
        let Forgetting { told: tables, readers } = &self.tables;
        let of = key.resource.group_resource();
        if (of.group(), of.resource()) == ("", "namespaces") {
            let told = tables.open(key, indexes);
            return Box::new(Forgetting { told, readers: readers.clone() });
        }
        if key.projection != Projection::Profile {
            return tables.open(key, indexes);
        }
        let table = tables.0.open(key, indexes);
        Box::new(self.profiles.open(table, key.clone()))
    }

    fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        self.tables.told.set_indexes(key, indexes);
    }

    fn close(&self, key: &CellKey) {
        self.tables.told.close(key);
        // Its namespace may be what went, of which nobody else would tell.
        if let Some(namespace) = key.extent.namespace() {
            self.tables.forget(Some(namespace));
        }
    }
}
