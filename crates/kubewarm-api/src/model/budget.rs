//! Limits on the objects and the memory of stores, with counters that each store updates as it
//! grows or shrinks.

use super::{LimitKind, LimitScope, ProfileLimits};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Estimated memory, in bytes, that one informer needs in addition to its store: for its task, its
/// watch and its connection.
pub const INFORMER_BYTES: u64 = 64 << 10;

/// Value of `BudgetCounter::limit` that means "no limit".
const UNLIMITED: u64 = u64::MAX;

/// Limits on the objects and memory of a profile, a namespace or the process, and the usage that
/// counts against these limits.
///
/// The parent of a profile's budget is the budget of its namespace. The parent of a namespace's
/// budget is the budget of the process. A profile's budget counts the memory of stores only.
/// Budgets of namespaces and of the process also count [`INFORMER_BYTES`] for each informer.
///
/// Two budgets compare as equal only if they have the same address, because budgets of different
/// profiles can have equal limits and usage.
#[derive(Debug)]
pub struct Budget {
    bound: LimitScope,
    objects: BudgetCounter,
    bytes: BudgetCounter,
    parent: Option<Arc<Self>>,
}

#[derive(Debug)]
struct BudgetCounter {
    limit: AtomicU64,
    used: AtomicU64,
}

/// Usage of one informer: its number of objects and its memory. The informer's store sets both
/// values. Each [`BudgetCharge`] counts both values against a budget and the budget's ancestors.
#[derive(Debug, Default)]
pub struct UsageMeter(Mutex<MeteredUsage>);

#[derive(Debug, Default)]
struct MeteredUsage {
    objects: u64,
    bytes: u64,
    /// Memory of one informer outside its store, in bytes. Budgets of profiles do not count this
    /// memory, because `spec.limits` limits only stores.
    overhead: u64,
    /// The budget of each existing [`BudgetCharge`] for this usage. A budget with two charges
    /// occurs twice, so that it still counts the usage after one charge is dropped.
    payers: Vec<Arc<Budget>>,
    /// The budgets in `payers` and all their ancestors, without duplicates. So if two profiles
    /// share an informer, the budget of their namespace counts this informer once.
    charged: Vec<Arc<Budget>>,
}

/// Counts the usage of one [`UsageMeter`] against a budget and its ancestors, until this value is
/// dropped. If several charges have the same meter and the same budget, the budget counts the usage
/// once.
#[derive(Debug)]
pub struct BudgetCharge {
    meter: Arc<UsageMeter>,
    budget: Arc<Budget>,
}

impl BudgetCounter {
    fn new(limit: Option<u64>) -> Self {
        let limit = AtomicU64::new(limit.unwrap_or(UNLIMITED));
        Self { limit, used: AtomicU64::new(0) }
    }

    fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|&limit| limit != UNLIMITED)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Adds `to - from` to `used`. A negative difference wraps around 2^64, so the addition
    /// subtracts it.
    fn change(&self, from: u64, to: u64) {
        self.used.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }

    fn is_exceeded(&self) -> bool {
        self.used() > self.limit.load(Ordering::Relaxed)
    }
}

impl Budget {
    /// Creates a budget with zero usage.
    pub fn new(bound: LimitScope, limits: ProfileLimits, parent: Option<Arc<Self>>) -> Self {
        let objects = BudgetCounter::new(limits.max_objects);
        Self { bound, objects, bytes: BudgetCounter::new(limits.max_bytes), parent }
    }

    /// Scope of the limits: a profile, a namespace or the process.
    pub fn bound(&self) -> LimitScope {
        self.bound
    }

    /// The parent of a profile's budget is its namespace's budget. The parent of a namespace's
    /// budget is the process's budget, which has no parent.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// The largest permitted number of objects, or of bytes for [`LimitKind::Memory`]. `None`: no
    /// limit.
    pub fn limit(&self, measure: LimitKind) -> Option<u64> {
        self.counter(measure).limit()
    }

    /// The counted number of objects, or of bytes for [`LimitKind::Memory`].
    pub fn used(&self, measure: LimitKind) -> u64 {
        self.counter(measure).used()
    }

    /// Replaces the limits on objects and memory, and keeps the counted usage.
    pub fn set_limits(&self, limits: ProfileLimits) {
        self.objects.set_limit(limits.max_objects);
        self.bytes.set_limit(limits.max_bytes);
    }

