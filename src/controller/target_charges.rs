use super::cluster_view::ClusterView;
use kubewarm_api::model::{Budget, BudgetCharge, InformerKey, InformerSpec, LimitKind, LimitScope};
use std::sync::Arc;

/// The budget charges of one target, for the objects and memory of its running informers. Dropping
/// this value ends the charges.
#[derive(Debug)]
pub(super) struct TargetCharges {
    informers: Arc<[InformerSpec]>,
    /// One charge for each informer in `informers`, in the same order. Targets that share an
    /// informer share its usage meter, so a budget counts the informer once.
    own: Vec<BudgetCharge>,
    /// Charges for informers of an earlier profile generation, which serve the target until all of
    /// `informers` are synced.
    old: Vec<BudgetCharge>,
    /// The informer that watches Namespaces for the target's selector, with its charge. The charge
    /// does not count against the profile's own limits, because the profile's author did not
    /// request the Namespace objects. It counts against the limits of the profile's namespace and
    /// of the process.
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

    /// Drops the charges of informers of an earlier profile generation. Returns `true` if there was
    /// such a charge.
    pub(super) fn drop_old_charges(&mut self) -> bool {
        !std::mem::take(&mut self.old).is_empty()
    }

    /// Returns the number of objects or bytes of the target's current informers that count against
    /// a limit of scope `bound`. Informers of an earlier profile generation do not count, because
    /// they stop when the current informers are synced.
    pub(super) fn size(&self, bound: LimitScope, measure: LimitKind) -> u64 {
        let selector = self.namespaces.iter().filter(|_| bound != LimitScope::Profile);
        let all = self.own.iter().chain(selector.map(|(_, charge)| charge));
        all.map(|charge| charge.meter().size(bound, measure)).sum()
    }

    pub(super) fn objects(&self) -> u64 {
        self.own.iter().map(|charge| charge.meter().objects()).sum()
    }

    /// Whether the first lists of all the target's current informers are complete, including the
    /// informer that watches Namespaces for its selector.
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

    /// Whether one of the target's current informers is requesting its number of objects.
    pub(super) fn is_counting(&self, cluster: &ClusterView<'_>) -> bool {
        let reports = &cluster.reports;
        self.informers
            .iter()
            .any(|informer| reports.get(&informer.key).is_some_and(|report| report.is_counting))
    }

    /// Returns the number of objects that the target will have after its lists are complete.
    /// Returns `None` if the API server does not report the number.
    ///
    /// The status message multiplies this number by the measured memory per object. With a
    /// namespace selector, the measured memory at first consists mainly of Namespace objects, which
    /// this number does not count. So for [`LimitKind::Memory`] the result is `None` until all
    /// informers are synced.
    pub(super) fn expected(&self, measure: LimitKind, cluster: &ClusterView<'_>) -> Option<u64> {
        let has_more = measure == LimitKind::Memory && self.namespaces.is_some();
        // While the namespaces that the selector matches are unknown, `informers` is empty. The
        // number of objects is then unknown too.
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

/// Returns the sum of the object counts, or `None` if one count is `None`. The addition saturates,
/// because an API server can report any number.
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
