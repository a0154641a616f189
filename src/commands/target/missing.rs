//! What a target may not read, and the rules of the printed manifests that would let it.

use super::super::report::{ReportRow, Tone};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kubewarm_api::{
    manifests::Document,
    model::GroupResource,
    v1alpha1::{AccessStatus, PolicyRule as Told},
};

/// Most rules that are shown: a selector may find hundreds of namespaces.
const MAX_RULES: usize = 4;

/// What is refused of a kind: verbs, and the namespace, which is empty for the whole cluster.
pub(super) fn refused(access: &AccessStatus, of: &GroupResource) -> Vec<(String, String)> {
    let is_it = |rule: &&Told| {
        rule.api_groups.iter().any(|group| group == of.group())
            && rule.resources.iter().any(|resource| resource == of.resource())
    };
    let mut refused = Vec::new();
    for place in &access.missing {
        for rule in place.rules.iter().filter(is_it) {
            refused.push((rule.verbs.join(", "), place.namespace.clone()));
        }
    }
    refused
}

/// The rules of the manifests that grant what is refused, at most four, each with its role and the field that
/// the role is in. Only of kinds that a profile may
/// name is anything found: text that is none of kubewarm's is not shown.
pub(super) fn granting(access: &AccessStatus, of: &GroupResource) -> Vec<ReportRow> {
    let places: Vec<_> = refused(access, of).into_iter().map(|(_, place)| place).collect();
    let texts = [
        ("status.access.manifests", &access.manifests),
        ("status.access.manifestsElevated", &access.manifests_elevated),
    ];
    let mut found = Vec::new();
    for (field, text) in texts {
        let documents = text.as_deref().and_then(|text| Document::parse(text).ok());
        for document in documents.unwrap_or_default() {
            let place = match document.namespace() {
                "" => String::new(),
                namespace => format!(" in namespace {namespace}"),
            };
            let is_there = document.namespace().is_empty()
                || places.iter().any(|place| place == document.namespace());
            for rule in document.rules().iter().filter(|rule| is_there && grants(rule, of)) {
                let role = format!("{} {}{place}, of {field}", document.kind(), document.name());
                let row = ReportRow::labelled("granted by", Tone::Plain, role);
                found.push(ReportRow { next: lines(rule), ..row });
            }
        }
    }
    found.truncate(MAX_RULES);
    found
}

fn grants(rule: &PolicyRule, of: &GroupResource) -> bool {
    let has = |list: &Option<Vec<String>>, word: &str| {
        list.as_ref().is_some_and(|list| list.iter().any(|one| one == word))
    };
    has(&rule.api_groups, of.group()) && has(&rule.resources, of.resource())
}

/// As it stands in a list of rules.
fn lines(rule: &PolicyRule) -> Vec<String> {
    let flow = |words: &Option<Vec<String>>| {
        let quoted = words.iter().flatten().map(|word| match word.as_str() {
            "" => "''".to_owned(),
            word => word.to_owned(),
        });
        quoted.collect::<Vec<_>>().join(", ")
    };
    vec![
        format!("- apiGroups: [{}]", flow(&rule.api_groups)),
        format!("  resources: [{}]", flow(&rule.resources)),
        format!("  verbs: [{}]", rule.verbs.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::v1alpha1::NamespaceRules;

    const ROLES: &str = "\
kind: Role
metadata: {name: 'kubewarm:shop:checkout', namespace: shop}
rules:
- {apiGroups: [''], resources: [configmaps, pods], verbs: [list, watch]}
- {apiGroups: [apps], resources: [deployments], verbs: [list, watch]}
---
kind: Role
metadata: {name: 'kubewarm:shop:checkout', namespace: orders}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [list, watch]}
";

    fn access() -> AccessStatus {
        let rule = Told {
            api_groups: vec![String::new()],
            resources: vec!["configmaps".to_owned(), "services".to_owned()],
            verbs: vec!["watch".to_owned()],
            ..Told::default()
        };
        AccessStatus {
            missing: vec![NamespaceRules { namespace: "shop".to_owned(), rules: vec![rule] }],
            manifests: Some(ROLES.to_owned()),
            ..AccessStatus::default()
        }
    }

    #[test]
    fn the_rule_that_is_missing_is_found_in_the_role_of_its_namespace() {
        let of = GroupResource::new("", "configmaps").unwrap();
        assert_eq!(refused(&access(), &of), [("watch".to_owned(), "shop".to_owned())]);
        let [found] = &granting(&access(), &of)[..] else { panic!("not one") };
        assert_eq!(
            found.text(),
            "granted by  Role kubewarm:shop:checkout in namespace shop, of status.access.manifests"
        );
        assert_eq!(
            found.next,
            ["- apiGroups: ['']", "  resources: [configmaps, pods]", "  verbs: [list, watch]"]
        );
    }

    #[test]
    fn of_what_is_allowed_nothing_is_shown() {
        let of = GroupResource::new("apps", "deployments").unwrap();
        assert_eq!(refused(&access(), &of), []);
        assert!(granting(&access(), &GroupResource::new("", "nodes").unwrap()).is_empty());
    }
}
