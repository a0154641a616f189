//! The missing permissions of a target, and the RBAC rules that grant these permissions.

use super::super::report::{ReportRow, TextTone};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kubewarm_api::{
    manifests::RbacObject,
    model::GroupResource,
    v1alpha1::{AccessStatus, PolicyRule as StatusRule},
};

/// Maximum number of RBAC rules in the output of `status --target`. A namespace selector can match
/// hundreds of namespaces, and each namespace needs a rule.
const MAX_RULES: usize = 4;

/// Returns the verbs on `resource` that the profile's identity lacks, each with its namespace. An
/// empty namespace means the whole cluster.
pub(super) fn refused(access: &AccessStatus, resource: &GroupResource) -> Vec<(String, String)> {
    let has_resource = |rule: &&StatusRule| {
        rule.api_groups.iter().any(|group| group == resource.group())
            && rule.resources.iter().any(|plural| plural == resource.resource())
    };
    let mut refused = Vec::new();
    for place in &access.missing {
        for rule in place.rules.iter().filter(has_resource) {
            refused.push((rule.verbs.join(", "), place.namespace.clone()));
        }
    }
    refused
}

/// Returns at most four rows, each with an RBAC rule that grants missing permissions and the role
/// of the rule. The rules come from the manifests in `access`, the profile's `status.access`.
///
/// Ignores rules in the status for other resources: users other than kubewarm can write the status,
/// and the output must not suggest to grant such rules.
pub(super) fn granting(access: &AccessStatus, resource: &GroupResource) -> Vec<ReportRow> {
    let places: Vec<_> = refused(access, resource).into_iter().map(|(_, place)| place).collect();
    let mut rows = Vec::new();
    for text in [&access.manifests, &access.manifests_elevated] {
        let documents = text.as_deref().and_then(|text| RbacObject::parse(text).ok());
        for document in documents.unwrap_or_default() {
            let place = match document.namespace() {
                "" => String::new(),
                namespace => format!(" in namespace {namespace}"),
            };
            let is_there = document.namespace().is_empty()
                || places.iter().any(|place| place == document.namespace());
            for rule in document.rules().iter().filter(|rule| is_there && grants(rule, resource)) {
                let role = format!("{} {}{place}", document.kind(), document.name());
                let row = ReportRow::labelled("granted by", TextTone::Plain, role);
                rows.push(ReportRow { next: lines(rule), ..row });
            }
        }
    }
    rows.truncate(MAX_RULES);
    rows
}

fn grants(rule: &PolicyRule, resource: &GroupResource) -> bool {
    let has = |list: &Option<Vec<String>>, word: &str| {
        list.as_ref().is_some_and(|list| list.iter().any(|item| item == word))
    };
    has(&rule.api_groups, resource.group()) && has(&rule.resources, resource.resource())
}

/// Returns the rule as YAML lines, as in the `rules` of a role.
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
        let rule = StatusRule {
            api_groups: vec![String::new()],
            resources: vec!["configmaps".to_owned(), "services".to_owned()],
            verbs: vec!["watch".to_owned()],
            ..StatusRule::default()
        };
        AccessStatus {
            missing: vec![NamespaceRules { namespace: "shop".to_owned(), rules: vec![rule] }],
            manifests: Some(ROLES.to_owned()),
            ..AccessStatus::default()
        }
    }

    #[test]
    fn the_missing_rule_comes_from_the_role_in_its_namespace() {
        let resource = GroupResource::new("", "configmaps").unwrap();
        assert_eq!(refused(&access(), &resource), [("watch".to_owned(), "shop".to_owned())]);
        let [row] = &granting(&access(), &resource)[..] else {
            panic!("not exactly one rule was found")
        };
        assert_eq!(row.text(), "granted by  Role kubewarm:shop:checkout in namespace shop");
        assert_eq!(
            row.next,
            ["- apiGroups: ['']", "  resources: [configmaps, pods]", "  verbs: [list, watch]"]
        );
    }

    #[test]
    fn a_resource_without_missing_permissions_has_no_rows() {
        let resource = GroupResource::new("apps", "deployments").unwrap();
        assert_eq!(refused(&access(), &resource), []);
        assert!(granting(&access(), &GroupResource::new("", "nodes").unwrap()).is_empty());
    }
}
