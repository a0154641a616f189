//! What the tables of one kind share: when a dictionary is trained for them, and from what.

use super::{
    codec::{Codec, Context},
    dictionary::Dictionary,
    record::PackedRecord,
    table::Table,
    upkeep::{Upkeep, repack},
};
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

/// Bytes of a dictionary; more brings nothing (docs/performance.md).
const DICTIONARY_BYTES: usize = 16 << 10;

/// A first dictionary is trained from so many objects; fewer are not worth its memory.
const FIRST_OBJECTS: u64 = 256;

/// They must hold at least this much together: with less, the dictionary weighs more than it saves.
const FIRST_BYTES: usize = 128 << 10;

/// The next one is tried when the kind holds so many times the objects that the last one was trained
/// from: the first objects of a list are of one namespace, and say little of the others.
const GROWTH: u64 = 16;

/// Bytes trained from. Few at first: what arrives while the first dictionary is trained is packed
/// five times as large, and a list brings thousands of objects in those milliseconds.
const FIRST_SAMPLE_BYTES: usize = 256 << 10;
const SAMPLE_BYTES: usize = 512 << 10;

/// Objects kept aside to try a dictionary on.
const TRIALS: usize = 32;

/// Whoever shares a kind: tables of the same resource, version and projection. kubewarm's own tables are kinds of their own.
#[derive(Debug)]
pub(super) struct Kind {
    current: RwLock<Option<Arc<Dictionary>>>,
    /// Records packed since the process started.
    packed: AtomicU64,
    /// How many of them are to be packed before training is tried; while it is, none.
    next: AtomicU64,
    tables: Mutex<Vec<Weak<Table>>>,
    /// Objects held when the last dictionary was trained.
    trained: AtomicU64,
    pub(super) codec: Codec,
    pub(super) upkeep: Upkeep,
}

impl Kind {
    /// Without tables.
    pub(super) fn new(codec: Codec, upkeep: Upkeep) -> Self {
        Self {
            current: RwLock::new(None),
            packed: AtomicU64::new(0),
            next: AtomicU64::new(FIRST_OBJECTS),
            tables: Mutex::default(),
            trained: AtomicU64::new(0),
            codec,
            upkeep,
        }
    }

    /// Adds a table, and forgets those that are gone.
    pub(super) fn join(&self, table: &Arc<Table>) {
        let mut tables = self.tables.lock();
        tables.retain(|table| table.strong_count() > 0);
        tables.push(Arc::downgrade(table));
    }

    /// What records are to be packed with now.
    pub(super) fn current(&self) -> Option<Arc<Dictionary>> {
        self.current.read().clone()
    }

