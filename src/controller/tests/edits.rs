//! Profiles that are edited while they run.

use super::{Tables, desired, first, profile, reconciler, run, sync, targets};
use crate::model::RefusalReason;
use serde_json::json;

#[test]
fn an_edited_target_is_served_by_its_old_cells_until_the_new_are_synced() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let old = [profile("a", "p", 1, targets(&["pods"]))];
    let outcome = run(&mut reconciler, &old, &cluster);
    assert_eq!(first(&outcome).targets[0].serving, None, "nothing is served before the first sync");
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &old, &cluster);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);

    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    let edited = [profile("a", "p", 2, spec)];
    let outcome = run(&mut reconciler, &edited, &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    let serving = first(&outcome).targets[0].serving.clone().unwrap();
    assert_eq!((serving.generation, serving.cells.len()), (1, 1));
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &edited, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a, labels app in (web)"]);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 2);
}

#[test]
fn an_edit_in_the_moment_of_the_first_sync_finds_old_cells_that_answer() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, targets(&["pods"]))], &cluster);
    sync(&mut cluster, &outcome);
    // No run between the sync and the edit.
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    let outcome = run(&mut reconciler, &[profile("a", "p", 2, spec.clone())], &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);

    // What was edited before it had synced answers for nobody.
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "shop"}});
    let outcome = run(&mut reconciler, &[profile("a", "p", 3, spec)], &cluster);
    assert_eq!(first(&outcome).targets[0].serving.as_ref().unwrap().generation, 1);
    assert_eq!(desired(&outcome).len(), 2);
}

#[test]
fn an_invalid_edit_keeps_the_last_valid_generation_running() {
    let mut reconciler = reconciler();
    let good = profile("a", "p", 1, targets(&["pods"]));
    let mut bad = targets(&["pods"]);
    bad["targets"][0]["labelSelector"] = json!({"matchLabels": {"not a key": "x"}});
    let bad = profile("a", "p", 2, bad);
    run(&mut reconciler, &[good], &Tables::default());
    let outcome = run(&mut reconciler, std::slice::from_ref(&bad), &Tables::default());
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(first(&outcome).refused.as_ref().unwrap().reason, RefusalReason::InvalidSpec);

    let alone = run(&mut self::reconciler(), &[bad], &Tables::default());
    assert!(desired(&alone).is_empty(), "there was no valid generation");
    assert!(first(&alone).refused.is_some());
}
