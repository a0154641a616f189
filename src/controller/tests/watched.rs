//! Without any ClusterRole: what works, and what is refused by name.

use super::*;

/// What a target of this scope comes to, and the desired cells.
fn outcome(namespace: &str, scope: &Value) -> Outcome {
    let watched = Watched::Namespaces(["kubewarm-system".into(), "a".into()].into());
    let mut spec = targets(&[if scope["type"] == "Cluster" { "nodes" } else { "pods" }]);
    spec["targets"][0]["scope"] = scope.clone();
    let found = [profile(namespace, "p", 1, spec)];
    run(&mut reconciler_of(home("kubewarm-system", watched)), &found, &Tables::default())
}

#[test]
fn scopes_that_need_a_cluster_role_are_refused_by_name() {
    let selector = json!({"type": "NamespaceSelector",
        "namespaceSelector": {"matchLabels": {"a": "b"}}});
    for scope in [selector, json!({"type": "AllNamespaces"}), json!({"type": "Cluster"})] {
        let found = outcome("kubewarm-system", &scope);
        let refusal = refused(&found);
        assert_eq!(refusal.reason, RefusalReason::ScopeNotAvailable, "{scope}");
        let kind = scope["type"].as_str().unwrap();
        assert!(refusal.message.contains(kind) && refusal.message.contains("use type Namespaces"));
        // Not even the namespaces of a selector are watched.
        assert!(desired(&found).is_empty(), "{scope}");
        // Where it would be refused anyway, the author has to know that first.
        let reason = refused(&outcome("a", &scope)).reason;
        assert_eq!(reason, RefusalReason::CrossNamespaceNotAllowed, "{scope}");
    }
}

#[test]
fn with_an_account_of_its_own_that_accounts_roles_decide() {
    let watched = Watched::Namespaces(["a".into()].into());
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "AllNamespaces"});
    spec["serviceAccountName"] = json!("reader");
    let mut reconciler = reconciler_of(home("kubewarm-system", watched));
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, spec)], &Tables::default());
    assert_eq!(desired(&outcome).len(), 1);
}

#[test]
fn namespaces_named_one_by_one_work() {
    let own = outcome("a", &json!({"type": "OwnNamespace"}));
    assert_eq!(desired(&own), ["pods.v1 in namespace a"]);
    let two = json!({"type": "Namespaces", "namespaces": ["a", "b"]});
    let two = outcome("kubewarm-system", &two);
    assert_eq!(desired(&two), ["pods.v1 in namespace a", "pods.v1 in namespace b"]);
}
