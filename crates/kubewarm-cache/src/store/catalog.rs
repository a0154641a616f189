//! Opens, finds and closes the stores of the process, one store for each `InformerKey`.

use super::{
    compression_contexts::CompressionContextPool,
    dictionary_group::{DecodeErrorCounter, DictionaryCost, DictionaryGroup},
    maintenance_queue::MaintenanceQueue,
    object_store::ObjectStore,
    reader::{StoreReader, StoreUsage},
    writer::StoreWriter,
};
use kubewarm_api::model::{FieldPath, Identity, InformerKey, Projection, Resource, UsageMeter};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

/// Maximum number of field indexes in one store that profiles declare, because each index takes
/// memory and time for each change. If the profiles declare more indexes, the store creates only
/// the first 32 in the order of their field paths, and kubewarm logs a warning.
pub const INDEXES_PER_STORE: usize = 32;

/// The groups of stores that share zstd dictionaries.
type DictionaryGroups = BTreeMap<DictionaryGroupKey, Weak<DictionaryGroup>>;

/// Stores with equal keys share zstd dictionaries.
///
/// A dictionary makes objects smaller that contain the same text as its samples. Users can see the
/// size of their stores, and could so guess texts in other users' samples. So the samples come only
/// from objects that the same namespace's profiles read with the same identity.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct DictionaryGroupKey {
    resource: Resource,
    projection: Projection,
    identity: Identity,
    /// Namespace of the profiles. `None` for stores that kubewarm opens for itself.
    declared_in: Option<Arc<str>>,
}

/// The `UsageMeter` of each store, which counts the store's objects and bytes. A meter can exist
/// before the `StoreCatalog` opens the store, and after the `StoreCatalog` closes it.
#[derive(Debug, Default)]
struct UsageMeters {
    by_key: BTreeMap<InformerKey, Weak<UsageMeter>>,
    /// When `by_key` has more entries than this number, the `StoreCatalog` removes the entries of
    /// dropped meters. It then sets this number to twice the remaining entries, plus 64, so that
    /// removals stay rare.
    sweep_at: usize,
}

/// All stores of the process. A clone is cheap and refers to the same stores.
#[derive(Clone, Debug, Default)]
pub struct StoreCatalog {
    stores: Arc<RwLock<BTreeMap<InformerKey, Arc<ObjectStore>>>>,
    dictionary_groups: Arc<Mutex<DictionaryGroups>>,
    meters: Arc<Mutex<UsageMeters>>,
    contexts: CompressionContextPool,
    maintenance: MaintenanceQueue,
    decode_errors: DecodeErrorCounter,
    dictionary_cost: DictionaryCost,
}

impl StoreCatalog {
    /// Creates a `StoreCatalog` without stores, and starts a thread that fills indexes, trains
    /// dictionaries and compresses objects again.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes each store that is opened later call `count` when a stored object does not decompress.
    /// The argument of `count` is the object's resource.
    pub fn with_error_counter(self, count: impl Fn(&Resource) + Send + Sync + 'static) -> Self {
        Self { decode_errors: DecodeErrorCounter(Some(Arc::new(count))), ..self }
    }

    /// Creates a `StoreCatalog` for a sample of objects, which predicts the memory of more objects.
    /// So its stores use a dictionary even if the sample is too small for the dictionary to pay.
    pub(super) fn of_sample() -> Self {
        Self { dictionary_cost: DictionaryCost::Ignored, ..Self::default() }
    }

    /// Opens an empty store with an index of each field path in `indexes`, and of the fields that
    /// the API server indexes for the kind. If a store is already open under `key`, the call closes
    /// that store. Readers of the closed store keep its last objects.
    pub fn open(&self, key: &InformerKey, indexes: &BTreeSet<FieldPath>) -> StoreWriter {
        let group = self.dictionary_group(key);
        let (is_secret, meter) = (key.has_secrets(), self.meter(key));
        let store = Arc::new(ObjectStore::new(Arc::clone(&group), is_secret, meter));
        if !is_secret {
            group.add_store(&store);
        }
        store.declare(&all_indexes(key, indexes));
        let old = self.stores.write().insert(key.clone(), Arc::clone(&store));
        if let Some(old) = old {
            old.close();
        }
        StoreWriter::new(store)
    }

