//! Keeps the specs of profiles that are too many out of the table that the controller reads.

use super::quota::{Outline, Over, Quota, ReadBy, Shed, Within};
use crate::model::{CellKey, Delta, DeltaSink, Item, Named, Outcome, ResourceVersion, Tombstone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// The cells of profiles that have room for some whose specs were not kept: another list would bring
/// them. Cheap to clone; bounded by the controller's own cells.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<Mutex<BTreeSet<CellKey>>>);

/// The tables of all cells of profiles, and which of their specs they may hold: what one of them brings
/// may take the room of what another has. Cheap to clone; bounded by the controller's own cells.
///
/// Whatever comes of profiles takes its lock first, then that of one table at a time.
pub struct Sieve<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    /// The operator's own namespace: whoever may write profiles there is trusted with the operator.
    home: Arc<str>,
    quota: Quota,
    tables: BTreeMap<CellKey, Open<T>>,
    /// Tables that were ever open.
    opened: u64,
    waiting: Waiting,
}

struct Open<T> {
    table: T,
    is_listing: bool,
    /// Which one of those that were ever open.
    number: u64,
}

/// The table of one cell of profiles, behind the [`Sieve`].
///
/// Of those whose specs it may not hold it holds what it takes to say so in their status, without a
/// version: so they are stored anew whenever they come.
pub struct Sift<T: DeltaSink> {
    sieve: Sieve<T>,
    key: CellKey,
    number: u64,
}

/// What the table has of a profile.
#[derive(Deserialize)]
pub(super) struct Stored<'a> {
    #[serde(default)]
    pub(super) metadata: Meta,
    #[serde(borrow, default)]
    pub(super) spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) status: Option<&'a RawValue>,
    #[serde(default, rename = "leftOut")]
    pub(super) left_out: Option<Over>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<i64>,
}

/// What the table has of one whose spec is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bare<'a> {
    metadata: Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a ReadBy>,
    left_out: Over,
}

impl Waiting {
    /// Every such cell.
    pub(super) fn cells(&self) -> BTreeSet<CellKey> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, key: &CellKey, is_waiting: bool) {
        let mut cells = self.0.lock();
        if is_waiting {
            cells.insert(key.clone());
        } else {
            cells.remove(key);
        }
    }
}

impl<T: DeltaSink> Sieve<T> {
    /// Of no table yet.
    #[must_use]
    pub fn new(home: Arc<str>, waiting: Waiting) -> Self {
        let (quota, tables) = (Quota::default(), BTreeMap::new());
        Self(Arc::new(Mutex::new(Inner { home, quota, tables, opened: 0, waiting })))
    }

    /// Stands in front of `table`, which is that of the cell `key`.
    #[must_use]
    pub fn open(&self, table: T, key: CellKey) -> Sift<T> {
        let mut inner = self.0.lock();
        inner.opened += 1;
        let number = inner.opened;
        // A predecessor whose task has not ended yet has no table any more.
        inner.close(&key);
        inner.tables.insert(key.clone(), Open { table, is_listing: false, number });
        drop(inner);
        Sift { sieve: self.clone(), key, number }
    }
}

impl<T: DeltaSink> Inner<T> {
    fn close(&mut self, key: &CellKey) -> Option<Open<T>> {
        let open = self.tables.remove(key)?;
        self.forget(key);
        Some(open)
    }

    fn apply(&mut self, key: &CellKey, delta: Delta<'_>) -> Outcome {
        match delta {
            Delta::Upsert(item) if *item.namespace != *self.home => {
                return self.upsert(key, item);
            }
            Delta::Remove(gone) => return self.remove(key, gone),
            Delta::ListDone(_) => {
                let gone = self.quota.end(within(key));
                let gone = self.write(&gone);
                self.set_listing(key, false);
                self.settle();
                let outcome = self.pass(key, delta);
                let Outcome::Swept { removed } = outcome else { return outcome };
                return Outcome::Swept { removed: removed + gone };
            }
            Delta::ListStarted(_) => {
                self.set_listing(key, true);
                self.quota.begin(within(key));
                self.waiting.set(key, false);
            }
            Delta::TakeBack => {
                // A list follows before anybody reads the table.
                self.set_listing(key, false);
                self.forget(key);
            }
            Delta::Purge => self.forget(key),
            Delta::Upsert(_)
            | Delta::ListAt(_)
            | Delta::Progress(_)
            | Delta::Arrived(_)
            | Delta::Verified(_) => {}
        }
        self.pass(key, delta)
    }

