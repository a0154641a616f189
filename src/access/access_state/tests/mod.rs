mod age;

use super::*;
use crate::access::rules::VERBS;

struct AccessStateFixture {
    access: AccessState,
    now: Instant,
    wall: Timestamp,
}

const ALLOWED: Option<FaultReason> = None;
const FORBIDDEN: Option<FaultReason> = Some(FaultReason::Forbidden);
const THROTTLED: Option<FaultReason> = Some(FaultReason::Throttled);

impl AccessStateFixture {
    fn new() -> Self {
        let now = Instant::now();
        Self { access: AccessState::new(MAX_ACCESS_AGE, now), now, wall: Timestamp::UNIX_EPOCH }
    }

    fn verified() -> Self {
        let mut scene = Self::new();
        assert_eq!(scene.check(ALLOWED, ALLOWED), None);
        scene
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.wall += Duration::from_secs(seconds);
    }

    /// Passes `input` to the access state. Returns the number of seconds until the access check
    /// that `input` requires, if it requires one.
    fn apply(&mut self, input: AccessSignal) -> Option<u64> {
        let at = self.access.apply(input, self.now, self.wall)?;
        Some(at.saturating_duration_since(self.now).as_secs())
    }

    /// Passes the result of an access check, sent and answered now, to the access state. `None`
    /// means that the API server permits the request.
    fn check(&mut self, list: Option<FaultReason>, watch: Option<FaultReason>) -> Option<u64> {
        let answer = |reason: Option<FaultReason>| match reason {
            None => AccessDecision::Allowed,
            Some(reason)
                if reason.is_access_denied() || reason == FaultReason::NamespaceNotFound =>
            {
                AccessDecision::Refused(RequestFault::new(reason, "no"))
            }
            Some(reason) => AccessDecision::Undecided(RequestFault::new(reason, "?")),
        };
        let (list, watch) = (answer(list), answer(watch));
        self.apply(AccessCheckResult { sent: self.now, requests: 2, list, watch }.into())
    }

    /// Passes the two rejected access checks that together mean lost access to the access state.
    /// The first rejection alone does not change the permission state.
    fn lose(&mut self, reason: FaultReason) -> Option<u64> {
        let before = self.state();
        assert_eq!(self.check(Some(reason), Some(reason)), Some(3), "{reason}");
        assert_eq!(self.state(), before);
        self.pass(3);
        self.check(Some(reason), Some(reason))
    }

    fn review(&mut self, is_allowed: bool) -> Option<u64> {
        self.review_of(if is_allowed { &[] } else { &VERBS })
    }

    fn review_of(&mut self, refused: &[Verb]) -> Option<u64> {
        self.apply(AccessSignal::Reviewed { sent: self.now, refused: refused.to_vec() })
    }

    /// Passes an access check or access review that fails now, without a result, to the access
    /// state.
    fn fail(&mut self, reason: FaultReason) -> Option<u64> {
        let fault = RequestFault::new(reason, "too many requests");
        self.apply(AccessSignal::Undecided { sent: self.now, fault })
    }

    fn informer(&mut self, is_allowed: bool) -> Option<u64> {
        let sent = self.now;
        self.apply(if is_allowed {
            AccessSignal::Verified { sent }
        } else {
            AccessSignal::Suspected { sent }
        })
    }

    /// Updates the access state to the current time. Returns whether the informer becomes
    /// `Unverified`.
    fn lapses(&mut self) -> bool {
        let was_closed = self.is_unverified();
        let _at_once = self.apply(AccessSignal::Tick);
        !was_closed && self.is_unverified()
    }

    fn state(&self) -> PermissionState {
        self.access.state.clone()
    }

    fn is_unverified(&self) -> bool {
        matches!(self.access.state, PermissionState::Unverified { .. })
    }

    fn refused(&self) -> PermissionDenial {
        let PermissionState::Refused(refused) = self.state() else { panic!("{:?}", self.access) };
        refused
    }

    /// Returns whether the permission state blocks the informer. `None` means that no list or watch
    /// has shown access or lost access, so the state changes nothing.
    fn is_blocked(&self) -> Option<bool> {
        let state = self.state();
        let has_evidence = !matches!(
            state,
            PermissionState::Verifying | PermissionState::Granted { is_by_review: true, .. }
        );
        has_evidence.then(|| state.is_blocking())
    }

    fn overruled(&self) -> Option<bool> {
        self.access.report(Duration::MAX, self.now).overruled
    }
}