    /// Returns the group of stores that share zstd dictionaries with the store of `key`, or creates
    /// this group. Also removes the entries of groups without stores.
    pub(super) fn dictionary_group(&self, key: &InformerKey) -> Arc<DictionaryGroup> {
        let mut dictionary_groups = self.dictionary_groups.lock();
        dictionary_groups.retain(|_, group| group.strong_count() > 0);
        let id = DictionaryGroupKey {
            resource: key.resource.clone(),
            projection: key.projection,
            identity: key.identity.clone(),
            declared_in: key.declared_in.clone(),
        };
        if let Some(group) = dictionary_groups.get(&id).and_then(Weak::upgrade) {
            return group;
        }
        let (contexts, maintenance) = (self.contexts.clone(), self.maintenance.clone());
        let group = DictionaryGroup::new(
            key.resource.clone(),
            contexts,
            maintenance,
            self.decode_errors.clone(),
            self.dictionary_cost,
        );
        let group = Arc::new(group);
        dictionary_groups.insert(id, Arc::downgrade(&group));
        group
    }

    /// Returns the `UsageMeter` of the store of the informer `key`, even before the store is
    /// opened. The meter counts the store's objects and bytes.
    pub fn meter(&self, key: &InformerKey) -> Arc<UsageMeter> {
        let mut meters = self.meters.lock();
        if let Some(meter) = meters.by_key.get(key).and_then(Weak::upgrade) {
            return meter;
        }
        if meters.by_key.len() > meters.sweep_at {
            meters.by_key.retain(|_, meter| meter.strong_count() > 0);
            meters.sweep_at = 2 * meters.by_key.len() + 64;
        }
        let meter = Arc::new(UsageMeter::of_informer());
        meters.by_key.insert(key.clone(), Arc::downgrade(&meter));
        meter
    }

    /// Returns a reader of the store of the informer with this key, or `None` if this store is not
    /// open.
    pub fn reader(&self, key: &InformerKey) -> Option<StoreReader> {
        self.stores.read().get(key).map(Arc::clone).map(StoreReader::new)
    }

    /// Closes the store of the informer `key`, and ends all
    /// [`EventLogFollower`](super::EventLogFollower)s of the store. The store's memory is freed
    /// when its writer and last reader are dropped.
    pub fn close(&self, key: &InformerKey) {
        let old = self.stores.write().remove(key);
        if let Some(store) = old {
            store.close();
        }
    }

    /// Makes an open store index exactly the field paths in `indexes`, and the fields that the API
    /// server indexes for the kind. The call drops other field indexes at once. The
    /// `StoreCatalog`'s maintenance thread fills new indexes later, and queries use an index only
    /// when it is complete.
    ///
    /// Cost: constant for the caller. The maintenance thread takes about 4 µs for each object and
    /// index. It locks the store for less than a millisecond at a time.
    pub fn set_indexes(&self, key: &InformerKey, indexes: &BTreeSet<FieldPath>) {
        let store = self.stores.read().get(key).map(Arc::clone);
        if let Some(store) = store {
            store.declare(&all_indexes(key, indexes));
        }
    }

    /// Blocks until the maintenance thread of the `StoreCatalog` has done all jobs that are queued
    /// now. Then all indexes are complete, and all compressed objects use the newest dictionary.
    ///
    /// Tests, benchmarks and `ObjectSample::measure` call this function to get repeatable sizes.
    pub fn wait_until_settled(&self) {
        self.maintenance.settle();
    }

    /// Returns each open store's informer key, number of objects and memory, ordered by key.
    pub fn usage(&self) -> Vec<(InformerKey, StoreUsage)> {
        let stores: Vec<_> = self
            .stores
            .read()
            .iter()
            .map(|(key, store)| (key.clone(), Arc::clone(store)))
            .collect();
        stores.into_iter().map(|(key, store)| (key, store.usage())).collect()
    }
}

