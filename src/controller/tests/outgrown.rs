//! Tests of limits after an edit, while the informers of both profile generations count against the
//! limits.

use super::*;
use kubewarm_api::model::{INFORMER_BYTES, ResolvedTarget};

fn spec(app: &str, limits: &Value) -> Value {
    let mut spec = targets(&["pods", "configmaps"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": app}});
    if !limits.is_null() {
        spec["limits"] = limits.clone();
    }
    spec
}

/// Sets the size of each store whose informer's name contains `informer` to `objects` objects of 1
/// KiB each.
fn hold(cluster: &Tables, outcome: &ReconcileResult, informer: &str, objects: u64) {
    let mut count = 0;
    for key in outcome.desired.keys().filter(|key| key.to_string().contains(informer)) {
        cluster.meter(key).set(objects, objects << 10);
        count += 1;
    }
    assert!(count > 0, "{informer} is not among {:?}", desired(outcome));
}

fn pods(outcome: &ReconcileResult) -> &ResolvedTarget {
    &first(outcome).targets[0]
}

/// Whether the lists of the informers whose names contain `informer` are paused.
fn is_held_back(outcome: &ReconcileResult, informer: &str) -> bool {
    let mut informers = outcome.desired.values().map(|(spec, _)| spec);
    let spec = informers.find(|spec| spec.key.to_string().contains(informer));
    !spec.unwrap().settings.meter.can_grow()
}

/// Runs profile `a/p` with 60 pods, and then edits it to select other pods, whose informer is not
/// synced.
fn edited(
    reconciler: &mut Reconciler,
    cluster: &mut Tables,
    limits: &Value,
) -> (ClusterProfile, ReconcileResult) {
    let old = [profile("a", "p", 1, spec("web", limits))];
    let outcome = run(reconciler, &old, cluster);
    hold(cluster, &outcome, "pods", 60);
    sync(cluster, &outcome);
    run(reconciler, &old, cluster);
    let new = profile("a", "p", 2, spec("shop", limits));
    let outcome = run(reconciler, std::slice::from_ref(&new), cluster);
    assert_eq!(outcome.desired.len(), 3);
    assert_eq!(pods(&outcome).serving.as_ref().unwrap().generation, 1);
    (new, outcome)
}

/// Returns the bytes of `kib` KiB of objects together with the fixed memory of `informers`
/// informers.
fn memory(kib: u64, informers: u64) -> u64 {
    (kib << 10) + informers * INFORMER_BYTES
}

#[test]
fn old_stores_count_and_are_dropped_before_any_target_stops() {
    for limits in [json!({"maxObjects": 100}), json!({"maxMemory": "100Ki"})] {
        let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
        let (profile, outcome) = edited(&mut reconciler, &mut cluster, &limits);
        let profiles = [profile];
        hold(&cluster, &outcome, "configmaps", 40);
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert!(pods(&outcome).serving.is_some(), "usage equals the limit: {limits}");
        hold(&cluster, &outcome, "configmaps", 41);
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert!(outcome.exceeded.is_empty(), "{limits}");
        assert_eq!((pods(&outcome).limited, &pods(&outcome).serving), (None, &None), "{limits}");
        let informers =
            ["configmaps.v1 in namespace a", "pods.v1 in namespace a, labels app in (shop)"];
        assert_eq!(desired(&outcome), informers, "{limits}");
        sync(&mut cluster, &outcome);
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert_eq!(pods(&outcome).serving.as_ref().unwrap().generation, 2);
    }
}

#[test]
fn a_list_paused_by_old_stores_continues_after_they_are_dropped() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let (profile, outcome) = edited(&mut reconciler, &mut cluster, &json!({"maxObjects": 100}));
    let profiles = [profile];
    hold(&cluster, &outcome, "shop", 40);
    assert!(!is_held_back(&outcome, "shop"));
    hold(&cluster, &outcome, "shop", 41);
    assert!(is_held_back(&outcome, "shop"));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(!is_held_back(&outcome, "shop"), "the list continues at the same page");
    assert!(!pods(&outcome).is_stopped());

    hold(&cluster, &outcome, "shop", 101);
    assert!(is_held_back(&outcome, "shop"));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(pods(&outcome).is_stopped(), "the target alone exceeds the limit");
    let overrun = pods(&outcome).limited.unwrap().overrun;
    assert_eq!((overrun.reached, overrun.others), (101, 0));
}

#[test]
fn old_stores_count_for_their_namespace() {
    let mut cluster = Tables::default();
    let mut reconciler = reconciler_within(memory_limits(None, Some(memory(100, 3))));
    let (edited_profile, outcome) = edited(&mut reconciler, &mut cluster, &Value::Null);
    let profiles = [edited_profile, profile("a", "other", 1, targets(&["nodes", "configmaps"]))];
    hold(&cluster, &outcome, "shop", 41);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.exceeded.is_empty());
    let resolved = |name: &str| {
        let mut all = outcome.observed.iter().map(|observed| &observed.resolved);
        all.find(|resolved| &*resolved.profile.name == name).unwrap()
    };
    assert_eq!(resolved("p").targets[0].serving, None);
    assert!(
        ["p", "other"]
            .iter()
            .all(|name| resolved(name).targets.iter().all(|target| target.limited.is_none()))
    );
}

