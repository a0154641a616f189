//! The budgets of the process and of namespaces, above those of profiles.

use super::operator_limits::OperatorLimits;
use kubewarm_api::model::{
    Bound, Budget, CellSpec, Charge, Gauge, INFORMER_BYTES, Limits, Measure, Overrun, ProfileRef,
};
use std::{collections::BTreeMap, sync::Arc};

/// Holds the budgets. Bounded by the namespaces that have profiles.
#[derive(Debug)]
pub(super) struct Budgets {
    /// The operator's namespace, which has no limit of its own.
    home: Arc<str>,
    process: Arc<Budget>,
    /// For each namespace but the operator's.
    of_namespace: Limits,
    /// What the statuses of each namespace's profiles take: whoever has large ones written has less room for
    /// objects. The namespace's budget pays.
    namespaces: BTreeMap<Arc<str>, Charge>,
}

impl Budgets {
    /// Nothing is used yet. `home` is the operator's namespace.
    pub(super) fn new(home: Arc<str>, limits: OperatorLimits) -> Self {
        let bytes = |max_bytes| Limits { max_objects: None, max_bytes };
        Self {
            home,
            process: Arc::new(Budget::new(Bound::Process, bytes(limits.bytes), None)),
            of_namespace: bytes(limits.namespace_bytes),
            namespaces: BTreeMap::new(),
        }
    }

    /// The budget of the process.
    pub(super) fn process(&self) -> &Arc<Budget> {
        &self.process
    }

    /// Charges the statuses of the profiles that exist, of which each has these bytes.
    pub(super) fn charge_statuses<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a ProfileRef, usize)>,
    ) {
        let mut statuses: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (profile, bytes) in all {
            let taken = statuses.entry(&profile.namespace).or_default();
            if *profile.namespace != *self.home {
                *taken = taken.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            }
        }
        self.namespaces.retain(|namespace, _| statuses.contains_key(namespace));
        for (namespace, bytes) in statuses {
            self.namespace(namespace).gauge().set(0, bytes);
        }
    }

    /// A budget for a profile of `namespace`, without limits.
    pub(super) fn profile(&mut self, namespace: &Arc<str>) -> Arc<Budget> {
        let parent = Arc::clone(self.namespace(namespace).budget());
        Arc::new(Budget::new(Bound::Profile, Limits::default(), Some(parent)))
    }

    fn namespace(&mut self, name: &Arc<str>) -> &Charge {
        let limits = if *name == self.home { Limits::default() } else { self.of_namespace };
        let process = &self.process;
        self.namespaces.entry(Arc::clone(name)).or_insert_with(|| {
            let budget = Budget::new(Bound::Namespace, limits, Some(Arc::clone(process)));
            Charge::new(Arc::new(Gauge::default()), Arc::new(budget))
        })
    }
}

/// Which limit above the one of a profile would be exceeded by the informers alone that `cells` need.
pub(super) fn overrun_by_informers<'a>(
    budget: &Arc<Budget>,
    cells: impl Iterator<Item = &'a CellSpec>,
) -> Option<Overrun> {
    let new = cells.filter(|cell| !cell.tuning.gauge.is_charged()).count();
    let needed = INFORMER_BYTES.saturating_mul(u64::try_from(new).unwrap_or(u64::MAX));
    budget.chain().skip(1).filter(|_| new > 0).find_map(|budget| {
        let (limit, used) = (budget.limit(Measure::Memory)?, budget.used(Measure::Memory));
        let is_exceeded = used.saturating_add(needed) > limit;
        is_exceeded.then(|| Overrun {
            bound: budget.bound(),
            measure: Measure::Memory,
            limit,
            reached: needed,
            others: used,
            objects: 0,
            expected: None,
        })
    })
}
