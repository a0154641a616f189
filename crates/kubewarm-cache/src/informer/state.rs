//! The state machine of an informer's task, pure: what it does after which signal.

/// What the task does, and whether the informer holds a complete list.
///
/// ```text
///             Admitted           Listed             Opened
///   Queued ────────────► Listing ───────► Queued ──────────► Watching
///     ▲ │ Failed           │ Failed       (synced)              │ Failed
///     │ └─────────────► Backoff ◄───────────────────────────────┘
///     │                    │
///     └─────── Ended ──────┴── and from everywhere else; Purged too, which takes the list away
/// ```
///
/// What else a [`Phase`](super::Phase) tells follows from this and from what the informer knows besides:
/// [`Status::phase`](super::status::Status::phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) step: Step,
    /// Stays through failures, relists and pauses.
    pub(super) synced: bool,
}

/// What the task does.
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

/// What happened to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// It got a slot and lists.
    Admitted,
    /// A complete list has been applied.
    Listed,
    /// The watch was answered with headers.
    Opened,
    /// The watch, the wait or the task itself has ended.
    Ended,
    /// An attempt failed; another follows after a wait.
    Failed,
    /// What was held has been dropped: it no longer exists or cannot be trusted.
    Purged,
}

/// A signal that cannot occur in that state: a bug, logged by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{signal:?} cannot follow {state:?}")]
pub(super) struct IllegalTransition {
    state: State,
    signal: Signal,
}

impl State {
    pub(super) const QUEUED: Self = Self { step: Step::Queued, synced: false };

    /// The state after `signal`.
    ///
    /// # Errors
    ///
    /// [`IllegalTransition`]. The caller keeps the old state.
    pub(super) fn on(self, signal: Signal) -> Result<Self, IllegalTransition> {
        let Self { step, synced } = self;
        let next = |step| Self { step, synced };
        Ok(match (signal, step, synced) {
            (Signal::Purged, _, _) => Self::QUEUED,
            (Signal::Ended, _, _) => next(Step::Queued),
            (Signal::Failed, _, _) => next(Step::Backoff),
            (Signal::Admitted, Step::Queued | Step::Backoff, _) => next(Step::Listing),
            (Signal::Listed, Step::Listing, _) => Self { step: Step::Queued, synced: true },
            (Signal::Opened, Step::Queued, true) => next(Step::Watching),
            (Signal::Admitted | Signal::Listed | Signal::Opened, _, _) => {
                return Err(IllegalTransition { state: self, signal });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM: [Signal; 3] = [Signal::Admitted, Signal::Listed, Signal::Opened];

    fn after(signals: &[Signal]) -> Result<State, IllegalTransition> {
        signals.iter().try_fold(State::QUEUED, |state, &signal| state.on(signal))
    }

    fn warm_then(signals: &[Signal]) -> State {
        after(&[&WARM, signals].concat()).unwrap()
    }

    #[test]
    fn only_a_purge_takes_sync_away() {
        let relisting = [Signal::Ended, Signal::Failed, Signal::Admitted];
        assert_eq!(warm_then(&relisting), State { step: Step::Listing, synced: true });
        assert!(warm_then(&[Signal::Failed, Signal::Ended]).synced);
        assert_eq!(warm_then(&[Signal::Purged]), State::QUEUED);
        assert_eq!(warm_then(&[Signal::Failed, Signal::Purged]), State::QUEUED);
    }

    #[test]
    fn a_failed_first_list_is_not_synced() {
        let state = after(&[Signal::Admitted, Signal::Failed, Signal::Admitted]).unwrap();
        assert_eq!(state, State { step: Step::Listing, synced: false });
    }

    #[test]
    fn nothing_is_watched_before_it_is_listed() {
        for signal in [Signal::Opened, Signal::Listed] {
            assert!(State::QUEUED.on(signal).is_err(), "{signal:?}");
        }
        assert!(warm_then(&[]).on(Signal::Admitted).is_err(), "a watch ends before a list begins");
    }
}
