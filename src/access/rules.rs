//! Whether the rules of a review allow what a cell needs, as RBAC matches them.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, ResourceRule};
use kubewarm_api::model::{CellKey, Extent, GroupResource, Identity, Verb};
use kubewarm_client::{ReviewedRules, with_selectors};
use std::sync::Arc;

/// What a rule may say instead of a name.
pub(super) const ANY: &str = "*";

/// What both requests of a cell are for.
pub(super) const VERBS: [Verb; 2] = [Verb::List, Verb::Watch];

/// Whether rules that are all there is allow `verb` on what the cell selects.
pub(super) fn allow(rules: &ReviewedRules, key: &CellKey, verb: Verb) -> bool {
    let (of, name) = (key.resource.group_resource(), key.fields.name());
    rules.rules.iter().any(|rule| allows(rule, verb, of, name))
}

fn allows(rule: &ResourceRule, verb: Verb, of: &GroupResource, name: Option<&str>) -> bool {
    let has = |names: &[String], wanted: &str| names.iter().any(|n| n == ANY || n == wanted);
    let listed = |names: &Option<Vec<String>>, wanted: &str| {
        names.as_deref().is_some_and(|names| has(names, wanted))
    };
    let named = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, verb.as_str())
        && listed(&rule.api_groups, of.group())
        // `pods/log` is another resource than `pods`.
        && listed(&rule.resources, of.resource())
        // Names have no wildcard.
        && (named.is_empty() || name.is_some_and(|name| named.iter().any(|n| n == name)))
}

/// What to ask about one request of a cell: the same as the API server sees when it is made.
#[must_use]
pub fn attributes(key: &CellKey, verb: Verb) -> ResourceAttributes {
    let of = key.resource.group_resource();
    let attributes = ResourceAttributes {
        verb: Some(verb.as_str().to_owned()),
        group: Some(of.group().to_owned()),
        resource: Some(of.resource().to_owned()),
        namespace: key.extent.namespace().map(str::to_owned),
        name: key.fields.name().map(str::to_owned),
        ..ResourceAttributes::default()
    };
    with_selectors(attributes, &key.labels, &key.fields)
}

/// Whose rules, and where; without a namespace, only grants for the whole cluster count.
pub(super) type Spot = (Identity, Option<Arc<str>>);

/// Where the rules are that decide about a cell.
pub(super) fn spot(key: &CellKey) -> Spot {
    let here = match &key.extent {
        Extent::Namespace(name) => Some(Arc::clone(name)),
        Extent::AllNamespaces | Extent::Cluster => None,
    };
    (key.identity.clone(), here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(own(groups)),
            resources: Some(own(resources)),
            resource_names: (!names.is_empty()).then(|| own(names)),
            verbs: own(verbs),
        }
    }

    fn says(rule: &ResourceRule, name: Option<&str>) -> bool {
        let pods = GroupResource::new("", "pods").unwrap();
        allows(rule, Verb::List, &pods, name)
    }

    #[test]
    fn rules_match_as_rbac_matches_them() {
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
            assert_eq!(says(&rule, name), allowed, "{rule:?} {name:?}");
        }
    }
}
