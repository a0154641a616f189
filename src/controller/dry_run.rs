use super::resolve::{InformerDefaults, resolve};
use kubewarm_api::{
    manifests::NamespacesBySelector,
    model::{InformerKey, ListPolicy, OperatorScope, ResolvedProfile, ValidatedProfile},
};
use kubewarm_client::ServedResources;
use std::sync::Arc;

/// Computes the informers that the targets of `profile` need on a cluster that serves the kinds in
/// `served`. Starts none of them.
///
/// `namespaces` contains the namespaces that each selector matches. A target whose selector is not
/// in `namespaces` gets no informers for its resource, because its namespaces are unknown.
pub fn resolve_for_forecast(
    profile: &ValidatedProfile,
    operator_scope: &OperatorScope,
    served: &ServedResources,
    namespaces: &NamespacesBySelector,
    lists: ListPolicy,
) -> ResolvedProfile {
    let targets = profile.targets.iter().map(|target| {
        let kind = Some(served.resolve(&target.resource, target.version.as_deref()));
        let names =
            |key: &InformerKey| Some(namespaces.get(&key.labels)?.iter().cloned().collect());
        let operator = InformerDefaults { lists, meter: &|_| Arc::default() };
        resolve(profile, target, operator_scope, kind, names, operator)
    });
    ResolvedProfile::of(profile, targets.collect())
}
