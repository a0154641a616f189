//! The states of an informer's task and the legal transitions between them, without any I/O.

/// What an informer's task does at present.
///
/// ```text
///   Queued, Backoff ──► Listing              when the limit on concurrent lists permits it
///   Listing         ──► Queued               after the list is complete
///   Queued          ──► Watching             only with a complete list
///   any             ──► Queued or Backoff    after a list or a watch ended or failed
/// ```
///
/// Whether the store holds a complete list is not part of this state, because the store keeps the
/// list during failures, relists and pauses. `InformerStatus::is_synced` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// The task waits because kubewarm limits the number of concurrent lists, or opens a watch.
    Queued,
    Listing,
    Watching,
    /// The last list or watch failed. The task waits for its backoff before the next attempt.
    Backoff,
}

impl TaskState {
    /// Whether the task can change from this state to `next`. `is_synced` states whether the store
    /// holds a complete list.
    pub(crate) fn can_lead_to(self, next: Self, is_synced: bool) -> bool {
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
    fn a_watch_starts_only_from_the_queue_with_a_complete_list() {
        assert!(!TaskState::Queued.can_lead_to(TaskState::Watching, false));
        assert!(TaskState::Queued.can_lead_to(TaskState::Watching, true));
        for step in [TaskState::Listing, TaskState::Watching, TaskState::Backoff] {
            assert!(!step.can_lead_to(TaskState::Watching, true), "{step:?}");
        }
    }

    #[test]
    fn a_watch_ends_before_a_list_begins() {
        for is_synced in [false, true] {
            assert!(!TaskState::Watching.can_lead_to(TaskState::Listing, is_synced));
            assert!(TaskState::Watching.can_lead_to(TaskState::Queued, is_synced));
            assert!(TaskState::Backoff.can_lead_to(TaskState::Listing, is_synced));
        }
    }
}
