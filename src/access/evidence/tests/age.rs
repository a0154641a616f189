//! How long a verification lasts.

use super::*;

#[test]
fn what_nobody_verifies_for_ten_minutes_is_as_good_as_refused() {
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
    let Some(Word::Lost(Verb::List, fault)) = scene.lapse() else { panic!("lost") };
    assert_eq!(fault.reason(), Reason::Unverified);
    assert_eq!(fault.message(), "not verified since 1970-01-01T00:00:00Z: ?");
    let unverified = Unverified { verified_at, method: Method::Probe, message: "?".into() };
    assert_eq!(scene.access().standing, Standing::Unverified(unverified));
    assert_eq!((scene.lapse(), scene.due()), (None, (0, true)), "once, and it is tried again");
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned, Word::Verified(scene.now)]);
}

#[test]
fn a_review_that_is_answered_brings_back_what_time_took() {
    for allowed in [true, false] {
        let mut scene = Scene::new();
        scene.trial(ALLOWED, ALLOWED);
        scene.review(true);
        scene.pass(600);
        scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
        assert!(scene.lapse().is_some(), "what was confirmed once confirms nothing twice");
        scene.pass(20);
        assert!(scene.trial(Some(Reason::Throttled), Some(Reason::Throttled)).is_empty());
        let words = scene.review(allowed);
        let back = [Word::Returned, Word::Verified(scene.now)];
        assert_eq!(words, if allowed { &back[..] } else { &[] });
    }
}

#[test]
fn a_refusal_takes_the_place_of_what_time_took() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    let verified_at = scene.wall;
    // One refusal decides nothing, but neither does it buy time.
    scene.trial(FORBIDDEN, FORBIDDEN);
    scene.pass(600);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    assert!(scene.lapse().is_some());
    let words = scene.trial(FORBIDDEN, FORBIDDEN);
    assert!(matches!(words.as_slice(), [Word::Lost(..)]), "{words:?}");
    assert_eq!(scene.access().revoked, Some(verified_at));
    scene.pass(6_000);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    assert_eq!(scene.lapse(), None, "it is lost already");
}

#[test]
fn what_was_never_verified_cannot_be_taken_away() {
    let mut scene = Scene::new();
    scene.pass(6_000);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    assert_eq!(scene.lapse(), None);
    // The informer's own list is answered, and from then on nothing.
    let listed = scene.now;
    scene.evidence.informer_verified(listed, scene.now, scene.wall);
    scene.pass(599);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
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
fn a_watch_that_is_opened_anew_is_a_verification() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    for _ in 0..9 {
        scene.pass(300);
        scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
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
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    assert!(scene.lapse().is_some());
    // Answered after the look at the clock, and before the cell was told.
    scene.evidence.informer_verified(scene.now + Duration::from_secs(1), scene.now, scene.wall);
    assert_eq!(scene.access().standing, Standing::Verifying);
    scene.pass(20);
    assert_eq!(scene.trial(ALLOWED, ALLOWED), [Word::Returned, Word::Verified(scene.now)]);
}

#[test]
fn who_was_checked_by_nobody_is_late_and_not_lost() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    scene.pass(6_000);
    assert_eq!(scene.lapse(), None);
    let period = Duration::from_mins(1);
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::Late);
    scene.doubt(Reason::Throttled);
    let fault = Fault::new(Reason::Throttled, "too many requests");
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::Unanswered(fault));
    scene.review(true);
    assert_eq!(scene.evidence.punctuality(period, scene.now), Punctuality::OnTime);
}

#[test]
fn minutes_in_which_the_api_server_answered_nobody_do_not_count() {
    let mut scene = Scene::new();
    scene.trial(ALLOWED, ALLOWED);
    assert_eq!(scene.lapse_at(50), None);
    scene.pass(400);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    assert_eq!(scene.lapse_at(450), None);
    scene.pass(6_000);
    assert_eq!(scene.lapse_at(450), None);
    scene.pass(199);
    assert_eq!(scene.lapse_at(649), None);
    scene.pass(1);
    assert!(scene.lapse_at(650).is_some(), "what passed before them does");
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
    let throttled = |scene: &mut Scene| {
        assert!(scene.trial(Some(Reason::Throttled), Some(Reason::Throttled)).is_empty());
    };
    for (what, accuse) in accusations {
        let mut scene = Scene::new();
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(20);
        accuse(&mut scene);
        scene.pass(3);
        throttled(&mut scene);
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
        throttled(&mut scene);
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(20);
        throttled(&mut scene);
        scene.pass(579);
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
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    scene.pass(300);
    assert_eq!(scene.lapse(), None);
}
