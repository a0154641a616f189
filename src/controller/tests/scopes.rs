use super::{Tables, desired, first, profile, reconciler, refused, run, sync, targets};
use kubewarm_api::model::{NamespaceCheckPolicy, RefusalReason};
use serde_json::json;

#[test]
fn only_profiles_in_the_operator_namespace_read_other_namespaces() {
    let scopes = [
        json!({"type": "Namespaces", "namespaces": ["a", "b"]}),
        json!({"type": "AllNamespaces"}),
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}}),
    ];
    for scope in scopes {
        let mut spec = targets(&["pods"]);
        spec["targets"][0]["scope"] = scope.clone();
        let outcome =
            run(&mut reconciler(), &[profile("a", "p", 1, spec.clone())], &Tables::default());
        assert_eq!(refused(&outcome).reason, RefusalReason::CrossNamespaceNotAllowed, "{scope}");
        assert!(refused(&outcome).message.contains("kubewarm-system"), "{scope}");
        assert!(desired(&outcome).is_empty());
        let of_operator = run(
            &mut reconciler(),
            &[profile("kubewarm-system", "p", 1, spec.clone())],
            &Tables::default(),
        );
        assert!(!desired(&of_operator).is_empty(), "{scope}");

        spec["serviceAccountName"] = json!("reader");
        let profile = profile("a", "p", 1, spec);
        let outcome = run(&mut reconciler(), &[profile], &Tables::default());
        let informers = desired(&outcome);
        assert!(!informers.is_empty(), "the ServiceAccount's RBAC decides: {scope}");
        assert!(
            informers.iter().all(|informer| informer.ends_with(", as ServiceAccount a/reader")),
            "{informers:?}"
        );
    }
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    let outcome = run(&mut reconciler(), &[profile("a", "p", 1, spec)], &Tables::default());
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
}

#[test]
fn only_named_namespaces_of_others_need_a_namespace_check() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "Namespaces", "namespaces": ["kubewarm-system", "b"]});
    let outcome =
        run(&mut reconciler(), &[profile("kubewarm-system", "p", 1, spec)], &Tables::default());
    let checks: Vec<_> =
        outcome.desired.values().map(|(informer, _)| informer.settings.namespace_check).collect();
    assert_eq!(checks, [NamespaceCheckPolicy::Require, NamespaceCheckPolicy::Skip]);
}

#[test]
fn a_scope_must_fit_its_kind() {
    let outcome = run(
        &mut reconciler(),
        &[profile("kubewarm-system", "p", 1, targets(&["nodes"]))],
        &Tables::default(),
    );
    assert_eq!(refused(&outcome).reason, RefusalReason::ScopeMismatch);
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "Cluster"});
    let outcome =
        run(&mut reconciler(), &[profile("kubewarm-system", "p", 1, spec)], &Tables::default());
    assert_eq!(refused(&outcome).reason, RefusalReason::ScopeMismatch);
}

#[test]
fn a_selector_follows_its_namespaces_and_can_match_none() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    let profiles = [profile("kubewarm-system", "p", 1, spec)];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(desired(&outcome), ["namespaces.v1 in the cluster, labels x in (y), metadata only"]);
    assert_eq!(
        first(&outcome).targets[0].serving,
        None,
        "the target's informers are not known yet"
    );

    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    let serving = first(&outcome).targets[0].serving.as_ref().unwrap();
    assert!(serving.informers.is_empty(), "a target without matching namespaces is warm");

    cluster.names = vec!["a", "b"];
    assert_eq!(desired(&run(&mut reconciler, &profiles, &cluster)).len(), 3);
    cluster.names = vec!["b"];
    assert_eq!(desired(&run(&mut reconciler, &profiles, &cluster)).len(), 2);
}
