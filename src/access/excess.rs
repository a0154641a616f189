//! What an identity may list or watch beyond what its profiles need.

use super::rules::{ANY, VERBS};
use kubewarm_api::{
    model::{GroupResource, Verb},
    v1alpha1::{Completeness, PolicyRule},
};
use kubewarm_client::ReviewedRules;
use std::collections::{BTreeMap, BTreeSet};

/// As many as `status.access.excess` takes: rules of a namespace, and resources and names of a rule.
const MAX_RULES: usize = 32;
const MAX_RESOURCES: usize = 32;
const MAX_NAMES: usize = 64;

/// What everybody may list or watch, whatever anyone grants: of the default roles that the API server
/// binds to all authenticated users and to all service accounts (`system:basic-user`,
/// `system:discovery`, `system:public-info-viewer`, `system:service-account-issuer-discovery` and
/// `system:cluster-trust-bundle-discovery`), only the last one lists or watches anything.
const EVERYBODYS: (&str, &str) = ("certificates.k8s.io", "clustertrustbundles");

/// What is too much in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Sorted; at most 32, each with at most 32 resources and 64 names. Without names: all objects.
    pub rules: Vec<PolicyRule>,
    /// Whether that is all.
    pub completeness: Completeness,
}

/// What `rules` allow beyond `needed` and beyond what everybody may.
///
/// A rule with a wildcard is never needed: it is shown as it is. Subresources are left out, since
/// nothing lists or watches them.
///
/// # Cost
///
/// Whoever writes the rules decides on their size: it ends with the first grant that is one too many.
pub(super) fn excess(rules: &ReviewedRules, needed: &BTreeSet<GroupResource>) -> Excess {
    let mut found = BTreeMap::<_, BTreeSet<&str>>::new();
    let mut pairs = 0;
    'all: for rule in &rules.rules {
        let has = |verb: &Verb| rule.verbs.iter().any(|it| it == ANY || it == verb.as_str());
        let verbs: Vec<_> = VERBS.into_iter().filter(has).collect();
        let names: Vec<_> = words(rule.resource_names.as_ref()).into_iter().collect();
        let resources = words(rule.resources.as_ref());
        for group in words(rule.api_groups.as_ref()) {
            let is_surplus = |resource: &&str| {
                // A name that no kind can have, `*` among them, is needed by nobody.
                let is_needed =
                    GroupResource::new(group, resource).is_ok_and(|of| needed.contains(&of));
                !(resource.contains('/') || is_needed || (group, *resource) == EVERYBODYS)
            };
            let mut surplus = resources.iter().copied().filter(is_surplus).peekable();
            if verbs.is_empty() || surplus.peek().is_none() {
                continue;
            }
            let of_group = found.entry((group, verbs.clone(), names.clone())).or_default();
            pairs -= of_group.len();
            of_group.extend(surplus.take(MAX_RULES * MAX_RESOURCES + 1));
            pairs += of_group.len();
            if found.len() > MAX_RULES || pairs > MAX_RULES * MAX_RESOURCES {
                break 'all;
            }
        }
    }
    let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for ((group, verbs, names), resources) in found {
        let resources: Vec<_> = resources.into_iter().collect();
        // Without names there is one rule all the same.
        let names = names.chunks(MAX_NAMES).chain(names.is_empty().then_some(&[][..]));
        let both =
            resources.chunks(MAX_RESOURCES).flat_map(|of| names.clone().map(move |it| (of, it)));
        all.extend(both.take(MAX_RULES + 1 - all.len()).map(|(resources, names)| PolicyRule {
            api_groups: own(&[group]),
            resources: own(resources),
            resource_names: own(names),
            verbs: verbs.iter().map(|verb| verb.as_str().to_owned()).collect(),
        }));
    }
    let is_all = all.len() <= MAX_RULES && rules.completeness == Completeness::Complete;
    all.truncate(MAX_RULES);
    let completeness = if is_all { Completeness::Complete } else { Completeness::Incomplete };
    Excess { rules: all, completeness }
}

/// Sorted, each once.
fn words(list: Option<&Vec<String>>) -> BTreeSet<&str> {
    list.into_iter().flatten().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::ResourceRule;

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
        let needed = [GroupResource::new("", "pods").unwrap()].into();
        let rules = ReviewedRules { rules, completeness: Completeness::Complete };
        let found = excess(&rules, &needed);
        assert_eq!(found.completeness, Completeness::Complete);
        let line = |rule: &PolicyRule| {
            let parts = [&rule.api_groups, &rule.resources, &rule.verbs, &rule.resource_names];
            parts.map(|names| names.join(",")).join("|")
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
        let found = excess(&rules, &BTreeSet::new());
        assert_eq!((found.rules.len(), found.completeness), (32, Completeness::Incomplete));
    }

    #[test]
    fn rules_of_thousands_of_names_are_cut_at_once() {
        let many: Vec<_> = (0..2_000).map(|n| format!("n{n:04}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let of = |rules| {
            let rules = ReviewedRules { rules, completeness: Completeness::Complete };
            let began = std::time::Instant::now();
            let found = excess(&rules, &BTreeSet::new());
            // Four million pairs, or as many copies of names, take much longer.
            assert!(began.elapsed() < std::time::Duration::from_millis(500));
            assert_eq!((found.rules.len(), found.completeness), (32, Completeness::Incomplete));
            found.rules
        };
        let pairs = of(vec![rule(&many, &many, &["list"], &[])]);
        assert_eq!((&*pairs[31].api_groups[0], pairs[31].resources.len()), ("n0000", 32));
        let names = of(vec![rule(&[""], &many, &["list"], &many)]);
        assert_eq!((&*names[1].resource_names[0], names[31].resources.len()), ("n0064", 32));
    }
}
