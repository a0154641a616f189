//! Whether a cell may still be read by a list or a watch that began to.

use kubewarm_api::model::OnAccessLost;
use kubewarm_cache::informer::CellReport;

/// On what terms a list or a watch goes on with its cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessTerms {
    /// The strictest policy of the profiles that offer the cell.
    pub(super) policy: OnAccessLost,
    /// How many losses of access the cell had; `None` where a later loss does not matter once access is back. The store may
    /// have been dropped in between.
    pub(super) losses: Option<u64>,
}

impl AccessTerms {
    /// Whether the cell may be read now; `None` is the report of a cell that does not exist.
    pub(super) fn permit(&self, report: Option<&CellReport>) -> bool {
        report.is_some_and(|report| {
            self.losses.is_none_or(|losses| losses == report.losses) && report.serves(self.policy)
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
        let (rejects, serves_on) = (OnAccessLost::Reject, OnAccessLost::ServeStale);
        let warm = report(now);
        let goes_on = |report: &CellReport, policy, losses| {
            AccessTerms { policy, losses }.permit(Some(report))
        };
        assert!(goes_on(&warm, rejects, Some(0)) && goes_on(&warm, rejects, None));
        let lost = Some(Loss { at: now, time: Timestamp::UNIX_EPOCH });
        let gone = CellReport { lost, losses: 1, ..warm.clone() };
        assert!(!goes_on(&gone, rejects, None) && goes_on(&gone, serves_on, None));
        let back = CellReport { losses: 1, ..warm };
        assert!(!goes_on(&back, rejects, Some(0)) && !goes_on(&back, serves_on, Some(0)));
        assert!(goes_on(&back, rejects, Some(1)) && goes_on(&back, rejects, None));
        let terms = AccessTerms { policy: serves_on, losses: None };
        assert!(!terms.permit(None), "there is no such cell any more");
    }
}
