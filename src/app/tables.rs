//! The tables of the catalog, as informers open them: the one join of `informer` and `store`.

use super::forgetting::{Forgetting, forget};
use crate::{
    callers::Callers,
    controller::Sieve,
    informer::Tables,
    model::{CellKey, DeltaSink, FieldPath, Projection},
    store::{Catalog, Writer},
};
use std::{collections::BTreeSet, sync::Arc};

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
    pub(super) tables: CatalogTables,
    /// Those who decide about whoever reads, if there is an address for reads.
    pub(super) callers: Option<Arc<Callers>>,
    pub(super) profiles: Sieve<Writer>,
}

impl Tables for OperatorTables {
    fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Box<dyn DeltaSink> {
        let Self { tables, callers, profiles } = self;
        let of = key.resource.group_resource();
        if (of.group(), of.resource()) == ("", "namespaces") {
            let told = tables.open(key, indexes);
            return Box::new(Forgetting { told, callers: callers.clone() });
        }
        if key.projection != Projection::Profile {
            return tables.open(key, indexes);
        }
        let table = tables.0.open(key, indexes);
        Box::new(profiles.open(table, key.clone()))
    }

    fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        self.tables.set_indexes(key, indexes);
    }

    fn close(&self, key: &CellKey) {
        self.tables.close(key);
        // Its namespace may be what went, of which nobody else would tell.
        if let Some(namespace) = key.extent.namespace() {
            forget(self.callers.as_deref(), Some(namespace));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::forgetting::sample::{Jane, cell},
        *,
    };
    use crate::{
        controller::Waiting,
        model::{Delta, Extent, Item, Outcome, Tombstone, Uid},
    };

    #[tokio::test]
    async fn of_a_namespace_that_goes_nothing_is_remembered() {
        let jane = Jane::new();
        let tables = OperatorTables {
            tables: CatalogTables(Catalog::new()),
            callers: jane.callers.clone(),
            profiles: Sieve::new("home".into(), Waiting::default()),
        };
        assert!(jane.is_asked().await && !jane.is_asked().await);
        for (resource, extent, expected) in [
            ("namespaces", Extent::Cluster, true),
            // Something else of that name.
            ("nodes", Extent::Cluster, false),
        ] {
            let mut sink = tables.open(&cell(resource, extent), &BTreeSet::new());
            let (namespace, name, version) = ("".into(), "shop".into(), None);
            let body = br#"{"metadata":{"name":"shop","uid":"u"}}"#;
            let item = Item { namespace, name, uid: Uid::parse("u"), version, body };
            assert_eq!(sink.apply(Delta::Upsert(item)), Outcome::Added);
            assert!(!jane.is_asked().await, "{resource}");
            let (namespace, name, version) = ("".into(), "shop".into(), None);
            let gone = sink.apply(Delta::Remove(Tombstone { namespace, name, version }));
            assert_eq!(gone, Outcome::Removed);
            assert_eq!(jane.is_asked().await, expected, "{resource}");
        }
        for (extent, expected) in [
            (Extent::Namespace("other".into()), false),
            (Extent::AllNamespaces, false),
            (Extent::Namespace("shop".into()), true),
        ] {
            tables.close(&cell("pods", extent.clone()));
            assert_eq!(jane.is_asked().await, expected, "{extent:?}");
        }
    }
}
