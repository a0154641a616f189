//! Who would gain and lose what, as rows for a person.

use super::super::report::{Mark, ReportRow};
use kubewarm_api::{
    manifests::{Change, Grant, Object, Place},
    model::Subject,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// What a line says of its grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Gains,
    Loses,
    Keeps,
}

/// Grants that make one line, but for the verbs and the names.
type Line<'a> = (Verb, &'a Subject, &'a Place, Thing<'a>, Option<&'a str>, bool);

/// An object without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing<'a> {
    Resource { group: &'a str, resource: &'a str },
    Url(&'a str),
    Role(&'a str),
    Rules(&'a str),
}

/// One row for each rule and subject. `elevated` are the grants of the elevated manifests, `named`
/// those of all manifests: what others would gain says by which binding.
pub(super) fn rows(
    change: &Change,
    elevated: &BTreeMap<Grant, String>,
    named: &BTreeMap<Grant, String>,
) -> Vec<ReportRow> {
    let mut verbs = BTreeMap::<(Line<'_>, Option<&str>), BTreeSet<&str>>::new();
    let all =
        [(Verb::Gains, &change.gained), (Verb::Loses, &change.lost), (Verb::Keeps, &change.kept)];
    for (verb, grants) in all {
        for (grant, by) in grants {
            let (thing, name) = thing(&grant.object);
            let is_named = verb == Verb::Loses || named.contains_key(grant);
            let by = (!is_named).then_some(by.as_str());
            let is_elevated = elevated.contains_key(grant) || is_wide(&thing);
            let line = (verb, &grant.subject, &grant.place, thing, by, is_elevated);
            verbs.entry((line, name)).or_default().insert(&grant.verb);
        }
    }
    let mut rules = BTreeMap::<(Line<'_>, BTreeSet<&str>), BTreeSet<&str>>::new();
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

fn thing(object: &Object) -> (Thing<'_>, Option<&str>) {
    match object {
        Object::Resource { group, resource, name } => {
            (Thing::Resource { group, resource }, name.as_deref())
        }
        Object::Url(path) => (Thing::Url(path), None),
        Object::Role(role) => (Thing::Role(role), None),
        Object::Rules(role) => (Thing::Rules(role), None),
    }
}

/// Whether it reaches secrets, or nobody can see what it reaches.
fn is_wide(thing: &Thing<'_>) -> bool {
    match thing {
        Thing::Resource { resource, .. } => {
            resource.split('/').next().is_some_and(|of| matches!(of, "secrets" | "*"))
        }
        Thing::Url(_) => false,
        Thing::Role(_) | Thing::Rules(_) => true,
    }
}

fn row(line: &Line<'_>, verbs: &BTreeSet<&str>, names: &BTreeSet<&str>) -> ReportRow {
    let (verb, subject, place, thing, by, is_elevated) = line;
    let (mark, verb) = match verb {
        Verb::Gains => (Mark::Gains, "gains"),
        Verb::Loses => (Mark::Loses, "loses"),
        Verb::Keeps => (Mark::Keeps, "keeps"),
    };
    let list = |items: &BTreeSet<&str>| items.iter().copied().collect::<Vec<_>>().join(", ");
    let verbs = list(verbs);
    let mut text = format!("{subject} {verb} ");
    let written = match thing {
        Thing::Resource { group: "", resource } => write!(text, "{verbs} on {resource}"),
        Thing::Resource { group, resource } => write!(text, "{verbs} on {resource}.{group}"),
        Thing::Url(path) => write!(text, "{verbs} on the path {path}"),
        Thing::Role(role) => write!(text, "all that {role} grants"),
        Thing::Rules(role) => write!(text, "the rules of {role}, too many to show,"),
    };
    debug_assert!(written.is_ok(), "writing to a String does not fail");
    if !names.is_empty() {
        text.push_str(" named ");
        text.push_str(&list(names));
    }
    match place {
        Place::Everywhere => text.push_str(" in the whole cluster"),
        Place::Namespace(namespace) => {
            text.push_str(" in namespace ");
            text.push_str(namespace);
        }
    }
    if let Some(by) = by {
        text.push_str(" by ");
        text.push_str(by);
        text.push_str(", which the profile does not need");
    }
    if *is_elevated {
        text.push_str(" [elevated]");
    }
    ReportRow::marked(mark, text)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::report::{Colour, Format, Report, Section, render},
        *,
    };

    fn grant(subject: &str, resource: &str, name: Option<&str>, verb: &str) -> (Grant, String) {
        let grant = Grant {
            subject: Subject::User(subject.into()),
            place: Place::Namespace("shop".into()),
            object: Object::Resource {
                group: if resource == "deployments" { "apps" } else { "" }.to_owned(),
                resource: resource.to_owned(),
                name: name.map(str::to_owned),
            },
            verb: verb.to_owned(),
        };
        (grant, "RoleBinding shop/x".to_owned())
    }

    #[test]
    fn verbs_and_names_of_one_rule_are_one_line() {
        let change = Change {
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
        let format = Format::Text { width: 0, colour: Colour::Off };
        let report = Report { sections: vec![Section::new("x", rows)], ..Report::default() };
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
