//! Tests of leaders, followers, restarts, and of created and deleted profiles.

use super::fixtures::{StatusWorld, declared, live, pods, state, target};
use crate::status::{
    ObservedProfile, ProfileEvent, StatusReporter, StatusWrite, StatusWriteOutcome, StoredStatus,
};
use kubewarm_api::{
    model::{FaultReason, InformerKey, ProfileRef, ResolvedProfile},
    v1alpha1::CacheProfileStatus,
};
use kubewarm_cache::informer::Verb;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(super) fn observed(
    profile: ResolvedProfile,
    in_cluster: Option<&CacheProfileStatus>,
) -> ObservedProfile {
    let in_cluster = in_cluster.cloned();
    let in_cluster = StoredStatus::new(move || in_cluster.clone());
    ObservedProfile {
        in_cluster,
        ..ObservedProfile::new(Arc::new(profile), kubewarm_api::manifests::NAMESPACE.into())
    }
}

pub(super) fn named(name: &str, uid: &str) -> ResolvedProfile {
    ResolvedProfile {
        profile: ProfileRef { namespace: "shop".into(), name: name.into() },
        uid: uid.into(),
        ..declared(vec![target("pods", &[pods("a")])])
    }
}

/// Values of the parameter `is_leader`.
const LEADER: bool = true;
const FOLLOWER: bool = false;

/// The status writes that start after one call of [`StatusReporter::update`], and the Events that
/// this call returns.
struct Round {
    writes: Vec<StatusWrite>,
    notices: Vec<ProfileEvent>,
}

fn look(
    reporter: &mut StatusReporter,
    world: &StatusWorld,
    profiles: &[ObservedProfile],
    is_leader: bool,
) -> Round {
    let informers = |key: &InformerKey| world.informers.get(key).cloned().unwrap_or_default();
    let notices = reporter.update(profiles, live(&informers), is_leader, world.clock);
    let writes = end(reporter, world, StatusWriteOutcome::Written);
    Round { writes, notices }
}

/// Starts all status writes that are due and ends each with `outcome`, until none is due.
fn end(
    reporter: &mut StatusReporter,
    world: &StatusWorld,
    outcome: StatusWriteOutcome,
) -> Vec<StatusWrite> {
    let mut writes = Vec::new();
    loop {
        let begun = reporter.start_due_writes(world.clock.mono);
        if begun.is_empty() {
            return writes;
        }
        for (write, _) in &begun {
            reporter.record_result(write, outcome, world.clock.mono);
        }
        writes.extend(begun.into_iter().map(|(write, _)| write));
    }
}

pub(super) fn warm() -> StatusWorld {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    world
}

#[test]
fn of_equal_statuses_one_stays_in_memory() {
    let world = warm();
    let mut reporter = StatusReporter::default();
    let profile = ProfileRef { namespace: "shop".into(), name: "p".into() };
    let first = look(&mut reporter, &world, &[observed(named("p", "u"), None)], LEADER);
    let written = &first.writes.last().unwrap().status;
    look(&mut reporter, &world, &[observed(named("p", "u"), None)], LEADER);
    assert!(Arc::ptr_eq(&reporter.statuses()[&profile], written));

    let mut successor = StatusReporter::default();
    let reads = Arc::new(AtomicUsize::new(0));
    let (count, status) = (Arc::clone(&reads), (**written).clone());
    let in_cluster = StoredStatus::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Some(status.clone())
    });
    for _ in 0..3 {
        let observed =
            ObservedProfile { in_cluster: in_cluster.clone(), ..observed(named("p", "u"), None) };
        look(&mut successor, &world, &[observed], LEADER);
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1, "only a new leader needs it");
}

#[test]
fn a_follower_computes_statuses_and_sends_none() {
    let world = warm();
    let mut reporter = StatusReporter::default();
    let round = look(&mut reporter, &world, &[observed(named("p", "u"), None)], FOLLOWER);
    assert_eq!((round.writes, round.notices), (vec![], vec![]));
    let profile = ProfileRef { namespace: "shop".into(), name: "p".into() };
    let status = &reporter.statuses()[&profile];
    assert_eq!(state(&status.conditions, "Ready"), "True/Ready");
}

