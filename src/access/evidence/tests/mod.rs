mod age;

use super::*;

/// A cell's evidence, and a clock that both sides read.
struct Scene {
    evidence: Evidence,
    now: Instant,
    wall: Timestamp,
}

const ALLOWED: Option<Reason> = None;
const FORBIDDEN: Option<Reason> = Some(Reason::Forbidden);

impl Scene {
    fn new() -> Self {
        let now = Instant::now();
        Self { evidence: Evidence::new(now), now, wall: Timestamp::UNIX_EPOCH }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.wall += Duration::from_secs(seconds);
    }

    /// A trial that is sent and answered now; `None`: allowed.
    fn trial(&mut self, list: Option<Reason>, watch: Option<Reason>) -> Vec<Word> {
        let answer = |reason: Option<Reason>| match reason {
            None => Answer::Allowed,
            Some(reason) if reason.refuses_identity() || reason == Reason::NamespaceNotFound => {
                Answer::Refused(Fault::new(reason, "no"))
            }
            Some(reason) => Answer::Undecided(Fault::new(reason, "?")),
        };
        let (list, watch) = (answer(list), answer(watch));
        let trial = Trial { sent: self.now, requests: 2, list, watch };
        self.evidence.due = None;
        self.evidence.tried(&trial, self.now, self.wall, 0.0)
    }

    /// The trials that take a grant away: the first refusal decides nothing.
    fn lose(&mut self, reason: Reason) -> Vec<Word> {
        let before = self.access();
        assert!(self.trial(Some(reason), Some(reason)).is_empty(), "{reason}");
        assert_eq!((self.access(), self.due()), (before, (3, true)));
        self.pass(3);
        self.trial(Some(reason), Some(reason))
    }

    fn review(&mut self, allowed: bool) -> Vec<Word> {
        let verbs = VERBS
            .into_iter()
            .map(|verb| self.evidence.reviewed(verb, allowed, self.now, self.now, self.wall));
        verbs.last().unwrap()
    }

    /// A review that is sent and fails now.
    fn doubt(&mut self, reason: Reason) {
        self.evidence.doubt(&Fault::new(reason, "too many requests"), self.now, self.now);
    }

    /// Looks at the clock.
    fn lapse(&mut self) -> Option<Word> {
        self.evidence.lapse(PATIENCE, self.now)
    }

    /// Seconds until the next trial, and whether it is urgent.
    fn due(&self) -> (u64, bool) {
        let due = self.evidence.due.unwrap();
        (due.at.saturating_duration_since(self.now).as_secs(), due.urgent)
    }

    fn access(&self) -> CellAccess {
        self.evidence.access(Punctuality::OnTime)
    }
}

/// An informer that has asked nothing yet.
const STARTING: OwnAccess =
    OwnAccess { refused_since: None, verified_at: None, allowed_at: None, is_starting: true };

#[test]
fn the_first_list_and_watch_of_the_informer_are_the_first_trial() {
    let mut scene = Scene::new();
    let informed = |scene: &mut Scene, own: OwnAccess, spread| {
        scene.evidence.informed(&own, scene.now, scene.wall, spread)
    };
    assert_eq!((informed(&mut scene, STARTING, 0.0), scene.due()), (Vec::new(), (10, false)));
    let sent = scene.now;
    scene.pass(4);
    let allowed = OwnAccess {
        verified_at: Some(sent),
        allowed_at: Some(sent),
        is_starting: false,
        ..STARTING
    };
    assert_eq!(informed(&mut scene, allowed, 0.0), []);
    let verified_at = scene.wall - Duration::from_secs(4);
    let granted = Standing::Granted { verified_at, method: Method::Probe };
    assert_eq!((scene.access().standing, scene.due()), (granted, (150, false)));
    // Later ones decide nothing, and put nothing off.
    scene.pass(100);
    assert_eq!((informed(&mut scene, allowed, 1.0), scene.due()), (Vec::new(), (50, false)));

    let mut scene = Scene::new();
    informed(&mut scene, allowed, 1.0);
    assert_eq!(scene.due(), (300, false), "what began together is spread");
}

#[test]
fn a_trial_is_made_where_the_informer_cannot_stand_in_for_it() {
    // A cell without one: planned, or paused.
    assert_eq!(Scene::new().due(), (1, false));
    // A streaming list says nothing of the verb `list`.
    let (mut scene, streamed) = (Scene::new(), OwnAccess { is_starting: false, ..STARTING });
    scene.evidence.informed(&streamed, scene.now, scene.wall, 0.0);
    assert_eq!(scene.due(), (0, false));
    // A list that goes on for long.
    let mut scene = Scene::new();
    for _ in 0..20 {
        scene.evidence.informed(&STARTING, scene.now, scene.wall, 0.0);
        scene.pass(1);
    }
    assert_eq!(scene.due(), (0, false));
    // What was answered long ago.
    let mut scene = Scene::new();
    let old = OwnAccess { allowed_at: Some(scene.now), is_starting: false, ..STARTING };
    scene.pass(300);
    assert!(scene.evidence.informed(&old, scene.now, scene.wall, 0.0).is_empty());
    assert_eq!(scene.due(), (0, false));
    // A refusal.
    let mut scene = Scene::new();
    let refused = OwnAccess { refused_since: Some(scene.wall), ..STARTING };
    scene.evidence.informed(&refused, scene.now, scene.wall, 0.0);
    assert_eq!(scene.due(), (0, true));
}

