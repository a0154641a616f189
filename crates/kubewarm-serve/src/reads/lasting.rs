//! Whether a cell may still be read by whoever began to.

use kubewarm_api::model::OnAccessLost;
use kubewarm_cache::informer::CellReport;

/// Whether it may, by these policies; with `losses` only if it has not lost access since it had so often. It may have been
/// lost and back unseen, and its store dropped in between.
pub(super) fn may_go_on(
    report: Option<&CellReport>,
    (policies, losses): (&[OnAccessLost], Option<u64>),
) -> bool {
    report.is_some_and(|report| {
        losses.is_none_or(|losses| losses == report.losses)
            && policies.iter().all(|policy| report.serves(*policy))
    })
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
            may_go_on(Some(report), (policies, losses))
        };
        assert!(goes_on(&warm, &[fences], Some(0)) && goes_on(&warm, &[fences], None));
        let lost = Some(Loss { at: now, time: Timestamp::UNIX_EPOCH });
        let gone = CellReport { lost, losses: 1, ..warm.clone() };
        assert!(!goes_on(&gone, &[fences], None) && goes_on(&gone, &[serves_on], None));
        assert!(!goes_on(&gone, &[serves_on, fences], None), "each of them must let it");
        let back = CellReport { losses: 1, ..warm };
        assert!(!goes_on(&back, &[fences], Some(0)) && !goes_on(&back, &[serves_on], Some(0)));
        assert!(goes_on(&back, &[fences], Some(1)) && goes_on(&back, &[fences], None));
        assert!(!may_go_on(None, (&[serves_on], None)), "there is no such cell any more");
    }
}
