use super::*;
use kubewarm_api::model::AccessLossPolicy;

fn reading(name: &str, mode: &str, reads: Value) -> ClusterProfile {
    let mut spec = targets(&["pods"]);
    spec["mode"] = json!(mode);
    spec["reads"] = reads;
    profile("a", name, 1, spec)
}

#[test]
fn a_store_is_kept_if_any_profile_serves_stale_data() {
    let stale = || reading("stale", "Paused", json!({"onAccessLost": "ServeStale"}));
    let plain = || reading("plain", "Active", json!({}));
    for (profiles, expected) in [
        (vec![plain()], AccessLossPolicy::Reject),
        (vec![plain(), stale()], AccessLossPolicy::ServeStale),
    ] {
        let outcome = run(&mut reconciler(), &profiles, &Tables::default());
        let (informer, _) = outcome.desired.values().next().unwrap();
        assert_eq!(informer.settings.on_access_lost, expected);
    }
}

#[test]
fn informers_of_selected_namespaces_outlive_access_to_namespaces() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    let profiles = [profile("kubewarm-system", "p", 1, spec)];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.names = vec!["a", "b"];
    for _ in 0..3 {
        let outcome = run(&mut reconciler, &profiles, &cluster);
        sync(&mut cluster, &outcome);
    }
    let before = run(&mut reconciler, &profiles, &cluster);
    let selector = first(&before).targets[0].namespaces.clone().unwrap();
    let mut outlive = |cluster: &Tables| {
        let after = run(&mut reconciler, &profiles, cluster);
        assert_eq!((desired(&after), desired(&after).len()), (desired(&before), 3));
        assert_eq!(first(&after).targets, first(&before).targets);
    };
    cluster.is_emptied = true;
    outlive(&cluster);
    cluster.lost.insert(selector.key);
    outlive(&cluster);
}

#[test]
fn informers_without_access_replace_no_readable_ones() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, targets(&["pods"]))], &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &[profile("a", "p", 1, targets(&["pods"]))], &cluster);
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["labelSelector"] = json!({"matchLabels": {"app": "web"}});
    let edited = [profile("a", "p", 2, spec)];
    let outcome = run(&mut reconciler, &edited, &cluster);
    sync(&mut cluster, &outcome);
    cluster
        .lost
        .extend(first(&outcome).targets[0].informers.iter().map(|informer| informer.key.clone()));
    let generation = |outcome: &ReconcileResult| {
        first(outcome).targets[0].serving.as_ref().map(|serving| serving.generation)
    };
    assert_eq!(generation(&run(&mut reconciler, &edited, &cluster)), Some(1));
    cluster.lost.clear();
    assert_eq!(generation(&run(&mut reconciler, &edited, &cluster)), Some(2));
}
