//! All tables by cell, and what those of one kind share.

use super::{
    codec::Codec,
    kind::Kind,
    query::{Reader, Usage},
    table::Table,
    upkeep::Upkeep,
    writer::Writer,
};
use kubewarm_api::model::{CellKey, FieldPath, Gauge, Projection, Resource};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

/// Declared indexes that one table takes; further ones are left out, in the order of their paths.
pub const INDEXES_PER_TABLE: usize = 32;

/// Kinds by what makes objects alike, and by whether kubewarm reads them for itself: its own share nothing with those of
/// profiles.
type Kinds = BTreeMap<(Resource, Projection, bool), Weak<Kind>>;

/// Gauges of tables that are open, or that somebody is about to open.
#[derive(Debug, Default)]
struct Gauges {
    by_key: BTreeMap<CellKey, Weak<Gauge>>,
    /// Those that nobody has any more are forgotten once there are so many: twice as many as were
    /// left the last time.
    sweep_at: usize,
}

/// The tables of the process. Cloning is cheap, and clones see the same tables.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tables: Arc<RwLock<BTreeMap<CellKey, Arc<Table>>>>,
    kinds: Arc<Mutex<Kinds>>,
    gauges: Arc<Mutex<Gauges>>,
    codec: Codec,
    upkeep: Upkeep,
}

impl Catalog {
    /// Without tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens an empty table, in the place of any other under this key; readers of that one keep it.
    #[must_use]
    pub fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Writer {
        let kind = self.kind(key);
        let (is_secret, gauge) = (key.holds_secrets(), self.gauge(key));
        let table = Arc::new(Table::new(Arc::clone(&kind), is_secret, gauge));
        if !is_secret {
            kind.join(&table);
        }
        table.declare(&wanted(key, indexes));
        let old = self.tables.write().insert(key.clone(), Arc::clone(&table));
        if let Some(old) = old {
            old.close();
        }
        Writer::new(table)
    }

    /// What tables of this kind share; the kinds of closed tables are forgotten.
    pub(super) fn kind(&self, key: &CellKey) -> Arc<Kind> {
        let mut kinds = self.kinds.lock();
        kinds.retain(|_, kind| kind.strong_count() > 0);
        let id = (key.resource.clone(), key.projection, key.is_own());
        if let Some(kind) = kinds.get(&id).and_then(Weak::upgrade) {
            return kind;
        }
        let kind = Arc::new(Kind::new(self.codec.clone(), self.upkeep.clone()));
        kinds.insert(id, Arc::downgrade(&kind));
        kind
    }

    /// What the table under this key holds, also before it is opened and after it is closed.
    #[must_use]
    pub fn gauge(&self, key: &CellKey) -> Arc<Gauge> {
        let mut gauges = self.gauges.lock();
        if let Some(gauge) = gauges.by_key.get(key).and_then(Weak::upgrade) {
            return gauge;
        }
        if gauges.by_key.len() > gauges.sweep_at {
            gauges.by_key.retain(|_, gauge| gauge.strong_count() > 0);
            gauges.sweep_at = 2 * gauges.by_key.len() + 64;
        }
        let gauge = Arc::new(Gauge::of_informer());
        gauges.by_key.insert(key.clone(), Arc::downgrade(&gauge));
        gauge
    }

    /// A reader of the table under this key.
    #[must_use]
    pub fn reader(&self, key: &CellKey) -> Option<Reader> {
        self.tables.read().get(key).map(Arc::clone).map(Reader::new)
    }

    /// Closes a table; its memory goes with its writer and its last reader.
    pub fn close(&self, key: &CellKey) {
        let old = self.tables.write().remove(key);
        if let Some(table) = old {
            table.close();
        }
    }

    /// Changes which indexes an open table has. Dropped ones go at once; new ones are completed in
    /// the background, and are not answered from before.
    ///
    /// Cost: constant here; then about 4 µs a row and index on the store's own thread, with the
    /// table locked for well under a millisecond at a time.
    pub fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) {
        let table = self.tables.read().get(key).map(Arc::clone);
        if let Some(table) = table {
            table.declare(&wanted(key, indexes));
        }
    }

    /// Waits until indexes are complete and records are packed as they should be: for tests and
    /// measurements, which want one answer.
    pub fn settle(&self) {
        self.upkeep.settle();
    }

    /// What every table holds, in the order of the keys.
    #[must_use]
    pub fn usage(&self) -> Vec<(CellKey, Usage)> {
        let tables: Vec<_> = self
            .tables
            .read()
            .iter()
            .map(|(key, table)| (key.clone(), Arc::clone(table)))
            .collect();
        tables.into_iter().map(|(key, table)| (key, table.usage())).collect()
    }
}

