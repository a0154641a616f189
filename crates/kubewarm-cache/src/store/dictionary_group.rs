//! Makes the compression dictionaries that the stores of one resource, namespace and identity use,
//! and decides when to try the next dictionary.

use super::{
    compression_contexts::{CompressionContext, CompressionContextPool, body_length},
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

/// Minimum number of stored objects for the first dictionary, which consists of stored objects.
const FIRST_OBJECTS: u64 = 32;

/// Maximum size of a dictionary of stored objects, in bytes.
const CONTENT_BYTES: usize = 8 << 10;

/// Minimum number of stored objects for a trained dictionary. With a trained dictionary, objects
/// are a seventh smaller than with a dictionary of stored objects, but the trained dictionary
/// itself is larger. Below this number of objects, it takes more memory in total. A training takes
/// about 80 ms of processor time.
const TRAINED_OBJECTS: u64 = 2_048;

/// Minimum number of objects for a trained dictionary in a sample, with which kubewarm forecasts
/// memory. The number is lower than for a store, because a sample has at most 1,000 objects.
const TRAINED_SAMPLE_OBJECTS: u64 = 768;

/// Maximum size of a trained dictionary, in bytes. Larger dictionaries save no more memory.
const TRAINED_BYTES: usize = 16 << 10;

/// Minimum total size of the objects from which a dictionary is trained, in bytes.
const MIN_SAMPLE_BYTES: usize = 128 << 10;

/// Maximum total size of the objects from which a dictionary is trained, in bytes.
const SAMPLE_BYTES: usize = 512 << 10;

/// Maximum size of a sampled object, in bytes. A dictionary of 16 KiB hardly makes a larger object
/// smaller, and each sample is decompressed in memory.
const MAX_SAMPLE_BYTES: usize = 64 << 10;

/// A `DictionaryGroup` tries its next dictionary when the number of stored objects has grown by
/// this factor. The first objects of a list often come from one namespace, so a later dictionary
/// also suits the objects of other namespaces.
const GROWTH: u64 = 16;

/// Minimum growth of the number of stored objects, in percent, after an attempt whose dictionary
/// would save too little memory. The value is low, because an attempt without training is cheap.
const MIN_GROWTH_PERCENT: u64 = 25;

/// Minimum growth of the number of stored objects, in percent, after an attempt with a trained
/// dictionary that would save too little memory. The value is high, because training takes
/// processor time.
const MIN_TRAINED_GROWTH_PERCENT: u64 = 100;

/// Maximum number of held-out objects: sampled objects that are not part of a new dictionary.
/// kubewarm compresses these objects to test whether the new dictionary is better than the current
/// dictionary.
const HELD_OUT_OBJECTS: usize = 32;

/// Whether a dictionary must save more memory than it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DictionaryCost {
    #[default]
    Counted,
    /// A sample of objects predicts the memory of more objects, for which the dictionary can pay.
    Ignored,
}

/// A new dictionary that no object uses yet.
struct DictionaryCandidate {
    dictionary: Arc<CompressionDictionary>,
    /// Bytes that all objects of the group's stores save with the dictionary. Estimated from the
    /// held-out objects.
    saved: u64,
    /// Whether the held-out objects become at least a tenth smaller. The group does not use a
    /// dictionary that saves less.
    is_effective: bool,
}

