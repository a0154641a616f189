//! Keeps the specs of profiles that are too many out of the table that the controller reads.

use super::quota::{Outline, Over, Quota, ReadBy, Shed};
use crate::model::{CellKey, Delta, DeltaSink, Item, Outcome, ResourceVersion, Tombstone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

/// The cells of profiles that have room for some whose specs were not kept: another list would bring
/// them. Cheap to clone; bounded by the controller's own cells.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<Mutex<BTreeSet<CellKey>>>);

/// The table of one cell of profiles, and which of their specs it may hold.
///
/// Of the others it holds what takes to say so in their status, without a version: so they are stored
/// anew whenever they come.
pub struct Sift<T> {
    table: T,
    key: CellKey,
    /// The operator's own namespace: whoever may write profiles there is trusted with the operator.
    home: Arc<str>,
    quota: Quota,
    waiting: Waiting,
    is_listing: bool,
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

impl<T: DeltaSink> Sift<T> {
    /// In front of `table`, which is that of the cell `key`.
    #[must_use]
    pub fn new(table: T, key: CellKey, home: Arc<str>, waiting: Waiting) -> Self {
        Self { table, key, home, quota: Quota::default(), waiting, is_listing: false }
    }

    fn upsert(&mut self, item: Item<'_>) -> Outcome {
        let shed = self.quota.put(&item.namespace, &item.name, outline(&item));
        let is_own = |it: &Shed| *it.namespace == *item.namespace && *it.name == *item.name;
        let (own, others): (Vec<_>, Vec<_>) = shed.into_iter().partition(is_own);
        let makes_room = self.write(&others);
        let version = item.version.clone();
        let outcome = match own.first() {
            None => self.table.apply(Delta::Upsert(item)),
            Some(own) => self.write_one(own),
        };
        self.settle(version.filter(|_| !own.is_empty()));
        if makes_room && outcome == Outcome::Added { Outcome::Modified } else { outcome }
    }

    fn remove(&mut self, gone: Tombstone<'_>) -> Outcome {
        let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
        let outcome = self.table.apply(Delta::Remove(gone));
        if outcome == Outcome::Removed {
            let shed = self.quota.remove(&namespace, &name);
            self.write(&shed);
            self.settle(None);
        }
        outcome
    }

    /// Takes specs out of the table; whether rows have gone with them.
    fn write(&mut self, shed: &[Shed]) -> bool {
        let mut has_removed = false;
        for one in shed {
            has_removed |= self.write_one(one) == Outcome::Removed;
        }
        has_removed
    }

    fn write_one(&mut self, Shed { namespace, name, outline, over }: &Shed) -> Outcome {
        tracing::debug!(%namespace, %name, ?over, "more profiles than are read");
        let (namespace, name) = (Cow::from(&**namespace), Cow::from(&**name));
        let Some(over) = *over else {
            return self.table.apply(Delta::Remove(Tombstone { namespace, name, version: None }));
        };
        let Outline { created, generation, uid, reader, bytes: _ } = outline;
        let metadata = Meta { creation_timestamp: created.map(Time), generation: *generation };
        // Never fails: it has neither maps nor anything that could be no text.
        let body = serde_json::to_vec(&Bare { metadata, spec: reader.as_ref(), left_out: over })
            .unwrap_or_default();
        let uid = uid.clone();
        self.table.apply(Delta::Upsert(Item { namespace, name, uid, version: None, body: &body }))
    }

    /// After a change: the table is complete up to `passed`, which it has not been told, and there may
    /// be room. While a list names the profiles it is too early to say so.
    fn settle(&mut self, passed: Option<ResourceVersion>) {
        if self.is_listing {
            return;
        }
        if let Some(version) = passed {
            self.table.apply(Delta::Progress(version));
        }
        self.waiting.set(&self.key, self.quota.is_waiting());
    }

    fn forget(&mut self) {
        self.quota.clear();
        self.waiting.set(&self.key, false);
    }
}

impl<T: DeltaSink> DeltaSink for Sift<T> {
    fn apply(&mut self, delta: Delta<'_>) -> Outcome {
        match delta {
            Delta::Upsert(item) if *item.namespace != *self.home => return self.upsert(item),
            Delta::Remove(gone) => return self.remove(gone),
            Delta::ListDone(_) => {
                self.is_listing = false;
                self.settle(None);
            }
            Delta::ListStarted(_) => {
                self.is_listing = true;
                self.forget();
            }
            Delta::TakeBack => {
                // A list follows before anybody reads the table.
                self.is_listing = false;
                self.forget();
            }
            Delta::Purge => self.forget(),
            Delta::Upsert(_)
            | Delta::ListAt(_)
            | Delta::Progress(_)
            | Delta::Arrived(_)
            | Delta::Verified(_) => {}
        }
        self.table.apply(delta)
    }

    fn holds(&self, namespace: &str, name: &str) -> bool {
        self.table.holds(namespace, name)
    }

    fn objects(&self) -> u64 {
        self.table.objects()
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.table.version()
    }
}

impl<T> fmt::Debug for Sift<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sift").field("key", &self.key).finish_non_exhaustive()
    }
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
            let sift = Sift::new(writer, key, "home".into(), waiting.clone());
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
            let objects = self.table.page(None, 10_000).objects;
            let of = |object: &crate::store::Object| {
                let body: Value = serde_json::from_slice(&object.body).unwrap();
                let is_bare = body.get("leftOut").is_some();
                let spec =
                    if is_bare { json!({"serviceAccountName": "x"}) } else { body["spec"].clone() };
                assert_eq!(body["spec"], spec, "whom it names counts");
                assert_eq!(object.version.is_none(), is_bare, "{body}");
                (*object.key.namespace == *namespace && is_bare)
                    .then(|| object.key.name.to_string())
            };
            objects.iter().filter_map(of).collect()
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
