//! The state machine that decides whether clients may read an informer's store, and when the
//! informer's next access check is due. This module performs no I/O.
//!
//! Only list and watch requests with the informer's identity show whether the informer has access.
//! Every other sign of lost access, for instance a negative access review, triggers an immediate
//! access check. kubewarm blocks the informer if no list or watch succeeds within 30 seconds after
//! such a sign.
//!
//! If access checks contradict an access review or rules review twice, kubewarm trusts the access
//! checks. Further reviews with the same result then trigger no access checks, and the status shows
//! the contradiction.

#[cfg(test)]
mod tests;

use super::informer_access::InformerAccess;
use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault, Verb};
use kubewarm_cache::informer::{
    AccessCheckResult, AccessDecision, InformerPermission, PermissionDenial, PermissionState,
};
use std::time::Duration;
use tokio::time::Instant;

/// Time from the last confirmed access until kubewarm blocks the informer, which means that clients
/// cannot read its store.
///
/// Within this time kubewarm tries several ways to confirm access. An access check runs after 5
/// minutes and, if it has no result, every 20 seconds. The informer's own watch reopens after at
/// most 10 minutes.
pub const MAX_ACCESS_AGE: Duration = Duration::from_mins(10);
/// Time from a sign of lost access, such as a negative access review, until kubewarm blocks the
/// informer. A successful list or watch within this time prevents the block. An access check runs
/// immediately after the sign, and once more within this time.
const SIGN_AGE: Duration = Duration::from_secs(30);
/// Minimum time between the two rejected access checks that together mean lost access. One
/// rejection is not enough: for one or two seconds after its start, an API server has not loaded
/// its roles and rejects every RBAC request.
const CONFIRM: Duration = Duration::from_secs(3);
/// Minimum time between two access checks that both contradict an access review or rules review.
/// One access check is not enough, because one of several API servers can lag behind by seconds.
const SETTLED: Duration = Duration::from_secs(10);

/// A signal about one informer's access. `sent` is the time at which kubewarm sent the request that
/// caused the signal.
#[derive(Clone, Debug)]
pub(super) enum AccessSignal {
    /// The API server permitted both requests of an access check: the list and the watch.
    Allowed { sent: Instant },
    /// The API server permitted the informer's own list or watch.
    Verified { sent: Instant },
    /// The API server rejected the verbs in `verbs` (list, watch or both) in an access check.
    Refused { sent: Instant, verbs: Vec<Verb>, fault: RequestFault },
    /// The API server answered an access review or a rules review. `refused` contains the verbs
    /// that the identity may not use according to this review. An access review is about one verb.
    /// If the API server denies this verb, `refused` contains all verbs that
    /// [`AccessState::verbs_to_review`] returns.
    Reviewed { sent: Instant, refused: Vec<Verb> },
    /// The API server answered an access review with the error that it does not support or permit
    /// access reviews. This answer shows neither access nor lost access.
    Answered { sent: Instant },
    /// The API server rejected the informer's own list or watch. This rejection alone does not
    /// block the informer; it only triggers an access check.
    Suspected { sent: Instant },
    /// An access check, access review or rules review gave no result. `fault` can be a 401 or 403
    /// for the request that creates the review.
    Undecided { sent: Instant, fault: RequestFault },
    /// Time has passed since the last signal, so confirmed access can have become too old.
    Tick,
}

#[derive(Debug)]
pub(super) struct AccessState {
    state: PermissionState,
    /// Time at which kubewarm sent the last permitted list or watch.
    verified: Option<Instant>,
    /// The signs of lost access since `verified`.
    signs: Option<LossSigns>,
    /// Time at which kubewarm received the first of two rejected access checks that together mean
    /// lost access. `None` after the second rejection, or after an access check that the API server
    /// permits.
    refused: Option<Instant>,
    /// The last access review or rules review, if real lists and watches contradict it. Two
    /// contradictions overrule the review.
    contradiction: Option<ContradictingReview>,
    /// Error of the last access check, access review or rules review without a result. `None` after
    /// a list or watch has confirmed access.
    failed: Option<RequestFault>,
    /// Time at which kubewarm sent the last answered access check, access review or rules review.
    /// Before the first answer, the time at which kubewarm began to check this informer. If this
    /// time is too long ago, the status reports the checks as late.
    answered: Instant,
    /// Time at which kubewarm sent the last list and watch of the informer's identity that the API
    /// server both permitted. An informer with an earlier rejected request then retries at once.
    allowed: Option<Instant>,
    /// Maximum age of the last confirmed access: [`MAX_ACCESS_AGE`], except in tests.
    max_access_age: Duration,
}