/// The stores that share zstd dictionaries, because they contain the same resource and the same
/// part of each object (`Projection`). Profiles of one namespace declare all these stores, with the
/// same identity.
#[derive(Debug)]
pub(super) struct DictionaryGroup {
    current: RwLock<Option<Arc<CompressionDictionary>>>,
    /// Number of objects that the group's stores have compressed since the group was created. The
    /// writers increase this number for each object, so it is a cheap sign that the stores have
    /// grown.
    packed: AtomicU64,
    /// Value of `packed` at which the attempt with the next dictionary starts. `u64::MAX` while an
    /// attempt is queued or running, so that no second one starts.
    next: AtomicU64,
    stores: Mutex<Vec<Weak<ObjectStore>>>,
    /// Number of objects in the group's stores that the next attempt needs. An attempt counts the
    /// stores' objects first, because `packed` also counts updates.
    needed: AtomicU64,
    cost: DictionaryCost,
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
        cost: DictionaryCost,
    ) -> Self {
        Self {
            current: RwLock::new(None),
            packed: AtomicU64::new(0),
            next: AtomicU64::new(FIRST_OBJECTS),
            stores: Mutex::default(),
            needed: AtomicU64::new(FIRST_OBJECTS),
            cost,
            resource,
            decode_errors,
            contexts,
            maintenance,
        }
    }

    /// Adds a store to the stores that share the group's dictionaries. Also removes references to
    /// stores that no longer exist.
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

    /// Returns the newest dictionary, which compresses new objects. `None` while the group has no
    /// dictionary.
    pub(super) fn current(&self) -> Option<Arc<CompressionDictionary>> {
        self.current.read().clone()
    }

    /// Whether an attempt with a dictionary is queued or running.
    pub(super) fn is_attempting(&self) -> bool {
        self.next.load(Ordering::Relaxed) == u64::MAX
    }

    /// Counts a compressed object that its store contains. When the count reaches `next`, queues
    /// the attempt with a dictionary on the maintenance thread.
    pub(super) fn count_packed(self: &Arc<Self>) {
        let packed = self.packed.fetch_add(1, Ordering::Relaxed) + 1;
        let next = self.next.load(Ordering::Relaxed);
        if packed >= next {
            let taken =
                self.next.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                let group = Arc::downgrade(self);
                self.maintenance.push(move || {
                    group.upgrade().iter().for_each(|group| group.try_dictionaries());
                });
            }
        }
    }

    /// Tries a new dictionary if the group's stores have enough objects. If the dictionary pays,
    /// the group uses it, and compresses the objects of all stores again.
    fn try_dictionaries(&self) {
        let generation = || self.current().map(|current| current.generation());
        let (before, mut next) = (generation(), 0);
        // During an attempt, the stores can grow enough for the next attempt.
        while self.packed.load(Ordering::Relaxed) >= next {
            next = self.try_next();
        }
        if generation() != before {
            // Take the list of stores now: a store that opened during the attempt also has objects
            // without the dictionary.
            let all = self.stores.lock().clone();
            all.iter().filter_map(Weak::upgrade).for_each(|store| repack(&store));
        }
        self.next.store(next, Ordering::Relaxed);
    }

    /// Tries at most one dictionary. Returns the value of `packed` at which the stores can have
    /// enough objects for the next attempt.
    fn try_next(&self) -> u64 {
        let packed = self.packed.load(Ordering::Relaxed);
        let stores: Vec<_> = self.stores.lock().iter().filter_map(Weak::upgrade).collect();
        let objects: u64 = stores.iter().map(|store| store.usage().objects).sum();
        let mut needed = self.needed.load(Ordering::Relaxed);
        if objects >= needed {
            let candidate = self
                .contexts
                .with(|context, body| self.new_dictionary(&stores, objects, context, body));
            needed = self.use_if_it_pays(candidate, objects);
            self.needed.store(needed, Ordering::Relaxed);
        }
        // `packed` also counts updates of objects, which are no growth. So wait at least for an
        // eighth as many packed objects, so that stores that do not grow seldom check their size.
        packed.saturating_add(needed.saturating_sub(objects).max(objects / 8 + 1))
    }

    /// Uses a dictionary for new objects if it pays. Returns the number of objects that the next
    /// attempt needs.
    fn use_if_it_pays(&self, candidate: Option<DictionaryCandidate>, objects: u64) -> u64 {
        let trained = self.trained_objects();
        let growth =
            if objects < trained { MIN_GROWTH_PERCENT } else { MIN_TRAINED_GROWTH_PERCENT };
        let least = objects.saturating_add(objects.saturating_mul(growth).div_ceil(100));
        let mut needed = objects.saturating_mul(GROWTH);
        if let Some(DictionaryCandidate { dictionary, saved, is_effective }) = candidate {
            let cost = match self.cost {
                DictionaryCost::Counted => dictionary.bytes() as u64,
                DictionaryCost::Ignored => 0,
            };
            if is_effective && saved > cost {
                *self.current.write() = Some(dictionary);
            } else {
                let pays_at = cost.saturating_mul(objects) / saved.max(1);
                needed = pays_at.clamp(least, needed);
            }
        } else {
            needed = least;
        }
        // The first trained dictionary replaces a dictionary of stored objects, and makes objects a
        // seventh smaller. So its attempt does not wait until the stores have grown by the factor
        // `GROWTH`.
        if objects < trained { needed.min(trained) } else { needed }
    }

    /// Returns the number of objects from which the group trains dictionaries.
    fn trained_objects(&self) -> u64 {
        match self.cost {
            DictionaryCost::Counted => TRAINED_OBJECTS,
            DictionaryCost::Ignored => TRAINED_SAMPLE_OBJECTS,
        }
    }

    /// Makes a dictionary from samples of the stores, which have `objects` objects. Returns `None`
    /// if the samples are too small. To copy samples, the call locks one store after another.
    fn new_dictionary(
        &self,
        stores: &[Arc<ObjectStore>],
        objects: u64,
        context: &mut CompressionContext,
        body: &mut Vec<u8>,
    ) -> Option<DictionaryCandidate> {
        let is_trained = objects >= self.trained_objects();
        let (count, held_out_step, limit) =
            if is_trained { (512, 8, SAMPLE_BYTES) } else { (16, 2, CONTENT_BYTES) };
        let mut samples = Vec::new();
        let mut sizes = Vec::new();
        let mut held_out: Vec<Vec<u8>> = Vec::new();
        let query =
            |store: &ObjectStore| store.usage().objects.saturating_mul(count).div_ceil(objects);
        // Number the samples across all stores. Otherwise, no sample of many small stores with one
        // sample each would be held out.
        let mut at = 0;
        for store in stores {
            for packed in store.spread(usize::try_from(query(store)).unwrap_or(usize::MAX)) {
                if !body_length(&packed.record).is_ok_and(|length| length <= MAX_SAMPLE_BYTES) {
                    continue;
                }
                // Most objects have a template, so the dictionary must suit reduced bodies (objects
                // without the part of their managedFields that the template contains).
                let with = packed.dictionary.as_deref();
                if context.decompress(&packed.record, with, body).is_err() {
                    continue;
                }
                let rest = limit - samples.len();
                if at % held_out_step == held_out_step / 2 && held_out.len() < HELD_OUT_OBJECTS {
                    held_out.push(body.clone());
                } else if body.len() <= rest {
                    samples.extend_from_slice(body);
                    sizes.push(body.len());
                } else if !is_trained {
                    samples.extend_from_slice(body.get(..rest).unwrap_or_default());
                }
                at += 1;
            }
        }
        // After a dictionary that the group uses, the next one needs more objects by the factor
        // `GROWTH`. So this number stays far below its maximum of 253.
        let generation = self.current().map_or(0, |current| current.generation()) + 1;
        let dictionary = if is_trained {
            if samples.len() < MIN_SAMPLE_BYTES {
                return None;
            }
            let mut trained = Vec::with_capacity(TRAINED_BYTES);
            zstd::zstd_safe::train_from_buffer(&mut trained, &samples, &sizes).ok()?;
            CompressionDictionary::trained(trained, generation)
        } else if samples.is_empty() {
            return None;
        } else {
            CompressionDictionary::of_content(samples, generation)
        };
        let dictionary = Arc::new(dictionary?);
        let mut size = |with: Option<&Arc<CompressionDictionary>>| -> usize {
            let bodies = held_out.iter().map(|body| ObjectBody::json(body));
            bodies.map(|body| context.pack("", body, with, None).record.bytes()).sum()
        };
        let before = size(self.current().as_ref());
        let after = size(Some(&dictionary));
        tracing::debug!(objects, generation, before, after, "tried a dictionary");
        let saved_each = before.saturating_sub(after) / held_out.len().max(1);
        let saved = u64::try_from(saved_each).unwrap_or(0).saturating_mul(objects);
        Some(DictionaryCandidate { dictionary, saved, is_effective: after < before / 10 * 9 })
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{
        StoreCatalog, StoreReader, StoreWriter,
        fixtures::{all, body, informer_key, remove, upsert, version},
        packed_object::BodyCompression,
    };
    use kubewarm_api::model::{
        Delta, DeltaSink, Identity, InformerKey, InformerScope, ReplacePolicy,
    };
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

    /// Stops the maintenance thread until the returned sender is dropped.
    fn pause(catalog: &StoreCatalog, key: &InformerKey) -> std::sync::mpsc::Sender<()> {
        let (resume, paused) = std::sync::mpsc::channel();
        catalog.dictionary_group(key).maintenance.push(move || {
            let _resumed = paused.recv();
        });
        resume
    }

    #[test]
    fn a_store_awaits_a_dictionary_until_its_objects_are_compressed_with_it() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&namespace("a"), &BTreeSet::new());
        let reader = catalog.reader(&namespace("a")).unwrap();
        assert!(!reader.awaits_dictionary());
        let resume = pause(&catalog, &namespace("a"));
        fill(&mut writer, "a", 0..300);
        assert!(reader.awaits_dictionary());
        drop(resume);
        // The training copies samples without this lock, and needs it to replace objects.
        let locked = reader.store.contents.read();
        for _ in 0..2_000 {
            if reader.store.dictionary_group.current().is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(reader.store.dictionary_group.current().is_some());
        assert!(reader.awaits_dictionary());
        drop(locked);
        catalog.wait_until_settled();
        assert!(!reader.awaits_dictionary());
    }

    #[test]
    fn a_store_that_opens_during_a_training_gets_the_dictionary() {
        let catalog = StoreCatalog::new();
        let mut a = catalog.open(&namespace("a"), &BTreeSet::new());
        let of_a = catalog.reader(&namespace("a")).unwrap();
        let resume = pause(&catalog, &namespace("a"));
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
        fill(&mut a, "a", 0..20);
        catalog.wait_until_settled();
        let before = bytes_each(&of_a);
        fill(&mut b, "b", 20..1000);
        catalog.wait_until_settled();
        let objects = |reader: &StoreReader| all(reader).len();
        assert_eq!((objects(&of_a), objects(&of_b)), (20, 980));
        assert!(bytes_each(&of_b) < before, "{} {before}", bytes_each(&of_b));
        let objects = all(&of_b);
        for (n, object) in (20..1000).zip(&objects) {
            assert_eq!(object.bytes, pod(n).as_bytes());
        }
    }

    #[test]
    fn large_objects_are_no_samples() {
        for (length, is_sample) in [(60_000, true), (70_000, false)] {
            let catalog = StoreCatalog::new();
            let mut writer = catalog.open(&namespace("a"), &BTreeSet::new());
            let pod = body("{}", &format!(r#","spec":{{"a":"{}"}}"#, "x".repeat(length)));
            for n in 0..300 {
                writer.apply(upsert(&format!("a/x{n:06}"), 1, "5", &pod));
            }
            catalog.wait_until_settled();
            let group = catalog.dictionary_group(&namespace("a"));
            let attempt = group.contexts.with(|context, body| {
                let stores = [Arc::clone(&catalog.reader(&namespace("a")).unwrap().store)];
                group.new_dictionary(&stores, 300, context, body)
            });
            assert_eq!(attempt.is_some(), is_sample, "{length}");
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
        let counted = || {
            let readers = ["a", "b", "c"].map(|name| catalog.reader(&namespace(name)).unwrap());
            readers.map(|reader| reader.store.contents.read().dictionaries.bytes())
        };
        let (alone, bytes) = (total(), dictionary.bytes());
        assert_eq!(counted(), [bytes, 0, 0]);
        for (name, writer) in &mut writers[1..] {
            fill(writer, name, 0..1);
        }
        assert_eq!(counted(), [bytes / 3; 3]);
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
    fn only_stores_of_one_profile_namespace_and_identity_share_a_dictionary() {
        let catalog = StoreCatalog::new();
        let unscoped = namespace("x");
        let of_a = InformerKey { declared_in: Some("a".into()), ..unscoped.clone() };
        let of_b = InformerKey { declared_in: Some("b".into()), ..unscoped.clone() };
        let identity = Identity::ServiceAccount { namespace: "a".into(), name: "reader".into() };
        let of_account = InformerKey { identity, ..of_a.clone() };
        let other_scope = InformerKey { scope: InformerScope::AllNamespaces, ..of_a.clone() };
        let keys = [&unscoped, &of_a, &of_b, &of_account];
        let groups = keys.map(|key| catalog.dictionary_group(key));
        for (at, group) in groups.iter().enumerate() {
            assert!(groups[..at].iter().all(|other| !Arc::ptr_eq(other, group)), "{at}");
        }
        assert!(Arc::ptr_eq(&catalog.dictionary_group(&other_scope), &groups[1]));
    }

    #[test]
    fn the_size_of_a_store_reveals_nothing_about_objects_of_another_namespace() {
        const GUESS: &str = "a string that a tenant guesses: 7f3c90e5b1d2486a";
        /// Returns the bytes of a tenant's store, while `text` stands in each object of another
        /// namespace.
        fn tenant_bytes_with(text: &str) -> u64 {
            let catalog = StoreCatalog::new();
            let declared =
                |name: &str| InformerKey { declared_in: Some(name.into()), ..namespace(name) };
            let fill = |name: &str, text: &str| {
                let mut writer = catalog.open(&declared(name), &BTreeSet::new());
                // The dictionary is made of the objects that the store has when the maintenance
                // thread resumes.
                let resume = pause(&catalog, &declared(name));
                for n in 0..100 {
                    let pod = pod(n).replace("web", text);
                    writer.apply(upsert(&format!("{name}/x{n:06}"), 1, "5", &pod));
                }
                drop(resume);
                catalog.wait_until_settled();
                for n in 100..200 {
                    let pod = pod(n).replace("web", text);
                    writer.apply(upsert(&format!("{name}/x{n:06}"), 1, "5", &pod));
                }
                assert!(catalog.dictionary_group(&declared(name)).current().is_some());
                catalog.reader(&declared(name)).unwrap().usage().bytes
            };
            let of_other = fill("other", text);
            let of_tenant = fill("tenant", GUESS);
            assert!(of_other > 0);
            of_tenant
        }
        assert_eq!(
            tenant_bytes_with(GUESS),
            tenant_bytes_with(&GUESS.replace("7f3c90e5b1d2486a", "no"))
        );
    }

    #[test]
    fn a_dictionary_is_used_once_it_saves_more_memory_than_it_takes() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&namespace("a"), &BTreeSet::new());
        let mut random = fastrand::Rng::with_seed(1);
        // A dictionary can save the few words, but not the random text.
        let mut pod = || {
            let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(200).collect();
            body("{}", &format!(r#","text":"a few words of each object: {text}""#))
        };
        let mut fill = |objects: std::ops::Range<u32>| {
            let resume = pause(&catalog, &namespace("a"));
            for n in objects {
                writer.apply(upsert(&format!("a/x{n:06}"), 1, "5", &pod()));
            }
            drop(resume);
            catalog.wait_until_settled();
            catalog.dictionary_group(&namespace("a")).current().is_some()
        };
        assert!(!fill(0..32));
        assert!(fill(32..1_000));
    }

    #[test]
    fn a_store_of_80_objects_gets_a_small_dictionary() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&namespace("a"), &BTreeSet::new());
        for n in 0..80 {
            fill(&mut writer, "a", n..n + 1);
            catalog.wait_until_settled();
        }
        let group = catalog.dictionary_group(&namespace("a"));
        assert!(group.current().is_some_and(|dictionary| dictionary.bytes() <= 8 << 10));
    }

    #[test]
    fn a_few_objects_get_no_dictionary() {
        let catalog = StoreCatalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        for _ in 0..5 {
            fill(&mut writer, "a", 0..30);
            writer.apply(Delta::Purge);
        }
        catalog.wait_until_settled();
        assert!(catalog.dictionary_group(&informer_key("pods")).current().is_none());
    }
}
