//! Limits the number and the memory of profiles. A profile that arrives earlier has precedence.

#[cfg(test)]
mod tests;

use super::{
    operator_limits::OperatorLimits,
    profile_memory::profile_memory,
    profile_parser::{ProfileMetadata, StoredProfile},
};
use crate::status::MAX_STATUS;
use kubewarm_api::model::{
    Budget, BudgetCharge, DecodedObject, Delta, DeltaOutcome, DeltaSink, InformerKey, LimitKind,
    LimitScope, ProfileLimits, Tombstone, UsageMeter,
};
use kubewarm_cache::store::StoreWriter;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of profiles in one namespace that kubewarm stores in memory with their specs.
/// kubewarm stores up to the same number of further profiles without their specs. They do not run,
/// but their statuses explain why.
pub(super) const NAMESPACE_PROFILES: u64 = 100;
/// Maximum memory of the profiles of one namespace, in bytes, if the operator has no memory limit.
/// Without it, a tenant could fill the memory with profiles.
const NAMESPACE_BYTES: u64 = 64 << 20;
/// Maximum number of profiles that are stored with their specs, in all namespaces except the
/// operator namespace together. Otherwise many namespaces could fill the memory.
pub(super) const PROCESS_PROFILES: u64 = 10_000;
/// Maximum memory of the profiles of all namespaces except the operator namespace, in bytes, if the
/// operator has no memory limit.
const PROCESS_BYTES: u64 = 1 << 30;
/// Profiles get at most `1/SHARE` of the memory for stores and informers. The rest stays for stores
/// and informers: a profile whose informers do not fit is of no use.
const SHARE: u64 = 2;

/// Counts the profile specs in memory: the specs in the stores of profiles, and the last valid
/// specs that stay in effect after an invalid edit.
///
/// Clones share one counter. Outside of the operator namespace, kubewarm stores at most 10,000
/// profiles with specs and 10,000 profiles without specs.
///
/// The operator namespace has no limit, because kubewarm trusts users who can create profiles in
/// this namespace.
#[derive(Clone, Debug)]
pub struct ProfileQuota {
    operator_namespace: Arc<str>,
    counter: Arc<Mutex<SpecCounter>>,
}

#[derive(Debug)]
struct SpecCounter {
    /// The limits on stored specs that all namespaces except the operator namespace share.
    process: SpecBudgets,
    /// Maximum memory of the profiles of one namespace, in bytes.
    namespace_bytes: u64,
    namespaces: BTreeMap<Box<str>, NamespaceSpecUsage>,
    /// Whether a limit kept a profile or its spec out of memory since [`ProfileQuota::take_freed`]
    /// last returned `true`.
    has_left_out: bool,
    /// Whether a spec was removed from memory while `has_left_out` was set, so that a relist can
    /// store an omitted spec.
    has_freed: bool,
}

#[derive(Debug)]
struct SpecBudgets {
    specs: Arc<Budget>,
    /// Counts the profiles that are stored without their specs because a limit on stored specs is
    /// reached. Their number is limited too, because they also take memory.
    left_out: Arc<Budget>,
}

