//! Tests which requests a rule allows.

use super::{cluster_binding, cluster_role, jane, path, resource, rule_allows};
use crate::RbacRules;
use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReviewSpec, rbac::v1::ClusterRole};
use serde_json::{Value, from_value, json};

/// Whether a rule for these resources allows `get` of RESOURCE or RESOURCE/SUBRESOURCE.
fn resources_allow(resources: &[&str], requested: &str) -> bool {
    let (resource_name, subresource) = requested.split_once('/').unwrap_or((requested, ""));
    let attributes =
        json!({"verb": "get", "resource": resource_name, "subresource": subresource, "name": "x"});
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": resources});
    rule_allows(&rule, &resource(&attributes))
}

#[test]
fn a_rule_allows_its_verbs_api_groups_and_resources_only() {
    let rule = json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"]});
    let allows = |verb: &str, group: &str, name: &str| {
        rule_allows(&rule, &resource(&json!({"verb": verb, "group": group, "resource": name})))
    };
    assert!(allows("get", "apps", "deployments"));
    assert!(!allows("list", "apps", "deployments"));
    assert!(!allows("get", "", "deployments"));
    assert!(!allows("get", "apps", "replicasets"));
    assert!(!allows("*", "apps", "deployments"), "a `*` in a request is no wildcard");
    assert!(!allows("get", "apps", "*"));
}

#[test]
fn a_star_means_all_verbs_api_groups_and_resources() {
    let get = resource(&json!({"verb": "get", "group": "apps", "resource": "deployments"}));
    for (verb, group, name, is_allowed) in [
        ("*", "apps", "deployments", true),
        ("get", "*", "deployments", true),
        ("get", "apps", "*", true),
        ("ge*", "apps", "deployments", false),
        ("get", "app*", "deployments", false),
        ("get", "apps", "deploy*", false),
    ] {
        let rule = json!({"verbs": [verb], "apiGroups": [group], "resources": [name]});
        assert_eq!(rule_allows(&rule, &get), is_allowed, "{rule}");
    }
}

#[test]
fn a_star_before_a_subresource_means_this_subresource_of_all_resources() {
    assert!(resources_allow(&["*/scale"], "deployments/scale"));
    assert!(!resources_allow(&["*/scale"], "deployments"));
    assert!(!resources_allow(&["*/scale"], "deployments/status"));
    assert!(!resources_allow(&["*/scale"], "deployments/autoscale"));
    assert!(!resources_allow(&["*/"], "deployments"));
}

#[test]
fn a_star_after_a_resource_means_nothing() {
    assert!(!resources_allow(&["pods/*"], "pods"));
    assert!(!resources_allow(&["pods/*"], "pods/log"));
    assert!(!resources_allow(&["*/*"], "pods/log"));
    assert!(resources_allow(&["*"], "pods/log"));
}

#[test]
fn a_resource_does_not_include_its_subresources() {
    assert!(!resources_allow(&["pods"], "pods/log"));
    assert!(resources_allow(&["pods/log"], "pods/log"));
    assert!(!resources_allow(&["pods/log"], "pods"));
    assert!(resources_allow(&["pods/a/b"], "pods/a/b"));
}

/// Whether a rule with these resource names allows the verb for the object `name`.
fn names_allow(names: &[&str], verb: &str, name: &str) -> bool {
    let rule = json!({
        "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names,
    });
    rule_allows(&rule, &resource(&json!({"verb": verb, "resource": "pods", "name": name})))
}

#[test]
fn resource_names_do_not_allow_a_list_without_a_name() {
    assert!(names_allow(&["web"], "get", "web"));
    assert!(!names_allow(&["web"], "get", "other"));
    assert!(!names_allow(&["web"], "list", ""));
    assert!(!names_allow(&["*"], "get", "web"), "a `*` in resource names is no wildcard");
}

