//! Memory budgets of the process and of each namespace. Each profile's budget has its namespace's
//! budget as parent.

use super::operator_limits::OperatorLimits;
use kubewarm_api::model::{
    Budget, BudgetCharge, INFORMER_BYTES, InformerSpec, LimitKind, LimitOverrun, LimitScope,
    ProfileLimits, ProfileRef, UsageMeter,
};
use std::{collections::BTreeMap, sync::Arc};

#[derive(Debug)]
pub(super) struct BudgetTree {
    /// The operator namespace. No namespace limit applies to its profiles, because kubewarm trusts
    /// users who can create profiles in this namespace.
    operator_namespace: Arc<str>,
    process: Arc<Budget>,
    of_namespace: ProfileLimits,
    /// The memory of each namespace's profiles, without their informers and stores. It counts
    /// against the namespace's memory budget, so large profiles leave less memory for stores.
    namespaces: BTreeMap<Arc<str>, BudgetCharge>,
}

impl BudgetTree {
    pub(super) fn new(operator_namespace: Arc<str>, limits: OperatorLimits) -> Self {
        let bytes = |max_bytes| ProfileLimits { max_objects: None, max_bytes };
        Self {
            operator_namespace,
            process: Arc::new(Budget::new(LimitScope::Process, bytes(limits.bytes), None)),
            of_namespace: bytes(limits.namespace_bytes),
            namespaces: BTreeMap::new(),
        }
    }

    pub(super) fn process(&self) -> &Arc<Budget> {
        &self.process
    }

    /// Charges each namespace's budget for the namespace's profiles. `all` contains every existing
    /// profile with its memory in bytes, without its informers and stores.
    pub(super) fn charge_profiles<'a>(&mut self, all: impl Iterator<Item = (&'a ProfileRef, u64)>) {
        let mut profiles: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (profile, bytes) in all {
            let taken = profiles.entry(&profile.namespace).or_default();
            *taken = taken.saturating_add(bytes);
        }
        self.namespaces.retain(|namespace, _| profiles.contains_key(namespace));
        for (namespace, bytes) in profiles {
            self.namespace(namespace).meter().set(0, bytes);
        }
    }

    pub(super) fn profile(&mut self, namespace: &Arc<str>) -> Arc<Budget> {
        let parent = Arc::clone(self.namespace(namespace).budget());
        Arc::new(Budget::new(LimitScope::Profile, ProfileLimits::default(), Some(parent)))
    }

    fn namespace(&mut self, name: &Arc<str>) -> &BudgetCharge {
        let limits = if *name == self.operator_namespace {
            ProfileLimits::default()
        } else {
            self.of_namespace
        };
        let process = &self.process;
        self.namespaces.entry(Arc::clone(name)).or_insert_with(|| {
            let budget = Budget::new(LimitScope::Namespace, limits, Some(Arc::clone(process)));
            BudgetCharge::new(Arc::new(UsageMeter::default()), Arc::new(budget))
        })
    }
}

/// Returns the namespace's or the process's memory limit that the new informers in `informers`
/// would exceed, or `None`. Each new informer needs [`INFORMER_BYTES`]. An informer that a budget
/// already counts for another target is not new.
pub(super) fn overrun_by_informers<'a>(
    budget: &Arc<Budget>,
    informers: impl Iterator<Item = &'a InformerSpec>,
) -> Option<LimitOverrun> {
    let new = informers.filter(|informer| !informer.settings.meter.is_charged()).count();
    let needed = INFORMER_BYTES.saturating_mul(u64::try_from(new).unwrap_or(u64::MAX));
    budget.self_and_ancestors().skip(1).filter(|_| new > 0).find_map(|budget| {
        let (limit, used) = (budget.limit(LimitKind::Memory)?, budget.used(LimitKind::Memory));
        let is_exceeded = used.saturating_add(needed) > limit;
        is_exceeded.then(|| LimitOverrun {
            bound: budget.bound(),
            measure: LimitKind::Memory,
            limit,
            reached: needed,
            others: used,
            objects: 0,
            expected: None,
        })
    })
}