    fn upsert(&mut self, key: &CellKey, item: Item<'_>) -> Outcome {
        let shed = self.quota.put(&item.namespace, &item.name, outline(&item));
        let is_own = |it: &Shed| *it.namespace == *item.namespace && *it.name == *item.name;
        let (own, others): (Vec<_>, Vec<_>) = shed.into_iter().partition(is_own);
        let makes_room = self.write(&others) > 0;
        let version = item.version.clone();
        let outcome = match own.first() {
            None => self.pass(key, Delta::Upsert(item)),
            Some(own) => self.write_one(own),
        };
        self.passed(key, version.filter(|_| !own.is_empty()));
        if makes_room && outcome == Outcome::Added { Outcome::Modified } else { outcome }
    }

    fn remove(&mut self, key: &CellKey, gone: Tombstone<'_>) -> Outcome {
        let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
        let outcome = self.pass(key, Delta::Remove(gone));
        if outcome == Outcome::Removed {
            let shed = self.quota.remove(&namespace, &name);
            self.write(&shed);
            self.passed(key, None);
        }
        outcome
    }

    /// Takes specs out of the tables; how many rows have gone with them.
    fn write(&mut self, shed: &[Shed]) -> u64 {
        let mut removed = 0;
        for one in shed {
            removed += u64::from(self.write_one(one) == Outcome::Removed);
        }
        removed
    }

    fn write_one(&mut self, Shed { namespace, name, outline, over }: &Shed) -> Outcome {
        tracing::debug!(%namespace, %name, ?over, "more profiles than are read");
        let mut tables = self.tables.iter_mut();
        let here = tables.find(|(key, _)| within(key).has(namespace));
        let Some((_, Open { table, .. })) = here else { return Outcome::Outdated };
        let (namespace, name) = (Cow::from(&**namespace), Cow::from(&**name));
        let Some(over) = *over else {
            return table.apply(Delta::Remove(Tombstone { namespace, name, version: None }));
        };
        let Outline { created, generation, uid, reader, bytes: _ } = outline;
        let metadata = Meta { creation_timestamp: created.map(Time), generation: *generation };
        // Never fails: it has neither maps nor anything that could be no text.
        let body = serde_json::to_vec(&Bare { metadata, spec: reader.as_ref(), left_out: over })
            .unwrap_or_default();
        let uid = uid.clone();
        table.apply(Delta::Upsert(Item { namespace, name, uid, version: None, body: &body }))
    }

    /// After a change: the table is complete up to `version`, which it has not been told, and there may
    /// be room.
    fn passed(&mut self, key: &CellKey, version: Option<ResourceVersion>) {
        if self.tables.get(key).is_some_and(|open| open.is_listing) {
            return;
        }
        if let Some(version) = version {
            self.pass(key, Delta::Progress(version));
        }
        self.settle();
    }

    /// Says where there is room. While a list names the profiles it is too early.
    fn settle(&mut self) {
        for (key, _) in self.tables.iter().filter(|(_, open)| !open.is_listing) {
            self.waiting.set(key, self.quota.is_waiting(within(key)));
        }
    }

    fn forget(&mut self, key: &CellKey) {
        self.quota.clear(within(key));
        self.waiting.set(key, false);
        self.settle();
    }

    fn set_listing(&mut self, key: &CellKey, is_listing: bool) {
        if let Some(open) = self.tables.get_mut(key) {
            open.is_listing = is_listing;
        }
    }

    fn pass(&mut self, key: &CellKey, delta: Delta<'_>) -> Outcome {
        self.tables.get_mut(key).map_or(Outcome::Outdated, |open| open.table.apply(delta))
    }
}

