//! A shared read-only view of the permissions of all informers and of excess permissions.

use super::{
    check_schedule::CheckSchedule, excess::ExcessPermissions, permission_state::InformerAccess,
};
use kubewarm_api::model::{Identity, InformerKey};
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::time::Instant;

/// Read handle to the state of the access checks. A clone shares that state.
#[derive(Clone, Debug)]
pub struct AccessReports {
    pub(super) schedule: Arc<RwLock<CheckSchedule>>,
}

impl AccessReports {
    pub(super) fn new(schedule: CheckSchedule) -> Self {
        Self { schedule: Arc::new(RwLock::new(schedule)) }
    }

    /// Returns the permission state of an informer, or `None` if the informer is not checked.
    #[must_use]
    pub fn get(&self, key: &InformerKey) -> Option<InformerAccess> {
        self.schedule.read().informer_access(key, Instant::now())
    }

    /// Returns the list and watch permissions of `identity` that no profile needs.
    ///
    /// With a namespace: permissions in that namespace. Without one: permissions in the whole
    /// cluster. Returns `None` until the first rules review of that scope is answered.
    #[must_use]
    pub fn excess(
        &self,
        identity: &Identity,
        namespace: Option<&Arc<str>>,
    ) -> Option<Arc<ExcessPermissions>> {
        self.schedule.read().excess(&(identity.clone(), namespace.cloned()))
    }
}
