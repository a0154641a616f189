//! Limits the number and size of profile specs in memory. Profiles are admitted in the order of
//! their arrival.

#[cfg(test)]
mod tests;

use super::profile_parser::{ProfileMetadata, StoredProfile};
use kubewarm_api::model::{
    Budget, BudgetCharge, DecodedObject, Delta, DeltaOutcome, DeltaSink, InformerKey, LimitKind,
    LimitScope, ProfileLimits, Tombstone, UsageMeter,
};
use kubewarm_cache::store::StoreWriter;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of profiles of one namespace whose specs are kept, and of those without specs.
pub(super) const NAMESPACE_PROFILES: u64 = 100;
/// Maximum size of a namespace's specs as JSON, in MiB. A usual spec has a few KiB; this limits
/// specs that name thousands of namespaces.
pub(super) const NAMESPACE_MEBIBYTES: u64 = 4;
/// Maximum number of profiles with specs, and maximum size of their specs in MiB. Both apply to all
/// namespaces together, except the operator namespace.
pub(super) const PROCESS_PROFILES: u64 = 10_000;
pub(super) const PROCESS_MEBIBYTES: u64 = 64;

/// Maximum size of a stored status, in bytes. kubewarm's own statuses are smaller: manifests have at most 64 KiB, and
/// the rest of 32 targets stays below this limit. kubewarm ignores a larger status, which another client wrote.
const MAX_STATUS: usize = 512 << 10;

/// Counts the specs in the stores, and last valid specs that are kept for newer, invalid ones.
///
/// A clone shares the counter. Its size is bounded by 10,000 profiles with specs and 10,000
/// without.
///
/// The operator namespace has no limit, because users who can create profiles there are trusted
/// like the operator.
#[derive(Clone, Debug)]
pub struct ProfileAdmission {
    operator_namespace: Arc<str>,
    counter: Arc<Mutex<SpecCounter>>,
}

#[derive(Debug)]
struct SpecCounter {
    /// Budgets of all namespaces together.
    process: SpecBudgets,
    /// The namespaces that have profiles.
    namespaces: BTreeMap<Box<str>, NamespaceSpecUsage>,
    /// Whether a profile was left out since [`ProfileAdmission::take_freed`] last returned `true`.
    has_left_out: bool,
    /// Whether a spec was freed since then.
    has_freed: bool,
}

#[derive(Debug)]
struct SpecBudgets {
    specs: Arc<Budget>,
    /// Budget for profiles that are kept without their specs.
    left_out: Arc<Budget>,
}

#[derive(Debug)]
struct NamespaceSpecUsage {
    budgets: SpecBudgets,
    profiles: BTreeMap<Box<str>, BudgetCharge>,
}

/// Which part of a profile the store may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredPart {
    Whole,
    /// Everything except spec and status.
    Name,
    Nothing,
}

impl SpecBudgets {
    fn new(bound: LimitScope, profiles: u64, mebibytes: u64, parent: Option<&Self>) -> Self {
        let above = |of: fn(&Self) -> &Arc<Budget>| parent.map(of).cloned();
        let names = ProfileLimits { max_objects: Some(profiles), max_bytes: None };
        let specs = ProfileLimits { max_bytes: Some(mebibytes << 20), ..names };
        Self {
            specs: Arc::new(Budget::new(bound, specs, above(|it| &it.specs))),
            left_out: Arc::new(Budget::new(bound, names, above(|it| &it.left_out))),
        }
    }
}

/// Charges `budget` for profiles and the bytes of their specs, or returns `None` if they do not
/// fit.
fn charge(budget: &Arc<Budget>, profiles: u64, bytes: u64) -> Option<BudgetCharge> {
    let gauge = UsageMeter::default();
    gauge.set(profiles, bytes);
    let charge = BudgetCharge::new(Arc::new(gauge), Arc::clone(budget));
    (!budget.is_exceeded()).then_some(charge)
}