#[test]
fn profiles_and_statuses_count_for_the_limit_of_their_namespace() {
    let cluster = Tables::default();
    let mut reconciler = reconciler_within(memory_limits(None, Some(memory(300, 1))));
    let with = |name: &str, status_bytes| ClusterProfile {
        status_bytes,
        ..profile(name, "p", 1, targets(&["pods"]))
    };
    let small = ["a", "b", "kubewarm-system"].map(|namespace| with(namespace, 60 << 10));
    let outcome = run(&mut reconciler, &small, &cluster);
    hold(&cluster, &outcome, "pods", 200);
    let outcome = run(&mut reconciler, &small, &cluster);
    assert!(outcome.exceeded.is_empty() && !is_held_back(&outcome, "namespace a"));

    let large = [with("a", 150 << 10), small[1].clone(), with("kubewarm-system", 9 << 20)];
    let outcome = run(&mut reconciler, &large, &cluster);
    let stopped = |outcome: &ReconcileResult| -> Vec<_> {
        let all = outcome.observed.iter().map(|observed| &observed.resolved);
        let stopped = all.filter(|resolved| resolved.targets[0].is_stopped());
        stopped.map(|resolved| resolved.profile.to_string()).collect()
    };
    assert_eq!(stopped(&outcome), ["a/p"], "no other profile stops");
    let overrun = first(&outcome).targets[0].limited.unwrap().overrun;
    assert_eq!((overrun.limit, overrun.others), (memory(300, 1), 150 << 10));
    let outcome = run(&mut reconciler, &small, &cluster);
    assert_eq!(stopped(&outcome), ["a/p"], "the target is retried only after 10 minutes");
    let outcome = reconciler.reconcile(&small, &cluster.cluster(), None, Duration::from_mins(13));
    assert_eq!(stopped(&outcome), [""; 0]);
}

#[test]
fn old_stores_of_one_tenant_stop_no_other_tenant() {
    let mut cluster = Tables::default();
    let mut reconciler = reconciler_within(memory_limits(Some(memory(100, 4)), None));
    let (edited_profile, _) = edited(&mut reconciler, &mut cluster, &Value::Null);
    let profiles = [edited_profile, profile("b", "p", 1, targets(&["pods"]))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    hold(&cluster, &outcome, "namespace b", 41);
    let others = outcome.desired.keys().filter(|key| key.declared_in.as_deref() == Some("b"));
    cluster.synced.extend(others.cloned());
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.exceeded.is_empty(), "{:?}", outcome.exceeded);
    assert!(!pods(&outcome).is_stopped() && pods(&outcome).serving.is_none());
    let other = &outcome.observed[1].resolved.targets[0];
    assert!(other.serving.is_some() && other.limited.is_none());
}