#[derive(Debug)]
struct NamespaceSpecUsage {
    budgets: SpecBudgets,
    profiles: BTreeMap<Box<str>, BudgetCharge>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredPart {
    Whole,
    /// kubewarm stores only the profile's name, UID, generation and time of creation, so that its
    /// status can report the reached limit.
    Metadata,
    Nothing,
}

impl SpecBudgets {
    fn new(bound: LimitScope, profiles: u64, bytes: u64, parent: Option<&Self>) -> Self {
        let above = |budget: fn(&Self) -> &Arc<Budget>| parent.map(budget).cloned();
        let names = ProfileLimits { max_objects: Some(profiles), max_bytes: None };
        let specs = ProfileLimits { max_bytes: Some(bytes), ..names };
        Self {
            specs: Arc::new(Budget::new(bound, specs, above(|budgets| &budgets.specs))),
            left_out: Arc::new(Budget::new(bound, names, above(|budgets| &budgets.left_out))),
        }
    }
}

/// Counts `profiles` profiles and the `bytes` of their memory against `budget`, until the result is
/// dropped. Returns `None` if `budget` would be exceeded.
fn charge(budget: &Arc<Budget>, profiles: u64, bytes: u64) -> Option<BudgetCharge> {
    let meter = UsageMeter::default();
    meter.set(profiles, bytes);
    let charge = BudgetCharge::new(Arc::new(meter), Arc::clone(budget));
    (!budget.is_exceeded()).then_some(charge)
}

impl NamespaceSpecUsage {
    /// Returns the memory of the profile that `charge` counts, in bytes. Returns `None` if kubewarm
    /// stores the profile without its spec, because removing it then frees no spec.
    fn profile_bytes(&self, charge: &BudgetCharge) -> Option<u64> {
        (*charge.budget() == self.budgets.specs).then(|| charge.meter().bytes())
    }
}

impl SpecCounter {
    fn namespace(&mut self, name: &str, operator_namespace: &str) -> &mut NamespaceSpecUsage {
        let (process, bytes) = (&self.process, self.namespace_bytes);
        self.namespaces.entry(name.into()).or_insert_with(|| {
            let budgets = if name == operator_namespace {
                SpecBudgets::new(LimitScope::Namespace, u64::MAX, u64::MAX, None)
            } else {
                SpecBudgets::new(LimitScope::Namespace, NAMESPACE_PROFILES, bytes, Some(process))
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
        let before = here.profiles.remove(name).and_then(|charge| here.profile_bytes(&charge));
        let SpecBudgets { specs, left_out } = &here.budgets;
        let (part, charge) = match charge(specs, 1, bytes) {
            Some(charge) => (StoredPart::Whole, Some(charge)),
            None => match charge(left_out, 1, 0) {
                Some(charge) => (StoredPart::Metadata, Some(charge)),
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

    /// Stops counting the profiles for which `is_kept` returns `false`. Examines only profiles in
    /// the namespace `within`, or in all namespaces if `within` is `None`.
    fn retain(&mut self, within: Option<&str>, is_kept: impl Fn(&str, &str) -> bool) {
        let mut has_freed = false;
        self.namespaces.retain(|namespace, here| {
            if within.is_some_and(|within| within != &**namespace) {
                return true;
            }
            let NamespaceSpecUsage { budgets, profiles } = here;
            let gone = profiles.extract_if(.., |name, _| !is_kept(namespace, name));
            has_freed |= gone.filter(|(_, charge)| *charge.budget() == budgets.specs).count() > 0;
            // A namespace without profiles stays in the map while its budget still counts a last
            // valid spec.
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

impl ProfileQuota {
    pub fn new(operator_namespace: Arc<str>, limits: OperatorLimits) -> Self {
        let part = |bytes: Option<u64>| bytes.map(|bytes| bytes / SHARE);
        let bytes = part(limits.bytes).unwrap_or(PROCESS_BYTES);
        let process = SpecBudgets::new(LimitScope::Process, PROCESS_PROFILES, bytes, None);
        let counter = SpecCounter {
            process,
            // Without a namespace limit (`--namespace-quota` of 100 %), the profiles of one
            // namespace can use the memory that the profiles of all namespaces share.
            namespace_bytes: part(limits.namespace_bytes.or(limits.bytes))
                .unwrap_or(NAMESPACE_BYTES),
            namespaces: BTreeMap::new(),
            has_left_out: false,
            has_freed: false,
        };
        Self { operator_namespace, counter: Arc::new(Mutex::new(counter)) }
    }

    /// Returns a [`ProfileStoreWriter`] that counts each profile and then writes the profile to
    /// `store`, the store of the informer `key`.
    pub(crate) fn guard(&self, store: StoreWriter, key: &InformerKey) -> ProfileStoreWriter {
        let namespace = key.scope.namespace().map(Arc::from);
        ProfileStoreWriter { quota: self.clone(), store, namespace, is_listing: false }
    }

    /// Counts the last valid spec of a profile in `namespace` against the limits, in addition to
    /// the profile's newest spec. `bytes` is the memory of the last valid spec. Returns `None` if a
    /// limit would be exceeded. Dropping the result ends the charge.
    pub(super) fn keep(&self, namespace: &str, bytes: u64) -> Option<BudgetCharge> {
        let mut counter = self.counter.lock();
        charge(&counter.namespace(namespace, &self.operator_namespace).budgets.specs, 0, bytes)
    }

    pub(super) fn note_freed(&self) {
        self.counter.lock().note_freed();
    }

    /// Returns whether a limit kept a spec out of memory, and another spec was then removed from
    /// memory. A relist of the profiles can then store the omitted spec. A call that returns `true`
    /// resets both facts.
    pub(super) fn take_freed(&self) -> bool {
        let mut counter = self.counter.lock();
        let has_freed = std::mem::take(&mut counter.has_freed);
        counter.has_left_out &= !has_freed;
        has_freed
    }
}

/// Writes the profiles of one informer to its store. [`ProfileQuota`] decides whether the store
/// gets a profile with spec, without spec, or not at all.
///
/// A profile that is stored without its spec has no resource version in the store. So the next list
/// treats the profile as changed, and counts and stores it again.
pub(crate) struct ProfileStoreWriter {
    quota: ProfileQuota,
    store: StoreWriter,
    /// Namespace of the informer's profiles; `None` means all namespaces.
    namespace: Option<Arc<str>>,
    is_listing: bool,
}

/// What the store gets of a profile: only the fields that the controller reads, without labels and
/// annotations, which can have 1 MiB.
enum AdmittedBody {
    Whole(Vec<u8>),
    /// A limit on stored specs is reached. The body has no spec and no status; `None` if the limit
    /// on profiles without spec is reached, too.
    LeftOut(Option<Vec<u8>>),
}

impl ProfileStoreWriter {
    /// Counts a profile against the limits, and returns what the store gets of it.
    fn admit(&self, item: &DecodedObject<'_>) -> AdmittedBody {
        let stored = serde_json::from_slice::<StoredProfile<'_>>(item.body);
        // A profile that cannot be parsed is stored unchanged, because the controller reports its
        // error. The limits then count its complete JSON.
        let bytes =
            stored.as_ref().map_or_else(|_| profile_memory(item.body), StoredProfile::memory);
        let ProfileQuota { operator_namespace, counter } = &self.quota;
        let part = counter.lock().put(&item.namespace, &item.name, bytes, operator_namespace);
        match part {
            StoredPart::Whole => AdmittedBody::Whole(stored.map_or_else(
                |_| item.body.to_vec(),
                |stored| {
                    let status = stored.status.filter(|status| status.get().len() <= MAX_STATUS);
                    StoredProfile { status, is_left_out: false, ..stored }.to_json()
                },
            )),
            StoredPart::Metadata => {
                let DecodedObject { namespace, name, .. } = item;
                tracing::debug!(%namespace, %name, "a profile is left out");
                let metadata =
                    stored.map_or_else(|_| ProfileMetadata::default(), |stored| stored.metadata);
                let stored =
                    StoredProfile { metadata, spec: None, status: None, is_left_out: true };
                AdmittedBody::LeftOut(Some(stored.to_json()))
            }
            StoredPart::Nothing => AdmittedBody::LeftOut(None),
        }
    }

    /// Stores the part of a profile that the limits permit. `write` stores a complete profile.
    fn put(
        &mut self,
        item: DecodedObject<'_>,
        write: impl FnOnce(&mut StoreWriter, DecodedObject<'_>) -> DeltaOutcome,
    ) -> DeltaOutcome {
        match self.admit(&item) {
            AdmittedBody::Whole(body) => {
                write(&mut self.store, DecodedObject { body: &body, ..item })
            }
            AdmittedBody::LeftOut(body) => self.leave_out(item, body.as_deref()),
        }
    }

    /// Stores a profile without its spec, or not at all.
    fn leave_out(&mut self, item: DecodedObject<'_>, body: Option<&[u8]>) -> DeltaOutcome {
        let DecodedObject { namespace, name, uid, version, .. } = item;
        let outcome = self.store.apply(match body {
            Some(body) => {
                Delta::Upsert(DecodedObject { namespace, name, uid, version: None, body })
            }
            None => Delta::Remove(Tombstone { namespace, name, version: None }),
        });
        if let Some(version) = version.filter(|_| !self.is_listing) {
            self.store.apply(Delta::Progress(version));
        }
        outcome
    }
}

impl DeltaSink for ProfileStoreWriter {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        match delta {
            Delta::Upsert(item) => self.put(item, |store, item| store.apply(Delta::Upsert(item))),
            Delta::WatchEvent(item) if self.store.is_out_of_order(&item) => {
                DeltaOutcome::OutOfOrder
            }
            Delta::WatchEvent(item) => {
                self.put(item, |store, item| store.apply(Delta::WatchEvent(item)))
            }
            Delta::Remove(gone) => {
                let (namespace, name) = (gone.namespace.clone(), gone.name.clone());
                let outcome = self.store.apply(Delta::Remove(gone));
                if outcome == DeltaOutcome::Removed {
                    let mut counter = self.quota.counter.lock();
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
                // `retain` stops counting the profiles that were missing in the list. After a purge
                // the store is empty, so `retain` stops counting all profiles, and the next list
                // counts them again.
                let store = self.store.reader();
                let is_kept = |namespace: &str, name: &str| store.contains(namespace, name);
                self.quota.counter.lock().retain(self.namespace.as_deref(), is_kept);
                outcome
            }
            Delta::Encoding(_)
            | Delta::Unreadable
            | Delta::Progress(_)
            | Delta::Equal(_)
            | Delta::Arrived(_) => self.store.apply(delta),
        }
    }
}
