//! What an identity may list or watch beyond what its profiles need.

use super::rules::{ANY, VERBS};
use k8s_openapi::api::authorization::v1::ResourceRule;
use kubewarm_api::model::{GroupResource, Verb};
use kubewarm_client::{Completeness, ReviewedRules};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// As many as `status.access.excess` takes: rules of a namespace, and resources and names of a rule.
const MAX_RULES: usize = 32;
const MAX_RESOURCES: usize = 32;
const MAX_NAMES: usize = 64;

/// What everybody may list or watch, whatever anyone grants: of the default roles that the API server
/// binds to all authenticated users and to all service accounts (`system:basic-user`,
/// `system:discovery`, `system:public-info-viewer`, `system:service-account-issuer-discovery` and
/// `system:cluster-trust-bundle-discovery`), only the last one lists or watches anything.
const EVERYBODYS: &[(&str, &str)] = &[("certificates.k8s.io", "clustertrustbundles")];

/// What is granted and not needed, as a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcessRule {
    /// The API group, or `*`.
    pub group: String,
    /// Of `list` and `watch`, those that are too much.
    pub verbs: Vec<Verb>,
    /// Only objects of these names, at most 64; empty: all.
    pub names: Vec<String>,
    /// Plural names, or `*`; at most 32.
    pub resources: Vec<String>,
}

/// What is too much in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Sorted; at most 32.
    pub rules: Vec<ExcessRule>,
    /// Whether that is all.
    pub completeness: Completeness,
}

/// Kinds that are needed in a place, with what for.
pub(super) type Needed = BTreeMap<GroupResource, BTreeSet<Verb>>;

