//! Finds the list and watch permissions of a ServiceAccount, or of the operator, that no profile
//! needs.

use super::rules::{ANY, VERBS};
use kubewarm_api::{
    model::{GroupResource, Verb},
    v1alpha1::{PolicyRule, RulesCompleteness},
};
use kubewarm_client::ReviewedRules;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of rules per namespace in `status.access.excess`, which bounds the size of the
/// status.
const MAX_RULES: usize = 32;
/// Maximum number of resources per rule in `status.access.excess`, which bounds the size of the
/// status.
const MAX_RESOURCES: usize = 32;
/// Maximum number of object names per rule in `status.access.excess`, which bounds the size of the
/// status.
const MAX_NAMES: usize = 64;

/// The only listable resource that the API server's default roles grant to all authenticated users
/// and every ServiceAccount.
///
/// The default roles are `system:basic-user`, `system:discovery`, `system:public-info-viewer`,
/// `system:service-account-issuer-discovery` and `system:cluster-trust-bundle-discovery`. Only
/// `system:cluster-trust-bundle-discovery` grants `list` or `watch`.
const GRANTED_TO_ALL_USERS: (&str, &str) = ("certificates.k8s.io", "clustertrustbundles");

/// Permissions of one ServiceAccount or of the operator, in one namespace or in the cluster, that
/// no profile needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExcessPermissions {
    /// The rules that no profile needs, sorted by API group and verbs. At most 32 rules with at
    /// most 32 resources and 64 object names each. A rule without names applies to all objects.
    pub rules: Vec<PolicyRule>,
    /// `Incomplete` if `rules` omits rules beyond the maximum number, or if the API server did not
    /// return all of the identity's rules.
    pub completeness: RulesCompleteness,
}

/// Returns the list and watch permissions in `rules` for resources that are neither in `needed` nor
/// granted to all users.
///
/// A wildcard for groups or resources always counts as excess, and stays a wildcard in the result.
/// Permissions for subresources do not count, because the API server cannot list or watch
/// subresources.
///
/// # Cost
///
/// A tenant controls the number of its rules. The function therefore stops when the result has more
/// than 32 rules or 1,024 resources.
pub(super) fn excess(rules: &ReviewedRules, needed: &BTreeSet<GroupResource>) -> ExcessPermissions {
    let mut grants = BTreeMap::<_, BTreeSet<&str>>::new();
    let mut pairs = 0;
    'all: for rule in &rules.rules {
        let has = |verb: &Verb| rule.verbs.iter().any(|word| word == ANY || word == verb.as_str());
        let verbs: Vec<_> = VERBS.into_iter().filter(has).collect();
        let names: Vec<_> = words(rule.resource_names.as_ref()).into_iter().collect();
        let resources = words(rule.resources.as_ref());
        for group in words(rule.api_groups.as_ref()) {
            let is_surplus = |resource: &&str| {
                // `GroupResource::new` rejects invalid names of resources, for instance `*`. A
                // resource with an invalid name counts as not needed.
                let is_needed = GroupResource::new(group, resource)
                    .is_ok_and(|resource| needed.contains(&resource));
                !(resource.contains('/') || is_needed || (group, *resource) == GRANTED_TO_ALL_USERS)
            };
            let mut surplus = resources.iter().copied().filter(is_surplus).peekable();
            if verbs.is_empty() || surplus.peek().is_none() {
                continue;
            }
            let of_group = grants.entry((group, verbs.clone(), names.clone())).or_default();
            pairs -= of_group.len();
            of_group.extend(surplus.take(MAX_RULES * MAX_RESOURCES + 1));
            pairs += of_group.len();
            if grants.len() > MAX_RULES || pairs > MAX_RULES * MAX_RESOURCES {
                break 'all;
            }
        }
    }
    let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut all = Vec::new();
    for ((group, verbs, names), resources) in grants {
        let resources: Vec<_> = resources.into_iter().collect();
        // `chunks` returns nothing for an empty list of names, but a rule without names must still
        // produce one rule.
        let names = names.chunks(MAX_NAMES).chain(names.is_empty().then_some(&[][..]));
        let both = resources
            .chunks(MAX_RESOURCES)
            .flat_map(|resources| names.clone().map(move |names| (resources, names)));
        all.extend(both.take(MAX_RULES + 1 - all.len()).map(|(resources, names)| PolicyRule {
            api_groups: strings(&[group]),
            resources: strings(resources),
            resource_names: strings(names),
            verbs: verbs.iter().map(|verb| verb.as_str().to_owned()).collect(),
        }));
    }
    let is_all = all.len() <= MAX_RULES && rules.completeness == RulesCompleteness::Complete;
    all.truncate(MAX_RULES);
    let completeness =
        if is_all { RulesCompleteness::Complete } else { RulesCompleteness::Incomplete };
    ExcessPermissions { rules: all, completeness }
}

