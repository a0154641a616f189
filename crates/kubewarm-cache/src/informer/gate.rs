//! Whether an informer may read and be read: what whoever verifies access says of it.

use super::{CellFault, Loss};
use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use tokio::time::Instant;

/// The gate of one informer. Written by whoever verifies access; the informer's task and its readers go
/// by it.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    /// Why nothing is tried and nothing is read; `None` while it is open.
    closed: Option<CellFault>,
    /// How often it was closed.
    pub(super) losses: u64,
    /// How often the API server refused. What was listed before the last time is of before a loss: it is
    /// served to those only who asked for that.
    pub(super) epoch: u64,
    /// Since when what is held is not served; of the last time.
    loss: Option<Loss>,
    /// When it was last said to be closed, and when it was opened last.
    closed_at: Option<Instant>,
    opened_at: Option<Instant>,
    /// How often access was said to be there: after a loss, and after the informer's own request was refused.
    pub(super) returns: u64,
}

impl Gate {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub(super) fn fault(&self) -> Option<&CellFault> {
        self.closed.as_ref()
    }

    /// Since when what was listed in this epoch is not served; `None` if it is.
    pub(super) fn loss(&self, listed_in: Option<u64>) -> Option<Loss> {
        let is_of_before = listed_in.is_some_and(|epoch| epoch != self.epoch);
        self.loss.filter(|_| self.is_closed() || is_of_before)
    }

    /// Whether a request that was sent then says anything of now: access has not been lost since.
    pub(super) fn is_since_loss(&self, sent: Instant) -> bool {
        self.closed_at.is_none_or(|closed| sent > closed)
    }

    /// Whether a refusal of then is still of interest: access has not returned since.
    pub(super) fn is_since_return(&self, at: Instant) -> bool {
        self.opened_at.is_none_or(|opened| at > opened)
    }

    /// The API server refuses, or for too long nobody has verified that it does not
    /// ([`Reason::Unverified`]). What is held was listed in `listed_in`, if it is complete. Returns whether this is
    /// a new loss.
    pub(super) fn close(&mut self, verb: Verb, fault: &Fault, listed_in: Option<u64>) -> bool {
        let is_refused = fault.reason() != Reason::Unverified;
        let was_refused = self.closed.as_ref().map(|old| old.reason != Reason::Unverified);
        let is_news = was_refused.is_none_or(|was_refused| is_refused && !was_refused);
        let now = Timestamp::now();
        if is_news {
            let goes_on = self.loss(listed_in);
            self.loss = goes_on.or_else(|| Some(Loss { at: Instant::now(), time: now }));
            self.losses += 1;
            self.epoch += u64::from(is_refused);
        }
        self.closed_at = Some(Instant::now());
        let same = self.closed.as_ref().filter(|old| old.reason == fault.reason());
        self.closed = Some(CellFault {
            reason: fault.reason(),
            verb,
            message: fault.message().into(),
            at: now,
            since: same.map_or(now, |old| old.since),
            attempts: 1,
            next_retry: None,
        });
        is_news
    }

    /// Access is there: whoever waits to try again does so now.
    pub(super) fn open(&mut self) {
        if self.closed.take().is_some() {
            self.opened_at = Some(Instant::now());
        }
        self.returns += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(gate: &mut Gate, reason: Reason, listed_in: Option<u64>) -> bool {
        gate.close(Verb::List, &Fault::new(reason, "no"), listed_in)
    }

    #[test]
    fn what_was_listed_before_a_refusal_is_not_served_when_access_returns() {
        let mut gate = Gate::default();
        assert!(close(&mut gate, Reason::Forbidden, Some(0)));
        assert!(!close(&mut gate, Reason::Unauthorized, Some(0)), "another reason");
        assert_eq!((gate.losses, gate.epoch), (1, 1));
        let first = gate.loss(Some(0)).unwrap();
        gate.open();
        assert_eq!(gate.loss(Some(0)), Some(first), "of before");
        assert!(gate.loss(Some(1)).is_none() && gate.loss(None).is_none());
        // Lost again before it was listed again: the first loss counts.
        close(&mut gate, Reason::Unverified, Some(0));
        assert_eq!((gate.loss(Some(0)), gate.losses, gate.epoch), (Some(first), 2, 1));
    }

    #[test]
    fn a_gate_that_time_closed_opens_without_a_list_and_a_refusal_behind_it_is_a_loss() {
        let mut gate = Gate::default();
        assert!(close(&mut gate, Reason::Unverified, Some(0)));
        assert!(gate.is_closed() && gate.loss(Some(0)).is_some());
        gate.open();
        assert!(!gate.is_closed() && gate.loss(Some(0)).is_none());
        close(&mut gate, Reason::Unverified, Some(0));
        assert!(close(&mut gate, Reason::Forbidden, Some(0)));
        assert_eq!((gate.losses, gate.epoch), (3, 1));
    }
}
