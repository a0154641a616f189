//! What a target holds, and what of it counts for a limit. Pure.

use super::{resolve::Cluster, settle::Holding};
use crate::{
    informer::CellReport,
    model::{Bound, CellKey, Gauge, Limits, Measure, ProfileRef, Target, ValidatedProfile},
};
use std::{collections::BTreeSet, sync::Arc};

/// A target, and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) profile: ProfileRef,
    pub(super) uid: Arc<str>,
    /// The generation that runs.
    pub(super) generation: i64,
    pub(super) target: Arc<str>,
    /// Whether the profile lives outside the operator's namespace.
    pub(super) is_tenants: bool,
    pub(super) limits: Limits,
    pub(super) priority: u16,
    /// Whether everything of it has been listed.
    pub(super) is_synced: bool,
    /// How many objects it will have, where the server says so.
    pub(super) expected: Option<u64>,
    pub(super) cells: Arc<[CellKey]>,
    /// What they hold, in the same order; a cell of several targets is the
    /// same gauge in each.
    pub(super) gauges: Vec<Arc<Gauge>>,
    /// What other cells hold, that answer for it until these are synced.
    pub(super) old: Vec<Arc<Gauge>>,
    /// The cell that finds its namespaces, and what that one holds.
    pub(super) namespaces: Option<(CellKey, Arc<Gauge>)>,
}

impl Share {
    /// Of a target of `valid` that runs.
    pub(super) fn of(
        valid: &ValidatedProfile,
        target: &Target,
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
            is_tenants,
            limits: valid.limits,
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

    /// What its cells hold that count for a limit of `bound` on `measure`.
    ///
    /// The namespaces of a selector are nothing that an author asked to hold, nor does the status or
    /// a forecast count them; but tenants must not take room from others with them.
    pub(super) fn own(&self, bound: Bound, measure: Measure) -> impl Iterator<Item = &Arc<Gauge>> {
        let is_memory = measure == Measure::Memory;
        let namespaces =
            self.namespaces.iter().filter(move |_| is_memory && bound != Bound::Profile);
        self.gauges.iter().chain(namespaces.map(|(_, gauge)| gauge))
    }

    /// What counts for a limit of `bound` on `measure`: its own, and what answers for it meanwhile.
    pub(super) fn counted(
        &self,
        bound: Bound,
        measure: Measure,
    ) -> impl Iterator<Item = &Arc<Gauge>> {
        self.own(bound, measure).chain(&self.old)
    }
}

/// The sum of what is known of all. A server may say any number.
fn together(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

/// What these hold together: cells that come several times count once.
pub(super) fn held<'a>(gauges: impl IntoIterator<Item = &'a Arc<Gauge>>, measure: Measure) -> u64 {
    let mut seen = BTreeSet::new();
    let distinct = gauges.into_iter().filter(|gauge| seen.insert(Arc::as_ptr(gauge)));
    let of = |gauge: &Arc<Gauge>| match measure {
        Measure::Objects => gauge.objects(),
        Measure::Memory => gauge.bytes(),
    };
    distinct.map(of).sum()
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
