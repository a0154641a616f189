//! Measures the cost of a decision and the memory of the rules, and prints both.
//!
//! The bounds are ten times the targets, because this code is not optimized and other tests use the
//! same processors. `cargo test --release --test rbac_cost -- --nocapture` prints the cost of
//! optimized code.

#![expect(clippy::print_stdout, reason = "the test prints what it measures")]

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReviewSpec},
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewarm_rbac::{RbacDecision, RbacKind, RbacRules};
use std::{
    fs,
    hint::black_box,
    time::{Duration, Instant},
};

const NAMESPACES: usize = 2_000;
const BINDINGS_OF_NAMESPACE: usize = 5;

/// The number of rules in each role.
const RULES: usize = 20;

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn named(namespace: Option<String>, name: String) -> ObjectMeta {
    ObjectMeta { namespace, name: Some(name), ..ObjectMeta::default() }
}

fn role(name: String, rules: usize) -> ClusterRole {
    let rules = (0..rules).map(|number| PolicyRule {
        verbs: owned(&["create", "delete", "get", "list", "patch", "update", "watch"]),
        api_groups: Some(owned(&["example.com"])),
        resources: Some(vec![format!("kinds{number}"), format!("kinds{number}/status")]),
        ..PolicyRule::default()
    });
    let metadata = named(None, name);
    ClusterRole { metadata, rules: Some(rules.collect()), ..ClusterRole::default() }
}

fn role_ref(name: String) -> RoleRef {
    RoleRef { kind: "ClusterRole".to_owned(), name, ..RoleRef::default() }
}

fn subject(kind: &str, name: String) -> Subject {
    Subject { kind: kind.to_owned(), name, ..Subject::default() }
}

/// 100 ClusterRoles of 20 rules, each with a ClusterRoleBinding of its own group, and 10,000
/// RoleBindings in 2,000 namespaces.
fn cluster() -> RbacRules {
    let mut rules = RbacRules::default();
    for number in 0..100 {
        let name = format!("role-{number}");
        rules.upsert(&role(name.clone(), RULES));
        rules.upsert(&ClusterRoleBinding {
            metadata: named(None, format!("group-{number}")),
            role_ref: role_ref(name),
            subjects: Some(vec![subject("Group", format!("group-{number}"))]),
        });
    }
    for namespace in 0..NAMESPACES {
        for number in 0..BINDINGS_OF_NAMESPACE {
            let subjects = vec![
                subject("ServiceAccount", format!("agent-{number}")),
                subject("User", format!("user-{namespace}-{number}@example.com")),
            ];
            rules.upsert(&RoleBinding {
                metadata: named(Some(format!("namespace-{namespace}")), format!("agent-{number}")),
                role_ref: role_ref(format!("role-{}", (namespace + number) % 100)),
                subjects: Some(subjects),
            });
        }
    }
    rules
}

fn get(namespace: &str, resource: &str) -> SelfSubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        verb: Some("watch".to_owned()),
        group: Some("example.com".to_owned()),
        resource: Some(resource.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        non_resource_attributes: None,
    }
}

/// The mean duration of a decision, in the best of 20 rounds: load by other processes only makes a
/// round longer.
fn measure(
    rules: &RbacRules,
    user: &str,
    groups: &[String],
    access: &SelfSubjectAccessReviewSpec,
    expected: RbacDecision,
) -> Duration {
    const DECISIONS: u32 = 50;
    let round = |_| {
        let started_at = Instant::now();
        for _ in 0..DECISIONS {
            assert_eq!(
                rules.decide(black_box(user), black_box(groups), black_box(access)),
                expected
            );
        }
        started_at.elapsed() / DECISIONS
    };
    (0..20).map(round).min().unwrap_or_default()
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).unwrap_or_default()
        << 10
}

#[test]
fn a_decision_among_10_000_bindings_takes_less_than_50_microseconds() {
    let rules = cluster();
    let user = "system:serviceaccount:namespace-1234:agent-3";
    let groups = owned(&[
        "system:serviceaccounts",
        "system:serviceaccounts:namespace-1234",
        "system:authenticated",
        "group-1",
        "group-2",
        "group-3",
    ]);
    let last = format!("kinds{}", RULES - 1);
    for (name, resource, expected) in [
        ("allowed by the last rule", &*last, RbacDecision::Allow),
        ("no opinion", "others", RbacDecision::NoOpinion),
    ] {
        let took = measure(&rules, user, &groups, &get("namespace-1234", resource), expected);
        println!("{name}: {took:?}");
        assert!(took < Duration::from_micros(50), "{name}: {took:?}");
    }
}

#[test]
fn the_cost_grows_with_the_callers_own_roles_only() {
    let mut rules = RbacRules::default();
    for number in 0..10_000 {
        let name = format!("role-{number}");
        rules.upsert(&role(name.clone(), 1));
        rules.upsert(&ClusterRoleBinding {
            metadata: named(None, name.clone()),
            role_ref: role_ref(name),
            subjects: Some(vec![subject("User", "all".to_owned())]),
        });
    }
    let access = get("namespace", "others");
    let none = measure(&rules, "none", &[], &access, RbacDecision::NoOpinion);
    let all = measure(&rules, "all", &[], &access, RbacDecision::NoOpinion);
    println!("no role: {none:?}; 10,000 different roles: {all:?}");
    assert!(none < Duration::from_micros(50), "{none:?}");

    let changes = (0..20).map(|number| {
        let changed = role(format!("role-{number}"), 2);
        let started_at = Instant::now();
        rules.upsert(&changed);
        rules.remove(RbacKind::ClusterRole, "", &format!("role-{number}"));
        started_at.elapsed()
    });
    let took = changes.min().unwrap_or_default();
    println!("a changed and a removed role of 10,000: {took:?}");
    assert!(took < Duration::from_millis(1), "{took:?}");
}

#[test]
fn the_memory_of_10_000_bindings_is_estimated() {
    let before = resident_bytes();
    let rules = cluster();
    let resident = resident_bytes().saturating_sub(before);
    let estimate = rules.memory_bytes();
    println!("10,000 bindings: estimate {estimate} bytes, resident memory +{resident} bytes");
    assert!(estimate < 20 << 20, "{estimate}");
}
