use super::fixtures::{StatusWorld, declared, message, one, pods, serving, spec, state, target};
use crate::status::adopt;
use kubewarm_api::{
    model::{FaultReason, ResolvedProfile, TargetRequirement},
    v1alpha1::InformerCounts,
};
use kubewarm_cache::informer::{
    InformerPhase, InformerReport, LatencyQuantiles, RelistReason, RelistReport, UndecodableObject,
    Verb,
};
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};
use strum::VariantArray as _;

#[test]
fn time_to_warm_is_set_once_per_generation() {
    let mut world = StatusWorld::new();
    let report = world.watching();
    let first = one(&mut world, report);
    let mut profile = declared(vec![target("pods", &[pods("a")])]);
    // After an hour, the informer syncs again, for instance because its kind was removed and added
    // again.
    world.pass(Duration::from_hours(1));
    world.runs(pods("a"), world.watching());
    let second = world.compute(&profile, Some(&first));
    assert_eq!(second.time_to_warm_milliseconds, Some(2_000));
    profile.generation = 4;
    profile.accepted_at = Duration::from_secs(100 + 3_600);
    let third = world.compute(&profile, Some(&second));
    assert_eq!(third.time_to_warm_milliseconds, Some(0), "the informers were already warm");
}

#[test]
fn wrong_list_lengths_from_the_api_server_do_not_overflow() {
    let mut world = StatusWorld::new();
    for namespace in ["a", "b"] {
        let report = InformerReport { listed: 1, expected: Some(u64::MAX), ..world.listing() };
        world.runs(pods(namespace), report);
    }
    let status = world.compute(&declared(vec![target("pods", &[pods("a"), pods("b")])]), None);
    let text = message(&status.conditions, "Warm");
    assert!(text.contains(&format!("2 of {} objects listed", u64::MAX)), "{text}");
}

