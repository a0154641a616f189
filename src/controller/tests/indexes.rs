//! Declared indexes: who is charged for them, and what becomes of them where they do not fit.

use super::*;
use crate::{controller::resolve::Cluster as _, model::DeclaredTarget};

const KIB: u64 = 1 << 10;

/// Pods of namespace `a`, with so many indexes from number `from` on.
fn indexing(at: &str, (from, count): (usize, usize), limits: &Value) -> Found {
    edited(at, 1, (from, count), limits)
}

fn edited(at: &str, generation: i64, (from, count): (usize, usize), limits: &Value) -> Found {
    let indexes = (from..from + count)
        .map(|n| json!({"name": format!("i{n}"), "fieldPath": format!(".spec.f{n}")}));
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["indexes"] = indexes.collect();
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    if !limits.is_null() {
        spec["limits"] = limits.clone();
    }
    let (namespace, name) = at.split_once('/').unwrap();
    profile(namespace, name, generation, spec)
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
    for (bytes, bare) in [(33 * KIB, 0), (35 * KIB, 2)] {
        let outcome = run(&mut reconciler, &found, &cluster);
        hold(&cluster, &outcome, bytes);
        let outcome = run(&mut reconciler, &found, &cluster);
        assert!(outcome.exceeded.is_empty() && outcome.desired.len() == 1);
        let gone = [0, 1, 2].map(|at| target(&outcome, at).too_large.len());
        assert_eq!((gone, indexes(&outcome)), ([0, bare, 0], 18 - bare));
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
    let gone = [0, 1, 2].map(|at| target(&outcome, at).too_large.len());
    assert_eq!((gone, indexes(&outcome)), ([0, 3, 0], 16), "what is left is the other's");
}

#[test]
fn indexes_count_for_the_namespace_that_declares_them() {
    let mut cluster = Tables::default();
    let bounds = MemoryBounds { process: None, namespace: Some(100 * KIB) };
    let total = Arc::clone(&cluster.total);
    let home = home("kubewarm-system", Watched::Everywhere);
    let mut reconciler = Reconciler::new(home, bounds, total);
    let found = [
        indexing("a/p", (0, 2), &Value::Null),
        indexing("kubewarm-system/p", (2, 16), &Value::Null),
    ];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    hold(&cluster, &outcome, 33 * KIB);
    assert_eq!(cluster.total.bytes(), 19 * 33 * KIB, "all of it counts for the process");
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!((indexes(&outcome), target(&outcome, 0).too_large.len()), (18, 0));
    hold(&cluster, &outcome, 34 * KIB);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert!(outcome.exceeded.is_empty() && target(&outcome, 0).limited.is_none());
    assert_eq!((indexes(&outcome), target(&outcome, 0).too_large.len()), (16, 2));
}

#[test]
fn indexes_that_do_not_fit_go_and_their_cell_stays() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = [indexing("a/p", (0, 16), &json!({"maxMemory": "100Ki"}))];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    hold(&cluster, &outcome, 10 * KIB);
    let mut at = |minutes, found: &[Found]| {
        reconciler.reconcile(found, &cluster, None, Duration::from_mins(minutes))
    };
    for minutes in [0, 9] {
        let outcome = at(minutes, &found);
        let declared = target(&outcome, 0);
        assert!(declared.limited.is_none() && declared.serving.is_some());
        assert_eq!((declared.too_large.len(), declared.indexes.len()), (16, 0));
        assert_eq!((outcome.desired.len(), indexes(&outcome)), (1, 0));
    }
    // Time is a new chance, and so is an edit.
    assert_eq!(indexes(&at(13, &found)), 16);
    hold(&cluster, &at(13, &found), 10 * KIB);
    assert_eq!(indexes(&at(13, &found)), 0);
    let found = [edited("a/p", 2, (0, 8), &json!({"maxMemory": "100Ki"}))];
    assert_eq!(indexes(&at(14, &found)), 8);
}
