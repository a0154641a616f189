//! Evaluates the rules of a `SelfSubjectRulesReview` for the resource of an informer, as RBAC does.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, ResourceRule};
use kubewarm_api::model::{GroupResource, Identity, InformerKey, InformerScope, Verb};
use kubewarm_client::{ReviewedRules, with_selectors};
use std::sync::Arc;

/// Wildcard of `verbs`, `apiGroups` and `resources`.
pub(super) const ANY: &str = "*";

/// The verbs that every informer needs.
pub(super) const VERBS: [Verb; 2] = [Verb::List, Verb::Watch];

/// Whether `rules` grant `verb` on the informer's resource. For an informer that selects one object
/// by name, a grant for that name is enough. `rules` must be complete, because a missing rule looks
/// like a missing grant.
pub(super) fn grants(rules: &ReviewedRules, key: &InformerKey, verb: Verb) -> bool {
    let (resource, name) = (key.resource.group_resource(), key.fields.name());
    rules.rules.iter().any(|rule| rule_grants(rule, verb, resource, name))
}

fn rule_grants(
    rule: &ResourceRule,
    verb: Verb,
    resource: &GroupResource,
    name: Option<&str>,
) -> bool {
    let has = |names: &[String], wanted: &str| names.iter().any(|n| n == ANY || n == wanted);
    let listed = |names: &Option<Vec<String>>, wanted: &str| {
        names.as_deref().is_some_and(|names| has(names, wanted))
    };
    let named = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, verb.as_str())
        && listed(&rule.api_groups, resource.group())
        // A rule for `pods/log` gives no permission for `pods`.
        && listed(&rule.resources, resource.resource())
        // RBAC has no wildcard for resource names.
        && (named.is_empty() || name.is_some_and(|name| named.iter().any(|n| n == name)))
}

/// Returns the attributes of a SelfSubjectAccessReview for the informer's `list` or `watch`,
/// including the informer's label and field selectors.
pub fn attributes(key: &InformerKey, verb: Verb) -> ResourceAttributes {
    let resource = key.resource.group_resource();
    let attributes = ResourceAttributes {
        verb: Some(verb.as_str().to_owned()),
        group: Some(resource.group().to_owned()),
        resource: Some(resource.resource().to_owned()),
        namespace: key.scope.namespace().map(str::to_owned),
        name: key.fields.name().map(str::to_owned),
        ..ResourceAttributes::default()
    };
    with_selectors(attributes, &key.labels, &key.fields)
}

/// Scope of a rules review (`SelfSubjectRulesReview`): an identity and a namespace. Without a
/// namespace, the scope is the whole cluster.
pub(super) type RulesReviewKey = (Identity, Option<Arc<str>>);

pub(super) fn rules_scope(key: &InformerKey) -> RulesReviewKey {
    let here = match &key.scope {
        InformerScope::Namespace(name) => Some(Arc::clone(name)),
        InformerScope::AllNamespaces | InformerScope::Cluster => None,
    };
    (key.identity.clone(), here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let strings =
            |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(strings(groups)),
            resources: Some(strings(resources)),
            resource_names: (!names.is_empty()).then(|| strings(names)),
            verbs: strings(verbs),
        }
    }

    fn is_allowed(rule: &ResourceRule, name: Option<&str>) -> bool {
        let pods = GroupResource::new("", "pods").unwrap();
        rule_grants(rule, Verb::List, &pods, name)
    }

    #[test]
    fn rules_are_evaluated_as_rbac_evaluates_them() {
        let both: &[&str] = &["list", "watch"];
        let cases = [
            (rule(&[""], &["pods"], both, &[]), None, true),
            (rule(&["*"], &["*"], &["*"], &[]), None, true),
            (rule(&["apps"], &["pods"], both, &[]), None, false),
            (rule(&[""], &["pods/log", "pods/*", "*/log"], both, &[]), None, false),
            (rule(&[""], &["pods"], &["watch", "get"], &[]), None, false),
            (rule(&[""], &["pods"], both, &["web"]), None, false),
            (rule(&[""], &["pods"], both, &["web"]), Some("web"), true),
            (rule(&[""], &["pods"], both, &["*"]), Some("web"), false),
            (rule(&[""], &["pods"], both, &[]), Some("web"), true),
            (ResourceRule::default(), None, false),
        ];
        for (rule, name, allowed) in cases {
            assert_eq!(is_allowed(&rule, name), allowed, "{rule:?} {name:?}");
        }
    }
}
