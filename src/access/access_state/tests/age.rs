//! Tests of the time from the last confirmed access until kubewarm blocks the informer.

use super::*;

#[test]
fn the_informer_is_blocked_ten_minutes_after_the_last_confirmed_access() {
    let mut scene = AccessStateFixture::verified();
    let verified_at = scene.wall;
    for _ in 0..29 {
        scene.pass(20);
        scene.fail(FaultReason::Throttled);
        scene.check(THROTTLED, THROTTLED);
        assert!(!scene.lapses());
    }
    scene.pass(19);
    assert!(!scene.lapses());
    scene.pass(1);
    assert_eq!(scene.apply(AccessSignal::Tick), Some(0), "a check is due");
    assert_eq!(scene.is_blocked(), Some(true));
    assert_eq!(scene.state(), PermissionState::Unverified { verified_at, message: "?".into() });
    assert!(!scene.lapses(), "the informer becomes blocked only once");
    scene.check(ALLOWED, ALLOWED);
    assert_eq!(scene.is_blocked(), Some(false));
}

#[test]
fn only_a_real_request_confirms_access() {
    let mut scene = AccessStateFixture::verified();
    for _ in 0..29 {
        scene.pass(20);
        assert_eq!(scene.review(true), None);
        assert!(!scene.lapses());
    }
    scene.pass(20);
    scene.review(true);
    assert!(scene.lapses(), "reviews alone do not keep access");
    // A positive access review does not unblock the informer. The access review triggers an access
    // check, and the success of that access check unblocks the informer.
    assert_eq!(scene.review(true), Some(0));
    assert_eq!(scene.check(THROTTLED, THROTTLED), None);
    assert!(scene.is_unverified());
    scene.check(ALLOWED, ALLOWED);
    assert_eq!(scene.is_blocked(), Some(false));
}

#[test]
fn an_unverified_informer_needs_two_refusals_to_lose_access() {
    let mut scene = AccessStateFixture::verified();
    let verified_at = scene.wall;
    scene.pass(600);
    assert!(scene.lapses());
    // An informer in state `Unverified` counts as refused only after two rejected access checks.
    // One rejection is not enough, because an API server that has just started rejects all
    // requests.
    scene.lose(FaultReason::Forbidden);
    assert_eq!(scene.refused().revoked, Some(verified_at));
    scene.pass(6_000);
    assert!(!scene.lapses(), "access is lost already");
}

#[test]
fn access_that_was_never_confirmed_does_not_expire() {
    let mut scene = AccessStateFixture::new();
    scene.pass(6_000);
    scene.check(THROTTLED, THROTTLED);
    assert!(!scene.lapses());
    // The API server permits the informer's own list, and all later requests fail.
    let listed = scene.now;
    scene.informer(true);
    scene.pass(599);
    scene.check(THROTTLED, THROTTLED);
    assert!(!scene.lapses());
    scene.pass(1);
    assert!(scene.lapses());
    scene.apply(AccessSignal::Verified { sent: listed });
    assert!(scene.is_unverified(), "an old confirmation does not count again");
    // A newer permitted request unblocks the informer.
    scene.informer(true);
    assert_eq!(scene.is_blocked(), Some(false));
}

#[test]
fn a_kind_that_is_not_served_does_not_block_the_informer() {
    let mut scene = AccessStateFixture::verified();
    scene.pass(600);
    scene.check(Some(FaultReason::NotServed), Some(FaultReason::NotServed));
    assert!(!scene.lapses());
    scene.pass(20);
    scene.check(THROTTLED, THROTTLED);
    assert!(scene.lapses());
}

#[test]
fn reopening_the_watch_counts_as_an_access_check() {
    let mut scene = AccessStateFixture::verified();
    for _ in 0..9 {
        scene.pass(300);
        scene.check(THROTTLED, THROTTLED);
        scene.informer(true);
        assert!(!scene.lapses());
    }
    let granted = PermissionState::Granted { verified_at: scene.wall, is_by_review: false };
    assert_eq!(scene.state(), granted);
}

#[test]
fn checks_that_do_not_run_are_late_and_the_informer_is_blocked_in_time() {
    let mut scene = AccessStateFixture::verified();
    scene.pass(590);
    assert!(!scene.lapses());
    let overdue = |scene: &AccessStateFixture| {
        let access = scene.access.report(Duration::from_mins(1), scene.now);
        (access.is_late, access.failed)
    };
    assert_eq!(overdue(&scene), (true, None));
    scene.fail(FaultReason::Throttled);
    let fault = RequestFault::new(FaultReason::Throttled, "too many requests");
    assert_eq!(overdue(&scene), (false, Some(fault)));
    scene.review(true);
    assert_eq!(overdue(&scene), (false, None));
    let mut scene = AccessStateFixture::verified();
    scene.pass(600);
    assert!(scene.lapses());
    let PermissionState::Unverified { message, .. } = scene.state() else { panic!("unverified") };
    assert_eq!(&*message, "no check was answered");
}

type SignOfLoss = fn(&mut AccessStateFixture) -> Option<u64>;

#[test]
fn a_sign_of_lost_access_shortens_the_time_to_confirm_it_to_30_seconds() {
    let signs: [(&str, SignOfLoss); 4] = [
        ("a review that denies", |scene| scene.review(false)),
        ("a refusal", |scene| scene.check(FORBIDDEN, ALLOWED)),
        ("a review that is refused", |scene| scene.fail(FaultReason::Unauthorized)),
        ("the informer's refusal", |scene| scene.informer(false)),
    ];
    for (what, give_sign) in signs {
        let mut scene = AccessStateFixture::verified();
        scene.pass(20);
        assert!(give_sign(&mut scene).is_some(), "{what} triggers an immediate check");
        scene.pass(3);
        scene.check(THROTTLED, THROTTLED);
        scene.pass(26);
        assert!(!scene.lapses(), "{what}");
        scene.pass(1);
        assert!(scene.lapses(), "{what}");

        // After the API server has permitted a list or watch, the earlier sign of lost access no
        // longer counts.
        let mut scene = AccessStateFixture::verified();
        scene.pass(20);
        give_sign(&mut scene);
        scene.pass(3);
        scene.check(THROTTLED, THROTTLED);
        scene.check(ALLOWED, ALLOWED);
        scene.pass(599);
        assert!(!scene.lapses(), "{what}");
        scene.pass(1);
        assert!(scene.lapses(), "{what}");
    }
}

#[test]
fn a_review_known_to_be_wrong_does_not_shorten_the_time() {
    let mut scene = AccessStateFixture::verified();
    for _ in 0..3 {
        scene.pass(10);
        scene.review(false);
        scene.pass(10);
        scene.check(ALLOWED, ALLOWED);
    }
    assert_eq!(scene.overruled(), Some(false));
    scene.pass(10);
    scene.review(false);
    scene.check(THROTTLED, THROTTLED);
    scene.pass(300);
    assert!(!scene.lapses());
}

#[test]
fn a_sign_outlasts_an_earlier_one_that_a_late_answer_ends() {
    let mut scene = AccessStateFixture::verified();
    scene.pass(1);
    scene.informer(false);
    scene.pass(1);
    let between = scene.now;
    scene.pass(1);
    scene.informer(false);
    // The answer to a request between the two signs arrives after both.
    scene.apply(AccessSignal::Verified { sent: between });
    scene.pass(29);
    assert!(!scene.lapses());
    scene.pass(1);
    assert!(scene.lapses());
}
