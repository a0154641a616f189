//! Computes a profile's targets from the rules of a ServiceAccount.

use k8s_openapi::api::authorization::v1::ResourceRule;
use kubewarm_api::model::ResourceInfo;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The rules of a ServiceAccount.
#[derive(Debug, Default)]
pub(super) struct AccountRules {
    /// The cluster-wide rules.
    pub(super) everywhere: Vec<ResourceRule>,
    /// The rules in each namespace with a binding, with the cluster-wide ones.
    pub(super) namespaces: BTreeMap<String, Vec<ResourceRule>>,
}

/// The targets of a profile, and sentences about kinds that the profile omits.
#[derive(Debug, Default, PartialEq)]
pub(super) struct InferredTargets {
    pub(super) targets: Vec<Value>,
    pub(super) omitted: Vec<String>,
}

/// The kinds of a profile: those that the ServiceAccount may list and watch, those that it did.
#[derive(Debug, Default)]
pub(super) struct ReadKinds {
    /// The kinds that kubewarm forwarded for the ServiceAccount, as kubectl writes them.
    pub(super) forwarded: BTreeSet<String>,
    /// Whether the profile contains only these.
    pub(super) is_only_forwarded: bool,
}

/// Kinds that a controller may list and watch, but rarely does, or should not read from a cache.
const OMITTED: [(&str, &str, &str); 3] = [
    ("coordination.k8s.io", "leases", "a leader election must read the newest Lease"),
    ("", "events", "almost no program lists Events, and there are many"),
    ("events.k8s.io", "events", "almost no program lists Events, and there are many"),
];

/// Returns a target for each kind that the rules permit to list and watch without a name. A
/// namespaced kind counts in all namespaces, or else in those whose rules permit it. `home` is the
/// profile's namespace.
pub(super) fn infer_targets<'a>(
    served: impl Iterator<Item = &'a ResourceInfo>,
    rules: &AccountRules,
    kinds: &ReadKinds,
    home: &str,
) -> InferredTargets {
    let mut inferred = InferredTargets::default();
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    for info in served {
        let (group, plural) = (info.resource.group(), info.resource.resource());
        let is_readable =
            ["list", "watch"].iter().all(|verb| info.verbs.iter().any(|one| &**one == *verb));
        // The API server serves some kinds in several versions. The first one is preferred.
        if !is_readable || !seen.insert((group, plural)) {
            continue;
        }
        let Some(scope) = scope(info, rules, home) else { continue };
        let title = info.resource.group_resource().to_string();
        let is_forwarded = kinds.forwarded.contains(&title);
        if kinds.is_only_forwarded && !is_forwarded {
            continue;
        }
        let omitted = OMITTED.iter().find(|(of, name, _)| (*of, *name) == (group, plural));
        // A client that lists Events wants them from a cache. Leases never belong there.
        let omitted = omitted.filter(|(_, name, _)| !is_forwarded || *name == "leases");
        if let Some((_, _, reason)) = omitted {
            inferred.omitted.push(format!("the profile omits {title}: {reason}"));
            continue;
        }
        let mut target =
            json!({"name": target_name(&mut names, group, plural), "resource": plural});
        if !group.is_empty() {
            target["group"] = group.into();
        }
        target["scope"] = scope;
        if (group, plural) == ("", "secrets") {
            target["projection"] = json!({"type": "Full"});
            target["secretData"] = "Allow".into();
        }
        inferred.targets.push(target);
    }
    inferred
}

/// The largest scope in which the rules permit to list and watch the kind; `None` if there is none.
fn scope(info: &ResourceInfo, rules: &AccountRules, home: &str) -> Option<Value> {
    if permits(&rules.everywhere, info) {
        let kind = if info.is_namespaced { "AllNamespaces" } else { "Cluster" };
        return Some(json!({"type": kind}));
    }
    let in_namespaces = rules.namespaces.iter().filter(|(_, rules)| permits(rules, info));
    let names: Vec<_> = in_namespaces.map(|(name, _)| name).collect();
    match &names[..] {
        [] => None,
        _ if !info.is_namespaced => None,
        [only] if *only == home => Some(json!({"type": "OwnNamespace"})),
        _ => Some(json!({"type": "Namespaces", "namespaces": names})),
    }
}

/// Whether the rules permit both verbs for the kind. Rules for names or subresources do not count.
fn permits(rules: &[ResourceRule], info: &ResourceInfo) -> bool {
    let has = |list: Option<&Vec<String>>, wanted: &str| {
        list.is_some_and(|list| list.iter().any(|one| one == "*" || one == wanted))
    };
    let is_about = |rule: &&ResourceRule| {
        rule.resource_names.as_ref().is_none_or(Vec::is_empty)
            && has(rule.api_groups.as_ref(), info.resource.group())
            && has(rule.resources.as_ref(), info.resource.resource())
    };
    let permits =
        |verb: &str| rules.iter().filter(is_about).any(|rule| has(Some(&rule.verbs), verb));
    permits("list") && permits("watch")
}

