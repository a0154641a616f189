//! Trains the compression dictionaries that the stores of one resource use, and decides when to train the next
//! dictionary.

use super::{
    compression_contexts::{CompressionContext, CompressionContextPool},
    dictionary::CompressionDictionary,
    maintenance_queue::{MaintenanceQueue, repack},
    object_store::ObjectStore,
};
use kubewarm_api::model::Resource;
use kubewarm_wire::ObjectBody;
use parking_lot::{Mutex, RwLock};
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum size of a dictionary, in bytes. Larger dictionaries save no more memory.
const DICTIONARY_BYTES: usize = 16 << 10;

/// Minimum number of stored objects for the first dictionary. With fewer objects, a dictionary takes more memory than
/// it saves.
///
/// Between two trainings of a dictionary, the stores must also compress at least this number of objects.
const FIRST_OBJECTS: u64 = 256;

/// Minimum total size of the sampled objects, in bytes. With smaller samples, a dictionary takes more memory than it
/// saves.
const FIRST_BYTES: usize = 128 << 10;

/// A `DictionaryGroup` trains its next dictionary when the number of stored objects has grown by this factor. The first
/// objects of a list often come from one namespace, so a later dictionary also suits the objects of other namespaces.
const GROWTH: u64 = 16;

/// Maximum size of the samples for the first dictionary, in bytes. A small sample keeps the training of the dictionary
/// short.
///
/// The store compresses objects without a dictionary until the training ends. These objects take five times as much
/// memory as with a dictionary, and a list delivers thousands of objects in that time.
const FIRST_SAMPLE_BYTES: usize = 256 << 10;
/// Maximum size of the samples for each dictionary after the first, in bytes.
const SAMPLE_BYTES: usize = 512 << 10;

/// Maximum number of sampled objects that are not used to train a dictionary. kubewarm compresses these objects to
/// test whether the new dictionary is better than the current dictionary.
const HELD_OUT_OBJECTS: usize = 32;

/// The stores that share zstd dictionaries, because they contain the same resource and the same part of each object
/// (`Projection`). Stores that kubewarm opens for itself, not for a profile, form separate groups.
#[derive(Debug)]
pub(super) struct DictionaryGroup {
    current: RwLock<Option<Arc<CompressionDictionary>>>,
    /// Number of objects that the group's stores have compressed since the group was created.
    packed: AtomicU64,
    /// Value of the counter `packed` at which the training of the next dictionary starts. It is `u64::MAX` while a
    /// training is queued or running.
    next: AtomicU64,
    stores: Mutex<Vec<Weak<ObjectStore>>>,
    /// Number of objects in the group's stores when the group last trained a dictionary. 0 until the first dictionary
    /// exists.
    trained: AtomicU64,
    resource: Resource,
    decode_errors: DecodeErrorCounter,
    pub(super) contexts: CompressionContextPool,
    pub(super) maintenance: MaintenanceQueue,
}

type DecodeErrorFn = dyn Fn(&Resource) + Send + Sync;

/// The function that a store calls for each stored object that cannot be decompressed.
#[derive(Clone, Default)]
pub(super) struct DecodeErrorCounter(pub(super) Option<Arc<DecodeErrorFn>>);

impl fmt::Debug for DecodeErrorCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeErrorCounter").finish_non_exhaustive()
    }
}

impl DictionaryGroup {
    pub(super) fn new(
        resource: Resource,
        contexts: CompressionContextPool,
        maintenance: MaintenanceQueue,
        decode_errors: DecodeErrorCounter,
    ) -> Self {
        Self {
            current: RwLock::new(None),
            packed: AtomicU64::new(0),
            next: AtomicU64::new(FIRST_OBJECTS),
            stores: Mutex::default(),
            trained: AtomicU64::new(0),
            resource,
            decode_errors,
            contexts,
            maintenance,
        }
    }