impl<T: DeltaSink> Sift<T> {
    /// What is asked of the table, or nothing once it has a successor.
    fn ask<R>(&self, what: impl FnOnce(&T) -> R) -> Option<R> {
        let inner = self.sieve.0.lock();
        let open = inner.tables.get(&self.key).filter(|open| open.number == self.number)?;
        Some(what(&open.table))
    }
}

impl<T: DeltaSink> DeltaSink for Sift<T> {
    fn apply(&mut self, delta: Delta<'_>) -> Outcome {
        let mut inner = self.sieve.0.lock();
        if inner.tables.get(&self.key).is_none_or(|open| open.number != self.number) {
            return Outcome::Outdated;
        }
        inner.apply(&self.key, delta)
    }

    fn holds(&self, namespace: &str, name: &str) -> bool {
        self.ask(|table| table.holds(namespace, name)).unwrap_or(false)
    }

    fn objects(&self) -> u64 {
        self.ask(DeltaSink::objects).unwrap_or(0)
    }

    fn visit(&self, each: &mut dyn FnMut(Named<'_>)) -> Option<ResourceVersion> {
        self.ask(|table| table.visit(each))?
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.ask(DeltaSink::version)?
    }
}

impl<T: DeltaSink> Drop for Sift<T> {
    fn drop(&mut self) {
        let mut inner = self.sieve.0.lock();
        if inner.tables.get(&self.key).is_some_and(|open| open.number == self.number) {
            let closed = inner.close(&self.key);
            drop(inner);
            drop(closed);
        }
    }
}

impl<T> Clone for Sieve<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Sieve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sieve").finish_non_exhaustive()
    }
}

impl<T: DeltaSink> fmt::Debug for Sift<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sift").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Whose profiles the cell names.
fn within(key: &CellKey) -> Within<'_> {
    key.extent.namespace().map_or(Within::All, Within::Namespace)
}

/// What the profile takes. Of one that cannot be read the whole counts.
fn outline(item: &Item<'_>) -> Outline {
    let (created, generation, bytes, reader) = match serde_json::from_slice::<Stored<'_>>(item.body)
    {
        Ok(Stored { metadata, spec, .. }) => {
            let created = metadata.creation_timestamp.map(|time| time.0);
            let spec = spec.map_or("", RawValue::get);
            (created, metadata.generation, spec.len(), ReadBy::of(spec))
        }
        Err(_) => (None, None, item.body.len(), None),
    };
    Outline { created, generation, uid: item.uid.clone(), bytes, reader }
}

#[cfg(test)]
mod tests {
    use super::{super::intake::own_cells, *};
    use crate::{
        model::{Reread, Uid, Watched},
        store::{Catalog, Reader, Writer},
    };
    use serde_json::{Value, json};

    const OVER: usize = 101;

    struct Scene {
        sift: Sift<Writer>,
        table: Reader,
        waiting: Waiting,
        /// Of what is put.
        version: &'static str,
    }

    impl Scene {
        fn new() -> Self {
            let catalog = Catalog::new();
            let key = own_cells(&Watched::Everywhere).unwrap().remove(0).key;
            let writer = catalog.open(&key, &BTreeSet::new());
            let table = catalog.reader(&key).unwrap();
            let waiting = Waiting::default();
            let sift = Sieve::new("home".into(), waiting.clone()).open(writer, key);
            Self { sift, table, waiting, version: "5" }
        }

        fn put(&mut self, namespace: &str, at: usize) -> Outcome {
            let body = json!({
                "metadata": {"creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", at / 60, at % 60)},
                "spec": {"at": at, "serviceAccountName": "x"},
            })
            .to_string();
            self.sift.apply(Delta::Upsert(Item {
                namespace: namespace.into(),
                name: format!("p{at:03}").into(),
                uid: Uid::parse("u"),
                version: ResourceVersion::parse(self.version),
                body: body.as_bytes(),
            }))
        }

