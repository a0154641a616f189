//! Whether whoever asks may do what a file grants, and nothing else.

use super::super::{Error, error::DocumentError, finding::Finding, specs};
use crate::{
    cluster::{Connection, is_allowed, whole_rules_of},
    model::Fault,
};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectRulesReviewStatus},
    rbac::v1::PolicyRule,
};
use kube::Client;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// What a rule may say instead of a name.
const ANY: &str = "*";
/// Where a stray grant would hurt most: looked at although nothing is granted there.
const SYSTEM: &str = "kube-system";
/// Rights that are named; beyond these it is said how many there are.
const NAMED: usize = 8;
/// Questions in a namespace whose rules are not all there is: the shipped roles need a dozen.
const REVIEWS: usize = 128;
/// What everybody may: group, resource and verbs, by the roles that the API server binds to all
/// authenticated users and service accounts.
const EVERYBODYS: &[(&str, &str, &[&str])] = &[
    ("authorization.k8s.io", "selfsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "selfsubjectrulesreviews", &["create"]),
    ("authentication.k8s.io", "selfsubjectreviews", &["create"]),
    ("certificates.k8s.io", "clustertrustbundles", &["get", "list", "watch"]),
];

/// What is granted in one place.
#[derive(Debug, Deserialize)]
struct Grant {
    /// Empty: the whole cluster.
    #[serde(default)]
    namespace: String,
    rules: Vec<PolicyRule>,
}

/// One thing that may be done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Resource { group: String, resource: String, name: Option<String>, verb: String },
    Url { url: String, verb: String },
}

/// What is wrong in one place.
#[derive(Debug, Default, PartialEq)]
struct Difference {
    lacking: Vec<Right>,
    /// May be done, and is not granted by the file.
    beyond: Vec<Right>,
}

/// A line for each namespace of the file, the operator's and kube-system.
pub(super) async fn of_ours(
    connection: &Connection,
    file: &Path,
    operator_namespace: &str,
) -> Result<Vec<Finding>, Error> {
    let text = specs::file(file)?;
    let grants: Vec<Grant> = serde_saphyr::from_str(&text).map_err(|error| Error::Document {
        file: file.to_owned(),
        at: "the grants".to_owned(),
        source: DocumentError::Unreadable(
            super::super::text::escape(&error.to_string()).into_owned(),
        ),
    })?;
    let mut places: BTreeMap<&str, BTreeSet<Right>> = BTreeMap::new();
    for grant in &grants {
        places.entry(&grant.namespace).or_default().extend(rights(&grant.rules));
    }
    let everywhere = places.remove("").unwrap_or_default();
    for namespace in [operator_namespace, SYSTEM] {
        places.entry(namespace).or_default();
    }
    let client = connection.client();
    let mut findings = Vec::new();
    for (namespace, mut expected) in places {
        expected.extend(everywhere.iter().cloned());
        match whole_rules_of(&client, namespace).await {
            Err(fault) => findings.push(Finding::unseen(&at(namespace), &fault)),
            Ok(status) if status.incomplete => {
                findings.extend(one_by_one(&client, namespace, &expected).await);
            }
            Ok(status) => {
                let difference = difference(&expected, &rights(&reviewed(status)));
                findings.extend(told(namespace, expected.len(), &difference));
            }
        }
    }
    Ok(findings)
}

fn at(namespace: &str) -> String {
    format!("in namespace {namespace}")
}

/// Where an authorizer cannot list what it allows: whether each right is there.
async fn one_by_one(client: &Client, namespace: &str, expected: &BTreeSet<Right>) -> Vec<Finding> {
    let mut lacking = Vec::new();
    for right in expected.iter().take(REVIEWS) {
        let Some(attributes) = right.attributes(namespace) else { continue };
        match is_allowed(client, attributes).await {
            Ok(true) => {}
            Ok(false) => lacking.push(right.clone()),
            Err(fault) => return vec![Finding::unseen(&at(namespace), &fault)],
        }
    }
    let mut findings = told(namespace, expected.len(), &Difference { lacking, beyond: Vec::new() });
    let fault = Fault::new(
        crate::model::Reason::Unsupported,
        "an authorizer of this cluster does not tell what it allows",
    );
    findings.push(Finding::unseen(&format!("whether that is all {}", at(namespace)), &fault));
    findings
}

