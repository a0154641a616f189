//! The steps of an informer's task, pure: which one may follow which.

/// What the task does.
///
/// ```text
///   Queued, Backoff ──► Listing              its turn has come
///   Listing         ──► Queued               the list is complete
///   Queued          ──► Watching             only with a complete list
///   any             ──► Queued or Backoff    it has ended, or failed
/// ```
///
/// Whether the informer holds a complete list is
/// [`Status::is_synced`](super::status::Status::is_synced), and stays through failures, relists and pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits for its turn to list, or opens a watch.
    Queued,
    /// A list is under way.
    Listing,
    /// The watch is open.
    Watching,
    /// The last attempt failed, and the next one is waited for.
    Backoff,
}

impl Step {
    /// Whether `next` may follow in a task whose informer holds a complete list, or does not.
    pub(super) fn may_lead_to(self, next: Self, is_synced: bool) -> bool {
        match (next, self) {
            (Self::Queued | Self::Backoff, _) | (Self::Listing, Self::Queued | Self::Backoff) => {
                true
            }
            (Self::Watching, Self::Queued) => is_synced,
            (Self::Listing, Self::Listing | Self::Watching)
            | (Self::Watching, Self::Listing | Self::Watching | Self::Backoff) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_watched_before_it_is_listed() {
        assert!(!Step::Queued.may_lead_to(Step::Watching, false));
        assert!(Step::Queued.may_lead_to(Step::Watching, true));
        for step in [Step::Listing, Step::Watching, Step::Backoff] {
            assert!(!step.may_lead_to(Step::Watching, true), "{step:?}");
        }
    }

    #[test]
    fn a_watch_ends_before_a_list_begins() {
        for is_synced in [false, true] {
            assert!(!Step::Watching.may_lead_to(Step::Listing, is_synced));
            assert!(Step::Watching.may_lead_to(Step::Queued, is_synced));
            assert!(Step::Backoff.may_lead_to(Step::Listing, is_synced));
        }
    }
}
