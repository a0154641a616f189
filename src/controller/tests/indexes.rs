//! Declared indexes: who is charged for them.

use super::*;
use crate::{controller::resolve::Cluster as _, model::DeclaredTarget};

const KIB: u64 = 1 << 10;

/// Pods of namespace `a`, with so many indexes from number `from` on.
fn indexing(at: &str, (from, count): (usize, usize), limits: &Value) -> Found {
    let indexes = (from..from + count)
        .map(|n| json!({"name": format!("i{n}"), "fieldPath": format!(".spec.f{n}")}));
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["indexes"] = indexes.collect();
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    if !limits.is_null() {
        spec["limits"] = limits.clone();
    }
    let (namespace, name) = at.split_once('/').unwrap();
    profile(namespace, name, 1, spec)
}

/// The table of the one cell holds so much, and as much again for each of its declared indexes.
fn hold(cluster: &Tables, outcome: &Outcome, bytes: u64) {
    let [(spec, _)] = outcome.desired.values().collect::<Vec<_>>()[..] else {
        panic!("one cell: {:?}", desired(outcome));
    };
    let table = cluster.gauge(&spec.key);
    table.set(50, bytes);
    for path in &spec.indexes {
        table.index(path).set(0, bytes);
    }
}

fn target(outcome: &Outcome, at: usize) -> &DeclaredTarget {
    &outcome.observed[at].declared.targets[0]
}

fn indexes(outcome: &Outcome) -> usize {
    outcome.desired.values().next().unwrap().0.indexes.len()
}

#[test]
fn nobody_is_charged_for_indexes_that_others_declare() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let limits = json!({"maxMemory": "100Ki"});
    let found = [
        indexing("a/p", (0, 16), &Value::Null),
        indexing("a/q", (16, 2), &limits),
        indexing("kubewarm-system/p", (0, 0), &limits),
    ];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    // 630 KiB in all; 105 KiB were too much for one, and 35 KiB are the other's.
    for (bytes, is_stopped) in [(33 * KIB, false), (35 * KIB, true)] {
        let outcome = run(&mut reconciler, &found, &cluster);
        hold(&cluster, &outcome, bytes);
        let outcome = run(&mut reconciler, &found, &cluster);
        assert_eq!(outcome.desired.len(), 1);
        let stopped = [0, 1, 2].map(|at| target(&outcome, at).is_stopped());
        let left = if is_stopped { 16 } else { 18 };
        assert_eq!((stopped, indexes(&outcome)), ([false, is_stopped, false], left));
        let named = [0, 1, 2].map(|at| target(&outcome, at).named.len());
        assert_eq!(named, [16, 2, 0], "what is not kept can be asked for");
        let leaves = &outcome.desired.values().next().unwrap().0.tuning.leaves;
        assert!(!leaves.are_partly_used_up(), "nobody's list is held back");
    }
    // One that both declare counts in full for both.
    let found = [found[0].clone(), indexing("a/q", (14, 3), &limits), found[2].clone()];
    let (mut reconciler, cluster) =
        (self::reconciler(), Tables { synced: cluster.synced, ..Tables::default() });
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(indexes(&outcome), 17);
    hold(&cluster, &outcome, 26 * KIB);
    let outcome = run(&mut reconciler, &found, &cluster);
    let stopped = [0, 1, 2].map(|at| target(&outcome, at).is_stopped());
    assert_eq!(
        (stopped, indexes(&outcome)),
        ([false, true, false], 16),
        "what is left is the other's"
    );
}

#[test]
fn indexes_count_for_the_namespace_that_declares_them() {
    let mut cluster = Tables::default();
    let bounds = MemoryBounds { process: None, namespace: Some(100 * KIB) };
    let total = Arc::clone(&cluster.total);
    let home = home("kubewarm-system", Watched::Everywhere);
    let mut reconciler =
        Reconciler::new(home, bounds, total, Admission::new("kubewarm-system".into()));
    let found = [
        indexing("a/p", (0, 2), &Value::Null),
        indexing("kubewarm-system/p", (2, 16), &Value::Null),
    ];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    hold(&cluster, &outcome, 33 * KIB);
    assert_eq!(cluster.total.bytes(), 19 * 33 * KIB, "all of it counts for the process");
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!((indexes(&outcome), target(&outcome, 0).is_stopped()), (18, false));
    hold(&cluster, &outcome, 34 * KIB);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!((indexes(&outcome), target(&outcome, 0).is_stopped()), (16, true));
    assert!(!target(&outcome, 1).is_stopped(), "the operator's own goes on");
}
