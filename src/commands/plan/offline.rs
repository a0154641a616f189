//! Forecasts the costs of a profile from its spec, without a cluster.

use super::{
    super::error::CommandErrorSource,
    costs::{ForecastCosts, ForecastReport},
};
use kubewarm_api::{
    manifests::{NamespacesBySelector, ProfilePermissions},
    model::{OperatorScope, Subject, ValidatedProfile, ValidatedTarget},
    v1alpha1::PlanCertainty,
};
use std::{collections::BTreeSet, sync::Arc};

/// Forecasts what warming the profile costs: the number of informers, the least number of requests
/// to the API server, and the number of needed permissions. The output suggests a command, with
/// the operator namespace `namespace` and the profile's file `file`.
///
/// # Errors
///
/// An error if a role name of the profile is too long.
pub(super) fn forecast(
    profile: &ValidatedProfile,
    operator: &OperatorScope,
    namespace: &str,
    file: &str,
) -> Result<ForecastReport, CommandErrorSource> {
    let mut report = ForecastReport::of(&profile.profile);
    let mut all = BTreeSet::new();
    let mut open = Vec::new();
    for target in &profile.targets {
        let Some(scopes) = target.scope.informer_scopes(&profile.profile.namespace) else {
            open.push(&*target.name);
            report.targets.push((Arc::clone(&target.name), ForecastCosts::default()));
            continue;
        };
        let count = u64::try_from(scopes.len()).unwrap_or(u64::MAX);
        let (informers, requests) =
            (Some((count, PlanCertainty::Estimate)), Some((count, PlanCertainty::LowerBound)));
        let costs = ForecastCosts { informers, requests, ..ForecastCosts::default() };
        report.targets.push((Arc::clone(&target.name), costs));
        // Two targets share an informer if these fields of the targets and the `scope` (one
        // namespace or the whole cluster) are equal.
        let ValidatedTarget { resource, version, labels, fields, projection, secret_data, .. } =
            target;
        let informer = |scope| (resource, version, labels, fields, projection, secret_data, scope);
        all.extend(scopes.into_iter().map(informer));
    }
    let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
    let informers = if open.is_empty() {
        Some((count, PlanCertainty::Estimate))
    } else {
        Some((count, PlanCertainty::LowerBound))
    };
    report.total = ForecastCosts {
        informers,
        requests: Some((count, PlanCertainty::LowerBound)),
        ..ForecastCosts::default()
    };
    if !open.is_empty() {
        let open = open.join(", ");
        report.notes.push(format!("without a cluster, the namespaces of {open} are unknown"));
    }
    report.notes.push(
        "without a cluster, objects, memory, requests for pages, time and missing permissions are unknown: \
         pass --live, or apply the profile with mode: Plan"
            .to_owned(),
    );
    let needed = needed(profile, operator)?;
    report.notes.push(format!(
        "{needed} permissions are needed{}; kubewarm rbac -f {file} --operator-namespace {namespace} prints them",
        if open.is_empty() { "" } else { ", not counting those" }
    ));
    Ok(report)
}

/// Returns the number of permissions that the profile's RBAC manifests grant, one per verb,
/// resource and namespace.
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

    fn forecast_of(targets: &serde_json::Value) -> ForecastReport {
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
        forecast(&profile, &operator, "NAMESPACE", "p.yaml").unwrap()
    }

    #[test]
    fn equal_informers_of_two_targets_count_once_with_two_verbs_each() {
        let pods = |name: &str, scope: &serde_json::Value| json!({"name": name, "resource": "pods", "scope": scope});
        let here = json!({"type": "OwnNamespace"});
        let both = json!({"type": "Namespaces", "namespaces": ["shop", "b"]});
        let report = forecast_of(&json!([pods("one", &here), pods("two", &both)]));
        let informers: Vec<_> = report.targets.iter().map(|(_, costs)| costs.informers).collect();
        assert_eq!(
            informers,
            [Some((1, PlanCertainty::Estimate)), Some((2, PlanCertainty::Estimate))]
        );
        assert_eq!(report.total.informers, Some((2, PlanCertainty::Estimate)));
        assert_eq!(report.total.requests, Some((2, PlanCertainty::LowerBound)));
        assert_eq!(report.total.objects, None);
        let notes = report.notes.join("\n");
        // The 5 permissions are list and watch in two namespaces, and get on the namespace b.
        let expected = "5 permissions are needed; kubewarm rbac -f p.yaml --operator-namespace NAMESPACE prints";
        assert!(notes.contains(expected), "{notes}");
    }

    #[test]
    fn the_costs_of_a_namespace_selector_are_unknown() {
        let labels = json!({"matchLabels": {"shop": "yes"}});
        let scope = json!({"type": "NamespaceSelector", "namespaceSelector": labels});
        let report = forecast_of(&json!([{"name": "found", "resource": "pods", "scope": scope}]));
        assert_eq!(report.targets[0].1, ForecastCosts::default());
        assert_eq!(report.total.informers, Some((0, PlanCertainty::LowerBound)));
        let notes = report.notes.join("\n");
        assert!(notes.contains("the namespaces of found are unknown"), "{notes}");
    }
}
