//! Tests of decisions. `tests/rbac_authorizer` compares decisions with the API server's authorizer.

mod changes;
mod rules;
mod subjects;

use crate::{RbacDecision, RbacRules};
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReviewSpec,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde_json::{Value, from_value, json};

fn role(namespace: &str, name: &str, rules: &Value) -> Role {
    let metadata = json!({"namespace": namespace, "name": name});
    from_value(json!({"metadata": metadata, "rules": rules})).unwrap()
}

fn cluster_role(name: &str, rules: &Value) -> ClusterRole {
    from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap()
}

/// `role` is the kind and the name of a role, such as `Role/reader`.
fn role_ref(role: &str) -> Value {
    let (kind, name) = role.split_once('/').unwrap();
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn binding(namespace: &str, name: &str, role: &str, subjects: &Value) -> RoleBinding {
    let metadata = json!({"namespace": namespace, "name": name});
    let object = json!({"metadata": metadata, "roleRef": role_ref(role), "subjects": subjects});
    from_value(object).unwrap()
}

fn cluster_binding(name: &str, role: &str, subjects: &Value) -> ClusterRoleBinding {
    let metadata = json!({"name": name});
    let object = json!({"metadata": metadata, "roleRef": role_ref(role), "subjects": subjects});
    from_value(object).unwrap()
}

/// A rule for `get` and `list` of pods.
fn reads_pods() -> Value {
    json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
}

fn jane() -> Value {
    json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}])
}

fn resource(attributes: &Value) -> SelfSubjectAccessReviewSpec {
    from_value(json!({"resourceAttributes": attributes})).unwrap()
}

fn path(verb: &str, path: &str) -> SelfSubjectAccessReviewSpec {
    from_value(json!({"nonResourceAttributes": {"verb": verb, "path": path}})).unwrap()
}

/// A `list` of pods in this namespace. An empty namespace means all namespaces.
fn list_pods(namespace: &str) -> SelfSubjectAccessReviewSpec {
    resource(&json!({"verb": "list", "resource": "pods", "namespace": namespace}))
}

impl RbacRules {
    fn allows(&self, user: &str, groups: &[&str], access: &SelfSubjectAccessReviewSpec) -> bool {
        let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
        match self.decide(user, &groups, access) {
            RbacDecision::Allow => true,
            RbacDecision::NoOpinion => false,
        }
    }
}

/// Whether `access` is allowed to a user that has exactly this rule in the whole cluster.
fn rule_allows(rule: &Value, access: &SelfSubjectAccessReviewSpec) -> bool {
    let mut rules = RbacRules::default();
    rules.upsert(&cluster_role("role", &json!([rule])));
    rules.upsert(&cluster_binding("binding", "ClusterRole/role", &jane()));
    rules.allows("jane", &[], access)
}