#[test]
fn only_real_requests_unblock_an_informer_and_reviews_decide_without_them() {
    let mut scene = AccessStateFixture::new();
    assert_eq!(
        (scene.check(Some(FaultReason::NotServed), ALLOWED), scene.review(true)),
        (None, None)
    );
    let verified_at = scene.wall;
    let granted = PermissionState::Granted { verified_at, is_by_review: true };
    assert_eq!((scene.state(), scene.is_blocked()), (granted, None));
    scene.review(false);
    assert_eq!(scene.state(), PermissionState::Verifying);

    scene.pass(20);
    scene.check(ALLOWED, ALLOWED);
    let granted = PermissionState::Granted { verified_at: scene.wall, is_by_review: false };
    assert_eq!((scene.state(), scene.is_blocked()), (granted.clone(), Some(false)));
    scene.pass(20);
    assert_eq!(scene.review(true), None);
    assert_eq!(scene.state(), granted, "a review does not confirm access");
}

#[test]
fn a_check_without_a_result_changes_nothing() {
    let mut scene = AccessStateFixture::new();
    assert_eq!(scene.check(THROTTLED, THROTTLED), None);
    assert_eq!(scene.state(), PermissionState::Verifying);
    let mut scene = AccessStateFixture::verified();
    scene.check(ALLOWED, Some(FaultReason::TimedOut));
    assert!(matches!(scene.state(), PermissionState::Granted { is_by_review: false, .. }));
    scene.lose(FaultReason::Forbidden);
    scene.check(THROTTLED, THROTTLED);
    assert_eq!(scene.refused().reason, FaultReason::Forbidden);
}

#[test]
fn a_review_that_permits_one_of_two_refused_verbs_triggers_a_check_of_both() {
    let mut scene = AccessStateFixture::new();
    scene.check(FORBIDDEN, FORBIDDEN);
    scene.pass(20);
    assert_eq!(scene.review_of(&VERBS), None);
    assert_eq!(scene.review_of(&[Verb::Watch]), Some(0));
    scene.check(ALLOWED, FORBIDDEN);
    assert_eq!((scene.refused().verbs, scene.overruled()), (vec![Verb::Watch], None));
    scene.pass(20);
    assert_eq!(scene.review_of(&[Verb::Watch]), None);
    // An access review that access checks have contradicted twice triggers no further access
    // checks.
    for due in [Some(0), None] {
        scene.pass(20);
        assert_eq!(scene.review_of(&[Verb::List]), due);
        scene.pass(1);
        scene.check(ALLOWED, FORBIDDEN);
        scene.pass(10);
        scene.check(ALLOWED, FORBIDDEN);
    }
    assert_eq!(scene.overruled(), None, "both the review and the access checks refuse access");
}

#[test]
fn each_refused_verb_is_named() {
    let mut scene = AccessStateFixture::new();
    scene.check(FORBIDDEN, FORBIDDEN);
    assert_eq!(scene.refused().verbs, [Verb::List, Verb::Watch]);
    assert_eq!(scene.refused().revoked, None, "access was never permitted");
    scene.check(ALLOWED, FORBIDDEN);
    assert_eq!(scene.refused().verbs, [Verb::Watch]);
    assert_eq!(scene.refused().reason, FaultReason::Forbidden);
    assert_eq!(scene.is_blocked(), Some(true));
}

#[test]
fn access_is_lost_after_two_refusals_three_seconds_apart() {
    let mut scene = AccessStateFixture::verified();
    let verified_at = scene.wall;
    scene.pass(300);
    scene.lose(FaultReason::Forbidden);
    assert_eq!(scene.refused().revoked, Some(verified_at));
    // Access does not count as revoked if the Roles were deleted together with their namespace.
    let mut scene = AccessStateFixture::verified();
    scene.lose(FaultReason::NamespaceNotFound);
    assert_eq!(scene.refused().revoked, None);
    // Before its first access check, an informer has access if the API server permitted its list.
    // The informer then loses access only after two rejected access checks.
    let mut scene = AccessStateFixture::new();
    scene.informer(true);
    scene.pass(1);
    scene.lose(FaultReason::Forbidden);
    // After a rejected access check, a second access check is due 3 seconds later. No signal makes
    // the second access check due earlier. An access check without a result does not cancel the
    // second access check.
    let mut scene = AccessStateFixture::verified();
    scene.pass(1);
    assert_eq!(scene.check(FORBIDDEN, FORBIDDEN), Some(3));
    scene.pass(1);
    assert_eq!((scene.review(true), scene.informer(false)), (None, Some(2)));
    assert_eq!(
        scene.check(FORBIDDEN, FORBIDDEN),
        Some(2),
        "the second rejection came too early to count"
    );
    scene.pass(2);
    scene.check(THROTTLED, THROTTLED);
    assert!(matches!(scene.state(), PermissionState::Granted { .. }));
    scene.check(FORBIDDEN, FORBIDDEN);
    scene.refused();
    // Only two rejected access checks in a row mean lost access. A permitted list or watch between
    // two rejections restarts the count.
    let mut scene = AccessStateFixture::verified();
    scene.check(FORBIDDEN, FORBIDDEN);
    scene.pass(3);
    scene.check(ALLOWED, ALLOWED);
    scene.pass(300);
    scene.lose(FaultReason::Forbidden);
}

