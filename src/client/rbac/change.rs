//! Who would gain and lose what, in lines for a person.

use super::super::text::escape;
use crate::{
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

/// One line for each rule and subject. `elevated` are the grants of the elevated manifests, `named`
/// those of all manifests: what others would gain says by which binding.
///
/// Texts are escaped for terminals.
pub(super) fn lines(
    change: &Change,
    elevated: &BTreeMap<Grant, String>,
    named: &BTreeMap<Grant, String>,
) -> Vec<String> {
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
    let mut lines: Vec<_> =
        rules.iter().map(|((line, verbs), names)| sentence(line, verbs, names)).collect();
    lines.extend(change.stuck.iter().map(|(binding, role)| {
        let (binding, role) = (escape(binding), escape(role));
        format!("! {binding} binds {role}, which cannot be changed: delete it first")
    }));
    lines
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

fn sentence(line: &Line<'_>, verbs: &BTreeSet<&str>, names: &BTreeSet<&str>) -> String {
    let (verb, subject, place, thing, by, is_elevated) = line;
    let (sign, verb) = match verb {
        Verb::Gains => ('+', "gains"),
        Verb::Loses => ('-', "loses"),
        Verb::Keeps => ('=', "keeps"),
    };
    let list = |items: &BTreeSet<&str>| items.iter().copied().collect::<Vec<_>>().join(", ");
    let verbs = list(verbs);
    let mut text = format!("{sign} {subject} {verb} ");
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
    escape(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            lines(&change, &BTreeMap::new(), &change.gained),
            [
                "+ jane gains get on namespaces named a, b in namespace shop",
                "+ jane gains list on secrets in namespace shop [elevated]",
                "+ jane gains list, watch on deployments.apps in namespace shop",
                "- jane loses * on * in namespace shop [elevated]",
                "= mallory keeps list on pods in namespace shop by RoleBinding shop/x, which the \
                 profile does not need",
                "! RoleBinding shop/y binds ClusterRole admin, which cannot be changed: delete it \
                 first",
            ]
        );
    }

    #[test]
    fn what_a_cluster_says_cannot_steer_a_terminal() {
        let change =
            Change { lost: [grant("\u{1b}[2J", "pods", None, "a\nb")].into(), ..Change::default() };
        let lines = lines(&change, &BTreeMap::new(), &BTreeMap::new());
        assert_eq!(lines, [r"- \u{1b}[2J loses a\u{a}b on pods in namespace shop"]);
    }
}
