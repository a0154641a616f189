use super::fixtures::{StatusWorld, declared, message, pods, spec, state, target};
use crate::status::events::LastEventTimes;
use kubewarm_api::{
    model::{
        FaultReason, LimitKind, LimitOverrun, LimitScope, LimitedTarget, ProfileLimits,
        ResolvedProfile, ResolvedTarget, TargetRequirement,
    },
    v1alpha1::CacheProfileStatus,
};
use kubewarm_cache::informer::{InformerPhase, InformerReport, Verb};
use std::time::Duration;

fn limited() -> ResolvedTarget {
    let overrun = LimitOverrun {
        bound: LimitScope::Profile,
        measure: LimitKind::Objects,
        limit: 10,
        reached: 11,
        others: 0,
        objects: 11,
        expected: None,
    };
    let retry_at = Some(Duration::from_mins(10));
    let limited = Some(LimitedTarget { overrun, retry_at });
    ResolvedTarget { limited, ..target("big", &[pods("a")]) }
}

fn compute(world: &StatusWorld, targets: Vec<ResolvedTarget>) -> CacheProfileStatus {
    let limits = ProfileLimits { max_objects: Some(10), ..ProfileLimits::default() };
    world.compute(&ResolvedProfile { limits, ..declared(targets) }, None)
}

fn summary(status: &CacheProfileStatus) -> [String; 3] {
    ["Ready", "Warm", "WithinLimits"].map(|type_| state(&status.conditions, type_))
}

#[test]
fn a_stopped_target_reports_no_objects_even_if_another_profile_keeps_the_informer() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    world.runs(pods("b"), world.watching());
    let small = target("small", &[pods("b")]);
    let status = compute(&world, vec![limited(), small]);
    let expected = ["False/LimitExceeded", "Unknown/Pending", "False/ObjectsExceeded"];
    assert_eq!(summary(&status), expected);
    let (big, small) = (&status.targets[0], &status.targets[1]);
    let informers = big.informers.clone().unwrap();
    assert_eq!((big.objects, informers.limited, informers.synced), (Some(0), 1, 0));
    assert_eq!(big.problems[0].reason, "ObjectsExceeded");
    assert!(big.problems[0].next_retry_time.is_some());
    assert_eq!(state(&small.conditions, "WithinLimits"), "True/BelowLimits");
    assert_eq!(
        state(&status.conditions, "Authorized"),
        "True/Verified",
        "access is checked even while the target is stopped"
    );
    assert_eq!(small.problems, []);
}

#[test]
fn a_target_with_a_stopped_selector_is_not_warm() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let by_selector = |limited| ResolvedTarget {
        namespaces: Some(spec(&pods("a"))),
        limited,
        ..target("chosen", &[])
    };
    let runs = compute(&world, vec![by_selector(None)]);
    assert_eq!(summary(&runs), ["True/Ready", "True/Synced", "True/BelowLimits"]);
    let stopped = by_selector(limited().limited);
    let status = compute(&world, vec![stopped]);
    let expected = ["False/LimitExceeded", "Unknown/Pending", "False/ObjectsExceeded"];
    assert_eq!(summary(&status), expected);
}

#[test]
fn a_stopped_optional_target_leaves_the_profile_ready() {
    let world = StatusWorld::new();
    let optional = ResolvedTarget { requirement: TargetRequirement::Optional, ..limited() };
    assert_eq!(summary(&compute(&world, vec![optional]))[0], "True/Ready");
}

#[test]
fn an_unfinished_list_is_measuring_only_with_limits() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.listing());
    let targets = || vec![target("big", &[pods("a")])];
    assert_eq!(summary(&compute(&world, targets()))[2], "Unknown/Measuring");
    let unlimited = world.compute(&declared(targets()), None);
    assert_eq!(summary(&unlimited)[2], "True/BelowLimits");
}

#[test]
fn limits_are_unknown_before_the_list_and_without_access() {
    let mut world = StatusWorld::new();
    let targets = || vec![target("big", &[pods("a")])];
    let text = |world: &StatusWorld| {
        let unlimited = world.compute(&declared(targets()), None);
        [&compute(world, targets()), &unlimited]
            .map(|status| message(&status.targets[0].conditions, "WithinLimits"))
    };
    world.runs(pods("a"), world.listing());
    let [limited, unlimited] = text(&world);
    assert!(limited.contains("not listed completely yet"), "{limited}");
    assert!(unlimited.contains("has stopped it so far"), "{unlimited}");
    let lost_at = Some(world.clock.wall);
    let fault = world.failing(world.watching(), FaultReason::Forbidden, Verb::List);
    world.runs(pods("a"), InformerReport { lost_at, phase: InformerPhase::Blocked, ..fault });
    let [limited, unlimited] = text(&world);
    assert!(limited.contains("access was lost"), "{limited}");
    assert!(unlimited.contains("has stopped it so far"), "{unlimited}");
}

#[test]
fn an_event_reports_that_a_limit_is_exceeded_and_that_it_is_not() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let fits = compute(&world, vec![target("big", &[pods("a")])]);
    let exceeds = compute(&world, vec![limited()]);
    let causes = |old: &CacheProfileStatus, new: &CacheProfileStatus| -> Vec<_> {
        let profile = declared(Vec::new()).profile;
        let sent =
            LastEventTimes::default().plan(&profile, &"u".into(), Some(old), new, world.clock.mono);
        sent.into_iter().map(|notice| notice.reason).collect()
    };
    assert_eq!(causes(&fits, &exceeds), ["NotReady", "LimitExceeded"]);
    assert_eq!(causes(&exceeds, &fits), ["Ready", "WithinLimits"]);
}
