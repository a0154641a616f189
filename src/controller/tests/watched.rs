//! Tests of an operator that has no ClusterRole and watches only some namespaces.

use super::*;

/// Reconciles a profile of `namespace` whose only target has this scope. The operator watches the
/// namespaces `kubewarm-system` and `a`.
fn outcome(namespace: &str, scope: &Value) -> ReconcileResult {
    let watched = WatchedNamespaces::Namespaces(["kubewarm-system".into(), "a".into()].into());
    let mut spec = targets(&[if scope["type"] == "Cluster" { "nodes" } else { "pods" }]);
    spec["targets"][0]["scope"] = scope.clone();
    let profiles = [profile(namespace, "p", 1, spec)];
    run(
        &mut reconciler_of(operator_scope("kubewarm-system", watched)),
        &profiles,
        &Tables::default(),
    )
}

#[test]
fn scopes_that_need_a_cluster_role_are_refused_by_name() {
    let selector = json!({"type": "NamespaceSelector",
        "namespaceSelector": {"matchLabels": {"a": "b"}}});
    for scope in [selector, json!({"type": "AllNamespaces"}), json!({"type": "Cluster"})] {
        let result = outcome("kubewarm-system", &scope);
        let refusal = refused(&result);
        assert_eq!(refusal.reason, RefusalReason::ScopeNotAvailable, "{scope}");
        let kind = scope["type"].as_str().unwrap();
        assert!(refusal.message.contains(kind) && refusal.message.contains("use type Namespaces"));
        // The profile's namespace selector is refused, so no informer watches Namespaces.
        assert!(desired(&result).is_empty(), "{scope}");
        // A tenant's profile may not use this scope even if the operator has a ClusterRole. The
        // refusal therefore names the tenant's restriction, and not the missing ClusterRole.
        let reason = refused(&outcome("a", &scope)).reason;
        assert_eq!(reason, RefusalReason::CrossNamespaceNotAllowed, "{scope}");
    }
}

#[test]
fn a_profile_with_an_account_is_limited_only_by_its_roles() {
    let watched = WatchedNamespaces::Namespaces(["a".into()].into());
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "AllNamespaces"});
    spec["serviceAccountName"] = json!("reader");
    let mut reconciler = reconciler_of(operator_scope("kubewarm-system", watched));
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, spec)], &Tables::default());
    assert_eq!(desired(&outcome).len(), 1);
}

#[test]
fn a_list_of_namespaces_needs_no_cluster_role() {
    let one = outcome("a", &json!({"type": "OwnNamespace"}));
    assert_eq!(desired(&one), ["pods.v1 in namespace a"]);
    let two = json!({"type": "Namespaces", "namespaces": ["a", "b"]});
    let two = outcome("kubewarm-system", &two);
    assert_eq!(desired(&two), ["pods.v1 in namespace a", "pods.v1 in namespace b"]);
}
