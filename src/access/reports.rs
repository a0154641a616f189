//! A shared, read-only view of every informer's permission state, and of each identity's
//! permissions that no profile needs.

use super::{
    check_schedule::CheckSchedule, excess::ExcessPermissions, informer_access::InformerAccess,
};
use kubewarm_api::model::{Identity, InformerKey};
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Clone, Debug)]
pub struct AccessStates {
    pub(super) schedule: Arc<RwLock<CheckSchedule>>,
}

impl AccessStates {
    pub(super) fn new(schedule: CheckSchedule) -> Self {
        Self { schedule: Arc::new(RwLock::new(schedule)) }
    }

    /// Returns the permission state of an informer, or `None` if the access checker does not check
    /// this informer.
    pub fn get(&self, key: &InformerKey) -> Option<InformerAccess> {
        self.schedule.read().informer_access(key, Instant::now())
    }

    /// Returns the list and watch permissions of `identity` that no profile needs.
    ///
    /// With a `namespace`, returns the permissions in that namespace, and otherwise cluster-wide
    /// permissions. Returns `None` until the API server has answered the first rules review for
    /// this identity and namespace.
    pub fn excess(
        &self,
        identity: &Identity,
        namespace: Option<&Arc<str>>,
    ) -> Option<Arc<ExcessPermissions>> {
        self.schedule.read().excess(&(identity.clone(), namespace.cloned()))
    }
}