/// What `rules` allow beyond `needed` and beyond what everybody may.
///
/// A rule with a wildcard is never needed: it is shown as it is. Subresources are left out, since
/// nothing lists or watches them.
///
/// # Cost
///
/// Whoever writes the rules decides on their size: it ends with the first grant that is one too many,
/// and copies only those that it returns.
pub(super) fn excess(rules: &ReviewedRules, needed: &Needed) -> Excess {
    let (mut excess, mut completeness) = (Vec::new(), rules.completeness);
    'all: for ((group, verbs, names), resources) in surplus(&rules.rules, needed) {
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let resources: Vec<_> = resources.into_iter().collect();
        for resources in resources.chunks(MAX_RESOURCES) {
            // Without names, there is one grant all the same.
            let mut rest = &*names;
            loop {
                let (these, further) = rest.split_at(rest.len().min(MAX_NAMES));
                if excess.len() == MAX_RULES {
                    completeness = Completeness::Incomplete;
                    break 'all;
                }
                let (group, verbs) = (group.to_owned(), verbs.clone());
                let (names, resources) = (own(these), own(resources));
                excess.push(ExcessRule { group, verbs, names, resources });
                rest = further;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
    Excess { rules: excess, completeness }
}

/// The group, the verbs and the names of a grant, sorted.
type Key<'a> = (&'a str, Vec<Verb>, Rc<[&'a str]>);

/// The resources that are too much, until they are more than fit into an [`Excess`].
fn surplus<'a>(rules: &'a [ResourceRule], needed: &Needed) -> BTreeMap<Key<'a>, BTreeSet<&'a str>> {
    let mut found = BTreeMap::<Key<'_>, BTreeSet<&str>>::new();
    let mut pairs = 0;
    for rule in rules {
        let granted = verbs(rule);
        let names: Rc<[&str]> = words(rule.resource_names.as_ref()).into_iter().collect();
        let mut resources = words(rule.resources.as_ref());
        resources.retain(|name| !name.contains('/'));
        for group in words(rule.api_groups.as_ref()) {
            for resource in &resources {
                let mut too_much = granted.clone();
                too_much.retain(|verb| !is_due(needed, group, resource, *verb));
                if too_much.is_empty() {
                    continue;
                }
                let key = (group, too_much, Rc::clone(&names));
                pairs += usize::from(found.entry(key).or_default().insert(resource));
                if found.len() > MAX_RULES || pairs > MAX_RULES * MAX_RESOURCES {
                    return found;
                }
            }
        }
    }
    found
}

/// Sorted, each once.
fn words(list: Option<&Vec<String>>) -> BTreeSet<&str> {
    list.into_iter().flatten().map(String::as_str).collect()
}

/// Of the two that count here, those that the rule has.
fn verbs(rule: &ResourceRule) -> Vec<Verb> {
    let has = |verb: &Verb| rule.verbs.iter().any(|found| found == ANY || found == verb.as_str());
    VERBS.into_iter().filter(has).collect()
}

/// Whether somebody needs it, or everybody has it.
fn is_due(needed: &Needed, group: &str, resource: &str, verb: Verb) -> bool {
    // A name that no kind can have, `*` among them, is needed by nobody.
    let Ok(of) = GroupResource::new(group, resource) else { return false };
    EVERYBODYS.contains(&(group, resource))
        || needed.get(&of).is_some_and(|verbs| verbs.contains(&verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(own(groups)),
            resources: Some(own(resources)),
            resource_names: Some(own(names)),
            verbs: own(verbs),
        }
    }

    fn found(rules: Vec<ResourceRule>) -> Vec<String> {
        let needed = [(GroupResource::new("", "pods").unwrap(), VERBS.into())].into();
        let rules = ReviewedRules { rules, completeness: Completeness::Complete };
        let found = excess(&rules, &needed);
        assert_eq!(found.completeness, Completeness::Complete);
        let line = |rule: &ExcessRule| {
            let verbs: Vec<_> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
            let parts = [&rule.resources, &rule.names].map(|names| names.join(","));
            format!("{}|{}|{}|{}", rule.group, parts[0], verbs.join(","), parts[1])
        };
        found.rules.iter().map(line).collect()
    }

    #[test]
    fn what_is_needed_or_cannot_be_listed_is_no_excess() {
        let nothing = [
            rule(&[""], &["pods"], &["list", "watch"], &[]),
            rule(&[""], &["pods"], &["list"], &["web"]),
            rule(&[""], &["pods", "secrets"], &["get", "create"], &[]),
            rule(&[""], &["pods/log", "*/scale"], &["*"], &[]),
            rule(&["certificates.k8s.io"], &["clustertrustbundles"], &["list", "watch"], &[]),
            rule(&["authorization.k8s.io"], &["selfsubjectrulesreviews"], &["create"], &[]),
        ];
        assert!(found(nothing.into()).is_empty());
    }

    #[test]
    fn what_is_beyond_is_named_as_narrowly_as_it_is_granted() {
        let rules = vec![
            rule(&["", "apps"], &["pods", "secrets"], &["get", "list", "watch"], &[]),
            rule(&[""], &["configmaps"], &["watch"], &["b", "a"]),
            rule(&["*"], &["*"], &["*"], &[]),
        ];
        assert_eq!(
            found(rules),
            [
                "|secrets|list,watch|",
                "|configmaps|watch|a,b",
                "*|*|list,watch|",
                "apps|pods,secrets|list,watch|",
            ]
        );
    }

    #[test]
    fn more_than_a_status_takes_is_cut_and_said() {
        let groups: Vec<_> = (0..40).map(|n| format!("g{n}.io")).collect();
        let groups: Vec<_> = groups.iter().map(String::as_str).collect();
        let rules = vec![rule(&groups, &["things"], &["list"], &[])];
        let rules = ReviewedRules { rules, completeness: Completeness::Complete };
        let found = excess(&rules, &Needed::new());
        assert_eq!((found.rules.len(), found.completeness), (32, Completeness::Incomplete));
    }

    #[test]
    fn rules_of_thousands_of_names_are_cut_at_once() {
        let many: Vec<_> = (0..2_000).map(|n| format!("n{n:04}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let of = |rules| {
            let rules = ReviewedRules { rules, completeness: Completeness::Complete };
            let began = std::time::Instant::now();
            let found = excess(&rules, &Needed::new());
            // Four million pairs, or as many copies of names, take much longer.
            assert!(began.elapsed() < std::time::Duration::from_millis(500));
            assert_eq!((found.rules.len(), found.completeness), (32, Completeness::Incomplete));
            found.rules
        };
        let pairs = of(vec![rule(&many, &many, &["list"], &[])]);
        assert_eq!((&*pairs[31].group, pairs[31].resources.len()), ("n0000", 32));
        let names = of(vec![rule(&[""], &many, &["list"], &many)]);
        assert_eq!((&*names[1].names[0], names[31].resources.len()), ("n0064", 32));
    }
}
