//! Limits the profiles whose specs are held: a counter in front of their tables, first come, first served.

#[cfg(test)]
mod tests;

use super::intake::{Meta, Stored};
use kubewarm_api::model::{
    Bound, Budget, CellKey, Charge, Delta, DeltaSink, Gauge, Item, Limits, Measure, Outcome,
    Tombstone,
};
use kubewarm_cache::store::Writer;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// Profiles of one namespace whose specs are held, and as many again that are left out.
pub(super) const NAMESPACE_PROFILES: u64 = 100;
/// MiB of their specs, as JSON. A spec has a few KiB; this bounds those that list names by the thousand.
pub(super) const NAMESPACE_MEBIBYTES: u64 = 4;
/// Those of all namespaces but the operator's.
pub(super) const PROCESS_PROFILES: u64 = 10_000;
pub(super) const PROCESS_MEBIBYTES: u64 = 64;

/// Most bytes of a status that is held. kubewarm writes none that is longer: manifests have at most 64 KiB, and the
/// rest of 32 targets has less than the bound. kubewarm does not read a longer one, which others wrote.
const MAX_STATUS: usize = 512 << 10;

/// Counts the specs that are held and those that are kept for newer, invalid ones. Cheap to clone;
/// bounded by 10,000 profiles with their specs and as many that are left out.
///
/// The profiles of the operator's namespace have no limit: anyone who can write them is trusted with the
/// operator.
#[derive(Clone, Debug)]
pub struct Admission {
    home: Arc<str>,
    counter: Arc<Mutex<SpecCounter>>,
}

#[derive(Debug)]
struct SpecCounter {
    /// Of all namespaces.
    process: SpecBudgets,
    /// Those that have profiles.
    namespaces: BTreeMap<Box<str>, Namespace>,
    /// Whether a profile was left out since [`Admission::take_freed`] last answered `true`.
    has_left_out: bool,
    /// Whether a spec has been freed since then.
    has_freed: bool,
}

#[derive(Debug)]
struct SpecBudgets {
    specs: Arc<Budget>,
    /// Profiles that are held without their specs.
    left_out: Arc<Budget>,
}

#[derive(Debug)]
struct Namespace {
    budgets: SpecBudgets,
    profiles: BTreeMap<Box<str>, Charge>,
}

/// What the table may hold of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// All but spec and status.
    Name,
    Nothing,
}

impl SpecBudgets {
    fn new(bound: Bound, profiles: u64, mebibytes: u64, parent: Option<&Self>) -> Self {
        let above = |of: fn(&Self) -> &Arc<Budget>| parent.map(of).cloned();
        let names = Limits { max_objects: Some(profiles), max_bytes: None };
        let specs = Limits { max_bytes: Some(mebibytes << 20), ..names };
        Self {
            specs: Arc::new(Budget::new(bound, specs, above(|it| &it.specs))),
            left_out: Arc::new(Budget::new(bound, names, above(|it| &it.left_out))),
        }
    }
}

/// Charges `budget` for profiles and bytes of their specs, if they fit.
fn charge(budget: &Arc<Budget>, profiles: u64, bytes: u64) -> Option<Charge> {
    let gauge = Gauge::default();
    gauge.set(profiles, bytes);
    let charge = Charge::new(Arc::new(gauge), Arc::clone(budget));
    (!budget.is_exceeded()).then_some(charge)
}

impl Namespace {
    /// Bytes of the spec, if it is held.
    fn spec_bytes(&self, charge: &Charge) -> Option<u64> {
        (*charge.budget() == self.budgets.specs).then(|| charge.gauge().bytes())
    }
}

impl SpecCounter {
    fn namespace(&mut self, name: &str, home: &str) -> &mut Namespace {
        let process = &self.process;
        self.namespaces.entry(name.into()).or_insert_with(|| {
            let budgets = if name == home {
                SpecBudgets::new(Bound::Namespace, u64::MAX, u64::MAX >> 20, None)
            } else {
                let (profiles, mebibytes) = (NAMESPACE_PROFILES, NAMESPACE_MEBIBYTES);
                SpecBudgets::new(Bound::Namespace, profiles, mebibytes, Some(process))
            };
            Namespace { budgets, profiles: BTreeMap::new() }
        })
    }

    fn put(&mut self, namespace: &str, name: &str, bytes: u64, home: &str) -> Part {
        let here = self.namespace(namespace, home);
        let before = here.profiles.remove(name).and_then(|charge| here.spec_bytes(&charge));
        let SpecBudgets { specs, left_out } = &here.budgets;
        let (part, charge) = match charge(specs, 1, bytes) {
            Some(charge) => (Part::Whole, Some(charge)),
            None => match charge(left_out, 1, 0) {
                Some(charge) => (Part::Name, Some(charge)),
                None => (Part::Nothing, None),
            },
        };
        here.profiles.extend(charge.map(|charge| (name.into(), charge)));
        if before.is_some_and(|before| part != Part::Whole || bytes < before) {
            self.note_freed();
        }
        self.has_left_out |= part != Part::Whole;
        part
    }

