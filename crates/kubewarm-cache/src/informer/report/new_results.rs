//! Reports to the access checker which informers' own requests have new results.

use kubewarm_api::model::InformerKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// The informers whose own requests have results that the access checker has not read yet. Contains
/// at most one key for each running informer.
#[derive(Debug, Default)]
pub(crate) struct NewResults {
    keys: Mutex<BTreeSet<InformerKey>>,
    added: Notify,
}

impl NewResults {
    pub(crate) fn add(&self, key: &InformerKey) {
        self.keys.lock().insert(key.clone());
        self.added.notify_one();
    }

    pub(crate) fn forget(&self, key: &InformerKey) {
        self.keys.lock().remove(key);
    }

    pub(crate) fn take(&self) -> BTreeSet<InformerKey> {
        std::mem::take(&mut self.keys.lock())
    }

    /// Returns when a key was added since the last call returned.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}
