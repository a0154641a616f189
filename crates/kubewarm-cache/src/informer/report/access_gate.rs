//! Records whether an informer can send requests and whether clients can read its store. The access
//! checker, which runs access checks, makes this decision.

use crate::informer::{AccessLoss, InformerFault};
use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault, Verb};
use tokio::time::Instant;

/// Whether one informer has access. The access checker writes this state. The informer's task reads
/// this state, and kubewarm reads it for every client request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessGate {
    /// Why the informer is blocked; `None` while it is not blocked.
    closed: Option<InformerFault>,
    pub(crate) losses: u64,
    /// Number of times that the API server has rejected the informer's identity.
    ///
    /// If this number has increased since kubewarm requested the store's list, the store stays
    /// blocked after access returns, until a relist completes. Clients of a profile with
    /// `onAccessLost: ServeStale` can still read a blocked store.
    pub(crate) epoch: u64,
    /// When the last loss of access began.
    loss: Option<AccessLoss>,
    closed_at: Option<Instant>,
    /// When the access checker last confirmed access after a loss.
    opened_at: Option<Instant>,
    /// Number of times that the access checker confirmed access: after a loss of access, or after
    /// the API server rejected a list or watch of the informer.
    pub(crate) returns: u64,
}

impl AccessGate {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub(crate) fn fault(&self) -> Option<&InformerFault> {
        self.closed.as_ref()
    }

    /// Returns the loss of access that blocks the store, or `None` if the store is not blocked.
    /// `listed_in` is the value of `epoch`, the number of rejections of the identity, when kubewarm
    /// requested the store's list.
    pub(crate) fn loss(&self, listed_in: Option<u64>) -> Option<AccessLoss> {
        let is_outdated = listed_in.is_some_and(|epoch| epoch != self.epoch);
        self.loss.filter(|_| self.is_closed() || is_outdated)
    }

    /// Whether a request sent at `sent` is later than the last loss of access. An earlier request
    /// is no evidence of access.
    pub(crate) fn is_since_loss(&self, sent: Instant) -> bool {
        self.closed_at.is_none_or(|closed| sent > closed)
    }

    /// Returns `true` if the access checker has not confirmed access since `at`, the time at which
    /// the API server rejected a request. A later confirmation makes the rejection obsolete.
    pub(crate) fn is_since_return(&self, at: Instant) -> bool {
        self.opened_at.is_none_or(|opened| at > opened)
    }

    /// Records a loss of access.
    ///
    /// Returns `true` if the informer had access before. Also returns `true` if its access was only
    /// unconfirmed before ([`FaultReason::Unverified`]), and its identity is rejected now.
    ///
    /// A rejected identity increases `epoch`, an unconfirmed access does not. `listed_in` is the
    /// value of `epoch` when kubewarm requested the store's complete list, or `None` without a
    /// complete list.
    pub(crate) fn close(
        &mut self,
        verb: Verb,
        fault: &RequestFault,
        listed_in: Option<u64>,
    ) -> bool {
        let is_refused = fault.reason() != FaultReason::Unverified;
        let was_refused = self.closed.as_ref().map(|old| old.reason != FaultReason::Unverified);
        let is_new = was_refused.is_none_or(|was_refused| is_refused && !was_refused);
        let now = Timestamp::now();
        if is_new {
            let ongoing = self.loss(listed_in);
            self.loss = ongoing.or_else(|| Some(AccessLoss { at: Instant::now(), time: now }));
            self.losses += 1;
            self.epoch += u64::from(is_refused);
        }
        self.closed_at = Some(Instant::now());
        let same = self.closed.as_ref().filter(|old| old.reason == fault.reason());
        self.closed = Some(InformerFault {
            reason: fault.reason(),
            verb,
            message: fault.message().into(),
            at: now,
            since: same.map_or(now, |old| old.since),
            attempts: 1,
            next_retry: None,
        });
        is_new
    }

    /// Records that access is confirmed. If the informer waits for its backoff, the informer
    /// retries at once.
    pub(crate) fn open(&mut self) {
        if self.closed.take().is_some() {
            self.opened_at = Some(Instant::now());
        }
        self.returns += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(gate: &mut AccessGate, reason: FaultReason, listed_in: Option<u64>) -> bool {
        gate.close(Verb::List, &RequestFault::new(reason, "no"), listed_in)
    }

    #[test]
    fn a_store_listed_before_a_refusal_stays_blocked_after_access_returns() {
        let mut gate = AccessGate::default();
        assert!(close(&mut gate, FaultReason::Forbidden, Some(0)));
        assert!(
            !close(&mut gate, FaultReason::Unauthorized, Some(0)),
            "a second rejection is no second loss"
        );
        assert_eq!((gate.losses, gate.epoch), (1, 1));
        let first = gate.loss(Some(0)).unwrap();
        gate.open();
        assert_eq!(gate.loss(Some(0)), Some(first), "the list precedes the loss");
        assert!(gate.loss(Some(1)).is_none() && gate.loss(None).is_none());
        // A second loss of access comes before any relist, so `loss` still returns the first loss.
        close(&mut gate, FaultReason::Unverified, Some(0));
        assert_eq!((gate.loss(Some(0)), gate.losses, gate.epoch), (Some(first), 2, 1));
    }

    #[test]
    fn an_unverified_informer_unblocks_without_a_list_and_a_later_refusal_is_a_new_loss() {
        let mut gate = AccessGate::default();
        assert!(close(&mut gate, FaultReason::Unverified, Some(0)));
        assert!(gate.is_closed() && gate.loss(Some(0)).is_some());
        gate.open();
        assert!(!gate.is_closed() && gate.loss(Some(0)).is_none());
        close(&mut gate, FaultReason::Unverified, Some(0));
        assert!(close(&mut gate, FaultReason::Forbidden, Some(0)));
        assert_eq!((gate.losses, gate.epoch), (3, 1));
    }
}
