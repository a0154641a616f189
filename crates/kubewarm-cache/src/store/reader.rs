//! Reads from a store: single objects, keys, versions and memory usage.

use super::{
    contents::{RowIdentity, StoreContents},
    object_store::ObjectStore,
    packed_object::{DetachedObject, field_values},
    row_order::RowPosition,
    row_snapshot::RowSnapshot,
};
use bytes::Bytes;
use kubewarm_api::model::{
    FieldPath, ObjectEncoding, ObjectIdentity, ObjectKey, ResourceVersion, Uid, namespace_order,
};
use kubewarm_wire::ObjectBody;
use serde::Serialize;
use std::{cmp::Ordering, fmt, sync::Arc};

/// A stored object cannot be decompressed, because of a bug or faulty memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored object cannot be decompressed")]
pub struct DamagedRecordError;

/// Reads the objects of one store. Each read sees every delta that the writer has applied. A clone
/// is cheap.
///
/// If the store is closed, or another store replaces it, the reader can still read the store's last
/// objects. A read holds the store's lock for about 0.1 µs for each object, and decompresses the
/// objects afterwards.
#[derive(Clone, Debug)]
pub struct StoreReader {
    pub(super) store: Arc<ObjectStore>,
}

/// One object of a store, decompressed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// Namespace and name of the object. The namespace is empty for a cluster-scoped object.
    pub key: ObjectKey,
    /// `metadata.uid`. It changes if the object is deleted and created again with the same name.
    pub uid: Uid,
    /// `metadata.resourceVersion`. `None` if the API server sent no version.
    pub version: Option<ResourceVersion>,
    /// The object without `apiVersion` and `kind`, and only with the fields that the profile keeps.
    pub bytes: Bytes,
    /// The encoding of `bytes`.
    pub encoding: ObjectEncoding,
}

/// A borrowed view of one decompressed object. Creating it copies no bytes.
#[derive(Clone, Copy)]
pub struct StoredObjectView<'a> {
    /// Namespace of the object; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name of the object, as UTF-8.
    pub name: &'a [u8],
    /// The object without `apiVersion` and `kind`.
    pub body: ObjectBody<'a>,
}

/// Number of objects in one store, and the memory of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreUsage {
    /// Number of objects in the store.
    pub objects: u64,
    /// Memory in bytes: packed (usually compressed) objects, rows, key order, namespaces, indexes,
    /// event log and dictionaries. If several stores use a dictionary, each store counts an equal
    /// part of the dictionary's bytes.
    ///
    /// The number differs by at most a tenth from the memory growth of the process. A store without
    /// objects and changes takes 0 bytes.
    pub bytes: u64,
}

impl fmt::Debug for StoredObject {
    /// Does not print the object, because the object can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key: ObjectKey { namespace, name }, uid, version, bytes, .. } = self;
        let length = bytes.len();
        write!(f, "{namespace}/{name} ({uid:?}, version {version:?}) of {length} bytes")
    }
}

impl StoredObject {
    /// Returns the object's bytes with their encoding.
    pub fn body(&self) -> ObjectBody<'_> {
        ObjectBody { encoding: self.encoding, bytes: &self.bytes }
    }
}

impl StoreReader {
    pub(super) fn new(store: Arc<ObjectStore>) -> Self {
        Self { store }
    }

    /// Returns the number of objects and the memory of the store. Cost: one step for each field
    /// index that profiles declare.
    pub fn usage(&self) -> StoreUsage {
        self.store.usage()
    }

    /// Returns the number of objects in the store.
    pub fn objects(&self) -> u64 {
        self.store.contents.read().order.len() as u64
    }

    /// Returns the field paths of the complete indexes that contain no value, which can show a
    /// typing error in a profile. Cost: one step for each field index.
    pub fn paths_without_values(&self) -> Vec<FieldPath> {
        let contents = self.store.contents.read();
        let indexes = contents.declared.iter();
        let empty = indexes.filter(|index| index.is_complete && index.values.is_empty());
        empty.map(|index| index.path.clone()).collect()
    }

    /// Returns the encoding of the store's objects.
    pub fn encoding(&self) -> ObjectEncoding {
        self.store.contents.read().encoding
    }