/// Returns the field paths that the store of `key` always indexes, and the first
/// [`INDEXES_PER_STORE`] of the paths `indexes` in sorted order. Logs a warning if `indexes` has
/// more paths.
fn all_indexes(key: &InformerKey, indexes: &BTreeSet<FieldPath>) -> Vec<FieldPath> {
    if indexes.len() > INDEXES_PER_STORE {
        let declared = indexes.len();
        tracing::warn!(informer = %key, declared, limit = INDEXES_PER_STORE, "too many indexes");
    }
    // The built-in indexes are of fields outside `metadata`, which a store of metadata lacks.
    let is_complete = matches!(key.projection, Projection::Full(_));
    let built_in = key.resource.group_resource().indexed_fields().filter(|_| is_complete);
    built_in.chain(indexes.iter().take(INDEXES_PER_STORE).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::{
        all, body, informer_key, is_indexed, upsert, version, with_field,
    };
    use kubewarm_api::model::{Delta, DeltaSink, ManagedFieldsPolicy, ReplacePolicy};
    use std::thread;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    #[test]
    fn readers_of_a_replaced_or_closed_store_keep_its_objects() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        assert!(catalog.reader(&key).is_none());
        let mut first = catalog.open(&key, &BTreeSet::new());
        first.apply(upsert("a/x", 1, "1", "{}"));
        let old = catalog.reader(&key).unwrap();
        let mut second = catalog.open(&key, &BTreeSet::new());
        second.apply(upsert("a/y", 1, "1", "{}"));
        assert_eq!(&*all(&old).first().unwrap().key.name, "x");
        let new = catalog.clone().reader(&key).unwrap();
        assert_eq!(&*all(&new).first().unwrap().key.name, "y");
        catalog.close(&key);
        assert!(catalog.reader(&key).is_none() && catalog.usage().is_empty());
        second.apply(upsert("a/z", 1, "1", "{}"));
        assert_eq!(new.usage().objects, 2);
    }

    #[test]
    fn a_usage_gauge_counts_only_its_own_store() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let meter = catalog.meter(&key);
        let mut first = catalog.open(&key, &BTreeSet::new());
        first.apply(upsert("a/x", 1, "1", "{}"));
        first.apply(upsert("a/y", 1, "2", "{}"));
        let usage =
            |catalog: &StoreCatalog| catalog.usage().first().map(|(_, usage)| *usage).unwrap();
        assert_eq!((meter.objects(), meter.bytes()), (2, usage(&catalog).bytes));
        let mut second = catalog.open(&key, &BTreeSet::new());
        first.apply(upsert("a/z", 1, "3", "{}"));
        assert_eq!((meter.objects(), meter.bytes()), (0, 0));
        second.apply(upsert("a/y", 1, "1", "{}"));
        assert_eq!((meter.objects(), meter.bytes()), (1, usage(&catalog).bytes));
        catalog.close(&key);
        second.apply(upsert("a/z", 1, "3", "{}"));
        assert_eq!((meter.objects(), meter.bytes()), (0, 0));
    }

    #[test]
    fn declared_indexes_count_as_memory_of_their_store() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let meter = catalog.meter(&key);
        let paths = [path("a"), path("b")];
        let mut writer = catalog.open(&key, &paths[..1].iter().cloned().collect());
        for number in 0..100 {
            let fields = format!(r#","a":"a long value {number}","b":{number}"#);
            let (name, version) = (format!("a/x{number:03}"), number.to_string());
            writer.apply(upsert(&name, 1, &version, &body("{}", &fields)));
        }
        let bytes = || catalog.usage().first().map(|(_, usage)| usage.bytes).unwrap();
        let with_one = meter.bytes();
        assert_eq!(with_one, bytes());
        catalog.set_indexes(&key, &BTreeSet::from(paths.clone()));
        catalog.wait_until_settled();
        let with_two = meter.bytes();
        assert!(with_two > with_one && with_two == bytes(), "{with_two} after {with_one}");
        catalog.set_indexes(&key, &paths[1..].iter().cloned().collect());
        assert!(meter.bytes() + 100 * 16 < with_two, "{} of {with_two}", meter.bytes());
        assert_eq!(meter.bytes(), bytes());
        writer.apply(Delta::Purge);
        writer.apply(upsert("a/x", 1, "1", &body("{}", r#","b":1"#)));
        assert_eq!(meter.bytes(), bytes());
        catalog.close(&key);
        writer.apply(upsert("a/y", 1, "1", &body("{}", r#","b":2"#)));
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn the_event_log_counts_as_memory_of_its_store() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let meter = catalog.meter(&key);
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        let large = body("{}", &format!(r#","x":"{}""#, sequence(4_096)));
        writer.apply(upsert("a/x", 1, "1", &large));
        writer.apply(Delta::ListDone(version("1")));
        let before = meter.bytes();
        let arrived = std::time::Instant::now();
        writer.apply(Delta::Arrived(arrived));
        writer.apply(upsert("a/x", 1, "2", "{}"));
        let after = meter.bytes();
        assert!(after > before, "{after} after {before}");
    }

    /// Returns random text, which zstd cannot compress.
    fn sequence(length: usize) -> String {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
    }

    #[test]
    fn a_store_rejects_indexes_above_its_maximum() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let field = body("{}", r#","a":1"#);
        writer.apply(upsert("a/x", 1, "1", &field));
        let mut query: BTreeSet<_> = (0..31).map(|n| path(&format!("x.f{n:02}"))).collect();
        query.insert(path("a"));
        catalog.set_indexes(&key, &query);
        catalog.wait_until_settled();
        let reader = catalog.reader(&key).unwrap();
        assert!(is_indexed(&reader, &path("a")));
        assert_eq!(with_field(&reader, &path("a"), "1").len(), 1);
        assert_eq!(with_field(&reader, &path("a"), "2").len(), 0);
        query.insert(path("z"));
        catalog.set_indexes(&key, &query);
        catalog.wait_until_settled();
        assert!(!is_indexed(&reader, &path("z")));
        catalog.set_indexes(&key, &BTreeSet::new());
        assert!(!is_indexed(&reader, &path("a")));
    }

    #[test]
    fn a_store_of_complete_pods_always_indexes_the_node_name() {
        let all = Projection::Full(ManagedFieldsPolicy::Drop);
        let metadata = Projection::Metadata(ManagedFieldsPolicy::Drop);
        for (resource, projection, expected) in
            [("pods", all, true), ("pods", metadata, false), ("nodes", all, false)]
        {
            let catalog = StoreCatalog::new();
            let key = InformerKey { projection, ..informer_key(resource) };
            let reader = catalog.open(&key, &BTreeSet::new()).reader();
            for indexes in [BTreeSet::new(), BTreeSet::from([path("spec.nodeName"), path("a")])] {
                let is_built_in = indexes.is_empty();
                catalog.set_indexes(&key, &indexes);
                let is_indexed = is_indexed(&reader, &path("spec.nodeName"));
                assert_eq!(is_indexed, expected || !is_built_in, "{key}");
            }
        }
    }

    #[test]
    fn indexes_declared_during_writes_contain_every_object() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let reader = catalog.reader(&key).unwrap();
        let busy = thread::spawn(move || {
            for round in 0..12_u64 {
                writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
                for n in (0..600).filter(|n| (n + round) % 3 > 0) {
                    let body = body("{}", &format!(r#","node":{}"#, (n + round) % 5));
                    let version = (round + 1).to_string();
                    writer.apply(upsert(&format!("a/x{n:03}"), 1, &version, &body));
                }
                writer.apply(Delta::ListDone(version("100")));
            }
        });
        let query = BTreeSet::from([path("node")]);
        while !busy.is_finished() {
            catalog.set_indexes(&key, &BTreeSet::new());
            catalog.set_indexes(&key, &query);
        }
        busy.join().unwrap();
        catalog.wait_until_settled();
        assert!(is_indexed(&reader, &path("node")));
        let counts: Vec<_> = (0..5)
            .map(|node| with_field(&reader, &path("node"), &node.to_string()).len())
            .collect();
        let numbers = (0..600).filter(|n| (n + 11) % 3 > 0);
        let mut expected = vec![0; 5];
        for n in numbers {
            expected[(n + 11) % 5] += 1;
        }
        assert_eq!(counts, expected);
    }
}
