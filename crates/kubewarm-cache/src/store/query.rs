//! What readers ask of a table: one object, keys and versions in key order.

use super::{
    contents::{Contents, Identity},
    order::Place,
    shared_rows::SharedRows,
    table::Table,
};
use bytes::Bytes;
use kubewarm_api::model::{FieldPath, Named, ObjectKey, ResourceVersion, Uid, namespace_order};
use serde::Serialize;
use std::{
    cmp::Ordering,
    fmt,
    sync::{Arc, atomic},
};

/// Sees every delta that the table's writer has applied. Cloning is cheap; a reader of a table that
/// was replaced or closed goes on seeing its last contents.
///
/// Lock hold: a read shares packed records, about 0.1 µs an object, and unpacks them after the lock.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) table: Arc<Table>,
}

/// One object as it is held.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub key: ObjectKey,
    /// Which object it is.
    pub uid: Uid,
    /// Its version; `None` from servers that give none.
    pub version: Option<ResourceVersion>,
    /// The body as it was delivered: JSON without `apiVersion` and `kind`.
    pub body: Bytes,
}

/// One object while it is looked at: nothing of it is copied.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its namespace; empty of what is cluster-scoped.
    pub namespace: &'a str,
    /// Its name, which is UTF-8.
    pub name: &'a [u8],
    /// The body, as of [`Object`].
    pub body: &'a [u8],
}

/// What a table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Objects.
    pub objects: u64,
    /// Bytes taken of the allocator: records (name and packed body), rows, key order, namespaces,
    /// labels, declared indexes, and this table's share of its kind's dictionaries; within a tenth
    /// of what the process grows by. An emptied table holds 0.
    pub bytes: u64,
}

impl fmt::Debug for Object {
    /// Which object, never what it says: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key: ObjectKey { namespace, name }, uid, version, body } = self;
        let length = body.len();
        write!(f, "{namespace}/{name} ({uid:?}, version {version:?}) of {length} bytes")
    }
}

impl fmt::Debug for Seen<'_> {
    /// As of [`Object`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length) = (self.name.escape_ascii(), self.body.len());
        write!(f, "{}/{name} of {length} bytes", self.namespace)
    }
}

impl Reader {
    /// Of the table.
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    /// How much the table holds. Cost: constant, up to the number of declared indexes.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    /// Objects held.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.table.contents.read().order.len() as u64
    }

    /// Whether an object of that name is held.
    #[must_use]
    pub fn holds(&self, namespace: &str, name: &str) -> bool {
        self.table.contents.read().find(namespace, name, Place::default()).is_ok()
    }

    /// Calls `each` with every object that is held, all of one moment, and returns the version of that moment.
    pub fn visit(&self, mut each: impl FnMut(Named<'_>)) -> Option<ResourceVersion> {
        let contents = self.table.contents.read();
        for number in contents.slab.numbers_from(0) {
            let row = contents.object(number).zip(contents.identity(number));
            let Some(((namespace, name), Identity { uid, version })) = row else { continue };
            // Names came in as text.
            let name = str::from_utf8(name).unwrap_or_default();
            each(Named { namespace, name, uid, version });
        }
        contents.version.clone()
    }

    /// The version up to which the table is complete: of the last list, bookmark or event.
    #[must_use]
    pub fn version(&self) -> Option<ResourceVersion> {
        self.table.contents.read().version.clone()
    }

    /// Records that did not decode and were treated as absent, since the table was opened. Each is a
    /// fault of this program.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.table.undecodable.load(atomic::Ordering::Relaxed)
    }

    /// One object. Cost: about 3 µs for a pod.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.get_at(key).0
    }

    /// The same, and the table's version at that moment.
    #[must_use]
    pub fn get_at(&self, key: &ObjectKey) -> (Option<Object>, Option<ResourceVersion>) {
        let contents = self.table.contents.read();
        let found = contents.find(&key.namespace, &key.name, Place::default()).ok();
        let found = found.and_then(|place| contents.order.get(place));
        let found = found.and_then(|row| Some((contents.packed(row)?, contents.identity(row)?)));
        let version = contents.version.clone();
        drop(contents);
        let object = found.and_then(|(packed, Identity { uid, version })| {
            Some(Object { key: key.clone(), uid, version, body: self.table.body(&packed)? })
        });
        (object, version)
    }

    /// The keys of the objects that have no value at `path`, in key order, all from the same moment. `None` while the
    /// table is not complete.
    ///
    /// # Cost
    ///
    /// About 0.1 µs an object, under the lock, where that index is declared and complete. Otherwise the lock
    /// is held for about 0.1 µs an object, and then it takes about 2 µs an object to unpack.
    #[must_use]
    pub fn keys_without(&self, path: &FieldPath) -> Option<Vec<ObjectKey>> {
        let contents = self.table.contents.read();
        contents.version.as_ref()?;
        let index = contents.declared.iter().find(|index| index.path == *path);
        if let Some(index) = index.filter(|index| index.is_complete) {
            let having = index.values.any();
            let all = contents.order.from(Place::default());
            let without = all.filter(|&number| !having.contains(number));
            return Some(without.filter_map(|number| contents.key(number)).collect());
        }
        let all = SharedRows::of(&contents, contents.order.from(Place::default()));
        drop(contents);
        let (table, paths) = (&self.table, [path.clone()].into_iter().collect());
        table.kind.codec.with(|context, body| {
            let has_none = |row: &usize| {
                all.seen(*row, table, context, body).is_some_and(|seen| {
                    table.encoding.field_values(seen.body, &paths).iter().all(Vec::is_empty)
                })
            };
            Some((0..all.len()).filter(has_none).filter_map(|row| all.key_of(row)).collect())
        })
    }

    /// Keys and versions of up to `limit` objects behind `after`, in key order; no body is touched.
    /// For those who look again only at what has changed.
    #[must_use]
    pub fn versions(
        &self,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Vec<(ObjectKey, Option<ResourceVersion>)> {
        let contents = self.table.contents.read();
        let rows = contents.order.from(contents.behind(after)).take(limit);
        rows.filter_map(|number| Some((contents.key(number)?, contents.identity(number)?.version)))
            .collect()
    }

    /// Address and length of a row's record.
    #[cfg(test)]
    pub(super) fn place_of(&self, number: u32) -> (usize, usize) {
        let contents = self.table.contents.read();
        let packed = contents.slab.get(number).unwrap().record.packed();
        (packed.as_ptr() as usize, packed.len())
    }

    /// How a row's record is packed.
    #[cfg(test)]
    pub(super) fn packing_of(&self, number: u32) -> super::record::Packing {
        self.table.contents.read().slab.get(number).unwrap().record.packing()
    }
}