    /// Iterates over this budget, its parent, and so on up to the budget of the process.
    pub fn self_and_ancestors(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |budget| budget.parent())
    }

    /// Whether the usage of this budget or of one of its ancestors exceeds a limit. A call takes a
    /// few nanoseconds.
    pub fn is_exceeded(&self) -> bool {
        let is_over = self.objects.is_exceeded() || self.bytes.is_exceeded();
        is_over || self.parent.as_ref().is_some_and(|parent| parent.is_exceeded())
    }

    fn counter(&self, measure: LimitKind) -> &BudgetCounter {
        match measure {
            LimitKind::Objects => &self.objects,
            LimitKind::Memory => &self.bytes,
        }
    }
}

impl PartialEq for Budget {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Budget {}

impl MeteredUsage {
    fn size(&self, bound: LimitScope, measure: LimitKind) -> u64 {
        match (measure, bound) {
            (LimitKind::Objects, _) => self.objects,
            (LimitKind::Memory, LimitScope::Profile) => self.bytes,
            (LimitKind::Memory, LimitScope::Namespace | LimitScope::Process) => {
                self.bytes.saturating_add(self.overhead)
            }
        }
    }

    fn add_to(&self, budget: &Budget) {
        budget.objects.change(0, self.objects);
        budget.bytes.change(0, self.size(budget.bound, LimitKind::Memory));
    }

    fn remove_from(&self, budget: &Budget) {
        budget.objects.change(self.objects, 0);
        budget.bytes.change(self.size(budget.bound, LimitKind::Memory), 0);
    }

    /// Computes the set `charged` again after `payers` has changed. Adds the usage to budgets that
    /// are new in `charged`. Subtracts the usage from budgets that are no longer in `charged`.
    fn settle(&mut self) {
        let mut charged: Vec<Arc<Budget>> = Vec::new();
        for budget in self.payers.iter().flat_map(Budget::self_and_ancestors) {
            if !charged.contains(budget) {
                charged.push(Arc::clone(budget));
            }
        }
        for gone in self.charged.iter().filter(|budget| !charged.contains(budget)) {
            self.remove_from(gone);
        }
        for new in charged.iter().filter(|budget| !self.charged.contains(budget)) {
            self.add_to(new);
        }
        self.charged = charged;
    }
}

impl BudgetCharge {
    /// Counts the usage that `meter` reports against `budget` until the returned charge is dropped.
    pub fn new(meter: Arc<UsageMeter>, budget: Arc<Budget>) -> Self {
        let mut usage = meter.0.lock();
        let is_payer = usage.payers.contains(&budget);
        usage.payers.push(Arc::clone(&budget));
        if !is_payer {
            usage.settle();
        }
        drop(usage);
        Self { meter, budget }
    }

    /// The meter whose usage the budget counts.
    pub fn meter(&self) -> &UsageMeter {
        &self.meter
    }

    /// The budget that counts the usage.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        let mut usage = self.meter.0.lock();
        if let Some(at) = usage.payers.iter().position(|budget| *budget == self.budget) {
            usage.payers.swap_remove(at);
        }
        if !usage.payers.contains(&self.budget) {
            usage.settle();
        }
    }
}

impl UsageMeter {
    /// Creates a meter that counts [`INFORMER_BYTES`] in addition to the informer's store.
    pub fn of_informer() -> Self {
        Self(Mutex::new(MeteredUsage { overhead: INFORMER_BYTES, ..MeteredUsage::default() }))
    }

    /// Sets the number of objects and of bytes in the store. Also updates all budgets that count
    /// this meter.
    pub fn set(&self, objects: u64, bytes: u64) {
        let mut usage = self.0.lock();
        for budget in &usage.charged {
            budget.objects.change(usage.objects, objects);
            budget.bytes.change(usage.bytes, bytes);
        }
        (usage.objects, usage.bytes) = (objects, bytes);
    }

    /// Number of objects in the store.
    pub fn objects(&self) -> u64 {
        self.0.lock().objects
    }

    /// Size of the store in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Returns the usage, in objects or bytes, that a budget with the scope `bound` (profile,
    /// namespace or process) counts.
    pub fn size(&self, bound: LimitScope, measure: LimitKind) -> u64 {
        self.0.lock().size(bound, measure)
    }

    /// Whether any budget counts this meter. If not, kubewarm has stopped the meter's informer or
    /// has not started it yet, or no limits apply to the informer.
    pub fn is_charged(&self) -> bool {
        !self.0.lock().payers.is_empty()
    }

