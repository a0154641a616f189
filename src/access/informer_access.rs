//! What the access checks and reviews of an informer have shown, as the status, the metrics and
//! `/readyz` show it.

use kubewarm_api::model::RequestFault;
use kubewarm_cache::informer::PermissionState;

/// The permission state of one informer, and the reasons why this state can be wrong or outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerAccess {
    pub state: PermissionState,
    /// Whether access checks have repeatedly contradicted the access reviews or rules reviews.
    /// `Some(true)` if these reviews permit requests that the API server rejects, `Some(false)` if
    /// these reviews deny requests that the API server permits.
    pub overruled: Option<bool>,
    /// Whether limits on rate or concurrency delay the informer's access checks and reviews, so
    /// that the permission state can be outdated.
    pub is_late: bool,
    /// Error of the informer's last access check or review, if the API server has answered none of
    /// these requests for about 30 seconds. Otherwise `None`.
    pub failed: Option<RequestFault>,
}