/// As many of `indexes` as a table takes.
fn wanted(key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Vec<FieldPath> {
    if indexes.len() > INDEXES_PER_TABLE {
        let declared = indexes.len();
        tracing::warn!(cell = %key, declared, limit = INDEXES_PER_TABLE, "too many indexes");
    }
    indexes.iter().take(INDEXES_PER_TABLE).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::samples::{all, body, informer_key, is_indexed, upsert, version, with_field};
    use kubewarm_api::model::{Delta, DeltaSink, Reread};
    use std::thread;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    #[test]
    fn readers_of_a_replaced_or_closed_table_keep_theirs() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
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
    fn a_gauge_follows_its_table_and_no_other_that_had_the_same_key() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
        let gauge = catalog.gauge(&key);
        let mut first = catalog.open(&key, &BTreeSet::new());
        first.apply(upsert("a/x", 1, "1", "{}"));
        first.apply(upsert("a/y", 1, "2", "{}"));
        let held = |catalog: &Catalog| catalog.usage().first().map(|(_, usage)| *usage).unwrap();
        assert_eq!((gauge.objects(), gauge.bytes()), (2, held(&catalog).bytes));
        let mut second = catalog.open(&key, &BTreeSet::new());
        first.apply(upsert("a/z", 1, "3", "{}"));
        assert_eq!((gauge.objects(), gauge.bytes()), (0, 0));
        second.apply(upsert("a/y", 1, "1", "{}"));
        assert_eq!((gauge.objects(), gauge.bytes()), (1, held(&catalog).bytes));
        catalog.close(&key);
        second.apply(upsert("a/z", 1, "3", "{}"));
        assert_eq!((gauge.objects(), gauge.bytes()), (0, 0));
    }

    #[test]
    fn declared_indexes_count_with_their_table() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
        let gauge = catalog.gauge(&key);
        let paths = [path(".a"), path(".b")];
        let mut writer = catalog.open(&key, &paths[..1].iter().cloned().collect());
        for number in 0..100 {
            let fields = format!(r#","a":"a long value {number}","b":{number}"#);
            let (name, version) = (format!("a/x{number:03}"), number.to_string());
            writer.apply(upsert(&name, 1, &version, &body("{}", &fields)));
        }
        let held = || catalog.usage().first().map(|(_, usage)| usage.bytes).unwrap();
        let with_one = gauge.bytes();
        assert_eq!(with_one, held());
        // In the background.
        catalog.set_indexes(&key, &BTreeSet::from(paths.clone()));
        catalog.settle();
        let with_two = gauge.bytes();
        assert!(with_two > with_one && with_two == held(), "{with_two} after {with_one}");
        catalog.set_indexes(&key, &paths[1..].iter().cloned().collect());
        assert!(gauge.bytes() + 100 * 16 < with_two, "{} of {with_two}", gauge.bytes());
        assert_eq!(gauge.bytes(), held());
        writer.apply(Delta::Purge);
        writer.apply(upsert("a/x", 1, "1", &body("{}", r#","b":1"#)));
        assert_eq!(gauge.bytes(), held());
        catalog.close(&key);
        writer.apply(upsert("a/y", 1, "1", &body("{}", r#","b":2"#)));
        assert_eq!(gauge.bytes(), 0);
    }

    #[test]
    fn what_is_remembered_of_changes_is_held_too() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
        let gauge = catalog.gauge(&key);
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(Reread::Changed));
        let large = body("{}", &format!(r#","x":"{}""#, sequence(4_096)));
        writer.apply(upsert("a/x", 1, "1", &large));
        writer.apply(Delta::ListDone(version("1")));
        let before = gauge.bytes();
        let arrived = std::time::Instant::now();
        writer.apply(Delta::Arrived(arrived));
        writer.apply(upsert("a/x", 1, "2", "{}"));
        let after = gauge.bytes();
        assert!(after > before, "{after} after {before}");
    }

    /// Text that does not compress.
    fn sequence(length: usize) -> String {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
    }

    #[test]
    fn a_table_takes_so_many_indexes_and_no_more() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let field = body("{}", r#","a":1"#);
        writer.apply(upsert("a/x", 1, "1", &field));
        let mut wanted: BTreeSet<_> = (0..31).map(|n| path(&format!(".x.f{n:02}"))).collect();
        wanted.insert(path(".a"));
        catalog.set_indexes(&key, &wanted);
        catalog.settle();
        let reader = catalog.reader(&key).unwrap();
        assert!(is_indexed(&reader, &path(".a")));
        assert_eq!(with_field(&reader, &path(".a"), "1").len(), 1);
        assert_eq!(with_field(&reader, &path(".a"), "2").len(), 0);
        wanted.insert(path(".z"));
        catalog.set_indexes(&key, &wanted);
        catalog.settle();
        assert!(!is_indexed(&reader, &path(".z")));
        catalog.set_indexes(&key, &BTreeSet::new());
        assert!(!is_indexed(&reader, &path(".a")));
    }

    #[test]
    fn indexes_that_come_and_go_under_a_busy_writer_miss_nothing() {
        let (catalog, key) = (Catalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let reader = catalog.reader(&key).unwrap();
        let busy = thread::spawn(move || {
            for round in 0..12_u64 {
                writer.apply(Delta::ListStarted(Reread::Changed));
                for n in (0..600).filter(|n| (n + round) % 3 > 0) {
                    let body = body("{}", &format!(r#","node":{}"#, (n + round) % 5));
                    let version = (round + 1).to_string();
                    writer.apply(upsert(&format!("a/x{n:03}"), 1, &version, &body));
                }
                writer.apply(Delta::ListDone(version("100")));
            }
        });
        let wanted = BTreeSet::from([path(".node")]);
        while !busy.is_finished() {
            catalog.set_indexes(&key, &BTreeSet::new());
            catalog.set_indexes(&key, &wanted);
        }
        busy.join().unwrap();
        catalog.settle();
        assert!(is_indexed(&reader, &path(".node")));
        let found: Vec<_> = (0..5)
            .map(|node| with_field(&reader, &path(".node"), &node.to_string()).len())
            .collect();
        let held = (0..600).filter(|n| (n + 11) % 3 > 0);
        let mut expected = vec![0; 5];
        for n in held {
            expected[(n + 11) % 5] += 1;
        }
        assert_eq!(found, expected);
    }
}