#[test]
fn an_informer_of_two_targets_counts_once_and_old_serving_informers_count_too() {
    const MIB: u64 = 1 << 20;
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let informer = world.informers.get_mut(&pods("a")).unwrap();
    informer.report.as_mut().unwrap().usage.bytes = 60 * MIB;
    let mut profile = declared(vec![target("x", &[pods("a")]), target("y", &[pods("a")])]);
    let memory = |profile: &ResolvedProfile| {
        let status = world.compute(profile, None);
        let targets = status.targets.into_iter().filter_map(|target| target.memory);
        (status.memory.unwrap(), targets.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(memory(&profile), ("60Mi".to_owned(), "60Mi 60Mi".to_owned()));
    profile.targets = vec![serving(target("x", &[pods("b")]), 2, &[pods("a")])];
    assert_eq!(memory(&profile).0, "60Mi");
}

#[test]
fn time_to_warm_comes_from_the_slowest_required_target() {
    let mut world = StatusWorld::new();
    let mut slow = world.watching();
    if let Some(warmed) = &mut slow.warmed {
        warmed.took = Duration::from_millis(7_300);
    }
    world.runs(pods("a"), world.watching());
    world.runs(pods("b"), slow);
    let mut targets = vec![target("one", &[pods("a")]), target("two", &[pods("b")])];
    let status = world.compute(&declared(targets.clone()), None);
    assert_eq!(status.time_to_warm_milliseconds, Some(7_300));
    targets[1].requirement = TargetRequirement::Optional;
    let status = world.compute(&declared(targets.clone()), None);
    assert_eq!(status.time_to_warm_milliseconds, Some(2_000));
    targets[0].informers = [spec(&pods("c"))].into();
    let status = world.compute(&declared(targets), None);
    assert_eq!(status.time_to_warm_milliseconds, None);
}

#[test]
fn the_newest_relist_and_the_slowest_latency_are_shown() {
    let mut world = StatusWorld::new();
    let relisted = |second, replaced, p99| InformerReport {
        last_relist: Some(RelistReport {
            at: jiff::Timestamp::from_second(second).unwrap(),
            reason: RelistReason::Gone,
            replaced,
            deleted_objects: 0,
        }),
        event_latency: Some(LatencyQuantiles {
            p50: Duration::ZERO,
            p99: Duration::from_micros(p99),
        }),
        ..world.watching()
    };
    let (a, b) = (relisted(5, 1, 1), relisted(9, 2, 4_001));
    world.runs(pods("a"), a);
    world.runs(pods("b"), b);
    let targets = vec![target("pods", &[pods("a"), pods("b")])];
    let status = world.compute(&declared(targets), None);
    let json = serde_json::to_value(&status.targets[0]).unwrap();
    assert_eq!(
        json["lastRelist"],
        serde_json::json!({
            "time": "1970-01-01T00:00:09Z", "reason": "Gone",
            "replacedObjects": 2, "deletedObjects": 0,
        })
    );
    assert_eq!(json["latencyMilliseconds"], serde_json::json!({"event": {"p50": 0, "p99": 5}}));
}

#[test]
fn a_stale_target_says_when_its_data_was_last_confirmed() {
    let mut world = StatusWorld::new();
    let confirmed = world.clock.wall;
    world.runs(pods("a"), world.watching());
    world.pass(Duration::from_secs(20));
    world.runs(pods("b"), world.watching());
    let profile = declared(vec![target("pods", &[pods("a"), pods("b")])]);
    let first = world.compute(&profile, None);
    assert_eq!(first.targets[0].last_confirmed_time, None, "the target is fresh");

    // The informer of `pods("a")` has received nothing from its watch for longer than
    // `maxStaleness`.
    world.pass(Duration::from_secs(110));
    let mut before = first;
    for _ in 0..2 {
        let status = world.compute(&profile, Some(&before));
        assert_eq!(state(&status.targets[0].conditions, "Fresh"), "False/WatchSilent");
        let time = status.targets[0].last_confirmed_time.as_ref().map(|time| time.0);
        assert_eq!(time, Some(confirmed), "the least recently confirmed informer counts");
        assert_eq!(
            adopt(status.clone()).targets[0].last_confirmed_time,
            None,
            "the time belongs to another process's store"
        );
        world.pass(Duration::from_secs(5));
        before = status;
    }

    for informer in [pods("a"), pods("b")] {
        world.runs(informer, world.watching());
    }
    let status = world.compute(&profile, Some(&before));
    assert_eq!(state(&status.targets[0].conditions, "Fresh"), "True/WatchesCurrent");
    assert_eq!(status.targets[0].last_confirmed_time, None);
}

#[test]
fn a_target_that_is_not_warm_confirms_nothing() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    world.runs(pods("b"), world.listing());
    world.pass(Duration::from_mins(5));
    let status = world.compute(&declared(vec![target("pods", &[pods("a"), pods("b")])]), None);
    assert_eq!(state(&status.targets[0].conditions, "Fresh"), "Unknown/NotWarm");
    assert_eq!(status.targets[0].last_confirmed_time, None);
}

#[test]
fn each_object_that_does_not_decode_is_a_problem() {
    let mut world = StatusWorld::new();
    let undecodable = |name: &str| UndecodableObject {
        object: name.into(),
        problem: "metadata.name is missing".into(),
        at: world.clock.wall,
    };
    let bad = Arc::new([undecodable("a/one"), undecodable("a/two")]);
    let report = InformerReport { undecodable: bad, ..world.watching() };
    let status = one(&mut world, report);
    let problems = status.targets[0].problems.as_slice();
    let objects: Vec<_> = problems.iter().map(|problem| &*problem.object).collect();
    assert_eq!(objects, ["a/one", "a/two"]);
    for problem in problems {
        assert_eq!((problem.namespace.as_str(), problem.reason.as_str()), ("a", "Undecodable"));
        let told = problem.message.as_deref();
        assert_eq!(told, Some("lists that would contain it get 500: metadata.name is missing"));
    }
    assert_eq!(state(&status.conditions, "Ready"), "True/Ready", "other objects are served");
}

#[test]
fn objects_whose_cut_names_agree_are_one_problem() {
    let mut world = StatusWorld::new();
    let undecodable = |end: &str| UndecodableObject {
        object: format!("a/{}{end}", "x".repeat(253)).into(),
        problem: "metadata.name is missing".into(),
        at: world.clock.wall,
    };
    let bad = Arc::new([undecodable("1"), undecodable("2")]);
    let report = InformerReport { undecodable: bad, ..world.watching() };
    let status = one(&mut world, report);
    let [problem] = status.targets[0].problems.as_slice() else { panic!("one problem") };
    assert!(problem.object.len() <= 253, "{}", problem.object);
}

#[test]
fn many_problems_are_bounded_everywhere() {
    let mut world = StatusWorld::new();
    let names: Vec<_> = (0..300).map(|number| format!("{number:0>63}")).collect();
    let informers: Vec<_> = names.iter().map(|name| pods(name)).collect();
    for (number, informer) in informers.iter().enumerate() {
        let reason = FaultReason::VARIANTS[number % FaultReason::VARIANTS.len()];
        let mut report = world.failing(world.listing(), reason, Verb::List);
        if let Some(fault) = &mut report.fault {
            fault.message = "é".repeat(200).into();
        }
        world.runs(informer.clone(), report);
    }
    let targets = (0..32).map(|number| target(&format!("{number:0>63}"), &informers)).collect();
    let status = world.compute(&declared(targets), None);
    let all = status.targets.iter().flat_map(|target| &target.conditions).chain(&status.conditions);
    for condition in all {
        assert!(condition.message.len() <= 1024, "{}", condition.message);
        assert!(!condition.reason.is_empty());
    }
    let text = message(&status.conditions, "Warm");
    assert!(text.ends_with("And 29 more targets"), "{text}");
    for target in &status.targets {
        assert_eq!(target.problems.len(), 16);
        assert!(
            target.problems.iter().all(|problem| problem.message.as_ref().unwrap().len() <= 512)
        );
        assert_eq!(target.problems[0].reason, "Forbidden", "the most severe problem is first");
    }
}

#[test]
fn informers_that_targets_share_are_counted_once() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let targets = vec![target("one", &[pods("a")]), target("two", &[pods("a")])];
    let status = world.compute(&declared(targets), None);
    assert_eq!(status.objects, Some(10));
    assert_eq!(status.memory.as_deref(), Some("3Mi"));
}