#[test]
fn a_new_leader_writes_what_differs_and_keeps_the_clusters_times() {
    let mut world = warm();
    let mut old = StatusReporter::default();
    let written = look(&mut old, &world, &[observed(named("p", "u"), None)], LEADER).writes;
    let in_cluster = (*written[0].status).clone();

    let mut new = StatusReporter::default();
    world.pass(Duration::from_secs(30));
    world.runs(pods("a"), world.watching());
    let profiles = [observed(named("p", "u"), Some(&in_cluster))];
    assert!(look(&mut new, &world, &profiles, FOLLOWER).writes.is_empty());
    let round = look(&mut new, &world, &profiles, LEADER);
    for write in &round.writes {
        assert_eq!(
            write.status.conditions, in_cluster.conditions,
            "the conditions have not changed since the restart"
        );
    }
    assert_eq!(round.notices, [], "the Event for Ready was sent before");
    world.runs(pods("a"), world.failing(world.watching(), FaultReason::Forbidden, Verb::Watch));
    world.pass(Duration::from_secs(1));
    let round = look(&mut new, &world, &profiles, LEADER);
    assert_eq!(state(&round.writes[0].status.conditions, "Ready"), "False/PermissionsMissing");
    let causes: Vec<_> = round.notices.iter().map(|notice| notice.reason).collect();
    assert_eq!(causes, ["NotReady", "PermissionsMissing"]);
}

#[test]
fn a_restart_measures_its_own_time_to_warm() {
    let world = warm();
    let status = world.compute(&named("p", "u"), None);
    let foreign = CacheProfileStatus { time_to_warm_milliseconds: Some(99_000), ..status };
    let mut reporter = StatusReporter::default();
    let profiles = [observed(named("p", "u"), Some(&foreign))];
    let round = look(&mut reporter, &world, &profiles, LEADER);
    assert_eq!(round.writes[0].status.time_to_warm_milliseconds, Some(2_000));
}

#[test]
fn a_recreated_profile_has_a_new_status() {
    let world = warm();
    let mut reporter = StatusReporter::default();
    assert_eq!(
        look(&mut reporter, &world, &[observed(named("p", "u1"), None)], LEADER).writes.len(),
        1
    );
    let round = look(&mut reporter, &world, &[observed(named("p", "u2"), None)], LEADER);
    assert_eq!(&*round.writes[0].uid, "u2");
}

#[test]
fn a_leader_that_regains_the_lease_compares_with_the_status_in_the_cluster() {
    let mut world = warm();
    let mut reporter = StatusReporter::default();
    let profiles = [observed(named("p", "u"), None)];
    assert_eq!(look(&mut reporter, &world, &profiles, LEADER).writes.len(), 1);
    world.pass(Duration::from_secs(20));
    assert_eq!(look(&mut reporter, &world, &profiles, LEADER).writes.len(), 0);
    assert_eq!(look(&mut reporter, &world, &profiles, FOLLOWER).writes.len(), 0);
    // Another replica was the leader before and wrote nothing, so the profile in the API server
    // still has no status.
    assert_eq!(look(&mut reporter, &world, &profiles, LEADER).writes.len(), 1);
}

#[test]
fn an_unchanged_profile_is_written_once() {
    let mut world = warm();
    let mut reporter = StatusReporter::default();
    let profiles: Vec<_> =
        (0..100).map(|number| observed(named(&format!("p{number}"), "u"), None)).collect();
    let mut writes = 0;
    for second in 0..30 {
        writes += look(&mut reporter, &world, &profiles, LEADER).writes.len();
        if second == 0 {
            assert_eq!(writes, 100);
        }
        world.pass(Duration::from_secs(1));
        world.runs(pods("a"), world.watching());
    }
    assert_eq!(writes, 100);
    assert_eq!(look(&mut reporter, &world, &[], LEADER).writes.len(), 0);
    assert!(reporter.statuses().is_empty(), "forgotten");
}

#[test]
fn each_kind_of_change_waits_for_its_own_interval() {
    let mut world = warm();
    let mut reporter = StatusReporter::default();
    let mut writes = |world: &StatusWorld, generation| {
        let profile = ResolvedProfile { generation, ..named("p", "u") };
        look(&mut reporter, world, &[observed(profile, None)], LEADER).writes.len()
    };
    assert_eq!(writes(&world, 1), 1);
    let refused = world.failing(world.watching(), FaultReason::Forbidden, Verb::Watch);
    world.pass(Duration::from_millis(999));
    world.runs(pods("a"), refused);
    assert_eq!(writes(&world, 1), 0, "the last write was less than a second ago");
    world.pass(Duration::from_millis(1));
    assert_eq!(writes(&world, 1), 1, "a changed condition is written after a second");
    world.pass(Duration::from_secs(2));
    world.runs(pods("a"), world.watching());
    assert_eq!(writes(&world, 1), 1, "the condition changed back");
    for (seconds, generation, written) in [(9, 2, 0), (1, 2, 1)] {
        world.pass(Duration::from_secs(seconds));
        world.runs(pods("a"), world.watching());
        assert_eq!(writes(&world, generation), written, "{seconds}");
    }
    let mut written = Vec::new();
    for second in 1..=180 {
        world.pass(Duration::from_secs(1));
        world.runs(pods("a"), world.watching());
        let informer = world.informers.get_mut(&pods("a")).unwrap();
        informer.report.as_mut().unwrap().usage.objects = second;
        written.extend((writes(&world, 2) > 0).then_some(second));
    }
    assert_eq!(written, [60, 120, 180]);
}

