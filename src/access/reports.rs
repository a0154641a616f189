//! What everybody else reads: cells' standings, and what is too much.

use super::{book::Book, excess::Excess, standing::CellAccess};
use kubewarm_api::model::{CellKey, Identity};
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::time::Instant;

/// Reads what is known of permissions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessReports {
    pub(super) book: Arc<RwLock<Book>>,
}

impl AccessReports {
    pub(super) fn new(book: Book) -> Self {
        Self { book: Arc::new(RwLock::new(book)) }
    }

    /// What is known of a cell; `None` if it is not checked.
    #[must_use]
    pub fn get(&self, key: &CellKey) -> Option<CellAccess> {
        self.book.read().access(key, Instant::now())
    }

    /// What `identity` may list and watch too much in the namespace `here`, or, without one, across
    /// the cluster; `None` before its rules are known.
    #[must_use]
    pub fn excess(&self, identity: &Identity, here: Option<&Arc<str>>) -> Option<Arc<Excess>> {
        self.book.read().excess(&(identity.clone(), here.cloned()))
    }
}