fn any_report(
    world: &StatusWorld,
    phase: u8,
    reason: usize,
    is_warm: bool,
    age: u64,
) -> InformerReport {
    const PHASES: [InformerPhase; 9] = [
        InformerPhase::Queued,
        InformerPhase::Listing,
        InformerPhase::Watching,
        InformerPhase::Silent,
        InformerPhase::Reconnecting,
        InformerPhase::Relisting,
        InformerPhase::Failing,
        InformerPhase::Paused,
        InformerPhase::Blocked,
    ];
    let mut report = if is_warm { world.watching() } else { world.listing() };
    if let Some(reason) = FaultReason::VARIANTS.get(reason) {
        report = world.failing(report, *reason, Verb::Watch);
    }
    report.phase = PHASES[usize::from(phase) % PHASES.len()];
    report.lost_at = (report.phase == InformerPhase::Blocked).then_some(world.clock.wall);
    report.current_at =
        is_warm.then(|| world.clock.mono.checked_sub(Duration::from_secs(age)).unwrap());
    report
}

proptest! {
    #[test]
    fn informer_counts_add_up_and_ready_implies_all_synced(
        informers in proptest::collection::vec(
            proptest::option::of((0_u8..9, 0_usize..30, any::<bool>(), 0_u64..200)), 0..12,
        ),
    ) {
        let mut world = StatusWorld::new();
        let keys: Vec<_> = (0..informers.len()).map(|number| pods(&format!("n{number}"))).collect();
        for (key, informer) in keys.iter().zip(&informers) {
            if let Some((phase, reason, is_warm, age)) = *informer {
                let report = any_report(&world, phase, reason, is_warm, age);
                world.runs(key.clone(), report);
            }
        }
        let status = world.compute(&declared(vec![target("pods", &keys)]), None);
        let counts = status.targets[0].informers.clone().unwrap();
        let InformerCounts { total, synced, syncing, stale, forbidden, missing, limited, failing } =
            counts;
        prop_assert_eq!(usize::try_from(total).unwrap(), keys.len());
        prop_assert_eq!(total, synced + syncing + stale + forbidden + missing + limited + failing);
        let warm = state(&status.conditions, "Warm") == "True/Synced";
        prop_assert_eq!(warm, synced + stale == total);
        let ready = state(&status.conditions, "Ready") == "True/Ready";
        prop_assert_eq!(ready, synced == total);
        let mut keys: Vec<_> = status.targets[0]
            .problems
            .iter()
            .map(|problem| {
                (problem.namespace.clone(), problem.reason.clone(), problem.object.clone())
            })
            .collect();
        keys.sort();
        let before = keys.len();
        keys.dedup();
        prop_assert_eq!(before, keys.len(), "namespace, reason and object are the key of the list for the API server");
        prop_assert_eq!(status.conditions.len(), 8);
    }
}