#[test]
fn a_change_during_a_write_is_written_after_it() {
    let mut world = warm();
    let (mut reporter, profiles) = (StatusReporter::default(), [observed(named("p", "u"), None)]);
    let informers = |world: &StatusWorld| {
        let informers = world.informers.clone();
        move |key: &InformerKey| informers.get(key).cloned().unwrap_or_default()
    };
    reporter.update(&profiles, live(&informers(&world)), LEADER, world.clock);
    let begun = reporter.start_due_writes(world.clock.mono);
    world.pass(Duration::from_mins(10));
    reporter.update(&profiles, live(&informers(&world)), LEADER, world.clock);
    assert!(reporter.start_due_writes(world.clock.mono).is_empty());
    let [(write, _permit)] = begun.as_slice() else { panic!("one write") };
    reporter.record_result(write, StatusWriteOutcome::Written, world.clock.mono);
    assert_eq!(
        reporter.start_due_writes(world.clock.mono).len(),
        1,
        "the watch became silent during the write"
    );
}

#[test]
fn an_existing_profile_is_written_again_five_minutes_after_a_404() {
    let mut world = warm();
    let mut reporter = StatusReporter::default();
    let informers = world.informers.clone();
    let informers = |key: &InformerKey| informers.get(key).cloned().unwrap_or_default();
    let profiles = [observed(named("p", "u"), None)];
    reporter.update(&profiles, live(&informers), LEADER, world.clock);
    let begun = reporter.start_due_writes(world.clock.mono);
    let [(write, _permit)] = begun.as_slice() else { panic!("one write") };
    reporter.record_result(write, StatusWriteOutcome::NotFound, world.clock.mono);
    world.pass(Duration::from_secs(299));
    assert!(reporter.start_due_writes(world.clock.mono).is_empty());
    world.pass(Duration::from_secs(1));
    assert_eq!(reporter.start_due_writes(world.clock.mono).len(), 1);
}

#[test]
fn a_404_is_dropped_and_results_of_an_old_uid_are_ignored() {
    let mut world = warm();
    let mut reporter = StatusReporter::default();
    let informers = world.informers.clone();
    let mut due = |world: &StatusWorld, uid, outcome| {
        let profiles = [observed(named("p", uid), None)];
        reporter.update(
            &profiles,
            live(&|key| informers.get(key).cloned().unwrap_or_default()),
            LEADER,
            world.clock,
        );
        let former = reporter.start_due_writes(world.clock.mono);
        let old =
            |(write, _): &(StatusWrite, _)| StatusWrite { uid: "former".into(), ..write.clone() };
        for former in former.iter().map(old) {
            reporter.record_result(&former, StatusWriteOutcome::Written, world.clock.mono);
        }
        for (write, _) in &former {
            reporter.record_result(write, outcome, world.clock.mono);
        }
        former.len()
    };
    assert_eq!(due(&world, "old", StatusWriteOutcome::NotFound), 1);
    world.pass(Duration::from_secs(100));
    assert_eq!(due(&world, "old", StatusWriteOutcome::NotFound), 0);
    assert_eq!(due(&world, "new", StatusWriteOutcome::Failed), 1);
    world.pass(Duration::from_secs(1));
    assert_eq!(
        due(&world, "new", StatusWriteOutcome::Failed),
        1,
        "the first retry is after a second"
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(
        due(&world, "new", StatusWriteOutcome::Written),
        0,
        "the second retry is after two seconds"
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(due(&world, "new", StatusWriteOutcome::Written), 1);
}

#[test]
fn slow_writes_of_one_namespace_do_not_delay_others() {
    let world = warm();
    let mut reporter = StatusReporter::default();
    let profile = |namespace: &str, number: usize| {
        let name = format!("p{number}").into();
        let profile = ProfileRef { namespace: namespace.into(), name };
        observed(ResolvedProfile { profile, ..named("p", "u") }, None)
    };
    let mut profiles: Vec<_> = (0..1_000).map(|number| profile("slow", number)).collect();
    let informers = |key: &InformerKey| world.informers.get(key).cloned().unwrap_or_default();
    reporter.update(&profiles, live(&informers), LEADER, world.clock);
    let slow = reporter.start_due_writes(world.clock.mono);
    assert_eq!(slow.len(), 4, "one namespace may have 4 writes in flight");
    assert!(reporter.start_due_writes(world.clock.mono).is_empty());
    profiles.extend((0..50).map(|number| profile(&format!("quick-{number}"), 0)));
    reporter.update(&profiles, live(&informers), LEADER, world.clock);
    assert_eq!(
        reporter.start_due_writes(world.clock.mono).len(),
        36,
        "the rest of the limit of 40"
    );
}
