//! Limits: who is stopped, that nobody else is, and when it is tried again.

use super::{Tables, desired, first, profile, reconciler, run, sync};
use crate::{
    controller::{
        intake::Found,
        reconcile::{Outcome, Reconciler},
    },
    model::{Attempt, CellKey, DeclaredTarget, Measure},
};
use serde_json::{Value, json};
use std::time::Duration;

fn with(limits: &Value) -> Value {
    let target = |name: &str| json!({"name": name, "resource": {"resource": name}});
    json!({"targets": [target("configmaps"), target("pods")], "limits": limits})
}

/// The table of the cell of this kind holds so many objects, of 1 KiB each.
fn holds(cluster: &Tables, outcome: &Outcome, kind: &str, objects: u64) {
    use crate::controller::resolve::Cluster as _;
    let keys = outcome.desired.keys().filter(|key| key.resource.resource() == kind);
    keys.for_each(|key: &CellKey| cluster.gauge(key).set(objects, objects << 10));
}

fn target(outcome: &Outcome, at: usize) -> &DeclaredTarget {
    &first(outcome).targets[at]
}

fn at(reconciler: &mut Reconciler, found: &[Found], cluster: &Tables, minutes: u64) -> Outcome {
    reconciler.reconcile(found, cluster, None, Duration::from_mins(minutes))
}

#[test]
fn a_runaway_is_stopped_and_its_sibling_is_not() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = [profile("a", "p", 1, with(&json!({"maxObjects": 100})))];
    let outcome = run(&mut reconciler, &found, &cluster);
    cluster
        .synced
        .extend(outcome.desired.keys().filter(|k| k.resource.resource() == "pods").cloned());
    holds(&cluster, &outcome, "pods", 40);
    holds(&cluster, &outcome, "configmaps", 61);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(outcome.exceeded.len(), 1);
    let stopped = target(&outcome, 0);
    let overrun = stopped.limited.unwrap().overrun;
    assert_eq!((overrun.measure, overrun.reached, overrun.others), (Measure::Objects, 61, 40));
    assert_eq!(stopped.cells.len(), 1, "permissions and counts still know its cell");
    assert!(target(&outcome, 1).limited.is_none());
    // Its table is gone, and it stays so.
    let outcome = run(&mut reconciler, &found, &cluster);
    assert!(outcome.exceeded.is_empty() && target(&outcome, 0).is_stopped());
}

#[test]
fn a_cell_lives_on_for_the_profile_that_does_not_limit_it() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = [
        profile("a", "small", 1, with(&json!({"maxObjects": 10}))),
        profile("a", "large", 1, with(&json!({"maxObjects": 1000}))),
    ];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    holds(&cluster, &outcome, "pods", 50);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(outcome.desired.len(), 2);
    let stopped = |at: usize| outcome.observed[at].declared.targets[1].is_stopped();
    // In the order of their names.
    assert_eq!((stopped(0), stopped(1)), (false, true));
    assert!(outcome.observed[1].declared.targets[1].serving.is_none());
}

#[test]
fn it_is_tried_again_after_ten_minutes_and_at_an_edit() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = |generation, limit: u64| {
        [profile("a", "p", generation, with(&json!({"maxObjects": limit})))]
    };
    let outcome = run(&mut reconciler, &found(1, 10), &cluster);
    holds(&cluster, &outcome, "pods", 11);
    let outcome = run(&mut reconciler, &found(1, 10), &cluster);
    assert!(target(&outcome, 1).is_stopped());
    for key in outcome.observed[0].declared.targets[1].cells.iter() {
        use crate::controller::resolve::Cluster as _;
        cluster.gauge(key).set(0, 0);
    }
    assert!(target(&at(&mut reconciler, &found(1, 10), &cluster, 9), 1).is_stopped());
    let outcome = at(&mut reconciler, &found(1, 10), &cluster, 13);
    assert_eq!(target(&outcome, 1).limited.unwrap().attempt, Attempt::UnderWay);
    assert_eq!(outcome.desired.len(), 2);
    // Still too much: stopped again. With less it would be let go.
    holds(&cluster, &outcome, "pods", 12);
    assert!(target(&at(&mut reconciler, &found(1, 10), &cluster, 13), 1).is_stopped());
    let outcome = at(&mut reconciler, &found(2, 20), &cluster, 14);
    assert!(target(&outcome, 1).limited.is_none());
    sync(&mut cluster, &outcome);
    let outcome = at(&mut reconciler, &found(2, 20), &cluster, 14);
    assert!(outcome.exceeded.is_empty() && target(&outcome, 1).limited.is_none());
}

#[test]
fn one_that_fits_after_all_is_tried_at_once_when_there_is_room() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = [profile("a", "p", 1, with(&json!({"maxObjects": 100})))];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    holds(&cluster, &outcome, "configmaps", 70);
    holds(&cluster, &outcome, "pods", 40);
    let all = outcome;
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    // 70 and 25 fit, but only just: that would be a coin's toss.
    holds(&cluster, &all, "configmaps", 0);
    holds(&cluster, &all, "pods", 25);
    assert!(target(&run(&mut reconciler, &found, &cluster), 0).is_stopped());
    holds(&cluster, &all, "pods", 20);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(target(&outcome, 0).limited.unwrap().attempt, Attempt::UnderWay);
    holds(&cluster, &outcome, "configmaps", 70);
    assert!(target(&run(&mut reconciler, &found, &cluster), 0).limited.is_none());
}