impl NamespaceSpecUsage {
    /// Size of the spec in bytes, if it is kept.
    fn spec_bytes(&self, charge: &BudgetCharge) -> Option<u64> {
        (*charge.budget() == self.budgets.specs).then(|| charge.gauge().bytes())
    }
}

impl SpecCounter {
    fn namespace(&mut self, name: &str, operator_namespace: &str) -> &mut NamespaceSpecUsage {
        let process = &self.process;
        self.namespaces.entry(name.into()).or_insert_with(|| {
            let budgets = if name == operator_namespace {
                SpecBudgets::new(LimitScope::Namespace, u64::MAX, u64::MAX >> 20, None)
            } else {
                let (profiles, mebibytes) = (NAMESPACE_PROFILES, NAMESPACE_MEBIBYTES);
                SpecBudgets::new(LimitScope::Namespace, profiles, mebibytes, Some(process))
            };
            NamespaceSpecUsage { budgets, profiles: BTreeMap::new() }
        })
    }

    fn put(
        &mut self,
        namespace: &str,
        name: &str,
        bytes: u64,
        operator_namespace: &str,
    ) -> StoredPart {
        let here = self.namespace(namespace, operator_namespace);
        let before = here.profiles.remove(name).and_then(|charge| here.spec_bytes(&charge));
        let SpecBudgets { specs, left_out } = &here.budgets;
        let (part, charge) = match charge(specs, 1, bytes) {
            Some(charge) => (StoredPart::Whole, Some(charge)),
            None => match charge(left_out, 1, 0) {
                Some(charge) => (StoredPart::Name, Some(charge)),
                None => (StoredPart::Nothing, None),
            },
        };
        here.profiles.extend(charge.map(|charge| (name.into(), charge)));
        if before.is_some_and(|before| part != StoredPart::Whole || bytes < before) {
            self.note_freed();
        }
        self.has_left_out |= part != StoredPart::Whole;
        part
    }

    /// Stops counting the profiles for which `stays` is false, of the namespace `within` or of all
    /// namespaces.
    fn retain(&mut self, within: Option<&str>, stays: impl Fn(&str, &str) -> bool) {
        let mut has_freed = false;
        self.namespaces.retain(|namespace, here| {
            if within.is_some_and(|within| within != &**namespace) {
                return true;
            }
            let NamespaceSpecUsage { budgets, profiles } = here;
            let gone = profiles.extract_if(.., |name, _| !stays(namespace, name));
            has_freed |= gone.filter(|(_, it)| *it.budget() == budgets.specs).count() > 0;
            // The last valid spec of a profile can stay after the profile is removed here.
            !profiles.is_empty() || budgets.specs.used(LimitKind::Memory) > 0
        });
        if has_freed {
            self.note_freed();
        }
    }

    fn note_freed(&mut self) {
        self.has_freed |= self.has_left_out;
    }
}

impl ProfileAdmission {
    #[must_use]
    pub fn new(operator_namespace: Arc<str>) -> Self {
        let process =
            SpecBudgets::new(LimitScope::Process, PROCESS_PROFILES, PROCESS_MEBIBYTES, None);
        let (has_left_out, has_freed) = (false, false);
        let namespaces = BTreeMap::new();
        let counter = SpecCounter { process, namespaces, has_left_out, has_freed };
        Self { operator_namespace, counter: Arc::new(Mutex::new(counter)) }
    }

    /// Puts the counter in front of `store`, the store of the informer `key`.
    pub(crate) fn guard(&self, store: StoreWriter, key: &InformerKey) -> ProfileSink {
        let namespace = key.extent.namespace().map(Arc::from);
        ProfileSink { admission: self.clone(), store, namespace, is_listing: false }
    }

    /// Charges a last valid spec of `namespace`, in addition to the newest one, while the charge
    /// exists. Returns `None` if it does not fit.
    pub(super) fn keep(&self, namespace: &str, bytes: u64) -> Option<BudgetCharge> {
        let mut counter = self.counter.lock();
        charge(&counter.namespace(namespace, &self.operator_namespace).budgets.specs, 0, bytes)
    }