#[test]
fn a_trial_grants_and_reviews_confirm_it() {
    let mut scene = Scene::new();
    assert_eq!(scene.trial(ALLOWED, ALLOWED), []);
    assert_eq!(scene.due(), (300, false));
    scene.pass(20);
    assert_eq!(scene.review(true), []);
    let granted = Standing::Granted { verified_at: scene.wall, method: Method::Probe };
    assert_eq!(scene.access().standing, granted);
}

#[test]
fn both_verbs_are_named_when_both_are_refused() {
    let mut scene = Scene::new();
    let words = scene.trial(FORBIDDEN, FORBIDDEN);
    assert!(matches!(words.as_slice(), [Word::Lost(Verb::List, _)]), "{words:?}");
    let Standing::Refused(refused) = scene.access().standing else { panic!("refused") };
    assert_eq!(refused.verbs, [Verb::List, Verb::Watch]);
    // The same again tells nobody.
    assert!(scene.trial(FORBIDDEN, FORBIDDEN).is_empty());
    // One verb less is news.
    let words = scene.trial(ALLOWED, FORBIDDEN);
    assert!(matches!(words.as_slice(), [Word::Lost(Verb::Watch, _)]), "{words:?}");
}

#[test]
fn a_review_that_denies_only_has_the_real_request_made() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    let verified_at = scene.wall;
    scene.pass(20);
    assert!(scene.review(false).is_empty());
    assert_eq!(scene.due(), (0, true));
    let granted = Standing::Granted { verified_at, method: Method::Probe };
    assert_eq!(scene.access().standing, granted);
    let words = scene.lose(Reason::Forbidden);
    assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");
    assert_eq!(scene.access().revoked, Some(verified_at));
    assert_eq!(scene.access().disagreement, None);
}

#[test]
fn access_that_returns_is_noticed_by_a_review_and_proven_by_the_real_request() {
    let mut scene = Scene::new();
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(20);
    assert!(scene.review(true).is_empty(), "a review grants nothing");
    assert_eq!(scene.due(), (0, true));
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned]);
}

#[test]
fn a_review_that_is_answered_outdates_the_lack_of_a_token() {
    for lack in [Reason::TokenRequestDenied, Reason::ServiceAccountNotFound] {
        let mut scene = Scene::new();
        scene.trial(Some(lack), Some(lack));
        assert_eq!(scene.due(), (300, false), "{lack}");
        scene.pass(20);
        assert!(scene.review(false).is_empty());
        assert_eq!(scene.due(), (0, true), "{lack}");
        let words = scene.trial(FORBIDDEN, FORBIDDEN);
        assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");
        scene.pass(20);
        assert!(scene.review(false).is_empty());
        assert_eq!(scene.due(), (280, false), "{lack}");
    }
}

#[test]
fn a_token_that_is_missing_for_another_reason_is_asked_for_anew() {
    let mut scene = Scene::new();
    let denied = Some(Reason::TokenRequestDenied);
    scene.trial(denied, denied);
    for reason in [Reason::TokenRequestDenied, Reason::Unauthorized, Reason::Unreachable] {
        scene.doubt(reason);
        assert_eq!(scene.due(), (300, false), "{reason}");
    }
    scene.doubt(Reason::ServiceAccountNotFound);
    assert_eq!(scene.due(), (0, true));
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.doubt(Reason::Unreachable);
    assert_eq!(scene.due(), (300, false));
    scene.doubt(Reason::Unauthorized);
    assert_eq!(scene.due(), (0, true));
}

#[test]
fn a_namespace_that_is_missing_is_looked_for_every_minute() {
    let mut scene = Scene::new();
    let absent = Some(Reason::NamespaceNotFound);
    scene.trial(absent, absent);
    assert_eq!(scene.due(), (60, false));
}

