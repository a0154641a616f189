use super::resolve::{InformerDefaults, resolve};
use kubewarm_api::{
    manifests::NamespacesBySelector,
    model::{InformerKey, ListPolicy, OperatorScope, ResolvedProfile, ValidatedProfile},
};
use kubewarm_client::ServedResources;
use std::sync::Arc;

/// Resolves `profile` on a cluster that serves the kinds in `served`.
///
/// `found` contains the namespaces that each selector matches. A target whose selector is not in
/// `found` gets no informers for its resource.
#[must_use]
pub fn outlook(
    profile: &ValidatedProfile,
    operator_scope: &OperatorScope,
    served: &ServedResources,
    found: &NamespacesBySelector,
    lists: ListPolicy,
) -> ResolvedProfile {
    let targets = profile.targets.iter().map(|target| {
        let kind = Some(served.resolve(&target.of, target.version.as_deref()));
        let names = |key: &InformerKey| Some(found.get(&key.labels)?.iter().cloned().collect());
        let operator = InformerDefaults { lists, meter: &|_| Arc::default() };
        resolve(profile, target, operator_scope, kind, names, operator)
    });
    ResolvedProfile::of(profile, targets.collect())
}
