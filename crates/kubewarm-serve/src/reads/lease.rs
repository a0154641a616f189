//! Whether a cell may still be read by whoever began to.

use super::cover::Candidate;
use kubewarm_api::model::OnAccessLost;
use kubewarm_cache::informer::CellReport;

/// On what terms a read goes on with the cell that it began with.
pub(super) struct Lease {
    /// What each profile that offers the cell says of data after a loss of access.
    pub(super) policies: Vec<OnAccessLost>,
    /// How many losses of access the cell had; `None` where a later loss does not matter once access is back. The store may
    /// have been dropped in between.
    pub(super) losses: Option<u64>,
}

impl Lease {
    pub(super) fn of(candidate: &Candidate<'_>) -> Self {
        Self { policies: candidate.policies(), losses: Some(candidate.report.losses) }
    }

    /// Whether the cell may be read now; `None` of a cell that does not exist.
    pub(super) fn holds(&self, report: Option<&CellReport>) -> bool {
        report.is_some_and(|report| {
            self.losses.is_none_or(|losses| losses == report.losses)
                && self.policies.iter().all(|policy| report.serves(*policy))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::report;
    use jiff::Timestamp;
    use kubewarm_cache::informer::Loss;
    use tokio::time::Instant;

    #[test]
    fn what_was_read_before_access_was_lost_is_not_told_when_it_is_back() {
        let now = Instant::now();
        let (fences, serves_on) = (OnAccessLost::Fence, OnAccessLost::ServeStale);
        let warm = report(now);
        let goes_on = |report: &CellReport, policies: &[OnAccessLost], losses| {
            Lease { policies: policies.to_vec(), losses }.holds(Some(report))
        };
        assert!(goes_on(&warm, &[fences], Some(0)) && goes_on(&warm, &[fences], None));
        let lost = Some(Loss { at: now, time: Timestamp::UNIX_EPOCH });
        let gone = CellReport { lost, losses: 1, ..warm.clone() };
        assert!(!goes_on(&gone, &[fences], None) && goes_on(&gone, &[serves_on], None));
        assert!(!goes_on(&gone, &[serves_on, fences], None), "each of them must let it");
        let back = CellReport { losses: 1, ..warm };
        assert!(!goes_on(&back, &[fences], Some(0)) && !goes_on(&back, &[serves_on], Some(0)));
        assert!(goes_on(&back, &[fences], Some(1)) && goes_on(&back, &[fences], None));
        let lease = Lease { policies: vec![serves_on], losses: None };
        assert!(!lease.holds(None), "there is no such cell any more");
    }
}
