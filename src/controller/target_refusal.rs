//! Refuses a target that exceeds a maximum number of informers, or whose list or watch the API
//! server does not support.

use super::cluster_view::ClusterView;
use kubewarm_api::model::{FaultReason, InformerKey, Refusal, RefusalReason, ResolvedTarget};

/// Returns the target if `quota` accepts `informers`, the number of its informers. Otherwise
/// returns the target as refused.
///
/// A refused target keeps only the informer that watches Namespaces for its selector, to detect
/// when fewer namespaces match. If `quota` rejects even one informer, the target loses this
/// informer too.
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

/// Returns a refusal if the API server rejected the informer's requests with an error that no retry
/// fixes, such as an unsupported field selector. The informer keeps running, and so detects when
/// the error ends.
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