    /// Adds a store to the stores that share the group's dictionaries. Also removes references to stores that no
    /// longer exist.
    pub(super) fn add_store(&self, store: &Arc<ObjectStore>) {
        let mut stores = self.stores.lock();
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(store));
    }

    pub(super) fn count_decode_error(&self) {
        if let Some(count) = &self.decode_errors.0 {
            count(&self.resource);
        }
    }

    /// Returns the newest dictionary, which compresses new objects. `None` while the group has no dictionary.
    pub(super) fn current(&self) -> Option<Arc<CompressionDictionary>> {
        self.current.read().clone()
    }

    /// Counts a compressed object. When the count reaches `next`, queues the training of a dictionary on the
    /// maintenance thread.
    pub(super) fn count_packed(self: &Arc<Self>) {
        let packed = self.packed.fetch_add(1, Ordering::Relaxed) + 1;
        let next = self.next.load(Ordering::Relaxed);
        if packed >= next {
            let taken =
                self.next.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                let group = Arc::downgrade(self);
                self.maintenance.push(move || group.upgrade().iter().for_each(|it| it.train()));
            }
        }
    }

    /// Trains a dictionary if the group's stores have enough objects. The group uses the dictionary only if it makes
    /// sampled objects at least a tenth smaller. The group then compresses the objects of all stores again.
    ///
    /// To copy samples, the training locks one store after another.
    fn train(&self) {
        let stores: Vec<_> = self.stores.lock().iter().filter_map(Weak::upgrade).collect();
        let objects: u64 = stores.iter().map(|store| store.usage().objects).sum();
        let before = self.trained.load(Ordering::Relaxed);
        let generation = self.current().map_or(0, |current| current.generation());
        let query = before.saturating_mul(GROWTH).max(FIRST_OBJECTS);
        let mut is_new = false;
        let wait = if objects < query || generation >= u8::MAX - 2 {
            query.saturating_sub(objects)
        } else {
            let trained = self.contexts.with(|context, body| {
                self.train_dictionary(&stores, objects, generation + 1, context, body)
            });
            if let Some(dictionary) = trained {
                *self.current.write() = Some(dictionary);
                is_new = true;
            }
            if is_new || before > 0 {
                self.trained.store(objects, Ordering::Relaxed);
            }
            objects
        };
        let packed = self.packed.load(Ordering::Relaxed);
        self.next.store(packed.saturating_add(wait.max(FIRST_OBJECTS)), Ordering::Relaxed);
        // Drop the references to the stores. If one of the stores is closed while `repack` works on another store,
        // the closed store is freed at once.
        drop(stores);
        if is_new {
            // A store that opened during the training has objects without the dictionary too.
            let all = self.stores.lock().clone();
            all.iter().filter_map(Weak::upgrade).for_each(|store| repack(&store));
        }
    }

    /// Trains a dictionary from samples. Returns the dictionary only if it makes the sampled objects outside of the
    /// training at least a tenth smaller than the current dictionary does.
    fn train_dictionary(
        &self,
        stores: &[Arc<ObjectStore>],
        objects: u64,
        generation: u8,
        context: &mut CompressionContext,
        body: &mut Vec<u8>,
    ) -> Option<Arc<CompressionDictionary>> {
        let limit = if generation == 1 { FIRST_SAMPLE_BYTES } else { SAMPLE_BYTES };
        let mut samples = Vec::new();
        let mut sizes = Vec::new();
        let mut held_out: Vec<Vec<u8>> = Vec::new();
        let query =
            |store: &ObjectStore| store.usage().objects.saturating_mul(512).div_ceil(objects);
        for store in stores {
            let copies = store.spread(usize::try_from(query(store)).unwrap_or(usize::MAX));
            for (at, packed) in copies.iter().enumerate() {
                let body = store.unpack_detached(packed, context, body);
                let Some(ObjectBody { bytes: body, .. }) = body else { continue };
                if at % 8 == 4 && held_out.len() < HELD_OUT_OBJECTS {
                    held_out.push(body.to_vec());
                } else if samples.len() + body.len() <= limit {
                    samples.extend_from_slice(body);
                    sizes.push(body.len());
                }
            }
        }
        if samples.len() < FIRST_BYTES {
            return None;
        }
        let mut trained = Vec::with_capacity(DICTIONARY_BYTES);
        zstd::zstd_safe::train_from_buffer(&mut trained, &samples, &sizes).ok()?;
        let dictionary = Arc::new(CompressionDictionary::new(trained, generation)?);
        let mut size = |with: Option<&Arc<CompressionDictionary>>| -> usize {
            let bodies = held_out.iter().map(|body| ObjectBody::json(body));
            bodies.map(|body| context.pack("", body, with).record.bytes()).sum()
        };
        let before = size(self.current().as_ref());
        let after = size(Some(&dictionary));
        tracing::debug!(objects, generation, before, after, "trained a dictionary");
        (after < before / 10 * 9).then_some(dictionary)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{
        StoreCatalog, StoreReader, StoreWriter,
        fixtures::{all, body, informer_key, remove, upsert, version},
        packed_object::BodyCompression,
    };
    use kubewarm_api::model::{Delta, DeltaSink, InformerKey, InformerScope, ReplacePolicy};
    use std::{collections::BTreeSet, sync::Arc};

    fn namespace(name: &str) -> InformerKey {
        InformerKey { scope: InformerScope::Namespace(name.into()), ..informer_key("pods") }
    }

    fn pod(n: u32) -> String {
        let random = n.wrapping_mul(0x9e37_79b9);
        let text = "what every object of this group says, in many different words and fields";
        let fields: Vec<_> = (0..12)
            .map(|at| format!(r#""field-{at}":"{text} {}""#, (random >> at) % 977))
            .collect();
        body(r#"{"app":"web"}"#, &format!(r#","spec":{{{}}}"#, fields.join(",")))
    }

    fn fill(writer: &mut StoreWriter, namespace: &str, pods: std::ops::Range<u32>) {
        for n in pods {
            writer.apply(upsert(&format!("{namespace}/x{n:06}"), 1, "5", &pod(n)));
        }
    }

    fn bytes_each(reader: &StoreReader) -> u64 {
        reader.usage().bytes / reader.usage().objects
    }

    #[test]
    fn a_store_that_opens_during_a_training_gets_the_dictionary() {
        let catalog = StoreCatalog::new();
        let mut a = catalog.open(&namespace("a"), &BTreeSet::new());
        let of_a = catalog.reader(&namespace("a")).unwrap();
        let (resume, paused) = std::sync::mpsc::channel::<()>();
        catalog.dictionary_group(&namespace("a")).maintenance.push(move || {
            let _resumed = paused.recv();
        });
        fill(&mut a, "a", 0..300);
        // The training waits for this lock, because it copies samples.
        let locked = of_a.store.contents.write();
        drop(resume);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let mut b = catalog.open(&namespace("b"), &BTreeSet::new());
        fill(&mut b, "b", 0..100);
        drop(locked);
        catalog.wait_until_settled();
        let of_b = catalog.reader(&namespace("b")).unwrap();
        let contents = of_b.store.contents.read();
        let rows = contents.all();
        let packings = rows.iter().filter_map(|row| Some(contents.slab.get(row)?.record.packing()));
        assert_eq!(packings.collect::<Vec<_>>(), [BodyCompression::Dictionary(1); 100]);
    }

    #[test]
    fn stores_of_a_kind_get_a_dictionary_once_they_hold_enough_objects() {
        let catalog = StoreCatalog::new();
        let open = |name| {
            let writer = catalog.open(&namespace(name), &BTreeSet::new());
            (writer, catalog.reader(&namespace(name)).unwrap())
        };
        let ((mut a, of_a), (mut b, of_b)) = (open("a"), open("b"));
        fill(&mut a, "a", 0..200);
        catalog.wait_until_settled();
        let before = bytes_each(&of_a);
        fill(&mut b, "b", 200..1000);
        catalog.wait_until_settled();
        let packings = |reader: &StoreReader| all(reader).len();
        assert_eq!((packings(&of_a), packings(&of_b)), (200, 800));
        assert!(bytes_each(&of_b) < before, "{} {before}", bytes_each(&of_b));
        let objects = all(&of_b);
        for (n, object) in (200..1000).zip(&objects) {
            assert_eq!(object.bytes, pod(n).as_bytes());
        }
    }

    #[test]
    fn a_shared_dictionary_is_counted_once() {
        let catalog = StoreCatalog::new();
        let mut writers: Vec<_> = ["a", "b", "c"]
            .map(|name| (name, catalog.open(&namespace(name), &BTreeSet::new())))
            .into();
        fill(&mut writers[0].1, "a", 0..1000);
        catalog.wait_until_settled();
        let group = catalog.dictionary_group(&informer_key("pods"));
        let dictionary = group.current().unwrap();
        let total = || catalog.usage().iter().map(|(_, usage)| usage.bytes).sum::<u64>();
        let alone = total();
        assert!(alone > dictionary.bytes() as u64);
        for (name, writer) in &mut writers[1..] {
            fill(writer, name, 0..1);
        }
        assert!(total() - alone < 64 << 10, "{} {alone}", total());
        for (name, writer) in &mut writers[1..] {
            writer.apply(remove(&format!("{name}/x000000"), "6"));
        }
        assert_eq!(total(), alone);
        for (_, writer) in &mut writers {
            writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
            writer.apply(Delta::ListDone(version("7")));
        }
        assert_eq!(total(), 0);
    }

    #[test]
    fn kubewarms_own_stores_share_no_dictionary_with_profiles() {
        let catalog = StoreCatalog::new();
        let own = informer_key("pods");
        let declared =
            |namespace: &str| InformerKey { declared_in: Some(namespace.into()), ..own.clone() };
        let [of_own, of_a, of_b] =
            [&own, &declared("a"), &declared("b")].map(|key| catalog.dictionary_group(key));
        assert!(!Arc::ptr_eq(&of_own, &of_a));
        assert!(Arc::ptr_eq(&of_a, &of_b));
    }

    #[test]
    fn a_few_objects_get_no_dictionary() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        for _ in 0..5 {
            fill(&mut writer, "a", 0..250);
            writer.apply(Delta::Purge);
        }
        catalog.wait_until_settled();
        assert!(catalog.dictionary_group(&informer_key("pods")).current().is_none());
    }
}
