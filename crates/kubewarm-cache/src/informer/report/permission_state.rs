//! What the access checker decided about an informer's permissions.

use jiff::Timestamp;
use kubewarm_api::model::{FaultReason, Verb};
use std::sync::Arc;
use tokio::time::Instant;

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

/// Details of a rejected access check (a list and a watch with the informer's identity).
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

/// The decision of the access checker about one informer, which only the access checker writes.
/// Everything else reads it: the informer's task, reads, and the informer's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerPermission {
    /// Whether the informer's identity may list and watch.
    pub state: PermissionState,
    /// When kubewarm sent the last access check whose list and watch the API server permitted, on
    /// the monotonic clock. If the API server rejected an informer's own request before this time,
    /// the informer retries at once instead of waiting for its backoff. `None` before the first
    /// such access check.
    pub confirmed_at: Option<Instant>,
}

impl PermissionState {
    /// Whether kubewarm blocks the informer: its task sends no request, and clients cannot read its
    /// store.
    pub fn is_blocking(&self) -> bool {
        self.block_reason().is_some()
    }

    /// Why kubewarm blocks the informer, or `None` if it does not.
    pub(super) fn block_reason(&self) -> Option<FaultReason> {
        match self {
            Self::Unverified { .. } => Some(FaultReason::Unverified),
            Self::Refused(denial) => Some(denial.reason),
            Self::Verifying | Self::Granted { .. } => None,
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether this decision replaces the decision `old`. Only a permitted list or watch ends a
    /// block. An access review or rules review shows what a request would do, not what it did.
    /// Missing confirmation ([`PermissionState::Unverified`]) does not end a rejection either.
    pub(super) fn replaces(&self, old: &Self) -> bool {
        match (old, self) {
            (_, Self::Granted { is_by_review: false, .. } | Self::Refused(_))
            | (Self::Unverified { .. }, Self::Unverified { .. }) => true,
            _ => !old.is_blocking(),
        }
    }
}
