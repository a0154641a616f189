//! Tests of a profile's status after one of its informers lost access, for both `onAccessLost`
//! policies.

use super::fixtures::{StatusWorld, declared, message, pods, state, target};
use jiff::SignedDuration;
use kubewarm_api::{
    model::{AccessLossPolicy, FaultReason, ResolvedProfile},
    v1alpha1::CacheProfileStatus,
};
use kubewarm_cache::informer::{InformerPhase, InformerReport, Verb};

fn lost(world: &StatusWorld, seconds: u64) -> InformerReport {
    let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap());
    let report = world.failing(world.watching(), FaultReason::Forbidden, Verb::Watch);
    let lost_at = Some(world.clock.wall - ago);
    InformerReport { phase: InformerPhase::Blocked, lost_at, ..report }
}

fn status(world: &StatusWorld, policy: AccessLossPolicy) -> CacheProfileStatus {
    let profile = declared(vec![target("pods", &[pods("a")])]);
    world.compute(&ResolvedProfile { on_access_lost: policy, ..profile }, None)
}

/// Returns status and reason of the conditions `Warm` and `Fresh`, and the number of objects in the
/// status.
fn summary(status: &CacheProfileStatus) -> (String, String, Option<i64>) {
    let [warm, fresh] = ["Warm", "Fresh"].map(|type_| state(&status.conditions, type_));
    (warm, fresh, status.objects)
}

#[test]
fn each_profile_of_a_shared_informer_has_its_own_access_loss_policy() {
    let mut world = StatusWorld::new();
    let report = lost(&world, 30);
    world.runs(pods("a"), report);
    let cold = ("False/Forbidden".to_owned(), "Unknown/NotWarm".to_owned(), Some(0));
    let stale = ("True/Synced".to_owned(), "False/WatchSilent".to_owned(), Some(10));
    for (policy, expected) in
        [(AccessLossPolicy::default(), &cold), (AccessLossPolicy::ServeStale, &stale)]
    {
        let status = status(&world, policy);
        assert_eq!(summary(&status), *expected, "{policy:?}");
        let [target] = status.targets.as_slice() else { panic!("one target") };
        assert_eq!(target.informers.as_ref().unwrap().forbidden, 1, "{policy:?}");
        assert_eq!(status.memory.as_deref(), Some("3Mi"), "the store is kept");
        let [problem] = target.problems.as_slice() else { panic!("one problem") };
        assert_eq!((problem.namespace.as_str(), problem.reason.as_str()), ("a", "Forbidden"));
        assert_ne!(state(&status.conditions, "Ready"), "True/Ready");
    }
    let stale = status(&world, AccessLossPolicy::ServeStale);
    let text = message(&stale.conditions, "Fresh");
    assert!(text.contains("not allowed to watch pods") && text.contains("old data"), "{text}");
}

#[test]
fn access_that_cannot_be_checked_is_lost_without_a_missing_permission() {
    let mut world = StatusWorld::new();
    let report = world.failing(lost(&world, 30), FaultReason::Unverified, Verb::List);
    world.runs(pods("a"), InformerReport { phase: InformerPhase::Blocked, ..report });
    let rejecting = status(&world, AccessLossPolicy::default());
    assert_eq!(state(&rejecting.conditions, "Warm"), "False/ServerUnreachable");
    assert_eq!(state(&rejecting.conditions, "Ready"), "False/TargetsNotWarm");
    let text = message(&rejecting.conditions, "Ready");
    assert!(
        text.contains("permissions are not confirmed") && text.contains("server's words"),
        "{text}"
    );
    assert_eq!(rejecting.targets[0].informers.as_ref().unwrap().failing, 1);
    let stale = status(&world, AccessLossPolicy::ServeStale);
    let expected = ("True/Synced".to_owned(), "False/WatchSilent".to_owned(), Some(10));
    assert_eq!(summary(&stale), expected);
    assert_eq!(stale.targets[0].informers.as_ref().unwrap().stale, 1);
}

#[test]
fn access_counts_as_lost_until_the_list_after_its_return_is_complete() {
    let mut world = StatusWorld::new();
    let report =
        InformerReport { phase: InformerPhase::Relisting, fault: None, ..lost(&world, 30) };
    world.runs(pods("a"), report);
    let rejecting = status(&world, AccessLossPolicy::default());
    assert_eq!(state(&rejecting.conditions, "Warm"), "False/Syncing");
    assert_eq!(rejecting.targets[0].informers.as_ref().unwrap().syncing, 1);
    let stale = status(&world, AccessLossPolicy::ServeStale);
    let (warm, fresh, _) = summary(&stale);
    assert_eq!((warm.as_str(), fresh.as_str()), ("True/Synced", "False/Relisting"));
}

#[test]
fn an_unconfirmed_refusal_counts_as_lost_access() {
    let mut world = StatusWorld::new();
    let report = world.failing(world.watching(), FaultReason::Forbidden, Verb::Watch);
    world.runs(pods("a"), report);
    let warm = |policy| state(&status(&world, policy).conditions, "Warm");
    assert_eq!(warm(AccessLossPolicy::default()), "False/Forbidden");
    assert_eq!(warm(AccessLossPolicy::ServeStale), "True/Synced");
}
