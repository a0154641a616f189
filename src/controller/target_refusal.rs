//! Refuses a target that exceeds a quota of informers, or that the API server cannot serve.

use super::cluster_view::ClusterView;
use kubewarm_api::model::{FaultReason, InformerKey, Refusal, RefusalReason, ResolvedTarget};

/// Returns the target, refused if `quota` does not grant its number of informers.
///
/// A refused target keeps only its namespace selector's informer, which detects when fewer
/// namespaces match. If `quota` does not even grant one informer, the target loses this informer
/// too.
pub(super) fn within_quota(
    quota: &mut impl FnMut(usize) -> Result<(), Refusal>,
    informers: usize,
    mut target: ResolvedTarget,
) -> ResolvedTarget {
    if let Err(refusal) = quota(informers) {
        target.resolved = Some(Err(refusal));
        target.informers = [].into();
        target.namespaces.take_if(|_| quota(1).is_err());
    }
    target
}

/// Returns the refusal of a target whose informer received an error that a retry does not fix, such
/// as an unsupported selector. The informer keeps running, and so detects when the error ends.
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
