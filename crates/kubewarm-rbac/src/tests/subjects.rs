//! Tests to which users, where and by which role a binding grants permissions.

use super::{
    binding, cluster_binding, cluster_role, jane, list_pods, path, reads_pods, resource, role,
};
use crate::RbacRules;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use serde_json::{Value, from_value, json};

/// Rules with a ClusterRole and, in the namespace `shop`, a Role. Both have the name `reader`.
fn readers() -> RbacRules {
    let mut rules = RbacRules::default();
    rules.upsert(&cluster_role("reader", &reads_pods()));
    rules.upsert(&role("shop", "reader", &reads_pods()));
    rules
}

#[test]
fn a_cluster_role_binding_grants_in_all_namespaces_and_in_the_cluster() {
    let mut rules = readers();
    rules.upsert(&cluster_binding("a", "ClusterRole/reader", &jane()));
    for namespace in ["", "shop", "other"] {
        assert!(rules.allows("jane", &[], &list_pods(namespace)), "{namespace:?}");
        assert!(!rules.allows("john", &[], &list_pods(namespace)), "{namespace:?}");
    }
}

#[test]
fn a_role_binding_grants_in_its_namespace_only() {
    for reference in ["Role/reader", "ClusterRole/reader"] {
        let mut rules = readers();
        rules.upsert(&binding("shop", "a", reference, &jane()));
        assert!(rules.allows("jane", &[], &list_pods("shop")), "{reference}");
        assert!(!rules.allows("jane", &[], &list_pods("other")), "{reference}");
        assert!(!rules.allows("jane", &[], &list_pods("")), "{reference}");
    }
}

#[test]
fn a_role_binding_does_not_find_the_role_of_another_namespace() {
    let mut rules = readers();
    rules.upsert(&binding("other", "a", "Role/reader", &jane()));
    assert!(!rules.allows("jane", &[], &list_pods("other")));
}

#[test]
fn a_cluster_role_binding_to_a_role_grants_nothing() {
    let mut rules = readers();
    rules.upsert(&role("", "reader", &reads_pods()));
    rules.upsert(&cluster_binding("a", "Role/reader", &jane()));
    assert!(!rules.allows("jane", &[], &list_pods("")));
    assert!(!rules.allows("jane", &[], &list_pods("shop")));
}

#[test]
fn a_binding_to_a_missing_role_grants_nothing_until_the_role_exists() {
    let mut rules = RbacRules::default();
    rules.upsert(&cluster_binding("a", "ClusterRole/reader", &jane()));
    rules.upsert(&binding("shop", "a", "Role/reader", &jane()));
    assert!(!rules.allows("jane", &[], &list_pods("shop")));
    rules.upsert(&role("shop", "reader", &reads_pods()));
    assert!(rules.allows("jane", &[], &list_pods("shop")));
    assert!(!rules.allows("jane", &[], &list_pods("")));
    rules.upsert(&cluster_role("reader", &reads_pods()));
    assert!(rules.allows("jane", &[], &list_pods("")));
}

#[test]
fn rules_for_urls_apply_only_through_a_cluster_role_binding() {
    let mut rules = RbacRules::default();
    let urls = json!([{"verbs": ["get"], "nonResourceURLs": ["*"]}]);
    rules.upsert(&cluster_role("urls", &urls));
    rules.upsert(&role("shop", "urls", &urls));
    rules.upsert(&binding("shop", "a", "ClusterRole/urls", &jane()));
    rules.upsert(&binding("shop", "b", "Role/urls", &jane()));
    assert!(!rules.allows("jane", &[], &path("get", "/version")));
    rules.upsert(&cluster_binding("a", "ClusterRole/urls", &jane()));
    assert!(rules.allows("jane", &[], &path("get", "/version")));
}

/// Rules in which a ClusterRoleBinding, and a RoleBinding in `shop`, have only this subject.
fn rules_for(subject: &Value) -> RbacRules {
    let mut rules = readers();
    rules.upsert(&cluster_binding("a", "ClusterRole/reader", &json!([subject])));
    rules.upsert(&binding("shop", "a", "Role/reader", &json!([subject])));
    rules
}

#[test]
fn a_user_and_a_group_with_the_same_name_are_different() {
    let rules = rules_for(&json!({"kind": "Group", "name": "admins"}));
    assert!(rules.allows("jane", &["other", "admins"], &list_pods("")));
    assert!(!rules.allows("admins", &["other"], &list_pods("")));
    let rules = rules_for(&json!({"kind": "User", "name": "admins"}));
    assert!(!rules.allows("jane", &["other", "admins"], &list_pods("")));
    assert!(rules.allows("admins", &["other"], &list_pods("")));
}

#[test]
fn a_star_is_an_ordinary_user_and_an_ordinary_group() {
    let rules = rules_for(&json!({"kind": "User", "name": "*"}));
    assert!(!rules.allows("jane", &["admins"], &list_pods("")));
    let rules = rules_for(&json!({"kind": "Group", "name": "*"}));
    assert!(!rules.allows("jane", &["admins"], &list_pods("")));
}

