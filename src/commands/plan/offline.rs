//! Estimates the costs of a profile from its spec, without a cluster.

use super::{
    super::error::CommandErrorSource,
    costs::{PlanCosts, ProfilePlan},
};
use kubewarm_api::{
    manifests::{NamespacesBySelector, ProfilePermissions},
    model::{OperatorScope, Subject, ValidatedProfile, ValidatedTarget},
    v1alpha1::PlanCertainty,
};
use std::{collections::BTreeSet, sync::Arc};

/// Returns the number of informers, a lower bound of requests, and the number of needed permissions. `namespace` is the
/// operator namespace in the command that the output suggests, and `file` is the path.
///
/// # Errors
///
/// An error if a role name of the profile is too long.
pub(super) fn outlook(
    profile: &ValidatedProfile,
    operator: &OperatorScope,
    namespace: &str,
    file: &str,
) -> Result<ProfilePlan, CommandErrorSource> {
    let mut outlook = ProfilePlan::of(&profile.profile);
    let mut all = BTreeSet::new();
    let mut open = Vec::new();
    for target in &profile.targets {
        let Some(extents) = target.scope.informer_scopes(&profile.profile.namespace) else {
            open.push(&*target.name);
            outlook.targets.push((Arc::clone(&target.name), PlanCosts::default()));
            continue;
        };
        let count = u64::try_from(extents.len()).unwrap_or(u64::MAX);
        let (informers, requests) =
            (Some((count, PlanCertainty::Estimate)), Some((count, PlanCertainty::LowerBound)));
        let costs = PlanCosts { informers, requests, ..PlanCosts::default() };
        outlook.targets.push((Arc::clone(&target.name), costs));
        // Two targets share an informer if these fields of the targets and the `extent` (one namespace or the whole
        // cluster) are equal.
        let ValidatedTarget { of, version, labels, fields, projection, secret_data, .. } = target;
        let informer = |extent| (of, version, labels, fields, projection, secret_data, extent);
        all.extend(extents.into_iter().map(informer));
    }
    let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
    let informers = if open.is_empty() {
        Some((count, PlanCertainty::Estimate))
    } else {
        Some((count, PlanCertainty::LowerBound))
    };
    outlook.total = PlanCosts {
        informers,
        requests: Some((count, PlanCertainty::LowerBound)),
        ..PlanCosts::default()
    };
    if !open.is_empty() {
        let open = open.join(", ");
        outlook.notes.push(format!("without a cluster, the namespaces of {open} are unknown"));
    }
    outlook.notes.push(
        "without a cluster, objects, memory, requests for pages, time and missing permissions are unknown: \
         pass --live, or apply the profile with mode: Plan"
            .to_owned(),
    );
    let needed = needed(profile, operator)?;
    outlook.notes.push(format!(
        "{needed} permissions are needed{}; kubewarm rbac -f {file} --operator-namespace {namespace} prints them",
        if open.is_empty() { "" } else { ", not counting those" }
    ));
    Ok(outlook)
}

/// Returns the number of permissions that the profile needs, one per verb, resource and namespace.
fn needed(
    profile: &ValidatedProfile,
    operator: &OperatorScope,
) -> Result<usize, CommandErrorSource> {
    // The number of permissions does not depend on the subject, so the subject can be any user.
    let subject = Subject::User("user".into());
    let access = ProfilePermissions::of_profile(
        profile,
        &NamespacesBySelector::new(),
        &subject,
        &operator.watched,
    )?;
    let rules = access.roles.iter().flat_map(|role| &role.rules);
    Ok(rules.map(|rule| rule.resources.len() * rule.verbs.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::WatchedNamespaces;
    use serde_json::json;

    fn of(targets: &serde_json::Value) -> ProfilePlan {
        let profile = json!({
            "apiVersion": "kubewarm.io/v1alpha1",
            "kind": "CacheProfile",
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"targets": targets},
        });
        let profile = serde_json::from_value(profile).unwrap();
        let operator =
            OperatorScope { namespace: "ops".into(), watched: WatchedNamespaces::default() };
        let profile = ValidatedProfile::parse(&profile).unwrap();
        outlook(&profile, &operator, "NAMESPACE", "p.yaml").unwrap()
    }

    #[test]
    fn equal_informers_of_two_targets_count_once_with_two_verbs_each() {
        let pods = |name: &str, scope: &serde_json::Value| json!({"name": name, "resource": "pods", "scope": scope});
        let here = json!({"type": "OwnNamespace"});
        let both = json!({"type": "Namespaces", "namespaces": ["shop", "b"]});
        let outlook = of(&json!([pods("one", &here), pods("two", &both)]));
        let informers: Vec<_> = outlook.targets.iter().map(|(_, costs)| costs.informers).collect();
        assert_eq!(
            informers,
            [Some((1, PlanCertainty::Estimate)), Some((2, PlanCertainty::Estimate))]
        );
        assert_eq!(outlook.total.informers, Some((2, PlanCertainty::Estimate)));
        assert_eq!(outlook.total.requests, Some((2, PlanCertainty::LowerBound)));
        assert_eq!(outlook.total.objects, None);
        let notes = outlook.notes.join("\n");
        // The 5 permissions are list and watch in two namespaces, and get on the namespace b.
        let expected = "5 permissions are needed; kubewarm rbac -f p.yaml --operator-namespace NAMESPACE prints";
        assert!(notes.contains(expected), "{notes}");
    }

    #[test]
    fn the_costs_of_a_namespace_selector_are_unknown() {
        let labels = json!({"matchLabels": {"shop": "yes"}});
        let scope = json!({"type": "NamespaceSelector", "namespaceSelector": labels});
        let outlook = of(&json!([{"name": "found", "resource": "pods", "scope": scope}]));
        assert_eq!(outlook.targets[0].1, PlanCosts::default());
        assert_eq!(outlook.total.informers, Some((0, PlanCertainty::LowerBound)));
        let notes = outlook.notes.join("\n");
        assert!(notes.contains("the namespaces of found are unknown"), "{notes}");
    }
}
