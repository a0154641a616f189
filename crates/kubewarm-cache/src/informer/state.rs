//! The state machine of a cell, pure: which phase follows from which signal.

use super::Phase;

/// Where a cell stands, and whether it has anything to serve.
///
/// ```text
///            Admitted           Listed                Opened
///  Queued ────────────► Listing ───────► Reconnecting ───────► Watching ◄─────┐
///    │ ▲                   │              ▲   ▲   │ ▲           │  │  │ Heard   │
///    │ │ Purged            │              │   │   │ └── Ended ──┘  │  ▼         │
///    │ └──────────┐        │       Listed │   │   │    (Silent     │ Silent ────┘
///    │            │        │              │   │   │     too)       │
///    │            │        └──────┐   Relisting ◄─┴─── Outran ─────┘
///    │            │               │     ▲   │
///    │            │               ▼     │   │ Failed, from everywhere
///    └─ Failed ──►└──────────── Failing ◄───┘
///                                 │ └── Admitted ──► Listing, or Relisting once synced
///                                 └──── Retried ───► Reconnecting, once synced
///
///  every phase ──── Idle ────► Queued, or Reconnecting once synced
/// ```
///
/// Whether its mode or the gate of access keeps it from running is not told here: [`super::cell`] shows
/// such a cell as paused or fenced.
///
/// Once synced, a cell stays so through failures, relists and pauses; only `Purged` takes that away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) synced: bool,
}

/// What happened to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// It got a slot and lists.
    Admitted,
    /// A complete list has been applied.
    Listed,
    /// The watch was answered with headers.
    Opened,
    /// Nothing came for so long that the watch is being probed.
    WentSilent,
    /// Something came, or the probe proved that there was nothing to come.
    Heard,
    /// The watch ended and will be opened again from the version known.
    Ended,
    /// The version known is of no use any more: a list is needed.
    Outran,
    /// An attempt failed; another follows after a wait.
    Failed,
    /// After the wait, the watch is opened again without a list.
    Retried,
    /// What was held has been dropped: it no longer exists or cannot be trusted.
    Purged,
    /// Its task has ended, or has not begun: it is paused, access was lost, or a list is wanted.
    Idle,
}

/// A signal that cannot occur in that state: a bug, logged and counted by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{signal:?} cannot follow {state:?}")]
pub(super) struct IllegalTransition {
    state: State,
    signal: Signal,
}

impl State {
    pub(super) const QUEUED: Self = Self { phase: Phase::Queued, synced: false };

    /// The state after `signal`.
    ///
    /// # Errors
    ///
    /// [`IllegalTransition`]. The caller keeps the old state.
    pub(super) fn on(self, signal: Signal) -> Result<Self, IllegalTransition> {
        use Phase::{Failing, Listing, Queued, Reconnecting, Relisting, Silent, Watching};
        let Self { phase, synced } = self;
        let next = |phase| Self { phase, synced };
        Ok(match (signal, phase, synced) {
            (Signal::Purged, _, _) => Self::QUEUED,
            (Signal::Idle, _, false) => next(Queued),
            (
                Signal::Failed,
                Queued | Listing | Watching | Silent | Reconnecting | Relisting | Failing,
                _,
            ) => next(Failing),

            (Signal::Admitted, Queued | Listing | Failing, false) => next(Listing),
            (Signal::Admitted | Signal::Outran, Relisting | Reconnecting | Failing, true)
            | (Signal::Outran, Watching | Silent, true) => next(Relisting),
            (Signal::Listed, Listing | Relisting, _) => Self { phase: Reconnecting, synced: true },

            (Signal::WentSilent, Watching | Silent | Failing, true) => next(Silent),
            (Signal::Opened, Reconnecting | Failing, true)
            | (Signal::Heard, Watching | Silent | Failing, true) => next(Watching),
            (Signal::Idle, _, true)
            | (Signal::Ended, Watching | Silent | Reconnecting | Failing, true)
            | (Signal::Retried, Failing, true) => next(Reconnecting),

            (
                Signal::Admitted
                | Signal::Listed
                | Signal::Opened
                | Signal::WentSilent
                | Signal::Heard
                | Signal::Ended
                | Signal::Outran
                | Signal::Failed
                | Signal::Retried,
                _,
                _,
            ) => return Err(IllegalTransition { state: self, signal }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(signals: &[Signal]) -> Result<State, IllegalTransition> {
        signals.iter().try_fold(State::QUEUED, |state, &signal| state.on(signal))
    }

    const WARM: [Signal; 3] = [Signal::Admitted, Signal::Listed, Signal::Opened];

    fn warm_then(signals: &[Signal]) -> State {
        after(&[&WARM, signals].concat()).unwrap()
    }

    #[test]
    fn a_failure_after_sync_keeps_serving() {
        let failing = warm_then(&[Signal::Ended, Signal::Failed]);
        assert_eq!((failing.phase, failing.synced), (Phase::Failing, true));
        assert_eq!(
            warm_then(&[Signal::Ended, Signal::Failed, Signal::Admitted]).phase,
            Phase::Relisting
        );
        assert!(warm_then(&[Signal::Outran]).synced);
    }

    #[test]
    fn a_failed_first_list_is_not_synced() {
        let state = after(&[Signal::Admitted, Signal::Failed, Signal::Admitted]).unwrap();
        assert_eq!((state.phase, state.synced), (Phase::Listing, false));
    }

    #[test]
    fn only_a_purge_takes_sync_away() {
        assert_eq!(warm_then(&[Signal::Purged]), State::QUEUED);
        assert!(warm_then(&[Signal::Outran, Signal::Failed, Signal::Idle]).synced);
        assert_eq!(warm_then(&[Signal::Idle, Signal::Purged]), State::QUEUED);
    }

    #[test]
    fn a_task_that_begins_again_goes_on_from_what_is_held() {
        for signals in [&[][..], &[Signal::WentSilent], &[Signal::Outran, Signal::Failed]] {
            let idle = warm_then(&[signals, &[Signal::Idle]].concat());
            assert_eq!(idle, State { phase: Phase::Reconnecting, synced: true });
        }
        let first = after(&[Signal::Admitted, Signal::Idle]).unwrap();
        assert_eq!(first, State::QUEUED);
    }

    #[test]
    fn nothing_is_watched_before_it_is_listed() {
        for signal in
            [Signal::Opened, Signal::Heard, Signal::Retried, Signal::Outran, Signal::Listed]
        {
            assert!(State::QUEUED.on(signal).is_err(), "{signal:?}");
        }
    }
}