#[test]
fn a_service_account_is_the_user_with_its_namespace_and_name() {
    let agent = json!({"kind": "ServiceAccount", "namespace": "shop", "name": "agent"});
    let rules = rules_for(&agent);
    for namespace in ["", "shop"] {
        let list = list_pods(namespace);
        assert!(rules.allows("system:serviceaccount:shop:agent", &[], &list));
        assert!(!rules.allows("system:serviceaccount:other:agent", &[], &list));
        assert!(!rules.allows("agent", &[], &list));
    }
}

#[test]
fn a_service_account_without_a_namespace_takes_that_of_the_role_binding() {
    for subject in [
        json!({"kind": "ServiceAccount", "name": "agent"}),
        json!({"kind": "ServiceAccount", "namespace": "", "name": "agent"}),
    ] {
        let rules = rules_for(&subject);
        let user = "system:serviceaccount:shop:agent";
        assert!(rules.allows(user, &[], &list_pods("shop")), "{subject}");
        let user = "system:serviceaccount:other:agent";
        assert!(!rules.allows(user, &[], &list_pods("shop")), "{subject}");
    }
}

#[test]
fn a_service_account_without_a_namespace_matches_no_user_in_a_cluster_role_binding() {
    let mut rules = readers();
    let subject = json!([{"kind": "ServiceAccount", "name": "agent"}]);
    let mut cluster_wide = cluster_binding("a", "ClusterRole/reader", &subject);
    // The API server ignores a namespace in the metadata, too.
    cluster_wide.metadata.namespace = Some("shop".to_owned());
    rules.upsert(&cluster_wide);
    for user in ["system:serviceaccount:shop:agent", "system:serviceaccount::agent", "agent"] {
        assert!(!rules.allows(user, &[], &list_pods("shop")), "{user}");
        assert!(!rules.allows(user, &[], &list_pods("")), "{user}");
    }
}

#[test]
fn a_user_can_be_spelled_like_a_service_account() {
    let rules = rules_for(&json!({"kind": "User", "name": "system:serviceaccount:shop:agent"}));
    assert!(rules.allows("system:serviceaccount:shop:agent", &[], &list_pods("")));
}

#[test]
fn an_unknown_kind_of_subject_matches_no_user() {
    for kind in ["", "user", "Robot", "ClusterRole"] {
        let rules = rules_for(&json!({"kind": kind, "name": "jane", "namespace": "shop"}));
        let user = "system:serviceaccount:shop:jane";
        assert!(!rules.allows("jane", &["jane"], &list_pods("shop")), "{kind}");
        assert!(!rules.allows(user, &[], &list_pods("shop")), "{kind}");
    }
}

#[test]
fn an_unknown_kind_of_role_grants_nothing() {
    for reference in ["/reader", "role/reader", "clusterrole/reader", "User/reader"] {
        let mut rules = readers();
        rules.upsert(&cluster_binding("a", reference, &jane()));
        rules.upsert(&binding("shop", "a", reference, &jane()));
        assert!(!rules.allows("jane", &[], &list_pods("shop")), "{reference}");
    }
}

#[test]
fn the_api_groups_of_roles_and_subjects_are_ignored() {
    for group in [json!("rbac.authorization.k8s.io"), json!(""), json!("other"), Value::Null] {
        let mut rules = readers();
        let object = json!({
            "metadata": {"name": "a"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "reader"},
            "subjects": [
                {"kind": "User", "apiGroup": group, "name": "jane"},
                {"kind": "ServiceAccount", "apiGroup": group, "namespace": "shop", "name": "agent"},
            ],
        });
        rules.upsert(&from_value::<ClusterRoleBinding>(object).unwrap());
        assert!(rules.allows("jane", &[], &list_pods("")), "{group}");
        assert!(rules.allows("system:serviceaccount:shop:agent", &[], &list_pods("")), "{group}");
    }
}

#[test]
fn the_group_system_masters_needs_a_rule_here() {
    // The API server's authorizer of this group is another one.
    let list = list_pods("");
    assert!(!readers().allows("jane", &["system:masters"], &list));
    let rules = rules_for(&json!({"kind": "Group", "name": "system:masters"}));
    assert!(rules.allows("jane", &["system:masters"], &list));
}

#[test]
fn an_object_without_a_namespace_grants_nothing_in_a_request_without_one() {
    let mut rules = RbacRules::default();
    rules.upsert(&role("", "reader", &reads_pods()));
    rules.upsert(&binding("", "a", "Role/reader", &jane()));
    assert!(!rules.allows("jane", &[], &list_pods("")));
    let absent = resource(&json!({"verb": "list", "resource": "pods"}));
    assert!(!rules.allows("jane", &[], &absent));
}