    /// Whether the informer's store can take more objects. If budgets count this meter, at least
    /// one of these budgets and all its ancestors must be within their limits. So the limit of one
    /// profile does not stop an informer that another profile uses.
    pub fn can_grow(&self) -> bool {
        let usage = self.0.lock();
        usage.payers.is_empty() || usage.payers.iter().any(|budget| !budget.is_exceeded())
    }

    /// Whether all profiles that declare the meter's informer are within their limits. The
    /// namespace of these profiles and the process must also be within their limits.
    pub fn is_within_all(&self) -> bool {
        !self.0.lock().payers.iter().any(|budget| budget.is_exceeded())
    }
}

impl PartialEq for UsageMeter {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for UsageMeter {}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_objects: u64, max_bytes: u64) -> ProfileLimits {
        ProfileLimits { max_objects: Some(max_objects), max_bytes: Some(max_bytes) }
    }

    /// Returns the budgets of a process, a namespace and two profiles. The limits are 1 MiB for the
    /// process, none for the namespace, and 10 and 100 objects for the profiles.
    fn budgets() -> (Arc<Budget>, Arc<Budget>, [Arc<Budget>; 2]) {
        let megabyte = ProfileLimits { max_objects: None, max_bytes: Some(1 << 20) };
        let process = Arc::new(Budget::new(LimitScope::Process, megabyte, None));
        let new = |bound, limits, parent| Arc::new(Budget::new(bound, limits, Some(parent)));
        let namespace = new(LimitScope::Namespace, ProfileLimits::default(), Arc::clone(&process));
        let profiles = [10, 100].map(|objects| {
            new(LimitScope::Profile, limits(objects, 1 << 20), Arc::clone(&namespace))
        });
        (process, namespace, profiles)
    }

    fn used(budget: &Budget) -> (u64, u64) {
        (budget.used(LimitKind::Objects), budget.used(LimitKind::Memory))
    }

    #[test]
    fn an_informer_of_two_profiles_counts_once_per_profile_and_once_for_the_namespace() {
        let (process, namespace, [small, large]) = budgets();
        let meter = Arc::new(UsageMeter::of_informer());
        meter.set(3, 1_000);
        let charge =
            |budget: &Arc<Budget>| BudgetCharge::new(Arc::clone(&meter), Arc::clone(budget));
        let [of_small, of_large, again] = [&small, &large, &large].map(charge);
        meter.set(5, 2_000);
        assert_eq!([used(&small), used(&large)], [(5, 2_000); 2]);
        let above = (5, 2_000 + INFORMER_BYTES);
        assert_eq!([used(&namespace), used(&process)], [above; 2]);
        drop((of_small, of_large));
        assert_eq!([used(&small), used(&large), used(&process)], [(0, 0), (5, 2_000), above]);
        meter.set(4, 1_500);
        drop(again);
        assert_eq!([&small, &large, &namespace, &process].map(|budget| used(budget)), [(0, 0); 4]);
        assert!(!meter.is_charged());
    }

    #[test]
    fn an_informer_continues_while_one_profile_is_within_its_limit() {
        let (_, _, [small, large]) = budgets();
        let meter = Arc::new(UsageMeter::default());
        assert!(meter.can_grow() && meter.is_within_all(), "a meter without charges has no limit");
        meter.set(11, 0);
        let _small = BudgetCharge::new(Arc::clone(&meter), Arc::clone(&small));
        assert!(!meter.can_grow() && !meter.is_within_all());
        let _large = BudgetCharge::new(Arc::clone(&meter), large);
        assert!(meter.can_grow() && !meter.is_within_all());
        small.set_limits(limits(11, 1 << 20));
        assert!(meter.is_within_all(), "usage equal to the limit is within it");
    }

    #[test]
    fn no_store_may_grow_while_the_process_limit_is_exceeded() {
        let (_, namespace, [small, _]) = budgets();
        let (meter, other) = (Arc::new(UsageMeter::default()), Arc::new(UsageMeter::default()));
        let _small = BudgetCharge::new(Arc::clone(&meter), small);
        let _namespace = BudgetCharge::new(Arc::clone(&other), namespace);
        other.set(1, 1 << 20);
        assert!(meter.can_grow());
        meter.set(1, 1);
        assert!(!meter.can_grow());
    }
}