/// When kubewarm sent the first and the last request that gave a sign of lost access.
#[derive(Clone, Copy, Debug)]
struct LossSigns {
    first: Instant,
    last: Instant,
}

#[derive(Debug)]
struct ContradictingReview {
    /// The verbs that the identity may not use according to the contradicting access review or
    /// rules review.
    refused: Vec<Verb>,
    sent: Instant,
    /// Time at which kubewarm sent the first access check that contradicted this access review or
    /// rules review.
    overruled: Option<Instant>,
    /// Whether a second access check has contradicted this access review or rules review. kubewarm
    /// sent the second access check at least [`SETTLED`] after the first contradicting access
    /// check.
    is_settled: bool,
}

impl AccessState {
    pub(super) fn new(max_access_age: Duration, now: Instant) -> Self {
        Self {
            state: PermissionState::Verifying,
            verified: None,
            signs: None,
            refused: None,
            contradiction: None,
            failed: None,
            answered: now,
            allowed: None,
            max_access_age,
        }
    }

    /// Updates the permission state from the signal `input`. Returns a new time for the informer's
    /// next access check, or `None` if the planned time need not change.
    pub(super) fn apply(
        &mut self,
        input: AccessSignal,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Instant> {
        let ago = |sent| now.saturating_duration_since(sent);
        let time = |sent| wall.checked_sub(ago(sent)).unwrap_or(wall);
        let at_once = Some(self.refused.map_or(now, |first| now.max(first + CONFIRM)));
        match input {
            AccessSignal::Allowed { sent } => {
                self.note_answer(sent);
                self.note_verified(sent);
                self.refused = None;
                self.allowed = self.allowed.max(Some(sent));
                self.state = granted(time(sent));
                self.compare_with_review(sent)
            }
            AccessSignal::Verified { sent } => {
                let is_news = self.verified.is_none_or(|known| known < sent);
                if is_news && !matches!(self.state, PermissionState::Refused(_)) {
                    self.note_verified(sent);
                }
                match &mut self.state {
                    PermissionState::Granted { verified_at, .. } if is_news => {
                        *verified_at = time(sent);
                    }
                    PermissionState::Unverified { .. } if is_news => {
                        self.state = granted(time(sent));
                    }
                    PermissionState::Granted { .. }
                    | PermissionState::Unverified { .. }
                    | PermissionState::Verifying
                    | PermissionState::Refused(_) => {}
                }
                None
            }
            AccessSignal::Refused { sent, verbs, fault } => {
                self.note_answer(sent);
                if self.has_access() || matches!(self.state, PermissionState::Granted { .. }) {
                    let first = *self.refused.get_or_insert(now);
                    self.note_sign(sent);
                    if sent < first + CONFIRM {
                        return Some(first + CONFIRM);
                    }
                }
                self.refused = None;
                self.set_refused(verbs, &fault, wall);
                self.compare_with_review(sent)
            }
            AccessSignal::Reviewed { sent, refused } => {
                self.note_answer(sent);
                self.apply_review(sent, refused, wall).then_some(at_once)?
            }
            AccessSignal::Answered { sent } => {
                self.note_answer(sent);
                None
            }
            AccessSignal::Suspected { sent } => self.note_sign(sent).then_some(at_once)?,
            AccessSignal::Undecided { sent, fault } if fault.reason().is_access_denied() => {
                self.note_answer(sent);
                let reason = fault.reason();
                // The status shows why the API server rejected the last access check. If kubewarm
                // now gets no token, for a different reason, only a new access check updates the
                // reason in the status.
                let is_news =
                    matches!(&self.state, PermissionState::Refused(old) if old.reason != reason);
                (self.note_sign(sent) || is_news && is_token_missing(reason)).then_some(at_once)?
            }
            AccessSignal::Undecided { fault, .. } => {
                self.failed = Some(fault);
                None
            }
            AccessSignal::Tick => {
                let verified = self.verified?;
                self.expires_at().filter(|at| *at <= now)?;
                let failed = self.failed.as_ref().map(RequestFault::message);
                let message = failed.unwrap_or("no check was answered").into();
                self.state = PermissionState::Unverified { verified_at: time(verified), message };
                at_once
            }
        }
    }

    fn note_answer(&mut self, sent: Instant) {
        self.answered = self.answered.max(sent);
    }

    /// Whether a list or watch has confirmed access, and no access check has shown since then that
    /// access is lost.
    pub(super) fn has_access(&self) -> bool {
        self.verified.is_some() && !matches!(self.state, PermissionState::Refused(_))
    }

    /// Returns the decision that kubewarm publishes to the informer.
    pub(super) fn permission(&self) -> InformerPermission {
        InformerPermission { state: self.state.clone(), confirmed_at: self.allowed }
    }

    /// When the confirmed access becomes too old, so that [`AccessSignal::Tick`] blocks the
    /// informer. `None` if time cannot block the informer: no access was confirmed, access is lost
    /// already, or the API server does not serve the kind.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let is_unverified = matches!(self.state, PermissionState::Unverified { .. });
        // kubewarm does not block an informer if the API server does not serve its kind. No request
        // can confirm access to a missing kind, and the informer itself reports the missing kind.
        let is_missing =
            self.failed.as_ref().is_some_and(|fault| fault.reason() == FaultReason::NotServed);
        if !self.has_access() || is_unverified || is_missing {
            return None;
        }
        let old_at = self.verified? + self.max_access_age;
        let suspicious_at = self.signs.map(|signs| signs.first + SIGN_AGE.min(self.max_access_age));
        Some(suspicious_at.map_or(old_at, |at| at.min(old_at)))
    }

