use super::{
    Tables, desired, first, memory_limits, profile, reconciler, reconciler_within, run, sync,
};
use crate::controller::{
    declarations::Declarations,
    profile_parser::ClusterProfile,
    reconcile::{ReconcileResult, Reconciler},
};
use jiff::Timestamp;
use kubewarm_api::model::{INFORMER_BYTES, InformerKey, LimitKind, LimitScope, ResolvedTarget};
use serde_json::{Value, json};
use std::time::Duration;

fn with(limits: &Value) -> Value {
    let target = |name: &str| json!({"name": name, "resource": name});
    json!({"targets": [target("configmaps"), target("pods")], "limits": limits})
}

/// Sets the size of the store for `kind` to `objects` objects of 1 KiB each.
fn holds(cluster: &Tables, outcome: &ReconcileResult, kind: &str, objects: u64) {
    let keys = outcome.desired.keys().filter(|key| key.resource.resource() == kind);
    keys.for_each(|key: &InformerKey| cluster.meter(key).set(objects, objects << 10));
}

fn target(outcome: &ReconcileResult, at: usize) -> &ResolvedTarget {
    &first(outcome).targets[at]
}

fn at(
    reconciler: &mut Reconciler,
    profiles: &[ClusterProfile],
    cluster: &Tables,
    minutes: u64,
) -> ReconcileResult {
    reconciler.reconcile(profiles, &cluster.cluster(), None, Duration::from_mins(minutes))
}

#[test]
fn only_the_target_that_exceeds_the_limit_stops() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let profiles = [profile("a", "p", 1, with(&json!({"maxObjects": 100})))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    cluster
        .synced
        .extend(outcome.desired.keys().filter(|k| k.resource.resource() == "pods").cloned());
    holds(&cluster, &outcome, "pods", 40);
    holds(&cluster, &outcome, "configmaps", 61);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(outcome.exceeded.len(), 1);
    let stopped = target(&outcome, 0);
    let overrun = stopped.limited.unwrap().overrun;
    assert_eq!((overrun.measure, overrun.reached, overrun.others), (LimitKind::Objects, 61, 40));
    assert_eq!(
        stopped.informers.len(),
        1,
        "the informer still counts for permissions and the status"
    );
    assert!(target(&outcome, 1).limited.is_none());
    // The target stays stopped, although it no longer runs informers whose objects count against
    // the limit.
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.exceeded.is_empty() && target(&outcome, 0).is_stopped());
}

#[test]
fn an_informer_continues_for_a_profile_without_a_limit() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let profiles = [
        profile("a", "small", 1, with(&json!({"maxObjects": 10}))),
        profile("a", "large", 1, with(&json!({"maxObjects": 1000}))),
    ];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    sync(&mut cluster, &outcome);
    holds(&cluster, &outcome, "pods", 50);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(outcome.desired.len(), 2);
    let stopped = |at: usize| outcome.observed[at].resolved.targets[1].is_stopped();
    // `stopped` takes the position in `observed`, which is sorted by name.
    assert_eq!((stopped(0), stopped(1)), (false, true));
    assert!(outcome.observed[1].resolved.targets[1].serving.is_none());
}

#[test]
fn a_stopped_target_is_retried_after_ten_minutes_and_after_an_edit() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let profiles = |generation, limit: u64| {
        [profile("a", "p", generation, with(&json!({"maxObjects": limit})))]
    };
    let outcome = run(&mut reconciler, &profiles(1, 10), &cluster);
    holds(&cluster, &outcome, "pods", 11);
    let outcome = run(&mut reconciler, &profiles(1, 10), &cluster);
    assert!(target(&outcome, 1).is_stopped());
    for informer in &*target(&outcome, 1).informers {
        informer.settings.meter.set(0, 0);
    }
    assert!(target(&at(&mut reconciler, &profiles(1, 10), &cluster, 9), 1).is_stopped());
    let outcome = at(&mut reconciler, &profiles(1, 10), &cluster, 13);
    assert_eq!(target(&outcome, 1).limited.unwrap().retry_at, None);
    assert_eq!(outcome.desired.len(), 2);
    // The target still exceeds the limit and stops again. With fewer objects it would continue.
    holds(&cluster, &outcome, "pods", 12);
    assert!(target(&at(&mut reconciler, &profiles(1, 10), &cluster, 13), 1).is_stopped());
    let outcome = at(&mut reconciler, &profiles(2, 20), &cluster, 14);
    assert!(target(&outcome, 1).limited.is_none());
    sync(&mut cluster, &outcome);
    let outcome = at(&mut reconciler, &profiles(2, 20), &cluster, 14);
    assert!(outcome.exceeded.is_empty() && target(&outcome, 1).limited.is_none());
}

#[test]
fn no_target_of_a_profile_stops_while_its_objects_are_counted() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let profiles = [profile("a", "p", 1, with(&json!({"maxObjects": 100})))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    cluster.counting.extend(outcome.desired.keys().cloned());
    holds(&cluster, &outcome, "pods", 101);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.exceeded.is_empty() && outcome.desired.len() == 2);
    cluster.counting.clear();
    assert_eq!(run(&mut reconciler, &profiles, &cluster).exceeded.len(), 1);
}

