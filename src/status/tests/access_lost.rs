//! What a profile says of a cell that may not be read any more, by its own policy.

use super::fixtures::{World, declared, message, pods, said, target};
use jiff::SignedDuration;
use kubewarm_api::{
    model::{Declared, OnAccessLost, Reason},
    v1alpha1::CacheProfileStatus,
};
use kubewarm_cache::informer::{CellReport, Loss, Phase, Verb};
use std::time::Duration;

/// A cell that was synced, and of which access was lost `seconds` ago.
fn lost(world: &World, seconds: u64) -> CellReport {
    let at = world.clock.mono.checked_sub(Duration::from_secs(seconds)).unwrap();
    let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap());
    let report = world.failing(world.watching(), Reason::Forbidden, Verb::Watch);
    let lost = Some(Loss { at, time: world.clock.wall - ago });
    CellReport { phase: Phase::Fenced, lost, ..report }
}

fn status(world: &World, policy: OnAccessLost) -> CacheProfileStatus {
    let profile = declared(vec![target("pods", &[pods("a")])]);
    world.compute(&Declared { on_access_lost: policy, ..profile }, None)
}

/// `Warm` and `Fresh`, and the objects.
fn summary(status: &CacheProfileStatus) -> (String, String, Option<i64>) {
    let [warm, fresh] = ["Warm", "Fresh"].map(|type_| said(&status.conditions, type_));
    (warm, fresh, status.objects)
}

#[test]
fn each_profile_of_a_shared_cell_is_served_by_its_own_policy() {
    let mut world = World::new();
    let report = lost(&world, 30);
    world.runs(pods("a"), report);
    let cold = ("False/Forbidden".to_owned(), "Unknown/NotWarm".to_owned(), Some(0));
    let stale = ("True/Synced".to_owned(), "False/WatchSilent".to_owned(), Some(10));
    for (policy, expected) in [(OnAccessLost::default(), &cold), (OnAccessLost::ServeStale, &stale)]
    {
        let status = status(&world, policy);
        assert_eq!(summary(&status), *expected, "{policy:?}");
        let [target] = status.targets.as_slice() else { panic!("one target") };
        assert_eq!(target.cells.as_ref().unwrap().forbidden, 1, "{policy:?}");
        assert_eq!(status.memory.as_deref(), Some("3Mi"), "it is still held");
        let [problem] = target.problems.as_slice() else { panic!("one problem") };
        assert_eq!((problem.namespace.as_str(), problem.reason.as_str()), ("a", "Forbidden"));
        assert_ne!(said(&status.conditions, "Ready"), "True/Ready");
    }
    let stale = status(&world, OnAccessLost::ServeStale);
    let told = message(&stale.conditions, "Fresh");
    assert!(told.contains("not allowed to watch pods") && told.contains("old data"), "{told}");
}

#[test]
fn access_that_nobody_can_verify_is_lost_without_any_permission_missing() {
    let mut world = World::new();
    let report = world.failing(lost(&world, 30), Reason::Unverified, Verb::List);
    world.runs(pods("a"), CellReport { phase: Phase::Fenced, ..report });
    let fenced = status(&world, OnAccessLost::default());
    assert_eq!(said(&fenced.conditions, "Warm"), "False/ServerUnreachable");
    assert_eq!(said(&fenced.conditions, "Ready"), "False/TargetsNotWarm");
    let told = message(&fenced.conditions, "Ready");
    assert!(told.contains("nobody can say whether") && told.contains("server's words"), "{told}");
    assert_eq!(fenced.targets[0].informers.as_ref().unwrap().failing, 1);
    let stale = status(&world, OnAccessLost::ServeStale);
    let expected = ("True/Synced".to_owned(), "False/WatchSilent".to_owned(), Some(10));
    assert_eq!(summary(&stale), expected);
    assert_eq!(stale.targets[0].informers.as_ref().unwrap().stale, 1);
}

#[test]
fn until_a_list_is_complete_returned_access_counts_as_lost() {
    let mut world = World::new();
    let report = CellReport { phase: Phase::Relisting, fault: None, ..lost(&world, 30) };
    world.runs(pods("a"), report);
    let fenced = status(&world, OnAccessLost::default());
    assert_eq!(said(&fenced.conditions, "Warm"), "False/Syncing");
    assert_eq!(fenced.targets[0].informers.as_ref().unwrap().syncing, 1);
    let stale = status(&world, OnAccessLost::ServeStale);
    let (warm, fresh, _) = summary(&stale);
    assert_eq!((warm.as_str(), fresh.as_str()), ("True/Synced", "False/Relisting"));
}

#[test]
fn a_refusal_that_is_not_verified_yet_counts_as_a_loss_of_this_moment() {
    let mut world = World::new();
    let report = world.failing(world.watching(), Reason::Forbidden, Verb::Watch);
    world.runs(pods("a"), report);
    let warm = |policy| said(&status(&world, policy).conditions, "Warm");
    assert_eq!(warm(OnAccessLost::default()), "False/Forbidden");
    assert_eq!(warm(OnAccessLost::ServeStale), "True/Synced");
}
