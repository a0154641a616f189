//! How long a verification lasts.

use super::*;

const THROTTLED: Option<Reason> = Some(Reason::Throttled);

#[test]
fn the_gate_closes_ten_minutes_after_the_last_verification() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    let verified_at = scene.wall;
    for _ in 0..29 {
        scene.pass(20);
        scene.doubt(Reason::Throttled);
        assert!(scene.trial(Some(Reason::ServerError), Some(Reason::ServerError)).is_empty());
        assert_eq!(scene.lapse(), None);
    }
    scene.pass(19);
    assert_eq!(scene.lapse(), None);
    scene.pass(1);
    let Some(Word::Lost(Verb::List, fault)) = scene.lapse() else { panic!("closed") };
    assert_eq!(fault.reason(), Reason::Unverified);
    assert_eq!(fault.message(), "not verified since 1970-01-01T00:00:00Z: ?");
    let unverified = Unverified { verified_at, method: Method::Probe, message: "?".into() };
    assert_eq!(scene.access().standing, Standing::Unverified(unverified));
    assert_eq!((scene.lapse(), scene.due()), (None, (0, true)), "once, and it is tried again");
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned]);
}

#[test]
fn only_a_real_request_is_a_verification() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    for _ in 0..29 {
        scene.pass(20);
        assert!(scene.review(true).is_empty());
        assert_eq!(scene.lapse(), None);
    }
    scene.pass(20);
    scene.review(true);
    assert!(scene.lapse().is_some(), "reviews alone do not keep the gate open");
    // Nor do they open it; they have the request made at once that does.
    scene.evidence.due = Some(Due { at: scene.now + Duration::from_secs(20), urgent: false });
    scene.pass(10);
    assert!(scene.review(true).is_empty());
    assert_eq!(scene.due(), (0, true));
    // While that comes to nothing it is not sent in a circle.
    assert!(scene.trial(THROTTLED, THROTTLED).is_empty());
    assert_eq!(scene.due(), (20, false));
    assert!(matches!(scene.access().standing, Standing::Unverified(_)));
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned]);
}

#[test]
fn a_refusal_takes_the_place_of_what_time_took() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    let verified_at = scene.wall;
    // One refusal decides nothing, but neither does it buy time.
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(600);
    scene.trial(THROTTLED, THROTTLED);
    assert!(scene.lapse().is_some());
    let words = scene.trial(FORBIDDEN, FORBIDDEN);
    assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");
    assert_eq!(scene.access().revoked, Some(verified_at));
    scene.pass(6_000);
    scene.trial(THROTTLED, THROTTLED);
    assert_eq!(scene.lapse(), None, "it is lost already");
}

#[test]
fn what_was_never_verified_cannot_be_taken_away() {
    let mut scene = Scene::new();
    scene.pass(6_000);
    scene.trial(THROTTLED, THROTTLED);
    assert_eq!(scene.lapse(), None);
    // The informer's own list is answered, and from then on nothing.
    let listed = scene.now;
    scene.evidence.informer_verified(listed, scene.now, scene.wall);
    scene.pass(599);
    scene.trial(THROTTLED, THROTTLED);
    assert_eq!(scene.lapse(), None);
    scene.pass(1);
    assert!(matches!(scene.lapse(), Some(Word::Lost(..))));
    // A cell made anew lists by itself.
    scene.evidence.informer_verified(listed, scene.now, scene.wall);
    assert!(matches!(scene.access().standing, Standing::Unverified(_)), "that is known");
    scene.evidence.informer_verified(scene.now, scene.now, scene.wall);
    assert_eq!((scene.access().standing, scene.lapse()), (Standing::Verifying, None));
}

#[test]
fn a_kind_that_is_not_served_says_so_and_closes_no_gate() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(600);
    scene.trial(Some(Reason::NotServed), Some(Reason::NotServed));
    assert_eq!(scene.lapse(), None);
    scene.pass(20);
    scene.trial(THROTTLED, THROTTLED);
    assert!(scene.lapse().is_some());
}

#[test]
fn a_watch_that_is_opened_anew_is_a_verification() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    for _ in 0..9 {
        scene.pass(300);
        scene.trial(THROTTLED, THROTTLED);
        scene.evidence.informer_verified(scene.now, scene.now, scene.wall);
        assert_eq!(scene.lapse(), None);
    }
    assert!(matches!(scene.access().standing, Standing::Granted { .. }));
}

#[test]
fn a_cell_that_was_told_of_the_loss_hears_of_its_end_whatever_it_asked_meanwhile() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(600);
    scene.trial(THROTTLED, THROTTLED);
    assert!(scene.lapse().is_some());
    // Answered after the look at the clock, and before the cell was told.
    scene.evidence.informer_verified(scene.now + Duration::from_secs(1), scene.now, scene.wall);
    assert_eq!(scene.access().standing, Standing::Verifying);
    scene.pass(20);
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned]);
}

#[test]
fn checks_that_are_not_made_are_late_and_close_the_gate_like_any_others() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(590);
    assert_eq!(scene.lapse(), None);
    let period = Duration::from_mins(1);
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::Late);
    scene.doubt(Reason::Throttled);
    let fault = Fault::new(Reason::Throttled, "too many requests");
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::Unanswered(fault));
    scene.review(true);
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::OnTime);
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(600);
    let Some(Word::Lost(_, fault)) = scene.lapse() else { panic!("closed") };
    assert!(fault.message().ends_with(": no check was answered"), "{fault}");
}

/// Has something speak against access.
type Accusation = fn(&mut Scene);

#[test]
fn what_speaks_against_access_leaves_less_time_to_verify_it() {
    let accusations: [(&str, Accusation); 4] = [
        ("a review that denies", |scene| assert!(scene.review(false).is_empty())),
        ("a refusal", |scene| assert!(scene.trial(FORBIDDEN, ALLOWED).is_empty())),
        ("a review that is refused", |scene| scene.doubt(Reason::Unauthorized)),
        ("the informer's refusal", |scene| scene.evidence.heard(Some(scene.wall), scene.now)),
    ];
    for (what, accuse) in accusations {
        let mut scene = Scene::new();
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(20);
        accuse(&mut scene);
        scene.pass(3);
        assert!(scene.trial(THROTTLED, THROTTLED).is_empty());
        scene.pass(26);
        assert_eq!(scene.lapse(), None, "{what}");
        scene.pass(1);
        assert!(matches!(scene.lapse(), Some(Word::Lost(..))), "{what}");

        // What is allowed later clears it.
        let mut scene = Scene::new();
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(20);
        accuse(&mut scene);
        scene.pass(3);
        assert!(scene.trial(THROTTLED, THROTTLED).is_empty());
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(599);
        assert_eq!(scene.lapse(), None, "{what}");
        scene.pass(1);
        assert!(scene.lapse().is_some(), "{what}");
    }
}

#[test]
fn a_review_that_is_known_to_err_leaves_all_the_time_there_is() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    for _ in 0..3 {
        scene.pass(10);
        scene.review(false);
        scene.pass(10);
        scene.trial(ALLOWED, ALLOWED);
    }
    assert!(scene.access().disagreement.is_some());
    scene.pass(10);
    scene.review(false);
    scene.trial(THROTTLED, THROTTLED);
    scene.pass(300);
    assert_eq!(scene.lapse(), None);
}
