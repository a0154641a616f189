//! The objects and memory that a running target charges to its profile's budget.

use super::cluster_view::ClusterView;
use kubewarm_api::model::{Budget, BudgetCharge, InformerKey, InformerSpec, LimitKind, LimitScope};
use std::sync::Arc;

/// Charges of a running target. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct TargetCharges {
    informers: Arc<[InformerSpec]>,
    /// One charge per informer, in the same order. Targets that share an informer share its gauge.
    own: Vec<BudgetCharge>,
    /// Charges for old informers that serve the target until `informers` are synced.
    old: Vec<BudgetCharge>,
    /// The informer for the target's namespace selector. Its charge counts for the namespace and
    /// not for the profile's limits, because the author did not request those objects.
    namespaces: Option<(InformerKey, BudgetCharge)>,
    pub(super) priority: u16,
}

impl TargetCharges {
    pub(super) fn new(
        budget: &Arc<Budget>,
        priority: u16,
        informers: &Arc<[InformerSpec]>,
        old: &[InformerSpec],
        namespaces: Option<&InformerSpec>,
    ) -> Self {
        let charge = |informer: &InformerSpec, payer: &Arc<Budget>| {
            BudgetCharge::new(Arc::clone(&informer.tuning.gauge), Arc::clone(payer))
        };
        let namespace = budget.parent().unwrap_or(budget);
        Self {
            informers: Arc::clone(informers),
            own: informers.iter().map(|informer| charge(informer, budget)).collect(),
            old: old.iter().map(|informer| charge(informer, budget)).collect(),
            namespaces: namespaces
                .map(|informer| (informer.key.clone(), charge(informer, namespace))),
            priority,
        }
    }

    /// Drops the charges of the old informers. Returns whether there were any.
    pub(super) fn drop_old_charges(&mut self) -> bool {
        !std::mem::take(&mut self.old).is_empty()
    }

    /// Size of the target's own informers, as it counts for a limit of `bound`.
    pub(super) fn size(&self, bound: LimitScope, measure: LimitKind) -> u64 {
        let selector = self.namespaces.iter().filter(|_| bound != LimitScope::Profile);
        let all = self.own.iter().chain(selector.map(|(_, charge)| charge));
        all.map(|charge| charge.gauge().size(bound, measure)).sum()
    }

    /// Number of objects in the target's own informers.
    pub(super) fn objects(&self) -> u64 {
        self.own.iter().map(|charge| charge.gauge().objects()).sum()
    }

    /// Whether all of the target's informers have synced.
    pub(super) fn is_synced(&self, cluster: &ClusterView<'_>) -> bool {
        let selector = self.namespaces.iter().map(|(key, _)| key);
        self.informers
            .iter()
            .map(|informer| &informer.key)
            .chain(selector)
            .all(|key| cluster.is_synced(key))
    }

    /// Whether the API server answered 404 for the kind of one of the target's informers.
    pub(super) fn is_denied(&self, cluster: &ClusterView<'_>) -> bool {
        self.informers.iter().any(|informer| cluster.is_denied(&informer.key))
    }

    /// Returns the expected number of objects, if the API server reports it.
    ///
    /// For memory, returns `None` while a selector's informer counts, too: the memory of all
    /// objects cannot be extrapolated from bytes that include others.
    pub(super) fn expected(&self, measure: LimitKind, cluster: &ClusterView<'_>) -> Option<u64> {
        let has_more = measure == LimitKind::Memory && self.namespaces.is_some();
        // Until the namespaces are known, the target's informers are unknown.
        if self.informers.is_empty() || has_more && !self.is_synced(cluster) {
            return None;
        }
        let expected = |(InformerSpec { key, .. }, charge): (&InformerSpec, &BudgetCharge)| {
            if cluster.is_synced(key) {
                Some(charge.gauge().objects())
            } else {
                cluster.reports.get(key)?.expected
            }
        };
        sum_if_known(self.informers.iter().zip(&self.own).map(expected))
    }
}

/// Sums the counts, or returns `None` if one is unknown. The sum saturates, because an API server
/// can report any number.
fn sum_if_known(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_list_lengths_from_the_api_server_do_not_overflow() {
        assert_eq!(sum_if_known([Some(u64::MAX), Some(1)].into_iter()), Some(u64::MAX));
        assert_eq!(sum_if_known([Some(u64::MAX), None].into_iter()), None);
        assert_eq!(sum_if_known([Some(2), Some(1)].into_iter()), Some(3));
    }
}