        /// A complete list of these, the youngest first.
        fn list(&mut self, namespaces: &[&str], profiles: std::ops::Range<usize>) {
            self.sift.apply(Delta::ListStarted(Reread::Changed));
            for namespace in namespaces {
                for at in profiles.clone().rev() {
                    self.put(namespace, at);
                }
            }
            assert!(self.waiting.cells().is_empty(), "too early to say");
            self.sift.apply(Delta::ListDone(ResourceVersion::from(9)));
        }

        fn remove(&mut self, namespace: &str, at: usize) -> Outcome {
            self.sift.apply(Delta::Remove(Tombstone {
                namespace: namespace.into(),
                name: format!("p{at:03}").into(),
                version: ResourceVersion::parse("10"),
            }))
        }

        /// Those in the table without their specs.
        fn bare(&self, namespace: &str) -> Vec<String> {
            let keys = self.table.keys(None, 10_000);
            let objects = keys.iter().filter_map(|key| self.table.get(key));
            let of = |object: crate::store::Object| {
                let body: Value = serde_json::from_slice(&object.body).unwrap();
                let is_bare = body.get("leftOut").is_some();
                let spec =
                    if is_bare { json!({"serviceAccountName": "x"}) } else { body["spec"].clone() };
                assert_eq!(body["spec"], spec, "whom it names counts");
                assert_eq!(object.version.is_none(), is_bare, "{body}");
                (*object.key.namespace == *namespace && is_bare)
                    .then(|| object.key.name.to_string())
            };
            objects.filter_map(of).collect()
        }
    }

    #[test]
    fn the_youngest_of_a_namespace_are_held_without_their_specs() {
        let mut scene = Scene::new();
        scene.list(&["a", "b"], 0..100);
        assert!(scene.bare("a").is_empty());
        scene.put("a", 100);
        scene.put("home", 100);
        assert_eq!(scene.bare("a"), ["p100"]);
        scene.list(&["a", "b", "home"], 0..102);
        for namespace in ["a", "b"] {
            assert_eq!(scene.bare(namespace), ["p100", "p101"]);
        }
        assert!(scene.bare("home").is_empty(), "which nobody counts");
        assert_eq!(scene.sift.objects(), 3 * 102);
        assert_eq!(scene.sift.version(), Some(ResourceVersion::from(9)));
    }

    #[test]
    fn room_asks_for_a_list_and_the_list_brings_the_spec() {
        let mut scene = Scene::new();
        scene.list(&["a"], 0..OVER);
        assert!(scene.waiting.cells().is_empty());
        assert_eq!(scene.remove("a", 7), Outcome::Removed);
        assert_eq!(scene.waiting.cells().len(), 1);
        scene.sift.apply(Delta::ListStarted(Reread::Changed));
        for at in (0..OVER).filter(|at| *at != 7) {
            scene.put("a", at);
        }
        scene.sift.apply(Delta::ListDone(ResourceVersion::from(11)));
        assert!(scene.bare("a").is_empty() && scene.waiting.cells().is_empty());
    }

    #[test]
    fn what_is_not_known_at_all_leaves_no_row() {
        let mut scene = Scene::new();
        scene.list(&["a"], 0..300);
        assert_eq!((scene.sift.objects(), scene.bare("a").len()), (200, 100));
        assert_eq!(scene.remove("a", 400), Outcome::Outdated);
        scene.version = "12";
        assert_eq!(scene.put("a", 400), Outcome::Outdated);
        assert_eq!(scene.sift.objects(), 200);
        // The table is complete up to an event all the same.
        assert_eq!(scene.sift.version(), Some(ResourceVersion::from(12)));
    }

    #[test]
    fn a_list_lets_nobody_in_for_as_long_as_it_takes() {
        let mut scene = Scene::new();
        scene.list(&["a"], 0..110);
        let left_out: Vec<_> = (100..110).map(|at| format!("p{at:03}")).collect();
        assert_eq!(scene.bare("a"), left_out);
        scene.sift.apply(Delta::ListStarted(Reread::Changed));
        // The youngest first, as their names may have it.
        for at in (5..110).rev() {
            scene.put("a", at);
            assert_eq!(scene.bare("a"), left_out, "at {at}");
        }
        // One that an older pushes out, and that is gone.
        scene.put("b", 0);
        scene.sift.apply(Delta::ListDone(ResourceVersion::from(11)));
        assert_eq!(scene.sift.objects(), 105 + 1, "five have gone meanwhile");
        assert_eq!(scene.bare("a"), left_out);
        assert_eq!(scene.waiting.cells().len(), 1, "for those that have room now");
        scene.list(&["a"], 5..110);
        assert_eq!(scene.bare("a"), left_out[5..]);
    }

    #[test]
    fn one_that_goes_while_its_spec_is_taken_out_leaves_no_row() {
        let mut scene = Scene::new();
        scene.list(&["a"], 1..101);
        scene.sift.apply(Delta::ListStarted(Reread::Changed));
        // An older one, that is new; and p100 is not named any more.
        for at in 0..100 {
            scene.put("a", at);
        }
        assert_eq!(scene.bare("a"), ["p100"]);
        let outcome = scene.sift.apply(Delta::ListDone(ResourceVersion::from(11)));
        assert_eq!(outcome, Outcome::Swept { removed: 1 });
        assert_eq!((scene.sift.objects(), scene.bare("a").len()), (100, 0));
    }

    #[test]
    fn namespaces_that_are_listed_one_by_one_share_what_the_process_reads() {
        let names: Vec<Arc<str>> = (0..102).map(|n| format!("n{n:03}").into()).collect();
        let cells = own_cells(&Watched::Namespaces(names.iter().cloned().collect())).unwrap();
        let (catalog, waiting) = (Catalog::new(), Waiting::default());
        let sieve = Sieve::new("home".into(), waiting.clone());
        let mut scenes: Vec<_> = cells
            .into_iter()
            .map(|cell| {
                let writer = catalog.open(&cell.key, &BTreeSet::new());
                let table = catalog.reader(&cell.key).unwrap();
                let sift = sieve.open(writer, cell.key);
                Scene { sift, table, waiting: Waiting::default(), version: "5" }
            })
            .collect();
        let bare = |scenes: &[Scene]| {
            let bare = scenes.iter().zip(&names).map(|(scene, name)| scene.bare(name).len());
            bare.collect::<Vec<_>>()
        };
        // The later by name are the older: a namespace that comes late takes room of those before.
        for (scene, name) in scenes.iter_mut().zip(&names).rev() {
            scene.list(&[name], 0..100);
        }
        let all = bare(&scenes);
        assert_eq!(all.iter().sum::<usize>(), 200, "10,000 in all: {all:?}");
        assert!(all.iter().all(|bare| *bare <= 2), "the youngest of each: {all:?}");
        assert!(waiting.cells().is_empty());
        // What goes in one makes room in another.
        let _one = scenes[50].remove("n050", 3);
        assert_eq!(waiting.cells().len(), 1);
        // A cell that ends leaves its room to the others.
        drop(scenes.remove(70));
        assert!(waiting.cells().len() > 50, "{:?}", waiting.cells());
    }

    #[test]
    fn a_table_that_has_a_successor_says_nothing_any_more() {
        let mut scene = Scene::new();
        scene.list(&["a"], 0..3);
        let catalog = Catalog::new();
        let writer = catalog.open(&scene.sift.key, &BTreeSet::new());
        let next = scene.sift.sieve.open(writer, scene.sift.key.clone());
        assert_eq!((scene.sift.objects(), scene.put("a", 7)), (0, Outcome::Outdated));
        drop(scene);
        assert_eq!(next.objects(), 0);
        assert!(next.version().is_none());
    }

    #[test]
    fn after_a_loss_of_access_only_a_list_tells() {
        let mut scene = Scene::new();
        scene.list(&["a"], 0..OVER);
        scene.remove("a", 1);
        scene.sift.apply(Delta::TakeBack);
        assert!(scene.waiting.cells().is_empty());
        scene.put("a", 300);
        assert!(!scene.bare("a").contains(&"p300".to_owned()), "nothing is counted any more");
    }
}
