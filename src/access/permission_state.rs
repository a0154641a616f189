//! The permission state of an informer, as the status, the metrics and `/readyz` show it.

use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, RequestFault, Verb};
use std::sync::Arc;

/// Whether an informer's identity may list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionState {
    /// No access check (a list and a watch with the informer's identity) has given a result yet.
    Verifying,
    /// The API server permits list and watch.
    Granted {
        /// Time of the last list or watch that the API server permitted. If `is_by_review` is true,
        /// the time of the last access review or rules review that showed the permission.
        verified_at: Timestamp,
        /// Whether only an access review or rules review shows the permission. In this case list
        /// and watch fail for another reason, for instance a kind that is not served.
        is_by_review: bool,
    },
    /// The API server permitted list and watch before, but no list or watch has succeeded for 10
    /// minutes. After a sign of lost access, such as a negative access review, this time is only 30
    /// seconds. kubewarm blocks reads of the informer's store until a list or watch succeeds.
    Unverified {
        /// Time at which kubewarm sent the last permitted list or watch.
        verified_at: Timestamp,
        /// Error of the last access check or access review before the informer became `Unverified`.
        message: Arc<str>,
    },
    /// The API server rejected a list or watch of an access check.
    Refused(PermissionDenial),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionDenial {
    /// `list`, `watch` or both, in this order. Never empty.
    pub verbs: Vec<Verb>,
    /// A reason that means denied access (see [`FaultReason::is_access_denied`]), or
    /// [`FaultReason::NamespaceNotFound`] if the namespace and its Roles do not exist.
    pub reason: FaultReason,
    /// Error message of the API server.
    pub message: Arc<str>,
    /// Time at which kubewarm received the last rejection of a list or watch.
    pub verified_at: Timestamp,
    /// Time of the last permitted list or watch that this process sent. `None` if the API server
    /// permitted none, or if the namespace does not exist.
    pub revoked: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerAccess {
    pub state: PermissionState,
    /// `Some(true)` if reviews (access reviews or rules reviews) repeatedly permitted requests that
    /// the API server then rejected. `Some(false)` if reviews repeatedly denied requests that the
    /// API server then permitted.
    pub overruled: Option<bool>,
    /// Whether limits on rate or concurrency have delayed the informer's access checks and reviews.
    pub is_late: bool,
    /// Error of the informer's last access check or review, if the API server has answered none of
    /// them for about 30 seconds. Otherwise `None`.
    pub failed: Option<RequestFault>,
}
