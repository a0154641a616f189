//! The budget charges of a target, for the objects and memory of the informers that it runs.

use super::cluster_view::ClusterView;
use kubewarm_api::model::{Budget, BudgetCharge, InformerKey, InformerSpec, LimitKind, LimitScope};
use std::sync::Arc;

/// The budget charges of one target that runs informers. Dropping this value ends the charges.
#[derive(Debug)]
pub(super) struct TargetCharges {
    informers: Arc<[InformerSpec]>,
    /// One charge for each informer in `informers`, in the same order. Targets that share an
    /// informer share its meter, so a budget counts the informer once.
    own: Vec<BudgetCharge>,
    /// Charges for the informers from before an edit, which serve the target until all of
    /// `informers` are synced.
    old: Vec<BudgetCharge>,
    /// The informer of the target's namespace selector, with its charge. The charge does not count
    /// against the profile's own limits, because the profile's author did not request the Namespace
    /// objects. It counts against the limits of the profile's namespace and of the process.
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
            BudgetCharge::new(Arc::clone(&informer.settings.meter), Arc::clone(payer))
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

    /// Drops the charges of the informers from before an edit. Returns `true` if `old` contained a
    /// charge.
    pub(super) fn drop_old_charges(&mut self) -> bool {
        !std::mem::take(&mut self.old).is_empty()
    }

    /// Returns the objects or bytes of the target's current informers that a limit of scope `bound`
    /// counts. Informers from before an edit are not included.
    pub(super) fn size(&self, bound: LimitScope, measure: LimitKind) -> u64 {
        let selector = self.namespaces.iter().filter(|_| bound != LimitScope::Profile);
        let all = self.own.iter().chain(selector.map(|(_, charge)| charge));
        all.map(|charge| charge.meter().size(bound, measure)).sum()
    }

    /// Number of objects in the stores of the target's current informers.
    pub(super) fn objects(&self) -> u64 {
        self.own.iter().map(|charge| charge.meter().objects()).sum()
    }

    /// Whether all of the target's current informers have synced, including its namespace
    /// selector's informer.
    pub(super) fn is_synced(&self, cluster: &ClusterView<'_>) -> bool {
        let selector = self.namespaces.iter().map(|(key, _)| key);
        self.informers
            .iter()
            .map(|informer| &informer.key)
            .chain(selector)
            .all(|key| cluster.is_synced(key))
    }

    /// Whether the API server answered 404 for the kind of one of the target's current informers.
    pub(super) fn is_denied(&self, cluster: &ClusterView<'_>) -> bool {
        self.informers.iter().any(|informer| cluster.is_denied(&informer.key))
    }

    /// Returns the target's number of objects after its lists are complete. Returns `None` if the
    /// API server does not report the number.
    ///
    /// The status message multiplies the number by the memory per object. With a namespace
    /// selector, the measured memory includes Namespace objects, which this number does not count.
    /// The result for memory is therefore `None` until the informers are synced.
    pub(super) fn expected(&self, measure: LimitKind, cluster: &ClusterView<'_>) -> Option<u64> {
        let has_more = measure == LimitKind::Memory && self.namespaces.is_some();
        // While the namespaces that the selector matches are unknown, `informers` is empty, and the
        // number is unknown too.
        if self.informers.is_empty() || has_more && !self.is_synced(cluster) {
            return None;
        }
        let expected = |(InformerSpec { key, .. }, charge): (&InformerSpec, &BudgetCharge)| {
            if cluster.is_synced(key) {
                Some(charge.meter().objects())
            } else {
                cluster.reports.get(key)?.expected
            }
        };
        sum_if_known(self.informers.iter().zip(&self.own).map(expected))
    }
}

/// Sums the counts, or returns `None` if one count is `None`. The sum saturates, because an API
/// server can report any number.
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