    /// Whether the store contains an object with this namespace and name.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.store.contents.read().find(namespace, name, RowPosition::default()).is_ok()
    }

    /// Returns the resource version of the object with this namespace and name. Returns `None` if
    /// the store lacks the object, or if the object has no version.
    pub fn object_version(&self, namespace: &str, name: &str) -> Option<ResourceVersion> {
        let contents = self.store.contents.read();
        let position = contents.find(namespace, name, RowPosition::default()).ok()?;
        contents.identity(contents.order.get(position)?)?.version
    }

    /// Waits until `is_reached` returns `true` for the store's version. Calls `is_reached` again
    /// after each change of the version and each confirmation that the version is current. Cancel
    /// safe. The wait does not end if another store has replaced this one, whose version then
    /// stays. So callers set a time limit.
    pub async fn wait_for_version(&self, is_reached: impl Fn(Option<&ResourceVersion>) -> bool) {
        loop {
            // Created before the comparison, so that this task also wakes for a change during the
            // comparison.
            let version_changed = self.store.version_changed.notified();
            if is_reached(self.version().as_ref()) {
                return;
            }
            version_changed.await;
        }
    }

    /// Makes each [`StoreReader::wait_for_version`] test its condition again, because something
    /// other than the store's version has changed: for example, a comparison has confirmed the
    /// version.
    pub(crate) fn wake_version_waits(&self) {
        self.store.version_changed.notify_waiters();
    }

    /// Whether kubewarm is about to compress the store's objects again, with a better dictionary.
    /// Objects that the store gets meanwhile are compressed twice, and the process keeps the memory
    /// of their first form. So lists pause meanwhile.
    pub fn awaits_dictionary(&self) -> bool {
        self.store.dictionary_group.is_attempting()
    }

    /// Calls `each` for every object, and returns the store's version. Holds the read lock until
    /// the last call returns, so the objects and the version are from the same moment.
    pub fn visit(&self, mut each: impl FnMut(ObjectIdentity<'_>)) -> Option<ResourceVersion> {
        let contents = self.store.contents.read();
        contents.visit(&mut each);
        contents.version.clone()
    }

    /// Returns the resource version up to which the store contains all changes. Lists, bookmarks
    /// and events raise the version. Returns `None` while the store has received no list, bookmark
    /// or event.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.store.contents.read().version.clone()
    }

    /// Returns the store's version, like [`StoreReader::version`]. But from the first object that a
    /// list changes until the end of the list, returns `None`, because the store then mixes objects
    /// of two versions.
    pub fn consistent_version(&self) -> Option<ResourceVersion> {
        self.store.contents.read().consistent_version().cloned()
    }

    /// Returns one object. Returns `None` if the store does not contain the object, or if the
    /// object cannot be decompressed. Cost: about 3 µs for a pod.
    pub fn get(&self, key: &ObjectKey) -> Option<StoredObject> {
        self.get_at(key).0.ok().flatten()
    }

    /// Returns one object, or an error if it cannot be decompressed, with
    /// [`StoreReader::consistent_version`] at the same moment.
    pub fn get_at(
        &self,
        key: &ObjectKey,
    ) -> (Result<Option<StoredObject>, DamagedRecordError>, Option<ResourceVersion>) {
        let contents = self.store.contents.read();
        let position = contents.find(&key.namespace, &key.name, RowPosition::default()).ok();
        let row = position.and_then(|position| contents.order.get(position));
        let object = row.and_then(|row| Some((contents.packed(row)?, contents.identity(row)?)));
        let version = contents.consistent_version().cloned();
        drop(contents);
        let unpack = |(packed, RowIdentity { uid, version }): (DetachedObject, _)| {
            let bytes = self.store.body(&packed).ok_or(DamagedRecordError)?;
            let (key, encoding) = (key.clone(), packed.encoding);
            Ok(StoredObject { key, uid, version, bytes, encoding })
        };
        (object.map(unpack).transpose(), version)
    }

    /// Returns the keys of all objects that have no value at the field path `path`, in key order.
    /// All keys are from the same moment. Returns `None` while the store has no version, because
    /// the store has then received no list.
    ///
    /// # Cost
    ///
    /// With a complete index of `path`: about 0.1 µs for each object, under the store's lock.
    /// Without such an index: 0.1 µs for each object under the lock, then 2 µs for each object to
    /// decompress it.
    pub fn list_keys_without(&self, path: &FieldPath) -> Option<Vec<ObjectKey>> {
        let contents = self.store.contents.read();
        contents.version.as_ref()?;
        let index = contents.declared.iter().find(|index| index.path == *path);
        if let Some(index) = index.filter(|index| index.is_complete) {
            let having = index.values.any();
            let all = contents.order.from(RowPosition::default());
            let without = all.filter(|&number| !having.contains(number));
            return Some(without.filter_map(|number| contents.key(number)).collect());
        }
        let all = RowSnapshot::of(&contents, contents.order.from(RowPosition::default()));
        drop(contents);
        let (store, paths) = (&self.store, [path.clone()].into_iter().collect());
        store.dictionary_group.contexts.with(|context, body| {
            let has_none = |row: &usize| {
                all.seen(*row, store, context, body)
                    .and_then(|seen| field_values(seen.body, &paths))
                    .is_some_and(|values| values.iter().all(Vec::is_empty))
            };
            Some((0..all.len()).filter(has_none).filter_map(|row| all.key_of(row)).collect())
        })
    }

    /// Returns the keys and resource versions of the first `limit` objects after the key `after`,
    /// in key order. The call decompresses no object, so it is a cheap way to find changed objects.
    pub fn versions(
        &self,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Vec<(ObjectKey, Option<ResourceVersion>)> {
        let contents = self.store.contents.read();
        let rows = contents.order.from(contents.position_after(after)).take(limit);
        rows.filter_map(|number| Some((contents.key(number)?, contents.identity(number)?.version)))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn place_of(&self, number: u32) -> (usize, usize) {
        let contents = self.store.contents.read();
        let packed = contents.slab.get(number).unwrap().record.packed();
        (packed.as_ptr() as usize, packed.len())
    }

    #[cfg(test)]
    pub(super) fn packing_of(&self, number: u32) -> super::packed_object::BodyCompression {
        self.store.contents.read().slab.get(number).unwrap().record.packing()
    }
}

impl StoreContents {
    /// Calls `each` for every object.
    pub(super) fn visit(&self, each: &mut impl FnMut(ObjectIdentity<'_>)) {
        for number in self.slab.numbers_from(0) {
            let row = self.object(number).zip(self.identity(number));
            // Each number belongs to an existing row, because the lock is held. So this branch
            // never runs.
            let Some((ObjectKeyRef { namespace, name }, RowIdentity { uid, version })) = row else {
                continue;
            };
            // The writer creates each name from a `str`, so the stored bytes are valid UTF-8.
            let name = str::from_utf8(name).unwrap_or_default();
            each(ObjectIdentity { namespace, name, uid, version });
        }
    }

    pub(super) fn object(&self, number: u32) -> Option<ObjectKeyRef<'_>> {
        let row = self.slab.get(number)?;
        let namespace = self.namespaces.name(row.namespace);
        Some(ObjectKeyRef { namespace, name: row.record.name() })
    }

    pub(super) fn key(&self, number: u32) -> Option<ObjectKey> {
        self.object(number).map(ObjectKeyRef::to_key)
    }

    /// Returns the position of the first row whose key is greater than `after`. If `after` is
    /// `None`, returns the first position in key order.
    pub(super) fn position_after(&self, after: Option<&ObjectKey>) -> RowPosition {
        let Some(after) = after else { return RowPosition::default() };
        match self.find(&after.namespace, &after.name, RowPosition::default()) {
            Ok(position) => position.next(),
            Err(position) => position,
        }
    }
}

/// An [`ObjectKey`] that borrows its parts from a row. It has the same order as `ObjectKey`. The
/// name is UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectKeyRef<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a [u8],
}

