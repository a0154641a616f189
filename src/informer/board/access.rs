//! What a cell's board says of access: verified, lost, and back.

use super::{Board, Inner};
use crate::{
    informer::{
        CellFault, Loss, RelistReason,
        state::{Access, Signal},
    },
    model::{CellKey, Fault, Reason, Verb},
};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};

/// What a cell's own requests say of its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAccess {
    /// Since when they are refused, if they are.
    pub refused_since: Option<Timestamp>,
    /// When the last of them was sent that was answered; `None` while nothing has been answered.
    pub verified_at: Option<Instant>,
    /// When the earlier of the last list and the last watch was sent, once both were answered.
    pub allowed_at: Option<Instant>,
    /// The first of them are under way, or wait for a turn, and nothing has gone wrong so far.
    pub is_starting: bool,
}

/// How often access went and came: what a task goes by that may not have seen each turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::informer) struct AccessTurns {
    /// It was lost.
    pub(in crate::informer) losses: u64,
    /// It was said to be there again, after a loss or after the cell's own request was refused.
    pub(in crate::informer) returns: u64,
}

/// Whether something was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::informer) enum IsNews {
    Yes,
    No,
}

impl Inner {
    /// Since when this verb is refused.
    fn refused_since(&mut self, verb: Verb) -> &mut Option<Timestamp> {
        match verb {
            Verb::List => &mut self.refused_since.0,
            Verb::Watch => &mut self.refused_since.1,
        }
    }
}

impl Board {
    /// The cell's own request of this verb, which was sent `at`, has been answered.
    pub(in crate::informer) fn allowed(&self, verb: Verb, at: Instant) {
        let mut inner = self.inner.lock();
        inner.verified_at = inner.verified_at.max(Some(at));
        match verb {
            Verb::List => inner.allowed_at.0 = Some(at),
            Verb::Watch => inner.allowed_at.1 = Some(at),
        }
        *inner.refused_since(verb) = None;
    }

    /// The cell's own request of this verb has been refused.
    pub(super) fn refused(&self, verb: Verb, now: Timestamp) {
        self.inner.lock().refused_since(verb).get_or_insert(now);
    }

    /// One of this verb has been answered.
    pub(in crate::informer) fn refused_no_more(&self, verb: Verb) {
        *self.inner.lock().refused_since(verb) = None;
    }

    /// What the cell's own requests say of access.
    pub(in crate::informer) fn own_access(&self) -> OwnAccess {
        let inner = self.inner.lock();
        let (fault, (list, watch)) = (inner.report.fault.as_ref(), inner.allowed_at);
        let (list_refused, watch_refused) = inner.refused_since;
        OwnAccess {
            refused_since: list_refused.into_iter().chain(watch_refused).min(),
            verified_at: inner.verified_at,
            allowed_at: list.zip(watch).map(|(list, watch)| list.min(watch)),
            is_starting: fault.is_none() && !(inner.state.synced && watch.is_some()),
        }
    }

    /// A receiver that is woken when access goes or comes from now on.
    pub(in crate::informer) fn access(&self) -> watch::Receiver<AccessTurns> {
        self.access.subscribe()
    }

    /// Access is lost, or for too long nobody has verified it ([`Reason::Unverified`]): the phase moves,
    /// and whoever runs the cell hears of it. Answers whether this is news; else only the fault is
    /// another.
    pub(in crate::informer) fn lose(&self, key: &CellKey, verb: Verb, fault: &Fault) -> IsNews {
        let mut inner = self.inner.lock();
        let is_unverified = fault.reason() == Reason::Unverified;
        let signal = if is_unverified { Signal::Closed } else { Signal::Fenced };
        let is_news = match inner.state.access {
            Access::Held | Access::Returned => true,
            Access::Unverified => !is_unverified,
            Access::Lost => false,
        };
        if !is_unverified && is_news && inner.state.synced {
            inner.owed = Some(RelistReason::ForbiddenRecovered);
        }
        inner.allowed_at = (None, None);
        let now = Timestamp::now();
        let report = &mut inner.report;
        let since = report.fault.as_ref().filter(|old| old.reason == fault.reason());
        report.fault = Some(CellFault {
            reason: fault.reason(),
            verb,
            message: fault.message().into(),
            at: now,
            since: since.map_or(now, |old| old.since),
            attempts: since.map_or(1, |old| old.attempts),
            next_retry: None,
        });
        if is_news {
            report.lost.get_or_insert_with(|| Loss { at: Instant::now(), time: now });
            report.losses += 1;
        }
        let losses = report.losses;
        drop(inner);
        if is_news {
            self.signal(key, signal);
            self.access.send_modify(|turns| turns.losses = losses);
            return IsNews::Yes;
        }
        self.changes.notify();
        IsNews::No
    }

    /// Access is back: the phase moves if it was lost, and whoever waits to try again does so now.
    pub(in crate::informer) fn regain(&self, key: &CellKey) {
        if self.state().access.is_closed() {
            self.note(|report| report.fault = None);
            self.inner.lock().refused_since = (None, None);
            self.signal(key, Signal::Unfenced);
        }
        self.access.send_modify(|turns| turns.returns += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::Changes;
    use std::time::Duration;

    #[test]
    fn a_refusal_counts_until_that_verb_is_allowed_whatever_else_is_wrong_meanwhile() {
        let board = Board::new(Changes::default());
        let since = || board.own_access().refused_since;
        let fail = |verb, reason| {
            board.fault(verb, &Fault::new(reason, "no"), 1, Duration::ZERO);
        };
        fail(Verb::Watch, Reason::Throttled);
        assert_eq!(since(), None);
        fail(Verb::Watch, Reason::Forbidden);
        let refused = since();
        assert!(refused.is_some());
        fail(Verb::Watch, Reason::Throttled);
        // An event of the watch that is still open shows nothing.
        board.note(|report| report.fault = None);
        board.allowed(Verb::List, Instant::now());
        fail(Verb::Watch, Reason::Unauthorized);
        assert_eq!(since(), refused);
        board.allowed(Verb::Watch, Instant::now());
        assert_eq!(since(), None);
    }
}
