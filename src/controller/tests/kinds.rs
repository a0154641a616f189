use super::{
    ClusterProfile, Reconciler, Tables, desired, first, profile, reconciler, refused, run, sync,
    targets,
};
use crate::controller::reconcile::ReconcileResult;
use kubewarm_api::model::{FaultReason, RefusalReason};
use serde_json::json;
use std::time::Duration;

#[test]
fn a_removed_kind_stops_its_informers_and_its_return_restarts_them() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.kinds.insert("widgets", ("v1", true));
    let profiles = [profile("a", "p", 1, targets(&["widgets", "pods"]))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &profiles, &cluster);

    cluster.kinds.remove("widgets");
    let widgets = outcome.desired.keys().find(|key| key.resource.resource() == "widgets");
    cluster.faults.insert(widgets.unwrap().clone(), FaultReason::NotServed);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(refused(&outcome).reason, RefusalReason::UnknownResource);
    assert_eq!(first(&outcome).targets[0].serving, None);
    assert!(outcome.is_kind_missing);

    cluster.faults.clear();
    cluster.kinds.insert("widgets", ("v1", true));
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    assert!(!outcome.is_kind_missing);
}

#[test]
fn one_incomplete_discovery_response_drops_no_store() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.kinds.insert("widgets", ("v1", true));
    let profiles = [profile("a", "p", 1, targets(&["widgets"]))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &profiles, &cluster);

    for returns in [true, false] {
        cluster.kinds.remove("widgets");
        for second in [20, 29] {
            let now = Duration::from_secs(second);
            let outcome = reconciler.reconcile(&profiles, &cluster.cluster(), None, now);
            assert_eq!(desired(&outcome), ["widgets.v1 in namespace a"]);
            assert!(first(&outcome).targets[0].serving.is_some());
            assert!(outcome.is_kind_missing, "discovery polls more often");
        }
        if returns {
            cluster.kinds.insert("widgets", ("v1", true));
            assert!(!run(&mut reconciler, &profiles, &cluster).is_kind_missing);
        }
    }
    let outcome =
        reconciler.reconcile(&profiles, &cluster.cluster(), None, Duration::from_secs(30));
    assert!(desired(&outcome).is_empty());
    assert_eq!(refused(&outcome).reason, RefusalReason::UnknownResource);
    let fresh = run(&mut self::reconciler(), &profiles, &cluster);
    assert!(desired(&fresh).is_empty(), "discovery never listed the kind to this reconciler");
}

/// A profile whose pods are warm in v1, after the API server began to prefer v2.
fn newly_preferred() -> (Reconciler, Tables, [ClusterProfile; 1]) {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let profiles = [profile("a", "p", 1, targets(&["pods"]))];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &profiles, &cluster);
    cluster.kinds.insert("pods", ("v2", true));
    (reconciler, cluster, profiles)
}

#[test]
fn a_new_preferred_version_warms_while_the_old_one_serves() {
    let (mut reconciler, mut cluster, profiles) = newly_preferred();
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a", "pods.v2 in namespace a"]);
    let informers =
        |outcome: &ReconcileResult| first(outcome).targets[0].informers[0].key.to_string();
    assert_eq!(informers(&outcome), "pods.v1 in namespace a", "the target stays warm");

    let old = cluster.synced.clone();
    cluster.synced.clear();
    let gone = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(
        informers(&gone),
        "pods.v2 in namespace a",
        "the old version is not served any more"
    );

    cluster.synced = old;
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(informers(&outcome), "pods.v2 in namespace a");
    assert_eq!(desired(&outcome), ["pods.v2 in namespace a"]);
}

#[test]
fn after_three_failures_of_a_new_version_the_old_one_still_serves_but_does_not_stand_in() {
    let (mut reconciler, mut cluster, profiles) = newly_preferred();
    let outcome = run(&mut reconciler, &profiles, &cluster);
    let new = outcome.desired.keys().find(|key| key.resource.version() == "v2").unwrap();
    cluster.faults.insert(new.clone(), FaultReason::ServerError);
    for (attempts, described) in [(2, "v1"), (3, "v2")] {
        cluster.attempts = attempts;
        let outcome = run(&mut reconciler, &profiles, &cluster);
        let target = &first(&outcome).targets[0];
        assert_eq!(target.informers[0].key.resource.version(), described, "{attempts} failures");
        let serving = target.serving.as_ref().unwrap();
        assert_eq!(serving.informers[0].key.resource.version(), "v1", "{attempts} failures");
        assert_eq!(desired(&outcome), ["pods.v1 in namespace a", "pods.v2 in namespace a"]);
    }
}

#[test]
fn an_unsupported_field_selector_needs_an_edit() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["fieldSelector"] = json!("spec.x=y");
    let profiles = [profile("a", "p", 1, spec)];
    let outcome = run(&mut reconciler, &profiles, &cluster);
    for key in outcome.desired.keys() {
        cluster.faults.insert(key.clone(), FaultReason::Unsupported);
    }
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::UnsupportedField);
    assert!(refused(&outcome).message.contains("spec.x=y"), "{}", refused(&outcome));
    assert_eq!(desired(&outcome).len(), 1, "the informer keeps running");
}
