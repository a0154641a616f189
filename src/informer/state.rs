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
///  every other ─ Closed or Fenced ─► Fenced ─ Unfenced ─► Queued; once synced, Reconnecting if only
///                                                         the gate was closed, Relisting after a loss
/// ```
///
/// Once synced, a cell stays so through failures, relists and fences; only `Purged` takes that away.
///
/// ```text
///                Closed                      Fenced
///   Held ───────────────────► Unverified ─────────────► Lost ◄──── Fenced, from everywhere
///    ▲ ▲        Unfenced           │                     │
///    │ └───────────────────────────┘                     │ Unfenced
///    │                         Listed                    ▼
///    └──────────────────────────────────────────────  Returned (Closed leads back to Lost)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) synced: bool,
    pub(super) access: Access,
}

/// Whether what is held may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// As far as is known.
    Held,
    /// Nobody has verified it for too long: the gate is closed. The store stays, and the watch goes on
    /// from its version once access is verified.
    Unverified,
    /// The API server refuses it. Kept while the cell is paused, too.
    Lost,
    /// It was lost and is back: what is held is of before.
    Returned,
}

impl Access {
    /// Whether nothing is tried and nothing is read.
    pub(super) const fn is_closed(self) -> bool {
        matches!(self, Self::Unverified | Self::Lost)
    }
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
    /// Nobody has verified for too long that the identity may read it.
    Closed,
    /// The identity may not read it any more.
    Fenced,
    /// It may again.
    Unfenced,
}

/// A signal that cannot occur in that state: a bug, logged and counted by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{signal:?} cannot follow {state:?}")]
pub(super) struct IllegalTransition {
    state: State,
    signal: Signal,
}

impl State {
    pub(super) const QUEUED: Self =
        Self { phase: Phase::Queued, synced: false, access: Access::Held };

