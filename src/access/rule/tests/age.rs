//! How long a verification lasts.

use super::*;

#[test]
fn the_gate_closes_ten_minutes_after_the_last_verification() {
    let mut scene = Scene::verified();
    let verified_at = scene.wall;
    for _ in 0..29 {
        scene.pass(20);
        scene.fail(Reason::Throttled);
        scene.trial(THROTTLED, THROTTLED);
        assert!(!scene.lapses());
    }
    scene.pass(19);
    assert!(!scene.lapses());
    scene.pass(1);
    assert_eq!(scene.on(Input::Tick { patience: PATIENCE }), Some(0), "it is tried again");
    let Some(Err((Verb::List, fault))) = scene.access.order() else { panic!("closed") };
    assert_eq!(fault.reason(), Reason::Unverified);
    assert_eq!(fault.message(), "not verified since 1970-01-01T00:00:00Z: ?");
    assert_eq!(scene.standing(), Standing::Unverified { verified_at, message: "?".into() });
    assert!(!scene.lapses(), "once");
    scene.trial(ALLOWED, ALLOWED);
    assert_eq!(scene.gate(), Some(true));
}

#[test]
fn only_a_real_request_is_a_verification() {
    let mut scene = Scene::verified();
    for _ in 0..29 {
        scene.pass(20);
        assert_eq!(scene.review(true), None);
        assert!(!scene.lapses());
    }
    scene.pass(20);
    scene.review(true);
    assert!(scene.lapses(), "reviews alone do not keep the gate open");
    // Nor do they open it; they have the request made at once that does.
    assert_eq!(scene.review(true), Some(0));
    assert_eq!(scene.trial(THROTTLED, THROTTLED), None);
    assert!(scene.is_unverified());
    scene.trial(ALLOWED, ALLOWED);
    assert_eq!(scene.gate(), Some(true));
}

#[test]
fn a_closed_gate_is_lost_by_two_refusals_as_an_open_one() {
    let mut scene = Scene::verified();
    let verified_at = scene.wall;
    scene.pass(600);
    assert!(scene.lapses());
    // A server that has just started does not know its roles yet.
    scene.lose(Reason::Forbidden);
    assert_eq!(scene.refused().revoked, Some(verified_at));
    scene.pass(6_000);
    assert!(!scene.lapses(), "it is lost already");
}

#[test]
fn what_was_never_verified_cannot_be_taken_away() {
    let mut scene = Scene::new();
    scene.pass(6_000);
    scene.trial(THROTTLED, THROTTLED);
    assert!(!scene.lapses());
    // The informer's own list is answered, and from then on nothing.
    let listed = scene.now;
    scene.informer(true);
    scene.pass(599);
    scene.trial(THROTTLED, THROTTLED);
    assert!(!scene.lapses());
    scene.pass(1);
    assert!(scene.lapses());
    scene.on(Input::Verified { sent: listed });
    assert!(scene.is_unverified(), "that is known");
    // It was answered before it heard of the loss.
    scene.informer(true);
    assert_eq!(scene.gate(), Some(true));
}

#[test]
fn a_kind_that_is_not_served_says_so_and_closes_no_gate() {
    let mut scene = Scene::verified();
    scene.pass(600);
    scene.trial(Some(Reason::NotServed), Some(Reason::NotServed));
    assert!(!scene.lapses());
    scene.pass(20);
    scene.trial(THROTTLED, THROTTLED);
    assert!(scene.lapses());
}

#[test]
fn a_watch_that_is_opened_anew_is_a_verification() {
    let mut scene = Scene::verified();
    for _ in 0..9 {
        scene.pass(300);
        scene.trial(THROTTLED, THROTTLED);
        scene.informer(true);
        assert!(!scene.lapses());
    }
    let granted = Standing::Granted { verified_at: scene.wall, is_by_review: false };
    assert_eq!(scene.standing(), granted);
}

#[test]
fn checks_that_are_not_made_are_late_and_close_the_gate_like_any_others() {
    let mut scene = Scene::verified();
    scene.pass(590);
    assert!(!scene.lapses());
    let overdue = |scene: &Scene| {
        let access = scene.access.report(Duration::from_mins(1), scene.now);
        (access.is_late, access.failed)
    };
    assert_eq!(overdue(&scene), (true, None));
    scene.fail(Reason::Throttled);
    let fault = Fault::new(Reason::Throttled, "too many requests");
    assert_eq!(overdue(&scene), (false, Some(fault)));
    scene.review(true);
    assert_eq!(overdue(&scene), (false, None));
    let mut scene = Scene::verified();
    scene.pass(600);
    assert!(scene.lapses());
    let Some(Err((_, fault))) = scene.access.order() else { panic!("closed") };
    assert!(fault.message().ends_with(": no check was answered"), "{fault}");
}

/// Has something speak against access.
type Accusation = fn(&mut Scene) -> Option<u64>;

#[test]
fn what_speaks_against_access_leaves_less_time_to_verify_it() {
    let accusations: [(&str, Accusation); 4] = [
        ("a review that denies", |scene| scene.review(false)),
        ("a refusal", |scene| scene.trial(FORBIDDEN, ALLOWED)),
        ("a review that is refused", |scene| scene.fail(Reason::Unauthorized)),
        ("the informer's refusal", |scene| scene.informer(false)),
    ];
    for (what, accuse) in accusations {
        let mut scene = Scene::verified();
        scene.pass(20);
        assert!(accuse(&mut scene).is_some(), "{what} has it tried at once");
        scene.pass(3);
        scene.trial(THROTTLED, THROTTLED);
        scene.pass(26);
        assert!(!scene.lapses(), "{what}");
        scene.pass(1);
        assert!(scene.lapses(), "{what}");

        // What is allowed later clears it.
        let mut scene = Scene::verified();
        scene.pass(20);
        accuse(&mut scene);
        scene.pass(3);
        scene.trial(THROTTLED, THROTTLED);
        scene.trial(ALLOWED, ALLOWED);
        scene.pass(599);
        assert!(!scene.lapses(), "{what}");
        scene.pass(1);
        assert!(scene.lapses(), "{what}");
    }
}

#[test]
fn a_review_that_is_known_to_err_leaves_all_the_time_there_is() {
    let mut scene = Scene::verified();
    for _ in 0..3 {
        scene.pass(10);
        scene.review(false);
        scene.pass(10);
        scene.trial(ALLOWED, ALLOWED);
    }
    assert_eq!(scene.overruled(), Some(false));
    scene.pass(10);
    scene.review(false);
    scene.trial(THROTTLED, THROTTLED);
    scene.pass(300);
    assert!(!scene.lapses());
}
