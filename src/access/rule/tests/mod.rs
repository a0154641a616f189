mod age;

use super::*;
use crate::access::rules::VERBS;

/// What is known of a cell, and a clock that both sides read.
struct Scene {
    access: Access,
    now: Instant,
    wall: Timestamp,
}

const ALLOWED: Option<Reason> = None;
const FORBIDDEN: Option<Reason> = Some(Reason::Forbidden);
const THROTTLED: Option<Reason> = Some(Reason::Throttled);

impl Scene {
    fn new() -> Self {
        let now = Instant::now();
        Self { access: Access::new(now), now, wall: Timestamp::UNIX_EPOCH }
    }

    /// One whose list and watch were allowed just now.
    fn verified() -> Self {
        let mut scene = Self::new();
        assert_eq!(scene.trial(ALLOWED, ALLOWED), None);
        scene
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.wall += Duration::from_secs(seconds);
    }

    /// Takes it in. In how many seconds the cell is to be tried, if that is sooner than planned.
    fn on(&mut self, input: Input) -> Option<u64> {
        let at = self.access.on(input, self.now, self.wall)?;
        Some(at.saturating_duration_since(self.now).as_secs())
    }

    /// A trial that is sent and answered now; `None`: allowed.
    fn trial(&mut self, list: Option<Reason>, watch: Option<Reason>) -> Option<u64> {
        let answer = |reason: Option<Reason>| match reason {
            None => Answer::Allowed,
            Some(reason) if reason.refuses_identity() || reason == Reason::NamespaceNotFound => {
                Answer::Refused(Fault::new(reason, "no"))
            }
            Some(reason) => Answer::Undecided(Fault::new(reason, "?")),
        };
        let (list, watch) = (answer(list), answer(watch));
        self.on(Trial { sent: self.now, requests: 2, list, watch }.into())
    }

    /// The trials that take a grant away: the first refusal decides nothing.
    fn lose(&mut self, reason: Reason) -> Option<u64> {
        let before = self.standing();
        assert_eq!(self.trial(Some(reason), Some(reason)), Some(3), "{reason}");
        assert_eq!(self.standing(), before);
        self.pass(3);
        self.trial(Some(reason), Some(reason))
    }

    fn review(&mut self, allowed: bool) -> Option<u64> {
        self.review_of(if allowed { &[] } else { &VERBS })
    }

    /// A review of both verbs, of which these would be refused.
    fn review_of(&mut self, refused: &[Verb]) -> Option<u64> {
        self.on(Input::Reviewed { sent: self.now, refused: refused.to_vec() })
    }

    /// A review that is sent and fails now.
    fn fail(&mut self, reason: Reason) -> Option<u64> {
        let fault = Fault::new(reason, "too many requests");
        self.on(Input::Undecided { sent: self.now, fault })
    }

    /// The informer's own request is answered, or refused.
    fn informer(&mut self, is_allowed: bool) -> Option<u64> {
        let sent = self.now;
        self.on(if is_allowed { Input::Verified { sent } } else { Input::Suspected { sent } })
    }

    /// Looks at the clock. Whether the gate closes.
    fn lapses(&mut self) -> bool {
        let was_closed = self.is_unverified();
        let _at_once = self.on(Input::Tick { patience: PATIENCE });
        !was_closed && self.is_unverified()
    }

    fn standing(&self) -> Standing {
        self.access.standing.clone()
    }

    fn is_unverified(&self) -> bool {
        matches!(self.access.standing, Standing::Unverified { .. })
    }

    /// What is refused.
    fn refused(&self) -> Refused {
        let Standing::Refused(refused) = self.standing() else { panic!("{:?}", self.access) };
        refused
    }

    /// Whether the gate is to be open.
    fn gate(&self) -> Option<bool> {
        self.access.order().map(|order| order.is_ok())
    }

    fn overruled(&self) -> Option<bool> {
        self.access.report(Duration::MAX, self.now).overruled
    }
}