    /// Returns the permission state for the status, the metrics and `/readyz`. Access checks and
    /// reviews are overdue if the API server has answered none of them for `period`. The result
    /// then also contains the last error, or that limits delay the requests.
    pub(super) fn report(&self, period: Duration, now: Instant) -> InformerAccess {
        let is_overdue = now.saturating_duration_since(self.answered) > period;
        let failed = self.failed.clone().filter(|_| is_overdue);
        let is_refused = matches!(self.state, PermissionState::Refused(_));
        let settled = self.contradiction.as_ref().filter(|review| review.is_settled);
        let overruled =
            settled.map(|review| review.refused.is_empty()).filter(|allows| *allows == is_refused);
        let is_late = is_overdue && failed.is_none();
        InformerAccess { state: self.state.clone(), overruled, is_late, failed }
    }

    /// Returns the verbs that count as denied if the next access review is negative. The access
    /// review contains only the first verb. By default this verb is `watch`: the API server
    /// authorizes each list again, but an open watch continues after the permission is lost.
    pub(super) fn verbs_to_review(&self) -> Vec<Verb> {
        match &self.state {
            PermissionState::Refused(refused) => refused.verbs.clone(),
            PermissionState::Verifying
            | PermissionState::Granted { .. }
            | PermissionState::Unverified { .. } => {
                vec![Verb::Watch]
            }
        }
    }

    fn note_verified(&mut self, sent: Instant) {
        if self.verified.is_none_or(|known| known < sent) {
            self.verified = Some(sent);
            // Answers can arrive out of order. So a sign of lost access from after `sent` stays,
            // although an answer to an earlier request confirms access.
            let later = self.signs.filter(|signs| signs.last > sent);
            self.signs = later.map(|LossSigns { first, last }| {
                let first = if first > sent { first } else { last };
                LossSigns { first, last }
            });
            self.failed = None;
        }
    }

    /// Records a sign of lost access, such as a negative access review. Returns whether the sign
    /// requires an access check.
    fn note_sign(&mut self, sent: Instant) -> bool {
        if matches!(self.state, PermissionState::Refused(_)) {
            return false;
        }
        if self.verified.is_none_or(|known| known < sent) {
            let LossSigns { first, last } =
                self.signs.unwrap_or(LossSigns { first: sent, last: sent });
            self.signs = Some(LossSigns { first: first.min(sent), last: last.max(sent) });
        }
        true
    }

    fn set_refused(&mut self, verbs: Vec<Verb>, fault: &RequestFault, wall: Timestamp) {
        let reason = fault.reason();
        let revoked = match &self.state {
            PermissionState::Refused(old) => old.revoked,
            // If the Roles were deleted together with their namespace, nobody has revoked the
            // access itself, so the status does not report revoked access.
            _ if reason == FaultReason::NamespaceNotFound => None,
            PermissionState::Granted { verified_at, .. }
            | PermissionState::Unverified { verified_at, .. } => Some(*verified_at),
            PermissionState::Verifying => None,
        };
        let message = fault.message().into();
        self.state = PermissionState::Refused(PermissionDenial {
            verbs,
            reason,
            message,
            verified_at: wall,
            revoked,
        });
    }

