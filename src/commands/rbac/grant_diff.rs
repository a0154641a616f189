//! Rows that compare subjects' permissions in the cluster with those after the user applies the
//! manifests: permissions that the subjects gain, lose or keep.

use super::super::{
    report::{ReportRow, RowMark},
    text::place,
};
use kubewarm_api::{
    manifests::{Grant, GrantDiff, GrantResource},
    model::Subject,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// The fields that all permissions of one output row have in common: mark and verb of the change,
/// subject, namespace, object without name, binding, and whether the permission is elevated.
type GrantRowKey<'a> =
    ((RowMark, &'static str), &'a Subject, Option<&'a str>, GrantResource, Option<&'a str>, bool);

/// Returns one row per RBAC rule and subject. `elevated` contains the permissions that the elevated
/// manifests grant, `needed` the permissions that all manifests grant.
///
/// A subject can gain or keep a permission that `needed` does not contain. The row then names the
/// binding that grants this permission, because the profile does not need the binding.
pub(super) fn rows(
    change: &GrantDiff,
    elevated: &BTreeMap<Grant, String>,
    needed: &BTreeMap<Grant, String>,
) -> Vec<ReportRow> {
    let mut verbs = BTreeMap::<(GrantRowKey<'_>, Option<&str>), BTreeSet<&str>>::new();
    let all = [
        ((RowMark::Gains, "gains"), &change.gained),
        ((RowMark::Loses, "loses"), &change.lost),
        ((RowMark::Keeps, "keeps"), &change.kept),
    ];
    for (mark, grants) in all {
        for (grant, by) in grants {
            let (object, name) = without_name(&grant.object);
            let is_extra = mark.0 != RowMark::Loses && !needed.contains_key(grant);
            let by = is_extra.then_some(by.as_str());
            let is_elevated = elevated.contains_key(grant) || is_wide(&object);
            let line = (mark, &grant.subject, grant.namespace.as_deref(), object, by, is_elevated);
            verbs.entry((line, name)).or_default().insert(&grant.verb);
        }
    }
    let mut rules = BTreeMap::<(GrantRowKey<'_>, BTreeSet<&str>), BTreeSet<&str>>::new();
    for ((line, name), verbs) in verbs {
        rules.entry((line, verbs)).or_default().extend(name);
    }
    let mut rows: Vec<_> =
        rules.iter().map(|((line, verbs), names)| row(line, verbs, names)).collect();
    rows.extend(change.stuck.iter().map(|(binding, role)| {
        let text = format!("{binding} binds {role}, which cannot be changed: delete it first");
        ReportRow::bad(text)
    }));
    rows
}

fn without_name(object: &GrantResource) -> (GrantResource, Option<&str>) {
    let GrantResource::Resource { group, resource, name } = object else {
        return (object.clone(), None);
    };
    let all =
        GrantResource::Resource { group: group.clone(), resource: resource.clone(), name: None };
    (all, name.as_deref())
}

/// Whether the row for `object` must be marked as elevated: `object` includes Secrets, or is a role
/// whose rules kubewarm does not know.
fn is_wide(object: &GrantResource) -> bool {
    match object {
        GrantResource::Resource { resource, .. } => {
            resource.split('/').next().is_some_and(|plural| matches!(plural, "secrets" | "*"))
        }
        GrantResource::Url(_) => false,
        GrantResource::Role(_) | GrantResource::Rules(_) => true,
    }
}

fn row(line: &GrantRowKey<'_>, verbs: &BTreeSet<&str>, names: &BTreeSet<&str>) -> ReportRow {
    let ((mark, verb), subject, at, object, by, is_elevated) = line;
    let list = |items: &BTreeSet<&str>| items.iter().copied().collect::<Vec<_>>().join(", ");
    let verbs = list(verbs);
    let mut text = format!("{subject} {verb} ");
    let _infallible = match object {
        GrantResource::Resource { group, resource, .. } if group.is_empty() => {
            write!(text, "{verbs} on {resource}")
        }
        GrantResource::Resource { group, resource, .. } => {
            write!(text, "{verbs} on {resource}.{group}")
        }
        GrantResource::Url(path) => write!(text, "{verbs} on the path {path}"),
        GrantResource::Role(role) => write!(text, "all that {role} grants"),
        GrantResource::Rules(role) => write!(text, "the rules of {role}, too many to show,"),
    };
    if !names.is_empty() {
        text.push_str(" named ");
        text.push_str(&list(names));
    }
    text.push_str(" in ");
    text.push_str(&place(*at));
    if let Some(by) = by {
        text.push_str(" by ");
        text.push_str(by);
        text.push_str(", which the profile does not need");
    }
    if *is_elevated {
        text.push_str(" [elevated]");
    }
    ReportRow::marked(*mark, text)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::report::{
            CommandReport, ReportFormat, ReportSection, TerminalLayout, render,
        },
        *,
    };

    fn grant(subject: &str, resource: &str, name: Option<&str>, verb: &str) -> (Grant, String) {
        let grant = Grant {
            subject: Subject::User(subject.into()),
            namespace: Some("shop".into()),
            object: GrantResource::Resource {
                group: if resource == "deployments" { "apps" } else { "" }.to_owned(),
                resource: resource.to_owned(),
                name: name.map(str::to_owned),
            },
            verb: verb.to_owned(),
        };
        (grant, "RoleBinding shop/x".to_owned())
    }

    #[test]
    fn verbs_and_names_of_one_rule_share_a_row() {
        let change = GrantDiff {
            gained: [
                grant("jane", "deployments", None, "watch"),
                grant("jane", "deployments", None, "list"),
                grant("jane", "namespaces", Some("b"), "get"),
                grant("jane", "namespaces", Some("a"), "get"),
                grant("jane", "secrets", None, "list"),
            ]
            .into(),
            lost: [grant("jane", "*", None, "*")].into(),
            kept: [grant("mallory", "pods", None, "list")].into(),
            stuck: vec![("RoleBinding shop/y".to_owned(), "ClusterRole admin".to_owned())],
        };
        let rows = rows(&change, &BTreeMap::new(), &change.gained);
        let format = ReportFormat::Text(TerminalLayout::default());
        let report = CommandReport {
            sections: vec![ReportSection::new("x", rows)],
            ..CommandReport::default()
        };
        let text = render(&report, format).unwrap();
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                "+ jane gains get on namespaces named a, b in namespace shop",
                "+ jane gains list on secrets in namespace shop [elevated]",
                "+ jane gains list, watch on deployments.apps in namespace shop",
                "- jane loses * on * in namespace shop [elevated]",
                "= mallory keeps list on pods in namespace shop by RoleBinding shop/x, which the \
                 profile does not need",
                "✗ RoleBinding shop/y binds ClusterRole admin, which cannot be changed: delete it \
                 first",
            ]
        );
    }
}