/// As rules of a role.
fn reviewed(status: SubjectRulesReviewStatus) -> Vec<PolicyRule> {
    let of_resources = status.resource_rules.into_iter().map(|rule| PolicyRule {
        api_groups: rule.api_groups,
        resources: rule.resources,
        resource_names: rule.resource_names,
        verbs: rule.verbs,
        ..PolicyRule::default()
    });
    let of_urls = status.non_resource_rules.into_iter().map(|rule| PolicyRule {
        non_resource_urls: rule.non_resource_urls,
        verbs: rule.verbs,
        ..PolicyRule::default()
    });
    of_resources.chain(of_urls).collect()
}

/// What rules allow, one by one.
fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let each = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    for rule in rules {
        let names = each(&rule.resource_names);
        let names: Vec<_> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for verb in &rule.verbs {
            for group in each(&rule.api_groups) {
                for resource in each(&rule.resources) {
                    for name in &names {
                        let (group, resource) = (group.clone(), resource.clone());
                        let (name, verb) = (name.clone(), verb.clone());
                        rights.insert(Right::Resource { group, resource, name, verb });
                    }
                }
            }
            for url in each(&rule.non_resource_urls) {
                rights.insert(Right::Url { url, verb: verb.clone() });
            }
        }
    }
    rights
}

fn difference(expected: &BTreeSet<Right>, found: &BTreeSet<Right>) -> Difference {
    let by_any =
        |rights: &BTreeSet<Right>, right: &Right| rights.iter().any(|one| one.covers(right));
    let lacking = expected.iter().filter(|right| !by_any(found, right));
    let beyond = found.iter().filter(|right| !by_any(expected, right) && !right.is_everybodys());
    Difference { lacking: lacking.cloned().collect(), beyond: beyond.cloned().collect() }
}

/// A line for what is lacking, for what is too much, and for what others have granted to read, such as
/// for profiles; one if there is none of it.
fn told(namespace: &str, expected: usize, difference: &Difference) -> Vec<Finding> {
    let at = at(namespace);
    let Difference { lacking, beyond } = difference;
    let (reads, rest): (Vec<_>, Vec<_>) = beyond.iter().partition(|right| right.is_read());
    let mut findings = Vec::new();
    if lacking.is_empty() && rest.is_empty() {
        let only = if reads.is_empty() { ", and nothing else" } else { "" };
        findings.push(Finding::good(match expected {
            0 => format!(
                "{at}: no right is claimed, and there is none{}",
                if reads.is_empty() { "" } else { " but to read" }
            ),
            some => format!("{at}: each of the {some} rights that are claimed{only}"),
        }));
    }
    if !lacking.is_empty() {
        let all: Vec<_> = lacking.iter().collect();
        findings.push(Finding::bad(format!("{at}: may not {}", named(&all))));
    }
    if !rest.is_empty() {
        findings.push(Finding::bad(format!("{at}: may {}, which is not claimed", named(&rest))));
    }
    if !reads.is_empty() {
        findings.push(Finding::note(format!(
            "{at}: may also {}, granted by others, such as for profiles",
            named(&reads)
        )));
    }
    findings
}

fn named(rights: &[&Right]) -> String {
    let mut text: Vec<_> = rights.iter().take(NAMED).map(ToString::to_string).collect();
    if rights.len() > NAMED {
        text.push(format!("{} more", rights.len() - NAMED));
    }
    text.join(", ")
}

impl Right {
    /// Whether who has this right may do `other`, too.
    fn covers(&self, other: &Self) -> bool {
        let is = |granted: &str, wanted: &str| granted == ANY || granted == wanted;
        match (self, other) {
            (
                Self::Resource { group, resource, name, verb },
                Self::Resource { group: g, resource: r, name: n, verb: v },
            ) => is(verb, v) && is(group, g) && is(resource, r) && (name.is_none() || name == n),
            (Self::Url { url, verb }, Self::Url { url: u, verb: v }) => {
                let below = url.strip_suffix(ANY).is_some_and(|prefix| u.starts_with(prefix));
                is(verb, v) && (url == u || below)
            }
            (Self::Resource { .. }, Self::Url { .. })
            | (Self::Url { .. }, Self::Resource { .. }) => false,
        }
    }