#[test]
fn a_new_version_counts_while_the_old_one_serves() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let mut only = targets(&["pods"]);
    only["limits"] = json!({"maxObjects": 100});
    let profiles = [profile("a", "p", 1, only)];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    hold(&cluster, &outcome, "pods", 60);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &profiles, &cluster);
    cluster.kinds.insert("pods", ("v2", true));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    hold(&cluster, &outcome, "pods.v2", 41);
    assert!(is_held_back(&outcome, "pods.v2"));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome), ["pods.v2 in namespace a"]);
    assert!(!pods(&outcome).is_stopped());
}

/// A profile that reads pods as a ServiceAccount, in the namespaces that a selector matches.
fn selecting(namespace: &str, limits: &Value) -> ClusterProfile {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    spec["serviceAccountName"] = json!("reader");
    if !limits.is_null() {
        spec["limits"] = limits.clone();
    }
    profile(namespace, "p", 1, spec)
}

#[test]
fn a_selectors_namespaces_count_only_for_their_tenant() {
    for bounds in [(None, Some(memory(100, 3))), (Some(memory(150, 4)), None)] {
        let mut cluster = Tables { names: vec!["x", "y"], ..Tables::default() };
        let mut reconciler = reconciler_within(memory_limits(bounds.0, bounds.1));
        let profiles = [selecting("a", &Value::Null), profile("b", "p", 1, targets(&["pods"]))];
        for _ in 0..3 {
            let outcome = run(&mut reconciler, &profiles, &cluster);
            sync(&mut cluster, &outcome);
        }
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert_eq!(outcome.desired.len(), 4, "{bounds:?}");
        hold(&cluster, &outcome, "namespace b", 60);
        hold(&cluster, &outcome, "namespaces.v1", 101);
        assert!(is_held_back(&outcome, "namespaces.v1"), "{bounds:?}");
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert_eq!(desired(&outcome), ["pods.v1 in namespace b"], "{bounds:?}");
        let stopped = pods(&outcome);
        assert!(stopped.is_stopped());
        let overrun = stopped.limited.unwrap().overrun;
        assert_eq!((overrun.reached, overrun.expected), (memory(101, 3), Some(0)), "{bounds:?}");
        assert_eq!(stopped.informers.len(), 2, "a stopped target still declares its informers");
    }
}

#[test]
fn a_selectors_namespaces_do_not_count_for_the_profiles_limits() {
    for limits in [json!({"maxObjects": 10}), json!({"maxMemory": "10Ki"})] {
        let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
        let profiles = [selecting("a", &limits)];
        let outcome = run(&mut reconciler, &profiles, &cluster);
        hold(&cluster, &outcome, "namespaces.v1", 100);
        sync(&mut cluster, &outcome);
        let outcome = run(&mut reconciler, &profiles, &cluster);
        assert!(outcome.exceeded.is_empty() && !is_held_back(&outcome, "namespaces.v1"));
    }
}

#[test]
fn a_target_with_too_many_informers_stops_if_its_namespaces_do_not_fit() {
    let names: Vec<_> = (0..3_000).map(|n| &*format!("n{n}").leak()).collect();
    let mut cluster = Tables { names, ..Tables::default() };
    let mut reconciler = reconciler_within(memory_limits(None, Some(memory(100, 1))));
    let profiles = [selecting("a", &Value::Null)];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::TooManyInformers);
    hold(&cluster, &outcome, "namespaces.v1", 101);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert!(outcome.desired.is_empty() && pods(&outcome).is_stopped());
    assert_eq!(
        pods(&outcome).limited.unwrap().overrun.expected,
        None,
        "the number of objects is unknown"
    );
}

#[test]
fn a_removed_target_leaves_no_state() {
    let mut reconciler = reconciler();
    let cluster = Tables::default();
    let mut named = targets(&["pods", "configmaps"]);
    named["targets"][0]["name"] = json!("zebra");
    named["limits"] = json!({"maxObjects": 10});
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, named.clone())], &cluster);
    hold(&cluster, &outcome, "pods", 11);
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, named.clone())], &cluster);
    assert!(pods(&outcome).is_stopped());
    assert!(format!("{reconciler:?}").contains("zebra"));
    named["targets"][0]["name"] = json!("horse");
    run(&mut reconciler, &[profile("a", "p", 2, named)], &cluster);
    let left = format!("{reconciler:?}");
    assert!(!left.contains("zebra"), "{left}");
}
