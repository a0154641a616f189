//! Limits the profiles whose specs are held: a counter in front of their tables, first come, first served.

#[cfg(test)]
mod tests;

use super::intake::{Meta, Stored};
use kubewarm_api::model::{
    CellKey, Delta, DeltaSink, Item, Named, Outcome, ProfileRef, ResourceVersion, Tombstone,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Profiles, and bytes of their specs as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) profiles: usize,
    pub(super) bytes: usize,
}

/// Specs that are held of one namespace. A spec has a few KiB; the bytes bound those that list names by
/// the thousand.
pub(super) const PER_NAMESPACE: Amount = Amount { profiles: 100, bytes: 4 << 20 };
/// Specs that are held of all namespaces but the operator's.
pub(super) const PER_PROCESS: Amount = Amount { profiles: 10_000, bytes: 64 << 20 };

/// Counts the specs that are held and those that are kept for newer, invalid ones. Cheap to clone;
/// bounded by `PER_PROCESS` and as many profiles again that are left out.
///
/// The profiles of the operator's namespace do not count: anyone who can write them is trusted with the
/// operator.
#[derive(Clone, Debug)]
pub struct Admission {
    home: Arc<str>,
    counter: Arc<Mutex<Counter>>,
}

#[derive(Debug, Default)]
struct Counter {
    namespaces: BTreeMap<Box<str>, Namespace>,
    taken: Amount,
    /// Profiles that are held without their specs.
    left_out: usize,
    /// Whether a profile was left out since [`Admission::take_freed`] last answered `true`.
    has_left_out: bool,
    /// Whether something has been freed since then.
    has_freed: bool,
}

#[derive(Debug, Default)]
struct Namespace {
    /// Bytes of each profile's spec; `None`: left out.
    specs: BTreeMap<Box<str>, Option<usize>>,
    /// Bytes of the last valid spec of profiles whose newest is invalid.
    kept: BTreeMap<Box<str>, usize>,
}

/// What the table may hold of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// All but spec and status.
    Name,
    Nothing,
}

impl Amount {
    fn fits(self, limit: Self) -> bool {
        self.profiles <= limit.profiles && self.bytes <= limit.bytes
    }

    fn with(self, other: Self) -> Self {
        Self {
            profiles: self.profiles.saturating_add(other.profiles),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            profiles: self.profiles.saturating_sub(other.profiles),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Namespace {
    fn taken(&self) -> Amount {
        let specs = || self.specs.values().flatten();
        let bytes = specs().chain(self.kept.values()).copied().fold(0, usize::saturating_add);
        Amount { profiles: specs().count(), bytes }
    }

    fn left_out(&self) -> usize {
        self.specs.values().filter(|spec| spec.is_none()).count()
    }
}

impl Counter {
    /// Changes what is counted of a namespace; `change` also gets what all others take.
    ///
    /// Cost: that of looking at the namespace's profiles, 200 at most.
    fn change<R>(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Namespace, Amount) -> R,
    ) -> R {
        let mut here = self.namespaces.remove(namespace).unwrap_or_default();
        let (before, left_out) = (here.taken(), here.left_out());
        let others = self.taken.without(before);
        let result = change(&mut here, others);
        let after = here.taken();
        self.taken = others.with(after);
        self.left_out = self.left_out.saturating_sub(left_out).saturating_add(here.left_out());
        self.has_freed |= self.has_left_out && !before.fits(after);
        if !here.specs.is_empty() || !here.kept.is_empty() {
            self.namespaces.insert(namespace.into(), here);
        }
        result
    }

    fn put(&mut self, namespace: &str, name: &str, bytes: usize) -> Part {
        let all_left_out = self.left_out;
        let part = self.change(namespace, |here, others| {
            here.specs.remove(name);
            let taken = here.taken().with(Amount { profiles: 1, bytes });
            if taken.fits(PER_NAMESPACE) && taken.with(others).fits(PER_PROCESS) {
                here.specs.insert(name.into(), Some(bytes));
                Part::Whole
            } else if here.left_out() < PER_NAMESPACE.profiles
                && all_left_out < PER_PROCESS.profiles
            {
                here.specs.insert(name.into(), None);
                Part::Name
            } else {
                Part::Nothing
            }
        });
        self.has_left_out |= part != Part::Whole;
        part
    }
}

impl Admission {
    /// Has counted nothing yet. `home` is the operator's namespace.
    #[must_use]
    pub fn new(home: Arc<str>) -> Self {
        Self { home, counter: Arc::default() }
    }

    /// Stands in front of `table`, which is that of the cell `key`.
    #[must_use]
    pub fn guard<T: DeltaSink>(&self, table: T, key: &CellKey) -> ProfileSink<T> {
        let namespace = key.extent.namespace().map(Arc::from);
        ProfileSink { admission: self.clone(), table, namespace, is_listing: false }
    }

    /// Counts the last valid spec of a profile beside its newest; `false` if it does not fit.
    pub(super) fn keep(&self, of: &ProfileRef, bytes: usize) -> bool {
        *of.namespace == *self.home
            || self.counter.lock().change(&of.namespace, |here, others| {
                here.kept.remove(&*of.name);
                let bytes_taken = here.taken().bytes.saturating_add(bytes);
                let fits = bytes_taken <= PER_NAMESPACE.bytes
                    && bytes_taken.saturating_add(others.bytes) <= PER_PROCESS.bytes;
                if fits {
                    here.kept.insert((&*of.name).into(), bytes);
                }
                fits
            })
    }

    /// Counts no last valid spec of this profile any more.
    pub(super) fn release(&self, of: &ProfileRef) {
        let mut counter = self.counter.lock();
        let here = counter.namespaces.get(&*of.namespace);
        if here.is_some_and(|here| here.kept.contains_key(&*of.name)) {
            counter.change(&of.namespace, |here, _| here.kept.remove(&*of.name));
        }
    }

    /// Whether something has been freed since profiles were left out: a list would bring their specs.
    /// Answers `true` once.
    pub(super) fn take_freed(&self) -> bool {
        let mut counter = self.counter.lock();
        let has_freed = std::mem::take(&mut counter.has_freed);
        counter.has_left_out &= !has_freed;
        has_freed
    }

    /// Leaves only these of the profiles that count, of one namespace or of all.
    fn retain(&self, within: Option<&str>, stays: impl Fn(&str, &str) -> bool) {
        let mut counter = self.counter.lock();
        let all = counter.namespaces.keys();
        let here = all.filter(|name| within.is_none_or(|within| within == &***name));
        for namespace in here.cloned().collect::<Vec<_>>() {
            counter.change(&namespace, |here, _| {
                here.specs.retain(|name, _| stays(&namespace, name));
                here.kept.retain(|name, _| stays(&namespace, name));
            });
        }
    }
}

/// The table of one cell of profiles, behind the counter.
///
/// A profile that is left out is stored without a version, so that the next list stores it again.
pub struct ProfileSink<T> {
    admission: Admission,
    table: T,
    /// Of which the cell names the profiles; `None`: of all.
    namespace: Option<Arc<str>>,
    is_listing: bool,
}

/// What the table holds of a profile that is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    metadata: Meta,
    left_out: bool,
}

impl<T: DeltaSink> ProfileSink<T> {
    fn upsert(&mut self, item: Item<'_>) -> Outcome {
        let (metadata, bytes) = measure(item.body);
        let part = self.admission.counter.lock().put(&item.namespace, &item.name, bytes);
        let Item { namespace, name, uid, version, body } = item;
        let outcome = match part {
            Part::Whole => {
                return self.table.apply(Delta::Upsert(Item {
                    namespace,
                    name,
                    uid,
                    version,
                    body,
                }));
            }
            Part::Name => {
                tracing::debug!(%namespace, %name, "a profile is left out");
                // Never fails: it has neither maps nor anything that could be no text.
                let body = serde_json::to_vec(&Name { metadata, left_out: true });
                let body = body.unwrap_or_default();
                let item = Item { namespace, name, uid, version: None, body: &body };
                self.table.apply(Delta::Upsert(item))
            }
            Part::Nothing => {
                self.table.apply(Delta::Remove(Tombstone { namespace, name, version: None }))
            }
        };
        if let Some(version) = version.filter(|_| !self.is_listing) {
            self.table.apply(Delta::Progress(version));
        }
        outcome
    }