    /// Records that a last valid spec was dropped.
    pub(super) fn note_freed(&self) {
        self.counter.lock().note_freed();
    }

    /// Whether a spec was freed since profiles were left out, so that a relist can admit some of
    /// them. Returns `true` once.
    pub(super) fn take_freed(&self) -> bool {
        let mut counter = self.counter.lock();
        let has_freed = std::mem::take(&mut counter.has_freed);
        counter.has_left_out &= !has_freed;
        has_freed
    }
}

/// The store of one profile informer, behind the counter.
///
/// A left-out profile is stored without a version, so that the next list stores it again.
pub(crate) struct ProfileSink {
    admission: ProfileAdmission,
    store: StoreWriter,
    /// Namespace of the informer's profiles; `None` means all namespaces.
    namespace: Option<Arc<str>>,
    is_listing: bool,
}

impl ProfileSink {
    /// Stores the fields that the controller reads, if the counter admits the profile. Labels and
    /// annotations, which can have 1 MiB, are dropped.
    fn upsert(&mut self, item: DecodedObject<'_>) -> DeltaOutcome {
        let stored = serde_json::from_slice::<StoredProfile<'_>>(item.body);
        // A profile that cannot be parsed is stored and counted as received.
        let bytes = stored.as_ref().map_or(item.body.len(), StoredProfile::spec_bytes);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let ProfileAdmission { operator_namespace, counter } = &self.admission;
        let part = counter.lock().put(&item.namespace, &item.name, bytes, operator_namespace);
        if part == StoredPart::Whole {
            let body = stored.map(|stored| {
                let status = stored.status.filter(|status| status.get().len() <= MAX_STATUS);
                StoredProfile { status, is_left_out: false, ..stored }.to_json()
            });
            let body = body.as_deref().unwrap_or(item.body);
            return self.store.apply(Delta::Upsert(DecodedObject { body, ..item }));
        }
        let DecodedObject { namespace, name, uid, version, .. } = item;
        let outcome = match part {
            StoredPart::Name => {
                tracing::debug!(%namespace, %name, "a profile is left out");
                let metadata =
                    stored.map_or_else(|_| ProfileMetadata::default(), |stored| stored.metadata);
                let body = StoredProfile { metadata, spec: None, status: None, is_left_out: true }
                    .to_json();
                let item = DecodedObject { namespace, name, uid, version: None, body: &body };
                self.store.apply(Delta::Upsert(item))
            }
            StoredPart::Whole | StoredPart::Nothing => {
                self.store.apply(Delta::Remove(Tombstone { namespace, name, version: None }))
            }
        };
        if let Some(version) = version.filter(|_| !self.is_listing) {
            self.store.apply(Delta::Progress(version));
        }
        outcome
    }
}

impl DeltaSink for ProfileSink {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        match delta {
            Delta::Upsert(item) => self.upsert(item),
            Delta::Remove(gone) => {
                let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
                let outcome = self.store.apply(Delta::Remove(gone));
                if outcome == DeltaOutcome::Removed {
                    let mut counter = self.admission.counter.lock();
                    counter.retain(Some(&namespace), |_, other| *other != *name);
                }
                outcome
            }
            Delta::ListStarted(_) => {
                self.is_listing = true;
                self.store.apply(delta)
            }
            Delta::ListDone(_) | Delta::Purge => {
                self.is_listing = false;
                let outcome = self.store.apply(delta);
                // Profiles that the list did not contain were deleted. After a purge, a list
                // follows before the store is read.
                let store = self.store.reader();
                let stays = |namespace: &str, name: &str| store.contains(namespace, name);
                self.admission.counter.lock().retain(self.namespace.as_deref(), stays);
                outcome
            }
            Delta::Progress(_) | Delta::Arrived(_) => self.store.apply(delta),
        }
    }
}
