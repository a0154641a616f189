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
    scene.pass(6_000);
    scene.trial(Some(Reason::Throttled), Some(Reason::Throttled));
    let answering = scene.now;
    scene.pass(599);
    assert_eq!(scene.evidence.lapse(answering, PATIENCE, scene.now), None);
    scene.pass(1);
    assert!(scene.evidence.lapse(answering, PATIENCE, scene.now).is_some());
}
