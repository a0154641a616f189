//! The access checker's decision about an informer, and the losses of access that followed from all
//! its decisions.

use super::permission_state::{InformerPermission, PermissionState};
use crate::informer::InformerFault;
use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault, Verb};

/// The access checker's last decision about one informer, and the informer's losses of access. The
/// access checker writes this record. The informer's task reads it, and kubewarm reads it for every
/// client request.
#[derive(Clone, Debug)]
pub(crate) struct PermissionRecord {
    permission: InformerPermission,
    /// When the informer was blocked for the reason in `permission`. Not used while the informer is
    /// not blocked.
    blocked_since: Timestamp,
    /// Number of losses of access.
    pub(crate) losses: u64,
    /// Number of losses in which the API server rejected the informer's identity.
    ///
    /// If this number has increased since kubewarm requested the store's list, the identity can
    /// have lost the permission to read some of the objects. So the store stays blocked until a
    /// relist completes, even after access returns. With `onAccessLost: ServeStale`, clients of the
    /// profile can still read the store.
    pub(crate) refusals: u64,
    /// When the last loss of access began.
    lost_at: Option<Timestamp>,
}

impl PermissionRecord {
    pub(crate) fn new() -> Self {
        Self {
            permission: InformerPermission {
                state: PermissionState::Verifying,
                confirmed_at: None,
            },
            blocked_since: Timestamp::UNIX_EPOCH,
            losses: 0,
            refusals: 0,
            lost_at: None,
        }
    }

    pub(crate) fn permission(&self) -> &InformerPermission {
        &self.permission
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.permission.state.is_blocking()
    }

    /// Returns the rejection, or the missing confirmation of access, that blocks the informer.
    pub(crate) fn fault(&self) -> Option<InformerFault> {
        let (reason, verb, message, at) = match &self.permission.state {
            PermissionState::Verifying | PermissionState::Granted { .. } => return None,
            PermissionState::Refused(denial) => {
                let verb = denial.verbs.first().copied().unwrap_or(Verb::List);
                (denial.reason, verb, denial.message.clone(), denial.verified_at)
            }
            PermissionState::Unverified { verified_at, message } => {
                let since = Timestamp::from_second(verified_at.as_second()).unwrap_or(*verified_at);
                let message = format!("not verified since {since}: {message}");
                let fault = RequestFault::new(FaultReason::Unverified, message);
                (fault.reason(), Verb::List, fault.message().into(), self.blocked_since)
            }
        };
        let since = self.blocked_since;
        Some(InformerFault { reason, verb, message, at, since, attempts: 1, next_retry: None })
    }

    /// Returns when the loss of access began that blocks the store, or `None` if the store is not
    /// blocked. `listed_in` is the value of `refusals` when kubewarm requested the store's list.
    pub(crate) fn lost_at(&self, listed_in: Option<u64>) -> Option<Timestamp> {
        let is_outdated = listed_in.is_some_and(|refusals| refusals != self.refusals);
        self.lost_at.filter(|_| self.is_blocked() || is_outdated)
    }

    /// Whether `permission` differs from the last decision and replaces it.
    pub(crate) fn is_changed_by(&self, permission: &InformerPermission) -> bool {
        *permission != self.permission && permission.state.replaces(&self.permission.state)
    }

    /// Replaces the decision, if [`PermissionState::replaces`] permits it. Returns whether the new
    /// decision is a loss of access: the informer had access before, or its access was only
    /// unconfirmed and the API server now rejects its identity.
    ///
    /// `listed_in` is the value of `refusals` when kubewarm requested the store's complete list, or
    /// `None` without a complete list.
    pub(crate) fn update(
        &mut self,
        permission: &InformerPermission,
        listed_in: Option<u64>,
        now: Timestamp,
    ) -> bool {
        if !self.is_changed_by(permission) {
            return false;
        }
        let (old, new) = (&self.permission.state, &permission.state);
        let is_rejected_now = new.is_refused() && !old.is_refused();
        let is_loss = new.is_blocking() && (!old.is_blocking() || is_rejected_now);
        if is_loss {
            self.lost_at = self.lost_at(listed_in).or(Some(now));
            self.losses += 1;
            self.refusals += u64::from(new.is_refused());
        }
        if new.block_reason() != old.block_reason() {
            self.blocked_since = now;
        }
        self.permission.clone_from(permission);
        is_loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::PermissionDenial;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn refused(reason: FaultReason) -> PermissionState {
        PermissionState::Refused(PermissionDenial {
            verbs: vec![Verb::Watch],
            reason,
            message: "no".into(),
            verified_at: NOW,
            revoked: None,
        })
    }

    fn unverified() -> PermissionState {
        PermissionState::Unverified { verified_at: NOW, message: "429".into() }
    }

    fn granted(is_by_review: bool) -> PermissionState {
        PermissionState::Granted { verified_at: NOW, is_by_review }
    }

    fn update(record: &mut PermissionRecord, state: PermissionState, after: i64) -> bool {
        let now = Timestamp::from_second(after).unwrap();
        record.update(&InformerPermission { state, confirmed_at: None }, Some(0), now)
    }

    #[test]
    fn a_store_listed_before_a_refusal_stays_blocked_after_access_returns() {
        let mut record = PermissionRecord::new();
        assert!(update(&mut record, refused(FaultReason::Forbidden), 1));
        let again = update(&mut record, refused(FaultReason::Unauthorized), 2);
        assert!(!again, "a second rejection is no second loss");
        assert_eq!((record.losses, record.refusals), (1, 1));
        let fault = record.fault().unwrap();
        assert_eq!((fault.reason, fault.verb), (FaultReason::Unauthorized, Verb::Watch));
        assert_eq!(fault.since.as_second(), 2, "a new reason");
        update(&mut record, granted(false), 3);
        let first = record.lost_at(Some(0));
        assert_eq!(first, Some(Timestamp::from_second(1).unwrap()), "listed before the loss");
        assert_eq!((record.lost_at(Some(1)), record.lost_at(None)), (None, None));
        // A second loss of access comes before any relist, so the first one is still reported.
        update(&mut record, unverified(), 4);
        assert_eq!((record.lost_at(Some(0)), record.losses, record.refusals), (first, 2, 1));
    }

    #[test]
    fn an_unverified_informer_unblocks_without_a_list_and_a_later_refusal_is_a_new_loss() {
        let mut record = PermissionRecord::new();
        assert!(update(&mut record, unverified(), 1));
        assert!(record.is_blocked() && record.lost_at(Some(0)).is_some());
        let message = record.fault().unwrap().message;
        assert_eq!(&*message, "not verified since 1970-01-01T00:00:00Z: 429");
        update(&mut record, granted(false), 2);
        assert!(!record.is_blocked() && record.lost_at(Some(0)).is_none());
        update(&mut record, unverified(), 3);
        assert!(update(&mut record, refused(FaultReason::Forbidden), 4));
        assert_eq!((record.losses, record.refusals), (3, 1));
    }

    #[test]
    fn only_a_permitted_list_or_watch_ends_a_block() {
        let mut record = PermissionRecord::new();
        for block in [refused(FaultReason::Forbidden), unverified()] {
            update(&mut record, block, 1);
            let fault = record.fault();
            for other in [PermissionState::Verifying, granted(true), unverified()] {
                update(&mut record, other, 2);
                assert_eq!(record.fault(), fault);
            }
            update(&mut record, granted(false), 3);
            assert!(!record.is_blocked());
        }
    }
}
