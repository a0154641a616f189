//! What a cell of profiles can say about them. Pure.

use kubewarm_cache::informer::CellReport;

/// What a cell of profiles can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// Which profiles there are.
    Done,
    /// Nothing yet.
    Open,
    /// Nothing any more, which does not mean that its profiles are gone.
    Kept,
    /// Nothing, and it has never said anything: nobody waits for it.
    Failed,
}

impl Listing {
    /// Of the cell that says `report`.
    pub(super) fn of(report: &CellReport, was_listed: bool) -> Self {
        match &report.fault {
            _ if report.is_warm() => Self::Done,
            _ if was_listed => Self::Kept,
            Some(_) => Self::Failed,
            None => Self::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::Reason;
    use kubewarm_cache::informer::{CellFault, Verb};

    #[test]
    fn a_namespace_whose_profiles_cannot_be_listed_holds_up_no_other() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let queued = CellReport::queued(now);
        let synced = CellReport { synced_at: Some(now), ..queued.clone() };
        let fault = CellFault {
            reason: Reason::Forbidden,
            verb: Verb::List,
            message: "".into(),
            at: now,
            since: now,
            attempts: 1,
            next_retry: None,
        };
        let refused = CellReport { fault: Some(fault), ..queued.clone() };
        assert_eq!(Listing::of(&queued, false), Listing::Open);
        assert_eq!(Listing::of(&refused, false), Listing::Failed);
        for was_listed in [false, true] {
            assert_eq!(Listing::of(&synced, was_listed), Listing::Done);
        }
        // Purged and listed anew, or not for us any more: its profiles are not gone.
        let held = CellReport { synced_at: Some(now), ..refused.clone() };
        for report in [&queued, &refused, &held] {
            assert_eq!(Listing::of(report, true), Listing::Kept);
        }
    }
}
