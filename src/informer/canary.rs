//! Whether resource versions have gone back: one consistent read a resource, shared by its cells of
//! one identity.
//!
//! After an etcd restore the server accepts a watch from a version that it has not reached yet, and
//! stays silent until it has; what happened in between would be lost. So no watch is resumed after
//! a broken connection before a consistent read has shown that the version is still of the past.

use super::{endpoint::Endpoint, upstream};
use crate::model::{CellKey, Fault, Identity, Reason, Resource, ResourceVersion};
use parking_lot::Mutex;
use serde::Deserialize;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A `limit=1` list of metadata is smaller.
const MAX_ANSWER: usize = 4 << 20;

/// Whose read, and of what: nobody is refused because another was.
type Asked = (Identity, Resource);

/// Remembers the last consistent read of each resource, by identity. Bounded by what is watched.
#[derive(Debug, Default)]
pub(super) struct Canary {
    lanes: Mutex<HashMap<Asked, Arc<Lane>>>,
}

/// One reader at a time; the others wait for its answer.
type Lane = tokio::sync::Mutex<Option<Sighting>>;

#[derive(Clone, Debug)]
struct Sighting {
    asked_at: Instant,
    answered_at: Instant,
    /// A failure is shared as well: those who wait for the same answer do not each wait anew.
    seen: Result<ResourceVersion, Fault>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

impl Canary {
    /// The newest version of the resource of `cell`, as of a consistent read that was sent after `since`.
    ///
    /// All kinds' cells in all namespaces share one answer: a list's version is that of the whole
    /// resource, whatever part of it is listed. So 2,000 cells of 20 kinds cost one identity 20
    /// reads.
    ///
    /// # Errors
    ///
    /// Those of the request; [`Reason::Malformed`] for an answer without a version.
    pub(super) async fn newest(
        &self,
        client: &kube::Client,
        cell: &CellKey,
        endpoint: &Endpoint,
        since: Instant,
        within: Duration,
    ) -> Result<ResourceVersion, Fault> {
        let waiting_since = Instant::now();
        let asked = (cell.identity.clone(), cell.resource.clone());
        let lane = Arc::clone(self.lanes.lock().entry(asked).or_default());
        let mut last = lane.lock().await;
        if let Some(sighting) = last.as_ref().filter(|sighting| sighting.asked_at > since) {
            // Whoever comes later than a failure asks again: it is of no use to a retry.
            if sighting.seen.is_ok() || sighting.answered_at >= waiting_since {
                return sighting.seen.clone();
            }
        }
        let asked_at = Instant::now();
        let seen = ask(client, endpoint, within).await;
        *last = Some(Sighting { asked_at, answered_at: Instant::now(), seen: seen.clone() });
        seen
    }

    /// Forgets what no cell watches any more.
    pub(super) fn retain(&self, watched: impl Fn(&Asked) -> bool) {
        self.lanes.lock().retain(|asked, _| watched(asked));
    }
}

async fn ask(
    client: &kube::Client,
    endpoint: &Endpoint,
    within: Duration,
) -> Result<ResourceVersion, Fault> {
    let body = upstream::read(client, endpoint.newest(), within, MAX_ANSWER).await?;
    let answer: List = serde_json::from_slice(&body)
        .map_err(|_| Fault::new(Reason::Malformed, "the answer is not a list"))?;
    ResourceVersion::parse(&answer.metadata.resource_version)
        .ok_or_else(|| Fault::new(Reason::Malformed, "the list has no resourceVersion"))
}
