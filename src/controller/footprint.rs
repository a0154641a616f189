//! What a target holds. Pure.

use super::{resolve::Cluster, settle::Holding};
use kubewarm_api::model::{
    Bound, Budget, CellKey, Gauge, Measure, ProfileRef, Target, ValidatedProfile,
};
use kubewarm_cache::informer::CellReport;
use std::sync::Arc;

/// A target that runs, and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    pub(super) profile: ProfileRef,
    pub(super) uid: Arc<str>,
    /// The generation that runs.
    pub(super) generation: i64,
    pub(super) target: Arc<str>,
    /// The profile's.
    pub(super) budget: Arc<Budget>,
    /// Whether the profile lives outside the operator's namespace.
    pub(super) is_tenants: bool,
    pub(super) priority: u16,
    /// Whether everything of it has been listed.
    pub(super) is_synced: bool,
    /// How many objects it will have, where the server says so.
    pub(super) expected: Option<u64>,
    pub(super) cells: Arc<[CellKey]>,
    /// What they hold, in the same order; a cell of several targets is the same gauge in each.
    pub(super) gauges: Vec<Arc<Gauge>>,
    /// What other cells hold, that answer for it until these are synced.
    pub(super) old: Vec<Arc<Gauge>>,
    /// The cell that finds its namespaces, and what that one holds.
    pub(super) namespaces: Option<(CellKey, Arc<Gauge>)>,
}

impl Footprint {
    /// Of a target of `valid` that runs and that `budget` pays for.
    pub(super) fn of(
        valid: &ValidatedProfile,
        target: &Target,
        budget: Arc<Budget>,
        is_tenants: bool,
        holding: Holding,
        cluster: &dyn Cluster,
    ) -> Self {
        let gauges = |keys: &[CellKey]| keys.iter().map(|key| cluster.gauge(key)).collect();
        Self {
            profile: valid.profile.clone(),
            uid: Arc::clone(&valid.uid),
            generation: valid.generation,
            target: Arc::clone(&target.name),
            budget,
            is_tenants,
            priority: target.priority,
            is_synced: false,
            expected: None,
            gauges: gauges(&holding.cells),
            old: gauges(&holding.old),
            namespaces: holding.namespaces.map(|key| {
                let gauge = cluster.gauge(&key);
                (key, gauge)
            }),
            cells: holding.cells,
        }
    }

    /// Its gauges, each with the budget that pays for it. The namespaces of a selector are nothing that an
    /// author asked to hold: the profile's limits do not count them, but its namespace does.
    pub(super) fn charges(&self) -> impl Iterator<Item = (&Arc<Gauge>, &Arc<Budget>)> {
        let namespace = self.budget.parent().unwrap_or(&self.budget);
        let selector = self.namespaces.iter().map(move |(_, gauge)| (gauge, namespace));
        self.gauges.iter().chain(&self.old).map(|gauge| (gauge, &self.budget)).chain(selector)
    }

    /// What its own cells hold that counts for a limit of `bound`.
    pub(super) fn own(&self, bound: Bound) -> impl Iterator<Item = &Arc<Gauge>> {
        let selector = self.namespaces.iter().filter(move |_| bound != Bound::Profile);
        self.gauges.iter().chain(selector.map(|(_, gauge)| gauge))
    }

    /// Objects in its own cells.
    pub(super) fn objects(&self) -> u64 {
        self.gauges.iter().map(|gauge| gauge.objects()).sum()
    }

    /// How many objects it will have, as far as that says what it will take: what all its objects will take
    /// does not follow from bytes that are not only theirs.
    pub(super) fn expected(&self, measure: Measure) -> Option<u64> {
        let has_more = measure == Measure::Memory && self.namespaces.is_some();
        self.expected.filter(|_| self.is_synced || !has_more)
    }

    /// Asks how far its cells have come.
    pub(super) fn look(&mut self, cluster: &dyn Cluster) {
        let reports: Vec<_> = self.cells.iter().map(|key| cluster.report(key)).collect();
        let is_synced = |report: &Option<CellReport>| {
            report.as_ref().is_some_and(|report| report.synced_at.is_some())
        };
        let expected = |(report, gauge): (&Option<CellReport>, &Arc<Gauge>)| {
            if is_synced(report) { Some(gauge.objects()) } else { report.as_ref()?.expected }
        };
        // Before its namespaces are known, its cells are not.
        let selector = self.namespaces.as_ref().map(|(key, _)| cluster.report(key));
        self.is_synced = reports.iter().chain(&selector).all(is_synced);
        self.expected = together(reports.iter().zip(&self.gauges).map(expected));
        if self.cells.is_empty() {
            self.expected = None;
        }
    }
}

/// The sum of what is known of all. A server may say any number.
fn together(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_lies_about_the_length_of_its_lists_overflows_nothing() {
        assert_eq!(together([Some(u64::MAX), Some(1)].into_iter()), Some(u64::MAX));
        assert_eq!(together([Some(u64::MAX), None].into_iter()), None);
        assert_eq!(together([Some(2), Some(1)].into_iter()), Some(3));
    }
}