#[test]
fn a_full_process_stops_a_tenant_before_the_operator_namespace() {
    let mebibytes = |count: u64| Some(count << 20);
    let limits = memory_limits(mebibytes(16), mebibytes(4));
    let (mut reconciler, mut cluster) = (reconciler_within(limits), Tables::default());
    let pods = || json!({"targets": [{"name": "pods", "resource": "pods"}]});
    let tenant = |(age, name): (i64, &&str)| ClusterProfile {
        created: Timestamp::from_second(age).ok(),
        ..profile(name, "p", 1, pods())
    };
    let mut profiles: Vec<_> = (0..).zip(&["a", "b", "c", "d"]).map(tenant).collect();
    let outcome = run(&mut reconciler, &profiles, &cluster);
    holds(&cluster, &outcome, "pods", 3_900);
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.exceeded.is_empty() && outcome.desired.len() == 4);

    profiles.push(profile("kubewarm-system", "p", 1, pods()));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    let mut desired = outcome.desired.iter();
    let (_, (spec, _)) = desired.find(|(key, _)| !cluster.synced.contains(*key)).unwrap();
    let meter = &spec.settings.meter;
    meter.set(2_000, 2 << 20);
    // The limit of the process stops targets even while an informer's number of objects is unknown,
    // because a tenant could delay this number.
    cluster.counting.extend(outcome.desired.keys().cloned());
    assert!(!meter.can_grow(), "the list is paused until another target has stopped");
    let outcome = run(&mut reconciler, &profiles, &cluster);
    let stopped: Vec<_> = outcome
        .observed
        .iter()
        .filter(|observed| observed.resolved.targets[0].is_stopped())
        .map(|observed| observed.resolved.profile.to_string())
        .collect();
    assert_eq!(stopped, ["d/p"]);
    assert!(meter.can_grow() && outcome.desired.len() == 4);
    let overrun = outcome.observed[3].resolved.targets[0].limited.unwrap().overrun;
    assert_eq!((overrun.bound, overrun.measure), (LimitScope::Process, LimitKind::Memory));
}

/// A hundred profiles of one namespace. Each has 32 targets whose selectors match no object.
fn crowd(namespace: &str) -> Vec<ClusterProfile> {
    let spec = |n: usize| {
        let target = |at: usize| {
            let labels = json!({"matchLabels": {"none": format!("{n}-{at}")}});
            json!({"name": format!("t{at}"), "resource": "pods", "labelSelector": labels})
        };
        json!({"targets": (0..32).map(target).collect::<Vec<_>>()})
    };
    (0..100).map(|n| profile(namespace, &format!("p{n:02}"), 1, spec(n))).collect()
}

#[test]
fn idle_informers_count_and_informers_beyond_the_limit_never_start() {
    const MIB: u64 = 1 << 20;
    let profiles = crowd("a");
    let all = run(&mut reconciler(), &profiles, &Tables::default());
    assert_eq!(all.desired.len(), 1_000, "a namespace may have 1,000 informers");
    for (limits, bytes) in [
        (memory_limits(Some(48 * MIB), None), 48 * MIB),
        (memory_limits(Some(48 * MIB), Some(12 * MIB)), 12 * MIB),
    ] {
        let (mut reconciler, cluster) = (reconciler_within(limits), Tables::default());
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert_eq!(outcome.desired.len() as u64, bytes / INFORMER_BYTES, "{limits:?}");
        let mut targets = outcome.observed.iter().flat_map(|observed| &observed.resolved.targets);
        let last = targets.rfind(|target| target.limited.is_some()).unwrap();
        let overrun = last.limited.unwrap().overrun;
        assert_eq!((overrun.reached, overrun.others), (INFORMER_BYTES, bytes));
        // `/readyz` waits only for the informers of targets that no limit has stopped.
        let running = Declarations::new(outcome.observed.clone()).running;
        assert_eq!(running.len(), outcome.desired.len());
        // A second reconciliation keeps the running targets.
        let again = run(&mut reconciler, &profiles, &cluster);
        assert_eq!(desired(&again), desired(&outcome));
    }
}

#[test]
fn informers_of_the_operator_namespace_displace_tenants() {
    let limits = memory_limits(Some(10 * INFORMER_BYTES), None);
    let (mut reconciler, cluster) = (reconciler_within(limits), Tables::default());
    let mut profiles = crowd("a");
    assert_eq!(run(&mut reconciler, &profiles, &cluster).desired.len(), 10);
    let two = json!({"targets": [{"name": "pods", "resource": "pods"},
        {"name": "configmaps", "resource": "configmaps"}]});
    profiles.push(profile("kubewarm-system", "own", 1, two));
    run(&mut reconciler, &profiles, &cluster);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    let operator_informers =
        outcome.desired.keys().filter(|key| key.declared_in.as_deref() != Some("a")).count();
    assert_eq!((operator_informers, outcome.desired.len()), (2, 10));
}