fn words(list: Option<&Vec<String>>) -> BTreeSet<&str> {
    list.into_iter().flatten().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authorization::v1::ResourceRule;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
        let strings =
            |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        ResourceRule {
            api_groups: Some(strings(groups)),
            resources: Some(strings(resources)),
            resource_names: Some(strings(names)),
            verbs: strings(verbs),
        }
    }

    fn excess_lines(rules: Vec<ResourceRule>) -> Vec<String> {
        let needed = [GroupResource::new("", "pods").unwrap()].into();
        let rules = ReviewedRules { rules, completeness: RulesCompleteness::Complete };
        let excess = excess(&rules, &needed);
        assert_eq!(excess.completeness, RulesCompleteness::Complete);
        let line = |rule: &PolicyRule| {
            let parts = [&rule.api_groups, &rule.resources, &rule.verbs, &rule.resource_names];
            parts.map(|names| names.join(",")).join("|")
        };
        excess.rules.iter().map(line).collect()
    }

    #[test]
    fn needed_or_unlistable_resources_are_no_excess() {
        let nothing = [
            rule(&[""], &["pods"], &["list", "watch"], &[]),
            rule(&[""], &["pods"], &["list"], &["web"]),
            rule(&[""], &["pods", "secrets"], &["get", "create"], &[]),
            rule(&[""], &["pods/log", "*/scale"], &["*"], &[]),
            rule(&["certificates.k8s.io"], &["clustertrustbundles"], &["list", "watch"], &[]),
            rule(&["authorization.k8s.io"], &["selfsubjectrulesreviews"], &["create"], &[]),
        ];
        assert!(excess_lines(nothing.into()).is_empty());
    }

    #[test]
    fn excess_rules_keep_the_granted_verbs_and_names() {
        let rules = vec![
            rule(&["", "apps"], &["pods", "secrets"], &["get", "list", "watch"], &[]),
            rule(&[""], &["configmaps"], &["watch"], &["b", "a"]),
            rule(&["*"], &["*"], &["*"], &[]),
        ];
        assert_eq!(
            excess_lines(rules),
            [
                "|secrets|list,watch|",
                "|configmaps|watch|a,b",
                "*|*|list,watch|",
                "apps|pods,secrets|list,watch|",
            ]
        );
    }

    #[test]
    fn rules_beyond_the_status_limit_are_cut_and_marked_incomplete() {
        let groups: Vec<_> = (0..40).map(|n| format!("g{n}.io")).collect();
        let groups: Vec<_> = groups.iter().map(String::as_str).collect();
        let rules = vec![rule(&groups, &["things"], &["list"], &[])];
        let rules = ReviewedRules { rules, completeness: RulesCompleteness::Complete };
        let excess = excess(&rules, &BTreeSet::new());
        assert_eq!((excess.rules.len(), excess.completeness), (32, RulesCompleteness::Incomplete));
    }

    #[test]
    fn rules_with_thousands_of_names_are_cut_within_half_a_second() {
        let many: Vec<_> = (0..2_000).map(|n| format!("n{n:04}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let rules_within_limit = |rules| {
            let rules = ReviewedRules { rules, completeness: RulesCompleteness::Complete };
            let began = std::time::Instant::now();
            let excess = excess(&rules, &BTreeSet::new());
            // Each call has four million combinations: of group and resource, or of resource and
            // object name. `excess` must return before it visits all combinations.
            assert!(began.elapsed() < std::time::Duration::from_millis(500));
            assert_eq!(
                (excess.rules.len(), excess.completeness),
                (32, RulesCompleteness::Incomplete)
            );
            excess.rules
        };
        let pairs = rules_within_limit(vec![rule(&many, &many, &["list"], &[])]);
        assert_eq!((&*pairs[31].api_groups[0], pairs[31].resources.len()), ("n0000", 32));
        let names = rules_within_limit(vec![rule(&[""], &many, &["list"], &many)]);
        assert_eq!((&*names[1].resource_names[0], names[31].resources.len()), ("n0064", 32));
    }
}