    /// Leaves only these of the profiles, of one namespace or of all.
    fn retain(&mut self, within: Option<&str>, stays: impl Fn(&str, &str) -> bool) {
        let mut has_freed = false;
        self.namespaces.retain(|namespace, here| {
            if within.is_some_and(|within| within != &**namespace) {
                return true;
            }
            let Namespace { budgets, profiles } = here;
            let gone = profiles.extract_if(.., |name, _| !stays(namespace, name));
            has_freed |= gone.filter(|(_, it)| *it.budget() == budgets.specs).count() > 0;
            // Last valid specs may be kept for longer than their profiles are counted.
            !profiles.is_empty() || budgets.specs.used(Measure::Memory) > 0
        });
        if has_freed {
            self.note_freed();
        }
    }

    fn note_freed(&mut self) {
        self.has_freed |= self.has_left_out;
    }
}

impl Admission {
    /// Has counted nothing yet. `home` is the operator's namespace.
    #[must_use]
    pub fn new(home: Arc<str>) -> Self {
        let process = SpecBudgets::new(Bound::Process, PROCESS_PROFILES, PROCESS_MEBIBYTES, None);
        let (has_left_out, has_freed) = (false, false);
        let namespaces = BTreeMap::new();
        let counter = SpecCounter { process, namespaces, has_left_out, has_freed };
        Self { home, counter: Arc::new(Mutex::new(counter)) }
    }

    /// Stands in front of `table`, which is that of the cell `key`.
    pub(crate) fn guard(&self, table: Writer, key: &CellKey) -> ProfileSink {
        let namespace = key.extent.namespace().map(Arc::from);
        ProfileSink { admission: self.clone(), table, namespace, is_listing: false }
    }

    /// Counts a last valid spec of `namespace` beside the newest one for as long as the charge is held; `None` if
    /// it does not fit.
    pub(super) fn keep(&self, namespace: &str, bytes: u64) -> Option<Charge> {
        let mut counter = self.counter.lock();
        charge(&counter.namespace(namespace, &self.home).budgets.specs, 0, bytes)
    }

    /// Says that a last valid spec is kept no longer.
    pub(super) fn note_freed(&self) {
        self.counter.lock().note_freed();
    }

    /// Whether something has been freed since profiles were left out: a list would bring their specs.
    /// Answers `true` once.
    pub(super) fn take_freed(&self) -> bool {
        let mut counter = self.counter.lock();
        let has_freed = std::mem::take(&mut counter.has_freed);
        counter.has_left_out &= !has_freed;
        has_freed
    }
}

/// The table of one cell of profiles, behind the counter.
///
/// A profile that is left out is stored without a version, so that the next list stores it again.
pub(crate) struct ProfileSink {
    admission: Admission,
    table: Writer,
    /// Of which the cell names the profiles; `None`: of all.
    namespace: Option<Arc<str>>,
    is_listing: bool,
}

impl ProfileSink {
    /// Holds what the controller reads of a profile, as far as the counter admits it. Its labels and annotations, which
    /// can take a MiB, are dropped.
    fn upsert(&mut self, item: Item<'_>) -> Outcome {
        let stored = serde_json::from_slice::<Stored<'_>>(item.body);
        // A profile that cannot be read is held, and counted, as it is.
        let bytes = stored.as_ref().map_or(item.body.len(), Stored::spec_bytes);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let Admission { home, counter } = &self.admission;
        let part = counter.lock().put(&item.namespace, &item.name, bytes, home);
        if part == Part::Whole {
            let body = stored.map(|stored| {
                let status = stored.status.filter(|status| status.get().len() <= MAX_STATUS);
                Stored { status, is_left_out: false, ..stored }.to_json()
            });
            let body = body.as_deref().unwrap_or(item.body);
            return self.table.apply(Delta::Upsert(Item { body, ..item }));
        }
        let Item { namespace, name, uid, version, .. } = item;
        let outcome = match part {
            Part::Name => {
                tracing::debug!(%namespace, %name, "a profile is left out");
                let metadata = stored.map_or_else(|_| Meta::default(), |stored| stored.metadata);
                let body =
                    Stored { metadata, spec: None, status: None, is_left_out: true }.to_json();
                let item = Item { namespace, name, uid, version: None, body: &body };
                self.table.apply(Delta::Upsert(item))
            }
            Part::Whole | Part::Nothing => {
                self.table.apply(Delta::Remove(Tombstone { namespace, name, version: None }))
            }
        };
        if let Some(version) = version.filter(|_| !self.is_listing) {
            self.table.apply(Delta::Progress(version));
        }
        outcome
    }
}

impl DeltaSink for ProfileSink {
    fn apply(&mut self, delta: Delta<'_>) -> Outcome {
        match delta {
            Delta::Upsert(item) => self.upsert(item),
            Delta::Remove(gone) => {
                let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
                let outcome = self.table.apply(Delta::Remove(gone));
                if outcome == Outcome::Removed {
                    let mut counter = self.admission.counter.lock();
                    counter.retain(Some(&namespace), |_, other| *other != *name);
                }
                outcome
            }
            Delta::ListStarted(_) => {
                self.is_listing = true;
                self.table.apply(delta)
            }
            Delta::ListDone(_) | Delta::Purge => {
                self.is_listing = false;
                let outcome = self.table.apply(delta);
                // What the list has not named is gone. After a purge a list follows before anybody reads the table.
                let table = self.table.reader();
                let stays = |namespace: &str, name: &str| table.holds(namespace, name);
                self.admission.counter.lock().retain(self.namespace.as_deref(), stays);
                outcome
            }
            Delta::Progress(_) | Delta::Arrived(_) => self.table.apply(delta),
        }
    }
}