#[test]
fn a_review_that_lies_is_shown_and_not_listened_to() {
    for lie in [true, false] {
        let truth = if lie { FORBIDDEN } else { ALLOWED };
        let mut scene = Scene::new();
        // Whatever was said before the first trial may have been true then.
        scene.review(lie);
        scene.pass(1);
        scene.trial(truth, truth);
        assert_eq!(scene.access().disagreement, None);
        scene.pass(20);
        scene.review(lie);
        assert_eq!(scene.due(), (0, true));
        scene.trial(truth, truth);
        // The one that answered may only lag behind: its word is not final.
        assert_eq!((scene.access().disagreement, scene.due()), (None, (10, false)));
        scene.pass(9);
        scene.review(lie);
        assert_eq!(scene.due(), (1, false), "it is as good as tried");
        scene.trial(truth, truth);
        assert_eq!((scene.access().disagreement, scene.due()), (None, (1, false)));
        scene.pass(1);
        scene.trial(truth, truth);
        assert_eq!(scene.due(), (300, false));
        let review = Opinion::from(lie);
        let found = scene.access().disagreement;
        assert_eq!(found, Some(Disagreement { verb: Verb::List, review }));
        // From now on as rarely as without it.
        for _ in 0..3 {
            scene.pass(20);
            assert!(scene.review(lie).is_empty());
            assert!(!scene.due().1);
        }
        scene.pass(20);
        scene.review(!lie);
        assert_eq!(scene.access().disagreement, None);
        scene.pass(20);
        scene.review(lie);
        assert_eq!(scene.due(), (0, true), "it had come to its senses");
    }
}

#[test]
fn a_server_that_lags_behind_silences_no_review() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(20);
    scene.review(false);
    // Answered by a server that has not heard of it.
    scene.trial(ALLOWED, ALLOWED);
    assert_eq!(scene.due(), (10, false));
    scene.pass(10);
    let words = scene.lose(Reason::Forbidden);
    assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");
    assert_eq!((scene.access().disagreement, scene.due()), (None, (300, false)));
}

#[test]
fn what_decides_nothing_changes_nothing() {
    let mut scene = Scene::new();
    assert!(scene.trial(Some(Reason::ServerError), Some(Reason::ServerError)).is_empty());
    assert_eq!((scene.access().standing, scene.due()), (Standing::Verifying, (20, false)));
    scene.trial(ALLOWED, ALLOWED);
    scene.trial(ALLOWED, Some(Reason::TimedOut));
    assert!(matches!(scene.access().standing, Standing::Granted { method: Method::Probe, .. }));
    scene.lose(Reason::Forbidden);
    scene.trial(Some(Reason::Unreachable), Some(Reason::Unreachable));
    assert!(matches!(scene.access().standing, Standing::Refused(_)));
}

#[test]
fn a_kind_that_is_not_served_is_left_to_reviews() {
    let mut scene = Scene::new();
    scene.trial(Some(Reason::NotServed), Some(Reason::NotServed));
    assert_eq!(scene.review(true), []);
    let granted = Standing::Granted { verified_at: scene.wall, method: Method::Review };
    assert_eq!(scene.access().standing, granted);
    scene.review(false);
    assert_eq!(scene.access().standing, Standing::Verifying);
}

#[test]
fn the_informers_own_refusals_are_looked_into_at_once_and_once() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(5);
    let since = Some(scene.wall);
    scene.evidence.heard(since, scene.now);
    assert_eq!(scene.due(), (0, true));
    // It was refused by a server that lags: the informer is told to try again, once.
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned]);
    scene.evidence.heard(since, scene.now);
    assert!(!scene.due().1);
    assert_eq!(scene.trial(ALLOWED, ALLOWED), []);
}

#[test]
fn an_informer_that_gets_through_is_evidence_of_a_grant() {
    let mut scene = Scene::new();
    scene.evidence.heard(Some(scene.wall), scene.now);
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.evidence.heard(Some(scene.wall), scene.now);
    assert!(!scene.due().1);
    scene.evidence.heard(None, scene.now);
    assert_eq!(scene.due(), (0, true));
}

#[test]
fn a_namespace_that_goes_takes_nothing_away() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    let words = scene.lose(Reason::NamespaceNotFound);
    assert!(matches!(words.as_slice(), [Word::Lost(Verb::List, _)]), "{words:?}");
    assert_eq!(scene.access().revoked, None);
}

#[test]
fn a_server_that_does_not_know_its_roles_yet_takes_nothing_away() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    assert!(scene.trial(FORBIDDEN, FORBIDDEN).is_empty());
    // Neither does anything bring the decision forward, nor is anything confirmed meanwhile.
    scene.pass(1);
    assert!(scene.review(true).is_empty());
    scene.evidence.heard(Some(scene.wall), scene.now);
    assert_eq!(scene.due(), (2, true));
    // What comes to nothing is no acquittal.
    scene.pass(2);
    scene.trial(Some(Reason::Unreachable), Some(Reason::Unreachable));
    let words = scene.trial(FORBIDDEN, FORBIDDEN);
    assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");

    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(3);
    assert_eq!(scene.trial(ALLOWED, ALLOWED), []);
    scene.pass(300);
    assert!(scene.trial(FORBIDDEN, FORBIDDEN).is_empty(), "that was another refusal");
}
