//! Whether resource versions have gone back: one consistent read a resource, shared by its cells of
//! one identity.
//!
//! After an etcd restore the server accepts a watch from a version that it has not reached yet, and
//! stays silent until it has; what happened in between would be lost. So no watch is resumed after
//! a broken connection before a consistent read has shown that the version is still of the past.

use super::{endpoint::Endpoint, lanes::Lanes, upstream};
use crate::model::{CellKey, Fault, Identity, Reason, Resource, ResourceVersion};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;

/// A `limit=1` list of metadata is smaller.
const MAX_ANSWER: usize = 4 << 20;

/// Whose read, and of what: nobody is refused because another was.
type Asked = (Identity, Resource);

/// Remembers the last consistent read of each resource, by identity. Bounded by what is watched.
#[derive(Debug, Default)]
pub(super) struct Canary {
    lanes: Lanes<Asked, Result<ResourceVersion, Fault>>,
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
        let asked = (cell.identity.clone(), cell.resource.clone());
        self.lanes.ask(asked, since, Result::is_ok, ask(client, endpoint, within)).await
    }

    /// Forgets what no cell watches any more.
    pub(super) fn retain(&self, watched: impl Fn(&Asked) -> bool) {
        self.lanes.retain(watched);
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