    /// After a list: what it has not named is gone.
    fn sweep(&self) {
        let mut names = BTreeSet::new();
        self.table.visit(&mut |it| {
            names.insert((it.namespace.to_owned(), it.name.to_owned()));
        });
        let stays =
            |namespace: &str, name: &str| names.contains(&(namespace.to_owned(), name.to_owned()));
        self.admission.retain(self.namespace.as_deref(), stays);
    }
}

impl<T: DeltaSink> DeltaSink for ProfileSink<T> {
    fn apply(&mut self, delta: Delta<'_>) -> Outcome {
        match delta {
            Delta::Upsert(item) if *item.namespace != *self.admission.home => self.upsert(item),
            Delta::Remove(gone) => {
                let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
                let outcome = self.table.apply(Delta::Remove(gone));
                if outcome == Outcome::Removed {
                    self.admission.counter.lock().change(&namespace, |here, _| {
                        here.specs.remove(&*name);
                        here.kept.remove(&*name);
                    });
                }
                outcome
            }
            Delta::ListDone(_) => {
                let outcome = self.table.apply(delta);
                self.is_listing = false;
                self.sweep();
                outcome
            }
            Delta::ListStarted(_) => {
                self.is_listing = true;
                self.table.apply(delta)
            }
            Delta::Purge => {
                let outcome = self.table.apply(delta);
                // A list follows before anybody reads the table.
                self.admission.retain(self.namespace.as_deref(), |_, _| false);
                outcome
            }
            Delta::Upsert(_) | Delta::Progress(_) | Delta::Arrived(_) => self.table.apply(delta),
        }
    }

    fn holds(&self, namespace: &str, name: &str) -> bool {
        self.table.holds(namespace, name)
    }

    fn objects(&self) -> u64 {
        self.table.objects()
    }

    fn visit(&self, each: &mut dyn FnMut(Named<'_>)) -> Option<ResourceVersion> {
        self.table.visit(each)
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.table.version()
    }
}

impl<T> fmt::Debug for ProfileSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileSink").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// What stays of a profile that is left out, and the bytes of its spec. Of one that cannot be read the
/// whole counts.
fn measure(body: &[u8]) -> (Meta, usize) {
    match serde_json::from_slice::<Stored<'_>>(body) {
        Ok(Stored { metadata, spec, .. }) => {
            (metadata, spec.map_or(0, |it| RawValue::get(it).len()))
        }
        Err(_) => (Meta::default(), body.len()),
    }
}