#[test]
fn a_contradicting_review_triggers_an_access_check_at_once() {
    let mut scene = AccessStateFixture::verified();
    scene.pass(20);
    assert_eq!(scene.review(false), Some(0));
    scene.lose(FaultReason::Forbidden);
    assert_eq!((scene.review(false), scene.review(true)), (None, Some(0)));
}

#[test]
fn an_answered_review_shows_that_a_token_exists_again() {
    for lack in [FaultReason::TokenRequestDenied, FaultReason::ServiceAccountNotFound] {
        let mut scene = AccessStateFixture::new();
        assert_eq!(scene.check(Some(lack), Some(lack)), None);
        scene.pass(20);
        assert_eq!(scene.review(false), Some(0), "{lack}");
        scene.check(FORBIDDEN, FORBIDDEN);
        scene.pass(20);
        assert_eq!(scene.review(false), None, "{lack}");
    }
}

#[test]
fn a_token_that_is_missing_for_another_reason_is_requested_again() {
    let mut scene = AccessStateFixture::new();
    let denied = Some(FaultReason::TokenRequestDenied);
    scene.check(denied, denied);
    for reason in
        [FaultReason::TokenRequestDenied, FaultReason::Unauthorized, FaultReason::Unreachable]
    {
        assert_eq!(scene.fail(reason), None, "{reason}");
    }
    assert_eq!(scene.fail(FaultReason::ServiceAccountNotFound), Some(0));
    let mut scene = AccessStateFixture::verified();
    assert_eq!(scene.fail(FaultReason::Unreachable), None);
    assert_eq!(scene.fail(FaultReason::Unauthorized), Some(0));
}

#[test]
fn a_wrong_review_is_reported_and_triggers_no_more_checks() {
    for wrong in [true, false] {
        let truth = if wrong { FORBIDDEN } else { ALLOWED };
        let mut scene = AccessStateFixture::new();
        // kubewarm sent the access review before the first access check. The access review's result
        // can have been correct at that time, so the results do not contradict each other.
        scene.review(wrong);
        scene.pass(1);
        assert_eq!((scene.check(truth, truth), scene.overruled()), (None, None));
        scene.pass(20);
        assert_eq!(scene.review(wrong), Some(0));
        scene.pass(1);
        // The API server that answered the access check can lag behind other API servers. One
        // contradicting access check is therefore not enough.
        assert_eq!((scene.check(truth, truth), scene.overruled()), (Some(10), None));
        scene.pass(9);
        assert_eq!(scene.review(wrong), None, "a check for this review is already scheduled");
        assert_eq!((scene.check(truth, truth), scene.overruled()), (Some(1), None));
        scene.pass(1);
        assert_eq!((scene.check(truth, truth), scene.overruled()), (None, Some(wrong)));
        // A review that two access checks have contradicted triggers no further access checks.
        for _ in 0..3 {
            scene.pass(20);
            assert_eq!(scene.review(wrong), None);
        }
        scene.pass(20);
        assert_eq!((scene.review(!wrong), scene.overruled()), (None, None));
        scene.pass(20);
        assert_eq!(
            scene.review(wrong),
            Some(0),
            "the contradiction ended when the review was right"
        );
    }
}

#[test]
fn one_lagging_server_does_not_discredit_a_review() {
    let mut scene = AccessStateFixture::verified();
    scene.pass(20);
    assert_eq!(scene.review(false), Some(0));
    scene.pass(1);
    // The access check reached an API server that lags behind other API servers.
    assert_eq!(scene.check(ALLOWED, ALLOWED), Some(10));
    scene.pass(10);
    scene.lose(FaultReason::Forbidden);
    assert_eq!((scene.refused().reason, scene.overruled()), (FaultReason::Forbidden, None));
}
