//! The API server's version. All users of one cache share its requests, so that many clients of
//! `/version` cost the API server few requests.

use crate::{api_client::ApiClient, expiring_cache::ExpiringCache};
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kubewarm_api::model::RequestFault;
use std::{sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// The last answer of the API server's `/version`. All clones share this answer.
#[derive(Clone, Debug)]
pub struct ServerVersionCache {
    client: ApiClient,
    answers: ExpiringCache<(), ServerVersion>,
}

/// The API server's answer to `/version`, parsed once.
#[derive(Clone)]
pub struct ServerVersion {
    document: Bytes,
    git_version: Option<Arc<str>>,
    minor: Option<u32>,
}

impl ServerVersionCache {
    /// Creates an empty cache. [`get`](Self::get) requests the version with `client` if the cache
    /// is empty, or if its answer is older than `ttl`.
    pub fn new(client: &Client, ttl: Duration) -> Self {
        Self { client: ApiClient::new(client), answers: ExpiringCache::new(1, ttl) }
    }

    /// Returns the version, and waits at most 10 s for the API server. Requests run on `runtime`,
    /// because connections to the API server must outlive the threads of the read API.
    ///
    /// # Errors
    ///
    /// The fault of the request, for all callers that wait for it.
    pub async fn get(&self, runtime: &Handle) -> Result<ServerVersion, RequestFault> {
        let fetch = || {
            let request = self.client.get("/version");
            async move {
                let answer = request.send().await?;
                if answer.status.is_success() {
                    Ok(ServerVersion::parse(answer.body))
                } else {
                    Err(answer.fault())
                }
            }
        };
        Ok(self.answers.get_or_fetch(runtime, (), None, fetch).await?.value)
    }
}

impl ServerVersion {
    fn parse(document: Bytes) -> Self {
        let info: Option<Info> = serde_json::from_slice(&document).ok();
        // Some distributions append `+` to the minor version.
        let minor = info.as_ref().and_then(|info| info.minor.trim_end_matches('+').parse().ok());
        Self { document, git_version: info.map(|info| info.git_version.into()), minor }
    }

    /// The JSON document, as the API server sent it.
    pub fn document(&self) -> Bytes {
        self.document.clone()
    }

    /// Returns the version of the build, such as `v1.36.4`; `None` if the document is no version.
    pub fn git_version(&self) -> Option<Arc<str>> {
        self.git_version.clone()
    }

    /// Returns the minor version of Kubernetes; `None` if the document has none.
    pub fn minor(&self) -> Option<u32> {
        self.minor
    }
}