#[test]
fn only_real_requests_open_a_gate_and_reviews_stand_in_where_they_come_to_nothing() {
    let mut scene = Scene::new();
    assert_eq!((scene.trial(Some(Reason::NotServed), ALLOWED), scene.review(true)), (None, None));
    let verified_at = scene.wall;
    let granted = Standing::Granted { verified_at, is_by_review: true };
    assert_eq!((scene.standing(), scene.gate()), (granted, None));
    scene.review(false);
    assert_eq!(scene.standing(), Standing::Verifying);

    scene.pass(20);
    scene.trial(ALLOWED, ALLOWED);
    let granted = Standing::Granted { verified_at: scene.wall, is_by_review: false };
    assert_eq!((scene.standing(), scene.gate()), (granted.clone(), Some(true)));
    scene.pass(20);
    assert_eq!(scene.review(true), None);
    assert_eq!(scene.standing(), granted, "a review verifies nothing");
}

#[test]
fn what_decides_nothing_changes_nothing() {
    let mut scene = Scene::new();
    assert_eq!(scene.trial(THROTTLED, THROTTLED), None);
    assert_eq!(scene.standing(), Standing::Verifying);
    let mut scene = Scene::verified();
    scene.trial(ALLOWED, Some(Reason::TimedOut));
    assert!(matches!(scene.standing(), Standing::Granted { is_by_review: false, .. }));
    scene.lose(Reason::Forbidden);
    scene.trial(THROTTLED, THROTTLED);
    assert_eq!(scene.refused().reason, Reason::Forbidden);
}

#[test]
fn a_review_that_allows_one_of_two_refused_verbs_has_both_tried() {
    let mut scene = Scene::new();
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(20);
    assert_eq!(scene.review_of(&VERBS), None);
    assert_eq!(scene.review_of(&[Verb::Watch]), Some(0));
    scene.trial(ALLOWED, FORBIDDEN);
    assert_eq!((scene.refused().verbs, scene.overruled()), (vec![Verb::Watch], None));
    scene.pass(20);
    assert_eq!(scene.review_of(&[Verb::Watch]), None);
    // One that errs is not listened to for ever.
    for tried in [Some(0), None] {
        scene.pass(20);
        assert_eq!(scene.review_of(&[Verb::List]), tried);
        scene.pass(1);
        scene.trial(ALLOWED, FORBIDDEN);
        scene.pass(10);
        scene.trial(ALLOWED, FORBIDDEN);
    }
    assert_eq!(scene.overruled(), None, "both say that it is refused");
}

#[test]
fn each_refused_verb_is_named() {
    let mut scene = Scene::new();
    scene.trial(FORBIDDEN, FORBIDDEN);
    assert_eq!(scene.refused().verbs, [Verb::List, Verb::Watch]);
    assert_eq!(scene.refused().revoked, None, "it was never granted");
    scene.trial(ALLOWED, FORBIDDEN);
    assert_eq!(scene.refused().verbs, [Verb::Watch]);
    let Some(Err((verb, fault))) = scene.access.order() else { panic!("closed") };
    assert_eq!((verb, fault.reason(), scene.gate()), (Verb::Watch, Reason::Forbidden, Some(false)));
}

#[test]
fn two_refusals_three_seconds_apart_are_a_loss() {
    let mut scene = Scene::verified();
    let verified_at = scene.wall;
    scene.pass(300);
    scene.lose(Reason::Forbidden);
    assert_eq!(scene.refused().revoked, Some(verified_at));
    // Roles go with their namespace: nobody took them away.
    let mut scene = Scene::verified();
    scene.lose(Reason::NamespaceNotFound);
    assert_eq!(scene.refused().revoked, None);
    // An informer that was answered has something to lose, too.
    let mut scene = Scene::new();
    scene.informer(true);
    scene.pass(1);
    scene.lose(Reason::Forbidden);
    // Neither does anything bring the decision forward, nor is anything that comes to nothing an acquittal.
    let mut scene = Scene::verified();
    scene.pass(1);
    assert_eq!(scene.trial(FORBIDDEN, FORBIDDEN), Some(3));
    scene.pass(1);
    assert_eq!((scene.review(true), scene.informer(false)), (None, Some(2)));
    assert_eq!(scene.trial(FORBIDDEN, FORBIDDEN), Some(2), "too early");
    scene.pass(2);
    scene.trial(THROTTLED, THROTTLED);
    assert!(matches!(scene.standing(), Standing::Granted { .. }));
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.refused();
    // A grant is.
    let mut scene = Scene::verified();
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(3);
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(300);
    scene.lose(Reason::Forbidden);
}