    /// Counts a record that was packed, and has a dictionary trained when it is time.
    pub(super) fn count(self: &Arc<Self>) {
        let packed = self.packed.fetch_add(1, Ordering::Relaxed) + 1;
        let next = self.next.load(Ordering::Relaxed);
        if packed >= next {
            let taken =
                self.next.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                let kind = Arc::downgrade(self);
                self.upkeep.push(move || kind.upgrade().iter().for_each(|it| it.train()));
            }
        }
    }

    /// Trains a dictionary if there are enough objects and it saves enough, and packs the tables again with it.
    /// To copy samples, it locks one table after another.
    fn train(&self) {
        let all = self.tables.lock().clone();
        let tables: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let objects: u64 = tables.iter().map(|table| table.usage().objects).sum();
        let before = self.trained.load(Ordering::Relaxed);
        let generation = self.current().map_or(0, |current| current.generation());
        let wanted = before.saturating_mul(GROWTH).max(FIRST_OBJECTS);
        let mut is_new = false;
        let wait = if objects < wanted || generation >= u8::MAX - 2 {
            wanted.saturating_sub(objects)
        } else {
            let made = self
                .codec
                .with(|context, body| self.make(&tables, objects, generation + 1, (context, body)));
            if let Some(dictionary) = made {
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
        // A table that is closed meanwhile is freed at once.
        drop(tables);
        if is_new {
            all.iter().filter_map(Weak::upgrade).for_each(|table| repack(&table));
        }
    }

    /// A dictionary that packs at least a tenth better than what there is.
    fn make(
        &self,
        tables: &[Arc<Table>],
        objects: u64,
        generation: u8,
        (context, body): (&mut Context, &mut Vec<u8>),
    ) -> Option<Arc<Dictionary>> {
        let limit = if generation == 1 { FIRST_SAMPLE_BYTES } else { SAMPLE_BYTES };
        let mut samples = Vec::new();
        let mut sizes = Vec::new();
        let mut trials: Vec<Vec<u8>> = Vec::new();
        let share = |table: &Table| table.usage().objects.saturating_mul(512).div_ceil(objects);
        for table in tables {
            let copies = table.spread(usize::try_from(share(table)).unwrap_or(usize::MAX));
            for (at, PackedRecord { record, dictionary }) in copies.iter().enumerate() {
                let with = dictionary.as_deref();
                let Some(body) = table.unpack(record, with, context, body) else { continue };
                if at % 8 == 4 && trials.len() < TRIALS {
                    trials.push(body.to_vec());
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
        let dictionary = Arc::new(Dictionary::new(trained, generation)?);
        let mut size = |with: Option<&Arc<Dictionary>>| -> usize {
            trials.iter().map(|body| context.pack("", body, with).record.bytes()).sum()
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
        Catalog, Reader, Writer,
        samples::{all, body, informer_key, remove, upsert, version},
    };
    use kubewarm_api::model::{CellKey, Delta, DeltaSink, Extent, Reread};
    use std::{collections::BTreeSet, sync::Arc};

    fn namespace(name: &str) -> CellKey {
        CellKey { extent: Extent::Namespace(name.into()), ..informer_key("pods") }
    }

    fn pod(n: u32) -> String {
        let random = n.wrapping_mul(0x9e37_79b9);
        let text = "what every object of this kind says, in many different words and fields";
        let fields: Vec<_> = (0..12)
            .map(|at| format!(r#""field-{at}":"{text} {}""#, (random >> at) % 977))
            .collect();
        body(r#"{"app":"web"}"#, &format!(r#","spec":{{{}}}"#, fields.join(",")))
    }

    fn fill(writer: &mut Writer, namespace: &str, pods: std::ops::Range<u32>) {
        for n in pods {
            writer.apply(upsert(&format!("{namespace}/x{n:06}"), 1, "5", &pod(n)));
        }
    }

    fn bytes_each(reader: &Reader) -> u64 {
        reader.usage().bytes / reader.usage().objects
    }

    #[test]
    fn a_kind_gets_a_dictionary_once_its_tables_together_hold_enough() {
        let catalog = Catalog::new();
        let open = |name| {
            let writer = catalog.open(&namespace(name), &BTreeSet::new());
            (writer, catalog.reader(&namespace(name)).unwrap())
        };
        let ((mut a, of_a), (mut b, of_b)) = (open("a"), open("b"));
        fill(&mut a, "a", 0..200);
        catalog.settle();
        let before = bytes_each(&of_a);
        fill(&mut b, "b", 200..1000);
        catalog.settle();
        // What was packed before is packed again.
        let packings = |reader: &Reader| all(reader).len();
        assert_eq!((packings(&of_a), packings(&of_b)), (200, 800));
        assert!(bytes_each(&of_b) < before, "{} {before}", bytes_each(&of_b));
        let objects = all(&of_b);
        for (n, object) in (200..1000).zip(&objects) {
            assert_eq!(object.body, pod(n).as_bytes());
        }
    }

    #[test]
    fn the_dictionary_is_counted_once_however_many_tables_share_it() {
        let catalog = Catalog::new();
        let mut writers: Vec<_> = ["a", "b", "c"]
            .map(|name| (name, catalog.open(&namespace(name), &BTreeSet::new())))
            .into();
        fill(&mut writers[0].1, "a", 0..1000);
        catalog.settle();
        let kind = catalog.kind(&informer_key("pods"));
        let dictionary = kind.current().unwrap();
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
            writer.apply(Delta::ListStarted(Reread::Changed));
            writer.apply(Delta::ListDone(version("7")));
        }
        assert_eq!(total(), 0);
    }

    #[test]
    fn kubewarms_own_tables_share_with_no_profiles() {
        let catalog = Catalog::new();
        let own = informer_key("pods");
        let declared =
            |namespace: &str| CellKey { declared_in: Some(namespace.into()), ..own.clone() };
        let [of_own, of_a, of_b] =
            [&own, &declared("a"), &declared("b")].map(|key| catalog.kind(key));
        assert!(!Arc::ptr_eq(&of_own, &of_a));
        assert!(Arc::ptr_eq(&of_a, &of_b));
    }

    #[test]
    fn few_objects_get_no_dictionary() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        for _ in 0..5 {
            fill(&mut writer, "a", 0..250);
            writer.apply(Delta::Purge);
        }
        catalog.settle();
        assert!(catalog.kind(&informer_key("pods")).current().is_none());
    }
}
