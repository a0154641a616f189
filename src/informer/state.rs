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
///  every phase ──── Held ────► Paused ── Resumed ──► Queued, or Reconnecting once synced
/// ```
///
/// Once synced, a cell stays so through failures and relists; only `Purged` takes that away.
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
    /// No active profile declares it any more.
    Held,
    /// One does again.
    Resumed,
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
        use Phase::{Failing, Listing, Paused, Queued, Reconnecting, Relisting, Silent, Watching};
        let Self { phase, synced } = self;
        let next = |phase| Self { phase, synced };
        Ok(match (signal, phase, synced) {
            (Signal::Purged, Paused, _) => Self { phase: Paused, synced: false },
            (Signal::Purged, _, _) => Self { phase: Queued, synced: false },
            (Signal::Held, _, _) => next(Paused),
            (Signal::Resumed, Paused, false) => next(Queued),
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
            (Signal::Resumed, Paused, true)
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
                | Signal::Retried
                | Signal::Resumed,
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
        assert_eq!(failing, State { phase: Phase::Failing, synced: true });
        assert_eq!(
            warm_then(&[Signal::Ended, Signal::Failed, Signal::Admitted]).phase,
            Phase::Relisting
        );
        assert!(warm_then(&[Signal::Outran]).synced);
    }

    #[test]
    fn a_failed_first_list_is_not_synced() {
        let state = after(&[Signal::Admitted, Signal::Failed, Signal::Admitted]).unwrap();
        assert_eq!(state, State { phase: Phase::Listing, synced: false });
    }

    #[test]
    fn only_a_purge_takes_sync_away() {
        assert_eq!(warm_then(&[Signal::Purged]), State::QUEUED);
        assert!(warm_then(&[Signal::Held, Signal::Resumed]).synced);
        assert_eq!(warm_then(&[Signal::Held, Signal::Purged, Signal::Resumed]), State::QUEUED);
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