#[test]
fn a_review_that_says_otherwise_has_the_request_made_at_once() {
    let mut scene = Scene::verified();
    scene.pass(20);
    assert_eq!(scene.review(false), Some(0));
    scene.lose(Reason::Forbidden);
    assert_eq!((scene.review(false), scene.review(true)), (None, Some(0)));
}

#[test]
fn a_review_that_is_answered_outdates_the_lack_of_a_token() {
    for lack in [Reason::TokenRequestDenied, Reason::ServiceAccountNotFound] {
        let mut scene = Scene::new();
        assert_eq!(scene.trial(Some(lack), Some(lack)), None);
        scene.pass(20);
        assert_eq!(scene.review(false), Some(0), "{lack}");
        scene.trial(FORBIDDEN, FORBIDDEN);
        scene.pass(20);
        assert_eq!(scene.review(false), None, "{lack}");
    }
}

#[test]
fn a_token_that_is_missing_for_another_reason_is_asked_for_anew() {
    let mut scene = Scene::new();
    let denied = Some(Reason::TokenRequestDenied);
    scene.trial(denied, denied);
    for reason in [Reason::TokenRequestDenied, Reason::Unauthorized, Reason::Unreachable] {
        assert_eq!(scene.fail(reason), None, "{reason}");
    }
    assert_eq!(scene.fail(Reason::ServiceAccountNotFound), Some(0));
    let mut scene = Scene::verified();
    assert_eq!(scene.fail(Reason::Unreachable), None);
    assert_eq!(scene.fail(Reason::Unauthorized), Some(0));
}

#[test]
fn a_review_that_lies_is_shown_and_not_listened_to() {
    for lie in [true, false] {
        let truth = if lie { FORBIDDEN } else { ALLOWED };
        let mut scene = Scene::new();
        // Whatever was said before the first trial may have been true then.
        scene.review(lie);
        scene.pass(1);
        assert_eq!((scene.trial(truth, truth), scene.overruled()), (None, None));
        scene.pass(20);
        assert_eq!(scene.review(lie), Some(0));
        scene.pass(1);
        // The one that answered may only lag behind: its word is not final.
        assert_eq!((scene.trial(truth, truth), scene.overruled()), (Some(10), None));
        scene.pass(9);
        assert_eq!(scene.review(lie), None, "it is as good as tried");
        assert_eq!((scene.trial(truth, truth), scene.overruled()), (Some(1), None));
        scene.pass(1);
        assert_eq!((scene.trial(truth, truth), scene.overruled()), (None, Some(lie)));
        // From now on as rarely as without it.
        for _ in 0..3 {
            scene.pass(20);
            assert_eq!(scene.review(lie), None);
        }
        scene.pass(20);
        assert_eq!((scene.review(!lie), scene.overruled()), (None, None));
        scene.pass(20);
        assert_eq!(scene.review(lie), Some(0), "it had come to its senses");
    }
}

#[test]
fn a_server_that_lags_behind_silences_no_review() {
    let mut scene = Scene::verified();
    scene.pass(20);
    assert_eq!(scene.review(false), Some(0));
    scene.pass(1);
    // Answered by a server that has not heard of it.
    assert_eq!(scene.trial(ALLOWED, ALLOWED), Some(10));
    scene.pass(10);
    scene.lose(Reason::Forbidden);
    assert_eq!((scene.refused().reason, scene.overruled()), (Reason::Forbidden, None));
}
