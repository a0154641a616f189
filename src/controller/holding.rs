//! What a target that runs holds, at the expense of its profile.

use super::cluster::ClusterView;
use kubewarm_api::model::{Bound, Budget, CellKey, CellSpec, Charge, Measure};
use std::sync::Arc;

/// What a target that runs holds. Its profile's budget pays for it until this is dropped.
#[derive(Debug)]
pub(super) struct Holding {
    /// Its cells.
    cells: Arc<[CellSpec]>,
    /// What they hold, in the same order; a cell of several targets is the same gauge in each.
    own: Vec<Charge>,
    /// What other cells hold, that answer for it until these are synced.
    old: Vec<Charge>,
    /// The cell that finds its namespaces. These are nothing that an author asked to hold: the profile's limits
    /// do not count them, but its namespace does.
    namespaces: Option<(CellKey, Charge)>,
    /// The target's.
    pub(super) priority: u16,
}

impl Holding {
    /// Charges `budget` for these cells.
    pub(super) fn new(
        budget: &Arc<Budget>,
        priority: u16,
        cells: &Arc<[CellSpec]>,
        old: &[CellSpec],
        namespaces: Option<&CellSpec>,
    ) -> Self {
        let charge = |cell: &CellSpec, payer: &Arc<Budget>| {
            Charge::new(Arc::clone(&cell.tuning.gauge), Arc::clone(payer))
        };
        let namespace = budget.parent().unwrap_or(budget);
        Self {
            cells: Arc::clone(cells),
            own: cells.iter().map(|cell| charge(cell, budget)).collect(),
            old: old.iter().map(|cell| charge(cell, budget)).collect(),
            namespaces: namespaces.map(|cell| (cell.key.clone(), charge(cell, namespace))),
            priority,
        }
    }

    /// Lets go of the old cells; whether there were any.
    pub(super) fn drop_old(&mut self) -> bool {
        !std::mem::take(&mut self.old).is_empty()
    }

    /// What its own cells hold that counts for a limit of `bound`.
    pub(super) fn size(&self, bound: Bound, measure: Measure) -> u64 {
        let selector = self.namespaces.iter().filter(|_| bound != Bound::Profile);
        let all = self.own.iter().chain(selector.map(|(_, charge)| charge));
        all.map(|charge| charge.gauge().size(bound, measure)).sum()
    }

    /// Objects in its own cells.
    pub(super) fn objects(&self) -> u64 {
        self.own.iter().map(|charge| charge.gauge().objects()).sum()
    }

    /// Whether everything of it has been listed.
    pub(super) fn is_synced(&self, cluster: &ClusterView<'_>) -> bool {
        let selector = self.namespaces.iter().map(|(key, _)| key);
        self.cells.iter().map(|cell| &cell.key).chain(selector).all(|key| cluster.is_synced(key))
    }

    /// Whether one of its cells has been told that its kind is gone.
    pub(super) fn is_denied(&self, cluster: &ClusterView<'_>) -> bool {
        self.cells.iter().any(|cell| cluster.is_denied(&cell.key))
    }

    /// How many objects it will have, where the server says so and as far as that says what it will take: what
    /// all its objects will take does not follow from bytes that are not only theirs.
    pub(super) fn expected(&self, measure: Measure, cluster: &ClusterView<'_>) -> Option<u64> {
        let has_more = measure == Measure::Memory && self.namespaces.is_some();
        // Before its namespaces are known, its cells are not.
        if self.cells.is_empty() || has_more && !self.is_synced(cluster) {
            return None;
        }
        let expected = |(CellSpec { key, .. }, charge): (&CellSpec, &Charge)| {
            if cluster.is_synced(key) {
                Some(charge.gauge().objects())
            } else {
                cluster.reports.get(key)?.expected
            }
        };
        together(self.cells.iter().zip(&self.own).map(expected))
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
    fn wrong_list_lengths_from_the_api_server_do_not_overflow() {
        assert_eq!(together([Some(u64::MAX), Some(1)].into_iter()), Some(u64::MAX));
        assert_eq!(together([Some(u64::MAX), None].into_iter()), None);
        assert_eq!(together([Some(2), Some(1)].into_iter()), Some(3));
    }
}