#[test]
fn resource_names_allow_a_list_whose_selector_names_the_object() {
    // For `fieldSelector=metadata.name=web`, the API server's attributes contain the name.
    assert!(names_allow(&["web"], "list", "web"));
    // A review with this selector, but without the name, is a list of all names.
    let selector = json!({"requirements": [
        {"key": "metadata.name", "operator": "In", "values": ["web"]},
    ]});
    let list = json!({"verb": "list", "resource": "pods", "fieldSelector": selector});
    let rule = json!({
        "verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"],
    });
    assert!(!rule_allows(&rule, &resource(&list)));
}

#[test]
fn no_resource_names_mean_all_names() {
    assert!(names_allow(&[], "get", "web"));
    assert!(names_allow(&[], "list", ""));
}

#[test]
fn an_empty_resource_name_allows_requests_without_a_name() {
    assert!(names_allow(&[""], "list", ""));
    assert!(!names_allow(&[""], "get", "web"));
}

fn urls_allow(urls: &[&str], requested: &str) -> bool {
    rule_allows(&json!({"verbs": ["get"], "nonResourceURLs": urls}), &path("get", requested))
}

#[test]
fn a_url_has_a_star_only_at_its_end() {
    assert!(urls_allow(&["/healthz"], "/healthz"));
    assert!(!urls_allow(&["/healthz"], "/healthz/etcd"));
    assert!(urls_allow(&["/healthz/*"], "/healthz/etcd"));
    assert!(urls_allow(&["/healthz/*"], "/healthz/"));
    assert!(!urls_allow(&["/healthz/*"], "/healthz"));
    assert!(urls_allow(&["/healthz*"], "/healthzette"));
    assert!(urls_allow(&["*"], "/metrics"));
    assert!(urls_allow(&["/m**"], "/metrics"));
    assert!(!urls_allow(&["/*/etcd"], "/healthz/etcd"));
    assert!(urls_allow(&["/*/etcd"], "/*/etcd"));
}

#[test]
fn a_rule_for_urls_needs_the_verb_too() {
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["*"]});
    assert!(!rule_allows(&rule, &path("post", "/metrics")));
    let rule = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    assert!(rule_allows(&rule, &path("post", "/metrics")));
}

#[test]
fn rules_for_resources_and_rules_for_urls_are_separate() {
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(!rule_allows(&all, &path("get", "/metrics")));
    let all = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    assert!(!rule_allows(&all, &resource(&json!({"verb": "get", "resource": "pods"}))));
}

#[test]
fn the_aggregation_rule_of_a_role_is_ignored() {
    let mut rules = RbacRules::default();
    let labels = json!({"rbac.example/aggregate": "true"});
    let read = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let role = |object: Value| from_value::<ClusterRole>(object).unwrap();
    rules.upsert(&role(json!({"metadata": {"name": "part", "labels": labels}, "rules": read})));
    rules.upsert(&role(json!({
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })));
    rules.upsert(&cluster_binding("whole", "ClusterRole/whole", &jane()));
    let get = |name: &str| resource(&json!({"verb": "get", "resource": name}));
    assert!(rules.allows("jane", &[], &get("pods")));
    assert!(!rules.allows("jane", &[], &get("secrets")));
}

#[test]
fn a_review_without_exactly_one_kind_of_attributes_has_no_opinion() {
    let mut rules = RbacRules::default();
    let all = json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    rules.upsert(&cluster_role("all", &all));
    rules.upsert(&cluster_binding("all", "ClusterRole/all", &jane()));
    let (one, other) = (resource(&json!({})), path("get", "/"));
    assert!(rules.allows("jane", &[], &one) && rules.allows("jane", &[], &other));
    let both = SelfSubjectAccessReviewSpec {
        non_resource_attributes: other.non_resource_attributes,
        ..one
    };
    assert!(!rules.allows("jane", &[], &both));
    assert!(!rules.allows("jane", &[], &SelfSubjectAccessReviewSpec::default()));
}
