//! Refuses a target that exceeds a quota of informers, or that the API server cannot serve.

use super::cluster_view::ClusterView;
use kubewarm_api::model::{DeclaredTarget, FaultReason, InformerKey, Refusal, RefusalReason};

/// Checks the target against `quota`. A target beyond the quota keeps only its selector's informer,
/// which detects when fewer namespaces match. It loses that one if not even a single informer fits.
pub(super) fn within_quota(
    quota: &mut impl FnMut(usize) -> Result<(), Refusal>,
    informers: usize,
    mut target: DeclaredTarget,
) -> DeclaredTarget {
    if let Err(refusal) = quota(informers) {
        target.resolved = Some(Err(refusal));
        target.informers = [].into();
        target.namespaces.take_if(|_| quota(1).is_err());
    }
    target
}

/// Returns a refusal that only the API server's response to the informer reveals. The informer
/// keeps running, to detect a different response later.
pub(super) fn refusal_by_api_server(
    target: &str,
    key: &InformerKey,
    cluster: &ClusterView<'_>,
) -> Option<Refusal> {
    let fault = cluster.fault(key)?;
    match fault.reason {
        FaultReason::Unsupported if !key.fields.is_empty() => Some(Refusal::new(
            RefusalReason::UnsupportedField,
            format!(
                "targets[{target}].fieldSelector: the API server does not select {} by {}: {}; \
                     remove the selector, or use a label",
                key.resource, key.fields, fault.message
            ),
        )),
        FaultReason::NotListable => Some(Refusal::new(
            RefusalReason::NotListable,
            format!(
                "targets[{target}].resource: {} cannot be listed and watched: {}",
                key.resource, fault.message
            ),
        )),
        FaultReason::ServiceAccountNotFound => Some(Refusal::new(
            RefusalReason::ServiceAccountNotFound,
            format!(
                "spec.serviceAccountName: {}; create the ServiceAccount, and target {target:?} \
                 starts by itself",
                fault.message
            ),
        )),
        FaultReason::NotServed
        | FaultReason::TokenRequestDenied
        | FaultReason::Forbidden
        | FaultReason::Unauthorized
        | FaultReason::NamespaceNotFound
        | FaultReason::Gone
        | FaultReason::Unsupported
        | FaultReason::Throttled
        | FaultReason::ServerError
        | FaultReason::Unreachable
        | FaultReason::TimedOut
        | FaultReason::Malformed
        | FaultReason::TooLarge
        | FaultReason::ClosedAtOnce
        | FaultReason::Unverified
        | FaultReason::Internal => None,
    }
}
