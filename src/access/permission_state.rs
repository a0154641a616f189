//! The permission state of an informer, as status, metrics and readiness read it.

use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault, Verb};
use std::sync::Arc;

/// Whether the informer's identity may list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionState {
    /// No check has decided yet.
    Verifying,
    /// The API server permits list and watch.
    Granted {
        /// When kubewarm sent the request that was permitted.
        verified_at: Timestamp,
        /// Whether only a review shows it, because the real requests fail for reasons other than
        /// permissions, such as a kind that is not served.
        is_by_review: bool,
    },
    /// Access was permitted, but no real request has confirmed it within the limit. The informer is
    /// blocked until a real request succeeds.
    Unverified {
        /// When the last permitted real request was sent.
        verified_at: Timestamp,
        /// Error of the last check before the limit expired.
        message: Arc<str>,
    },
    /// The API server refused a real request.
    Refused(PermissionDenial),
}

/// The refused verbs of an informer and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionDenial {
    /// `list`, `watch` or both, in this order. Never empty.
    pub verbs: Vec<Verb>,
    /// A reason for which [`FaultReason::is_access_denied`] is true, or [`FaultReason::NamespaceNotFound`] if
    /// the namespace and its roles were deleted.
    pub reason: FaultReason,
    /// Error message of the API server.
    pub message: Arc<str>,
    /// When the last real request was refused.
    pub verified_at: Timestamp,
    /// When access was last permitted, if this process saw it permitted. `None`: it was never
    /// granted, or its namespace was deleted.
    pub revoked: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerAccess {
    pub state: PermissionState,
    /// `Some(allowed)` if access reviews repeatedly contradict the real requests. `allowed` is the
    /// result of the reviews.
    pub overruled: Option<bool>,
    /// Whether the rate and concurrency limits have delayed the informer's checks.
    pub is_late: bool,
    /// Error of the last check, if no check was answered within the expected period.
    pub failed: Option<RequestFault>,
}