    fn is_everybodys(&self) -> bool {
        match self {
            Self::Resource { group, resource, verb, .. } => {
                EVERYBODYS.iter().any(|(of, what, verbs)| {
                    group == of && resource == what && verbs.contains(&verb.as_str())
                })
            }
            // Versions, discovery, health, and the keys of tokens, all of them told to anybody. The
            // metrics of the API server are not.
            Self::Url { url, verb } => {
                verb == "get"
                    && ["/metrics", "/logs", "/debug", "/configz", ANY]
                        .iter()
                        .all(|kept| !url.starts_with(kept))
            }
        }
    }

    /// Whether it changes nothing: what the manifests of profiles grant, tokens of named accounts
    /// included.
    fn is_read(&self) -> bool {
        match self {
            Self::Resource { resource, name, verb, .. } => {
                let is_token = resource == "serviceaccounts/token" && name.is_some();
                ["get", "list", "watch"].contains(&verb.as_str()) || (verb == "create" && is_token)
            }
            Self::Url { verb, .. } => verb == "get",
        }
    }

    fn attributes(&self, namespace: &str) -> Option<ResourceAttributes> {
        let Self::Resource { group, resource, name, verb } = self else { return None };
        let (resource, subresource) = match resource.split_once('/') {
            Some((of, below)) => (of, Some(below.to_owned())),
            None => (resource.as_str(), None),
        };
        Some(ResourceAttributes {
            group: Some(group.clone()),
            resource: Some(resource.to_owned()),
            subresource,
            name: name.clone(),
            verb: Some(verb.clone()),
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        })
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource { group, resource, name, verb } => {
                write!(f, "{verb} {resource}")?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                name.as_ref().map_or(Ok(()), |name| write!(f, " {name}"))
            }
            Self::Url { url, verb } => write!(f, "{verb} {url}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::finding::Mark;
    use serde_json::json;

    fn of(rules: serde_json::Value) -> BTreeSet<Right> {
        rights(&serde_json::from_value::<Vec<PolicyRule>>(rules).unwrap())
    }

    fn claimed() -> BTreeSet<Right> {
        of(json!([
            {"apiGroups": ["kubewarm.io"], "resources": ["cacheprofiles"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["leases"], "resourceNames": ["a"], "verbs": ["get"]},
        ]))
    }

    /// Marks and texts of what is said when these rules are found.
    fn said(found: &BTreeSet<Right>) -> Vec<(Mark, String)> {
        let difference = difference(&claimed(), found);
        let all = told("ops", claimed().len(), &difference);
        all.into_iter().map(|found| (found.mark, found.text)).collect()
    }

    #[test]
    fn what_is_claimed_and_what_everybody_may_is_exactly_right() {
        let mut found = claimed();
        let exact = "in namespace ops: each of the 3 rights that are claimed, and nothing else";
        assert_eq!(said(&found), [(Mark::Good, exact.to_owned())]);
        found.extend(of(json!([
            {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]},
            {"nonResourceURLs": ["/api/*", "/version"], "verbs": ["get"]},
        ])));
        assert_eq!(said(&found), [(Mark::Good, exact.to_owned())]);
    }

    #[test]
    fn what_lacks_is_named() {
        let found = of(json!([
            {"apiGroups": ["kubewarm.io"], "resources": ["*"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["leases"], "resourceNames": ["b"], "verbs": ["get"]},
        ]));
        let expected = "in namespace ops: may not get leases a, watch cacheprofiles.kubewarm.io";
        assert_eq!(said(&found)[0], (Mark::Bad, expected.to_owned()));
    }

    #[test]
    fn what_is_too_much_fails_but_for_reading_which_profiles_are_granted() {
        let mut found = claimed();
        let reads = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["x"],
             "verbs": ["create"]},
        ]);
        found.extend(of(reads));
        let marks: Vec<_> = said(&found).into_iter().map(|(mark, _)| mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Note]);
        for rule in [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}),
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            json!({"apiGroups": [""], "resources": ["leases"], "verbs": ["update"]}),
            json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["post"]}),
        ] {
            let mut found = claimed();
            found.extend(of(json!([rule])));
            let said = said(&found);
            assert_eq!(said[0].0, Mark::Bad, "{said:?}");
            assert!(said[0].1.ends_with("which is not claimed"), "{said:?}");
        }
    }

    #[test]
    fn many_rights_are_counted() {
        let verbs: Vec<_> = (0..20).map(|number| format!("do{number}")).collect();
        let found = of(json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]));
        let all: Vec<_> = found.iter().collect();
        assert!(named(&all).ends_with(", 12 more"));
    }
}
