use kubewarm_api::model::AccessLossPolicy;
use kubewarm_cache::informer::InformerReport;

/// The conditions under which a client's list or watch can continue to read its informer's store.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessLossCheck {
    /// The strictest `onAccessLost` policy of the profiles that serve reads from the informer.
    pub(super) policy: AccessLossPolicy,
    /// How often the informer had lost its access when the request began. If this number changes,
    /// the request ends, because the informer can have emptied its store in the meantime.
    /// `None` after a watch has sent its initial objects: its later events come from the event log,
    /// which ends the watch itself if the store was emptied. Then only the informer's present
    /// access counts.
    pub(super) losses: Option<u64>,
}

impl AccessLossCheck {
    /// Whether the list or watch can read the informer's store now. `report` is `None` if the
    /// informer does not exist.
    pub(super) fn permit(&self, report: Option<&InformerReport>) -> bool {
        report.is_some_and(|report| {
            self.losses.is_none_or(|losses| losses == report.losses) && report.serves(self.policy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::report;
    use jiff::Timestamp;
    use tokio::time::Instant;

    #[test]
    fn objects_read_before_a_loss_of_access_are_not_sent_after_its_return() {
        let now = Instant::now();
        let (rejects, serves_on) = (AccessLossPolicy::Reject, AccessLossPolicy::ServeStale);
        let warm = report(now);
        let has_more = |report: &InformerReport, policy, losses| {
            AccessLossCheck { policy, losses }.permit(Some(report))
        };
        assert!(has_more(&warm, rejects, Some(0)) && has_more(&warm, rejects, None));
        let lost_at = Some(Timestamp::UNIX_EPOCH);
        let gone = InformerReport { lost_at, losses: 1, ..warm.clone() };
        assert!(!has_more(&gone, rejects, None) && has_more(&gone, serves_on, None));
        let back = InformerReport { losses: 1, ..warm };
        assert!(!has_more(&back, rejects, Some(0)) && !has_more(&back, serves_on, Some(0)));
        assert!(has_more(&back, rejects, Some(1)) && has_more(&back, rejects, None));
        let terms = AccessLossCheck { policy: serves_on, losses: None };
        assert!(!terms.permit(None), "the informer does not exist");
    }
}
