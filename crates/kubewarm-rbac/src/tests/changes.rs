//! Tests changes of roles and bindings.

use super::{
    binding, cluster_binding, cluster_role, jane, list_pods, path, reads_pods, resource, role,
};
use crate::{RbacKind, RbacRules};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use serde_json::json;

fn john() -> serde_json::Value {
    json!([{"kind": "User", "name": "john"}])
}

#[test]
fn a_changed_role_applies_to_all_its_bindings() {
    let mut rules = RbacRules::default();
    rules.upsert(&cluster_binding("a", "ClusterRole/reader", &jane()));
    rules.upsert(&binding("shop", "b", "ClusterRole/reader", &john()));
    rules.upsert(&cluster_role("reader", &reads_pods()));
    let secrets = resource(&json!({"verb": "get", "resource": "secrets", "namespace": "shop"}));
    let both = |rules: &RbacRules, access: &SelfSubjectAccessReviewSpec| {
        ["jane", "john"].map(|user| rules.allows(user, &[], access))
    };
    assert_eq!(both(&rules, &list_pods("shop")), [true, true]);
    let secret = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]);
    rules.upsert(&cluster_role("reader", &secret));
    assert_eq!(both(&rules, &list_pods("shop")), [false, false]);
    assert_eq!(both(&rules, &secrets), [true, true]);
    rules.remove(RbacKind::ClusterRole, "", "reader");
    assert_eq!(both(&rules, &secrets), [false, false]);
}

#[test]
fn a_changed_binding_ends_the_grants_to_its_former_subjects() {
    let mut rules = RbacRules::default();
    rules.upsert(&role("shop", "reader", &reads_pods()));
    rules.upsert(&binding("shop", "a", "Role/reader", &jane()));
    rules.upsert(&binding("shop", "a", "Role/reader", &john()));
    assert!(!rules.allows("jane", &[], &list_pods("shop")));
    assert!(rules.allows("john", &[], &list_pods("shop")));
    rules.upsert(&binding("shop", "a", "Role/reader", &json!([])));
    assert!(!rules.allows("john", &[], &list_pods("shop")));
}

#[test]
fn a_grant_ends_with_the_last_binding_that_contains_it() {
    let mut rules = RbacRules::default();
    rules.upsert(&role("shop", "reader", &reads_pods()));
    let twice = json!([jane()[0], jane()[0]]);
    rules.upsert(&binding("shop", "a", "Role/reader", &twice));
    rules.upsert(&binding("shop", "b", "Role/reader", &jane()));
    rules.remove(RbacKind::RoleBinding, "shop", "a");
    assert!(rules.allows("jane", &[], &list_pods("shop")));
    rules.remove(RbacKind::RoleBinding, "shop", "b");
    assert!(!rules.allows("jane", &[], &list_pods("shop")));
}

#[test]
fn only_the_object_with_this_kind_namespace_and_name_is_removed() {
    let mut rules = RbacRules::default();
    rules.upsert(&role("shop", "a", &reads_pods()));
    rules.upsert(&binding("shop", "a", "Role/a", &jane()));
    for (kind, namespace, name) in [
        (RbacKind::ClusterRole, "shop", "a"),
        (RbacKind::ClusterRoleBinding, "shop", "a"),
        (RbacKind::Role, "other", "a"),
        (RbacKind::RoleBinding, "shop", "other"),
        (RbacKind::RoleBinding, "", "a"),
    ] {
        rules.remove(kind, namespace, name);
        assert!(rules.allows("jane", &[], &list_pods("shop")), "{kind:?} {namespace} {name}");
    }
    rules.remove(RbacKind::Role, "shop", "a");
    assert!(!rules.allows("jane", &[], &list_pods("shop")));
}

#[test]
fn a_finished_list_removes_the_objects_that_it_did_not_contain() {
    let mut rules = RbacRules::default();
    rules.upsert(&cluster_role("reader", &reads_pods()));
    rules.upsert(&cluster_binding("jane", "ClusterRole/reader", &jane()));
    rules.upsert(&cluster_binding("john", "ClusterRole/reader", &john()));
    rules.upsert(&binding("shop", "jane", "ClusterRole/reader", &jane()));
    let allowed = |rules: &RbacRules, user: &str| {
        ["", "shop"].map(|namespace| rules.allows(user, &[], &list_pods(namespace)))
    };
    // The first list is interrupted, and starts again.
    rules.start_list(RbacKind::ClusterRoleBinding);
    rules.upsert(&cluster_binding("jane", "ClusterRole/reader", &jane()));
    rules.start_list(RbacKind::ClusterRoleBinding);
    assert_eq!(allowed(&rules, "jane"), [true, true], "the rules stay in effect during a list");
    rules.upsert(&cluster_binding("john", "ClusterRole/reader", &john()));
    rules.finish_list(RbacKind::ClusterRoleBinding);
    assert_eq!(allowed(&rules, "jane"), [false, true], "a list concerns only one kind");
    assert_eq!(allowed(&rules, "john"), [true, true]);

    rules.start_list(RbacKind::Role);
    rules.finish_list(RbacKind::Role);
    assert_eq!(allowed(&rules, "john"), [true, true]);
    rules.start_list(RbacKind::ClusterRole);
    rules.finish_list(RbacKind::ClusterRole);
    assert_eq!(allowed(&rules, "john"), [false, false]);
}

#[test]
fn removed_objects_leave_no_memory() {
    let mut rules = RbacRules::default();
    let empty = rules.symbol_count();
    let all = json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a", "a"]},
        {"verbs": ["get"], "nonResourceURLs": ["/version", "/healthz*"]},
    ]);
    let subjects = json!([
        {"kind": "User", "name": "jane"}, {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "*"}, {"kind": "Robot", "name": "r2"},
        {"kind": "ServiceAccount", "name": "agent"},
    ]);
    for _ in 0..3 {
        rules.upsert(&role("shop", "a", &all));
        rules.upsert(&cluster_role("a", &all));
        rules.upsert(&binding("shop", "a", "Role/a", &subjects));
        rules.upsert(&cluster_binding("a", "ClusterRole/a", &subjects));
        // These objects grant nothing.
        rules.upsert(&binding("shop", "b", "Robot/a", &subjects));
        rules.upsert(&cluster_binding("b", "Role/a", &subjects));
    }
    assert!(rules.allows("jane", &[], &path("get", "/version")));
    for kind in
        [RbacKind::Role, RbacKind::RoleBinding, RbacKind::ClusterRole, RbacKind::ClusterRoleBinding]
    {
        rules.remove(kind, "shop", "a");
        rules.remove(kind, "shop", "b");
    }
    assert_eq!(rules.symbol_count(), empty);
    assert!(!rules.allows("jane", &["*"], &path("get", "/version")));
    // Only the empty slots of the maps are left.
    assert!(rules.memory_bytes() < 4_096, "{}", rules.memory_bytes());
}