/// A name that no other target has: the kind's plural, else with its group.
fn target_name(names: &mut BTreeSet<String>, group: &str, plural: &str) -> String {
    let long = format!("{plural}-{}", group.replace('.', "-"));
    let candidates = [plural.to_owned(), long.chars().take(63).collect()];
    let free = candidates.into_iter().find(|name| !names.contains(name));
    // Two groups whose first 60 characters are equal.
    let name = free.unwrap_or_else(|| format!("target-{}", names.len()));
    let name = name.trim_end_matches('-').to_owned();
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{GroupResource, Resource};

    fn kind(
        group: &str,
        plural: &str,
        version: &str,
        is_namespaced: bool,
        verbs: &[&str],
    ) -> ResourceInfo {
        let resource = Resource::new(GroupResource::new(group, plural).unwrap(), version).unwrap();
        let verbs = verbs.iter().map(|verb| (*verb).into()).collect();
        ResourceInfo { is_namespaced, verbs, ..ResourceInfo::new(resource, "Kind") }
    }

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> ResourceRule {
        let list = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(list(groups)),
            resources: Some(list(resources)),
            resource_names: Some(list(names)).filter(|names| !names.is_empty()),
            verbs: list(verbs),
        }
    }

    fn served() -> Vec<ResourceInfo> {
        let both = &["list", "watch"];
        vec![
            kind("", "pods", "v1", true, both),
            kind("", "nodes", "v1", false, both),
            kind("", "secrets", "v1", true, both),
            kind("", "events", "v1", true, both),
            kind("", "bindings", "v1", true, &["create"]),
            kind("apps", "deployments", "v1", true, both),
            kind("apps", "deployments", "v1beta1", true, both),
            kind("coordination.k8s.io", "leases", "v1", true, both),
            kind("metrics.k8s.io", "pods", "v1beta1", true, both),
        ]
    }

    #[test]
    fn each_kind_with_list_and_watch_is_a_target_once() {
        let rules = AccountRules {
            everywhere: vec![rule(&["*"], &["*"], &[], &["*"])],
            ..AccountRules::default()
        };
        let all = infer_targets(served().iter(), &rules, &ReadKinds::default(), "shop");
        let lines: Vec<_> = all.targets.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"{"name":"pods","resource":"pods","scope":{"type":"AllNamespaces"}}"#,
                r#"{"name":"nodes","resource":"nodes","scope":{"type":"Cluster"}}"#,
                r#"{"name":"secrets","projection":{"type":"Full"},"resource":"secrets","scope":{"type":"AllNamespaces"},"secretData":"Allow"}"#,
                r#"{"group":"apps","name":"deployments","resource":"deployments","scope":{"type":"AllNamespaces"}}"#,
                r#"{"group":"metrics.k8s.io","name":"pods-metrics-k8s-io","resource":"pods","scope":{"type":"AllNamespaces"}}"#,
            ]
        );
        assert_eq!(all.omitted.len(), 2, "{:?}", all.omitted);
        assert!(all.omitted[1].starts_with("the profile omits leases.coordination.k8s.io: "));
    }

    #[test]
    fn forwarded_kinds_limit_a_profile_or_add_events() {
        let rules = AccountRules {
            everywhere: vec![rule(&["*"], &["*"], &[], &["*"])],
            ..AccountRules::default()
        };
        let kinds = ["events", "pods", "leases.coordination.k8s.io"];
        let names = |is_only_forwarded| {
            let forwarded = kinds.map(str::to_owned).into();
            let kinds = ReadKinds { forwarded, is_only_forwarded };
            let all = infer_targets(served().iter(), &rules, &kinds, "shop");
            let names = all.targets.iter().map(|one| one["name"].as_str().unwrap().to_owned());
            (names.collect::<Vec<_>>(), all.omitted.len())
        };
        assert_eq!(names(true), (vec!["pods".to_owned(), "events".to_owned()], 1));
        let (all, omitted) = names(false);
        assert!(all.len() == 6 && all.contains(&"events".to_owned()), "{all:?}");
        assert_eq!(omitted, 1);
    }

    #[test]
    fn rules_count_where_they_hold_and_only_without_names() {
        let rules = AccountRules {
            everywhere: vec![
                rule(&[""], &["nodes"], &[], &["list"]),
                rule(&["", "apps"], &["secrets", "deployments/scale"], &[], &["list", "watch"]),
            ],
            namespaces: [
                (
                    "a".to_owned(),
                    vec![
                        rule(&["apps"], &["deployments"], &[], &["list"]),
                        rule(&["apps"], &["*"], &[], &["watch"]),
                    ],
                ),
                (
                    "shop".to_owned(),
                    vec![
                        rule(&[""], &["pods"], &[], &["list", "watch"]),
                        rule(&["apps"], &["deployments"], &[], &["list", "watch"]),
                        rule(&[""], &["nodes"], &["one"], &["watch"]),
                    ],
                ),
            ]
            .into(),
        };
        let all = infer_targets(served().iter(), &rules, &ReadKinds::default(), "shop");
        let scopes: Vec<_> =
            all.targets.iter().map(|one| (one["name"].clone(), one["scope"].clone())).collect();
        let expected = [
            (json!("pods"), json!({"type": "OwnNamespace"})),
            (json!("secrets"), json!({"type": "AllNamespaces"})),
            (json!("deployments"), json!({"type": "Namespaces", "namespaces": ["a", "shop"]})),
        ];
        assert_eq!(scopes, expected);
    }
}
