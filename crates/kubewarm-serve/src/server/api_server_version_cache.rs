//! Fetches the API server's version when a client requests it, and caches the version for a minute.

use bytes::Bytes;
use kubewarm_api::model::RequestFault;
use kubewarm_client::{ApiClient, ExpiringCache};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long kubewarm caches the API server's version. The version changes only with an upgrade of the cluster.
const FRESH: Duration = Duration::from_mins(1);

/// The API server's version, fetched with the operator's identity. kubewarm authorizes each client before it
/// returns the version to the client.
#[derive(Debug)]
pub struct ApiServerVersionCache {
    client: ApiClient,
    /// The runtime that sends the requests for the version. The connections to the API server must outlive the
    /// threads of the read API's server.
    runtime: Handle,
    answers: ExpiringCache<(), Bytes>,
}

impl ApiServerVersionCache {
    /// Creates an empty cache. When a client first requests the version, the cache fetches the version with
    /// `client` on `runtime`.
    #[must_use]
    pub fn new(client: ApiClient, runtime: Handle) -> Self {
        Self { client, runtime, answers: ExpiringCache::new(1, FRESH) }
    }

    /// The JSON document of `/version`. Waits at most 10 s for the API server.
    pub(super) async fn document(&self) -> Result<Bytes, RequestFault> {
        let fetch = || {
            let request = self.client.get("/version");
            async move {
                let answer = request.send().await?;
                if answer.status.is_success() { Ok(answer.body) } else { Err(answer.fault()) }
            }
        };
        Ok(self.answers.get_or_fetch(&self.runtime, (), None, fetch).await?.value)
    }
}