impl ObjectKeyRef<'_> {
    pub(super) fn to_key(self) -> ObjectKey {
        let name = String::from_utf8_lossy(self.name).into();
        ObjectKey { namespace: self.namespace.into(), name }
    }
}

impl<'a> From<&'a ObjectKey> for ObjectKeyRef<'a> {
    fn from(key: &'a ObjectKey) -> Self {
        Self { namespace: &key.namespace, name: key.name.as_bytes() }
    }
}

impl Ord for ObjectKeyRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most comparisons are within one namespace. So test for equality first, which is faster
        // than `namespace_order`.
        if self.namespace == other.namespace {
            return self.name.cmp(other.name);
        }
        namespace_order(self.namespace, other.namespace)
    }
}

impl PartialOrd for ObjectKeyRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        BodyPredicate, BodyPredicates, ObjectQuery, StoreCatalog,
        fixtures::{all, body, informer_key, keys, remove, upsert},
        packed_object::{BodyCompression, PackedObject},
    };
    use kubewarm_api::model::{Delta, DeltaSink};
    use std::{
        collections::BTreeSet,
        ops::ControlFlow,
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_version_ends_with_the_event_or_bookmark_that_brings_it() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let began = Instant::now();
        let at_least = async |version: u64| {
            let version = ResourceVersion::from(version);
            reader.wait_for_version(|current| current >= Some(&version)).await;
            began.elapsed().as_millis()
        };
        let changes = async {
            for delta in [upsert("a/x", 1, "5", &body("{}", "")), Delta::Progress(7.into())] {
                sleep(Duration::from_millis(10)).await;
                writer.apply(delta);
            }
            sleep(Duration::from_millis(10)).await;
            writer.apply(Delta::Equal(9.into()));
        };
        let (at, ()) = tokio::join!(
            async { tokio::join!(at_least(5), at_least(6), at_least(7), at_least(8)) },
            changes
        );
        assert_eq!(at, (10, 20, 20, 30));
    }

    #[test]
    fn keys_without_a_field_are_equal_with_and_without_an_index() {
        let path = FieldPath::parse("metadata.deletionTimestamp").unwrap();
        let leaving = r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let there = body("{}", "");
        for declared in [BTreeSet::from([path.clone()]), BTreeSet::new()] {
            let catalog = StoreCatalog::new();
            let mut writer = catalog.open(&informer_key("namespaces"), &declared);
            let reader = catalog.reader(&informer_key("namespaces")).unwrap();
            assert_eq!(reader.list_keys_without(&path), None);
            let names = || {
                let keys = reader.list_keys_without(&path).unwrap();
                keys.into_iter().map(|key| key.name.into_string())
            };
            for key in ["/a", "/b", "/c"] {
                writer.apply(upsert(key, 1, "5", &there));
            }
            assert_eq!(names().collect::<Vec<_>>(), ["a", "b", "c"]);
            writer.apply(upsert("/b", 1, "6", leaving));
            assert_eq!(names().collect::<Vec<_>>(), ["a", "c"]);
            // The UID differs: the Namespace object `b` was deleted and created again with the same
            // name.
            writer.apply(upsert("/b", 2, "7", &there));
            assert_eq!(names().collect::<Vec<_>>(), ["a", "b", "c"]);
        }
    }

    #[test]
    fn an_object_that_does_not_unpack_is_counted_and_damages_a_selection() {
        let errors = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&errors);
        let catalog = StoreCatalog::new().with_error_counter(move |resource| {
            assert_eq!(*resource, informer_key("pods").resource);
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        let web = body(r#"{"app":"web"}"#, "");
        for key in ["a/x", "a/y"] {
            writer.apply(upsert(key, 1, "5", &web));
        }
        let record = PackedObject::new("x", BodyCompression::Zstd, None, b"damaged");
        reader
            .store
            .contents
            .write()
            .repack(0, DetachedObject { record, dictionary: None, encoding: ObjectEncoding::Json });
        let objects = keys(&reader).into_iter().filter_map(|key| reader.get(&key));
        assert_eq!(objects.count(), 1);
        assert_eq!(all(&reader).len(), 1);
        let [damaged, missing] = ["x", "z"].map(|name| {
            let key = ObjectKey { namespace: "a".into(), name: name.into() };
            reader.get_at(&key).0
        });
        assert_eq!((damaged, missing), (Err(DamagedRecordError), Ok(None)));
        assert_eq!(errors.load(Ordering::Relaxed), 3);
        let test = BodyPredicate::Field {
            path: FieldPath::parse("text").unwrap(),
            absent: "".into(),
            is_equality: true,
            value: "".into(),
        };
        for tests in [BodyPredicates::default(), [test].into_iter().collect()] {
            let query = ObjectQuery { tests, ..ObjectQuery::default() };
            let mut selected = reader.select(&query, None, None);
            while selected.filter_next() {}
            let mut seen = 0;
            selected.visit_next(|_| {
                seen += 1;
                ControlFlow::Continue(())
            });
            assert_eq!((seen, selected.is_damaged()), (1, true));
        }
        assert_eq!(writer.apply(remove("a/x", "6")), kubewarm_api::model::DeltaOutcome::Removed);
        assert_eq!(writer.apply(remove("a/y", "7")), kubewarm_api::model::DeltaOutcome::Removed);
        assert_eq!(reader.usage(), StoreUsage::default());
    }
}