    /// The state after `signal`.
    ///
    /// # Errors
    ///
    /// [`IllegalTransition`]. The caller keeps the old state.
    pub(super) fn on(self, signal: Signal) -> Result<Self, IllegalTransition> {
        use Phase::{
            Failing, Fenced, Listing, Paused, Queued, Reconnecting, Relisting, Silent, Watching,
        };
        let Self { phase, synced, access } = self;
        let next = |phase| Self { phase, synced, access };
        let empty = |phase| {
            let access = if access.is_closed() { access } else { Access::Held };
            Self { phase, synced: false, access }
        };
        // What is back after a loss and has not been listed yet stays lost.
        let closed = match access {
            Access::Held | Access::Unverified => Access::Unverified,
            Access::Lost | Access::Returned => Access::Lost,
        };
        Ok(match (signal, phase, synced) {
            (Signal::Purged, Paused | Fenced, _) => empty(phase),
            (Signal::Purged, _, _) => empty(Queued),
            (Signal::Held, _, _) => next(Paused),
            (Signal::Closed, Paused, _) => Self { access: closed, ..self },
            (Signal::Closed, _, _) => Self { phase: Fenced, synced, access: closed },
            (Signal::Fenced, Paused, _) => Self { access: Access::Lost, ..self },
            (Signal::Fenced, _, _) => Self { phase: Fenced, synced, access: Access::Lost },
            (Signal::Unfenced, Fenced, true) if access == Access::Unverified => {
                Self { phase: Reconnecting, synced, access: Access::Held }
            }
            (Signal::Unfenced, Fenced, true) => {
                Self { phase: Relisting, synced, access: Access::Returned }
            }
            (Signal::Unfenced, Fenced, false) => Self::QUEUED,
            (Signal::Unfenced, Paused, true) if access == Access::Lost => {
                Self { access: Access::Returned, ..self }
            }
            (Signal::Unfenced, Paused, _) if access.is_closed() => {
                Self { access: Access::Held, ..self }
            }
            (Signal::Resumed, Paused, _) if access.is_closed() => next(Fenced),
            (Signal::Resumed, Paused, false) => next(Queued),
            (
                Signal::Failed,
                Queued | Listing | Watching | Silent | Reconnecting | Relisting | Failing,
                _,
            ) => next(Failing),

            (Signal::Admitted, Queued | Listing | Failing, false) => next(Listing),
            (Signal::Admitted | Signal::Outran, Relisting | Reconnecting | Failing, true)
            | (Signal::Outran, Watching | Silent, true) => next(Relisting),
            (Signal::Listed, Listing | Relisting, _) => {
                Self { phase: Reconnecting, synced: true, access: Access::Held }
            }

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
                | Signal::Resumed
                | Signal::Unfenced,
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

    #[test]
    fn a_fence_is_over_once_a_list_is_that_was_sent_after_access_came_back() {
        let fenced = warm_then(&[Signal::Fenced]);
        assert_eq!(fenced, State { phase: Phase::Fenced, synced: true, access: Access::Lost });
        for signal in [Signal::Admitted, Signal::Listed, Signal::Opened, Signal::Retried] {
            assert!(fenced.on(signal).is_err(), "{signal:?}");
        }
        let back = [Signal::Fenced, Signal::Unfenced];
        let relisting = State { phase: Phase::Relisting, synced: true, access: Access::Returned };
        assert_eq!(warm_then(&back), relisting);
        let failed = warm_then(&[&back[..], &[Signal::Admitted, Signal::Failed]].concat());
        assert_eq!(failed.access, Access::Returned);
        let listed = warm_then(&[&back[..], &[Signal::Admitted, Signal::Listed]].concat());
        assert_eq!((listed.synced, listed.access), (true, Access::Held));
    }

    #[test]
    fn a_fence_outlasts_a_pause_and_a_purge() {
        let paused = warm_then(&[Signal::Held, Signal::Fenced]);
        assert_eq!((paused.phase, paused.access), (Phase::Paused, Access::Lost));
        assert_eq!(paused.on(Signal::Resumed), Ok(warm_then(&[Signal::Fenced])));
        let purged = warm_then(&[Signal::Fenced, Signal::Purged]);
        assert_eq!(purged, State { phase: Phase::Fenced, synced: false, access: Access::Lost });
        assert_eq!(purged.on(Signal::Unfenced), Ok(State::QUEUED));
        let returned = warm_then(&[Signal::Fenced, Signal::Held, Signal::Unfenced]);
        assert_eq!((returned.phase, returned.access), (Phase::Paused, Access::Returned));
        assert_eq!(returned.on(Signal::Purged).unwrap().access, Access::Held);
    }

    #[test]
    fn a_closed_gate_keeps_the_store_and_the_watch_goes_on_from_there() {
        let closed = warm_then(&[Signal::Closed]);
        assert_eq!(
            closed,
            State { phase: Phase::Fenced, synced: true, access: Access::Unverified }
        );
        for signal in [Signal::Admitted, Signal::Listed, Signal::Opened, Signal::Retried] {
            assert!(closed.on(signal).is_err(), "{signal:?}");
        }
        let open = closed.on(Signal::Unfenced).unwrap();
        assert_eq!(open, State { phase: Phase::Reconnecting, synced: true, access: Access::Held });
        // A refusal is a loss, also behind a closed gate.
        let lost = closed.on(Signal::Fenced).unwrap();
        assert_eq!((lost.phase, lost.access), (Phase::Fenced, Access::Lost));
        let paused = warm_then(&[Signal::Closed, Signal::Held, Signal::Unfenced]);
        assert_eq!((paused.phase, paused.access), (Phase::Paused, Access::Held));
    }

    #[test]
    fn what_is_back_after_a_loss_needs_its_list_whatever_is_verified_meanwhile() {
        let back = [Signal::Fenced, Signal::Unfenced, Signal::Closed];
        assert_eq!(warm_then(&back).access, Access::Lost);
        let again = warm_then(&[&back[..], &[Signal::Unfenced]].concat());
        assert_eq!((again.phase, again.access), (Phase::Relisting, Access::Returned));
    }

    #[test]
    fn what_was_never_fenced_cannot_be_unfenced() {
        assert!(State::QUEUED.on(Signal::Unfenced).is_err());
        assert!(warm_then(&[]).on(Signal::Unfenced).is_err());
        assert!(warm_then(&[Signal::Held]).on(Signal::Unfenced).is_err());
    }
}