impl Contents {
    /// The namespace and the name of a row.
    pub(super) fn object(&self, number: u32) -> Option<(&str, &[u8])> {
        let row = self.slab.get(number)?;
        Some((self.namespaces.name(row.namespace), row.record.name()))
    }

    /// The key of a row.
    pub(super) fn key(&self, number: u32) -> Option<ObjectKey> {
        self.object(number).map(|(namespace, name)| key(namespace, name))
    }

    /// Where the first key behind `after` is.
    pub(super) fn behind(&self, after: Option<&ObjectKey>) -> Place {
        let Some(after) = after else { return Place::default() };
        match self.find(&after.namespace, &after.name, Place::default()) {
            Ok(place) => place.next(),
            Err(place) => place,
        }
    }
}

/// Whether a namespace and a name stand behind a key.
pub(super) fn is_behind(object: (&str, &[u8]), after: &ObjectKey) -> bool {
    key_order(object, after).is_gt()
}

/// Key order of a namespace with a name, and a key.
pub(super) fn key_order(object: (&str, &[u8]), key: &ObjectKey) -> Ordering {
    object_order(object, (&key.namespace, key.name.as_bytes()))
}

/// Key order of two objects, each a namespace with a name.
pub(super) fn object_order(one: (&str, &[u8]), other: (&str, &[u8])) -> Ordering {
    // Most are of one namespace, which is found sooner than an order.
    if one.0 == other.0 {
        return one.1.cmp(other.1);
    }
    namespace_order(one.0, other.0)
}

/// Of a namespace and a name, which is UTF-8.
pub(super) fn key(namespace: &str, name: &[u8]) -> ObjectKey {
    ObjectKey { namespace: namespace.into(), name: String::from_utf8_lossy(name).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Catalog,
        record::{PackedRecord, Packing, Record},
        samples::{all, body, informer_key, keys, remove, upsert},
    };
    use kubewarm_api::model::DeltaSink;
    use std::collections::BTreeSet;

    #[test]
    fn objects_without_a_field_are_the_same_with_and_without_its_index() {
        let path = FieldPath::parse(".metadata.deletionTimestamp").unwrap();
        let leaving = r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let there = body("{}", "");
        for declared in [BTreeSet::from([path.clone()]), BTreeSet::new()] {
            let catalog = Catalog::new();
            let mut writer = catalog.open(&informer_key("namespaces"), &declared);
            let reader = catalog.reader(&informer_key("namespaces")).unwrap();
            assert_eq!(reader.keys_without(&path), None);
            let names = || {
                let keys = reader.keys_without(&path).unwrap();
                keys.into_iter().map(|key| key.name.into_string())
            };
            for key in ["/a", "/b", "/c"] {
                writer.apply(upsert(key, 1, "5", &there));
            }
            assert_eq!(names().collect::<Vec<_>>(), ["a", "b", "c"]);
            writer.apply(upsert("/b", 1, "6", leaving));
            assert_eq!(names().collect::<Vec<_>>(), ["a", "c"]);
            // Another namespace of that name.
            writer.apply(upsert("/b", 2, "7", &there));
            assert_eq!(names().collect::<Vec<_>>(), ["a", "b", "c"]);
        }
    }

    #[test]
    fn a_record_that_does_not_decode_is_absent_and_counted() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let web = body(r#"{"app":"web"}"#, "");
        for key in ["a/x", "a/y"] {
            writer.apply(upsert(key, 1, "5", &web));
        }
        let record = Record::new("x", Packing::Zstd, b"damaged");
        reader.table.contents.write().repack(0, PackedRecord { record, dictionary: None });
        let objects = keys(&reader).into_iter().filter_map(|key| reader.get(&key));
        assert_eq!(objects.count(), 1);
        assert_eq!(all(&reader).len(), 1);
        assert_eq!(reader.undecodable(), 2);
        assert_eq!(writer.apply(remove("a/x", "6")), kubewarm_api::model::Outcome::Removed);
        assert_eq!(writer.apply(remove("a/y", "7")), kubewarm_api::model::Outcome::Removed);
        assert_eq!(reader.usage(), Usage::default());
    }
}