    /// Processes the result of an access review or rules review. Returns whether the result
    /// requires an access check.
    fn apply_review(&mut self, sent: Instant, refused: Vec<Verb>, wall: Timestamp) -> bool {
        let (is_allowed, is_contrary) = (refused.is_empty(), self.contradicts(&refused));
        // If kubewarm had no token for the last access check, the answer to an access review or
        // rules review shows that kubewarm has a token again. The next access check can therefore
        // succeed.
        let has_token =
            matches!(&self.state, PermissionState::Refused(old) if is_token_missing(old.reason));
        let is_news =
            has_token || is_allowed && matches!(self.state, PermissionState::Unverified { .. });
        // Until the API server permits or rejects a list or watch, a positive access review or
        // rules review counts as permission.
        let can_stand_in = match self.state {
            PermissionState::Verifying => self.failed.is_some(),
            PermissionState::Granted { is_by_review, .. } => is_by_review,
            PermissionState::Unverified { .. } | PermissionState::Refused(_) => false,
        };
        if can_stand_in && self.refused.is_none() {
            let granted = PermissionState::Granted { verified_at: wall, is_by_review: true };
            self.state = if is_allowed { granted } else { PermissionState::Verifying };
        }
        self.contradiction.take_if(|review| review.refused != refused);
        if !is_allowed && !self.contradiction.as_ref().is_some_and(|review| review.is_settled) {
            self.note_sign(sent);
        }
        if !is_contrary {
            return is_news;
        }
        let new = ContradictingReview { refused, sent, overruled: None, is_settled: false };
        is_news || self.contradiction.get_or_insert(new).overruled.is_none()
    }

    /// Whether real lists and watches contradict an access review or rules review, according to
    /// which the identity may not use the verbs `refused`.
    fn contradicts(&self, refused: &[Verb]) -> bool {
        match &self.state {
            PermissionState::Granted { is_by_review: false, .. }
            | PermissionState::Unverified { .. } => !refused.is_empty(),
            PermissionState::Refused(PermissionDenial { verbs, .. }) => verbs != refused,
            PermissionState::Verifying | PermissionState::Granted { .. } => false,
        }
    }

    /// Compares an access check with the last access review or rules review. A first contradiction
    /// needs a second access check for confirmation, and the function returns the time of this
    /// check. Otherwise returns `None`.
    fn compare_with_review(&mut self, sent: Instant) -> Option<Instant> {
        let contradiction =
            self.contradiction.take().filter(|review| self.contradicts(&review.refused));
        self.contradiction = contradiction;
        let contradiction = self.contradiction.as_mut().filter(|review| review.sent < sent)?;
        let first = *contradiction.overruled.get_or_insert(sent);
        contradiction.is_settled |= sent >= first + SETTLED;
        (!contradiction.is_settled).then_some(first + SETTLED)
    }
}

impl From<AccessCheckResult> for AccessSignal {
    fn from(access_check: AccessCheckResult) -> Self {
        let sent = access_check.sent;
        let refused = |answer: &AccessDecision| matches!(answer, AccessDecision::Refused(_));
        if let Some((_, fault)) = access_check.refusal() {
            let both = [(Verb::List, &access_check.list), (Verb::Watch, &access_check.watch)];
            let verbs =
                both.into_iter().filter(|(_, answer)| refused(answer)).map(|(verb, _)| verb);
            return Self::Refused { sent, verbs: verbs.collect(), fault: fault.clone() };
        }
        match access_check.list.undecided_fault().or_else(|| access_check.watch.undecided_fault()) {
            Some(fault) => Self::Undecided { sent, fault: fault.clone() },
            None => Self::Allowed { sent },
        }
    }
}

const fn granted(verified_at: Timestamp) -> PermissionState {
    PermissionState::Granted { verified_at, is_by_review: false }
}

/// Whether a fault with this reason means that kubewarm got no token. kubewarm then sent no request
/// as the identity, so the fault shows nothing about the identity's permissions.
pub(super) const fn is_token_missing(reason: FaultReason) -> bool {
    matches!(reason, FaultReason::TokenRequestDenied | FaultReason::ServiceAccountNotFound)
}
