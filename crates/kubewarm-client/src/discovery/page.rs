//! Requests one discovery document. The API server sends the document again only if its `ETag` has
//! changed.

use super::{document::RawGroupList, served_resources::ServedGroup};
use crate::api_client::ApiClient;
use http::{HeaderValue, StatusCode, header};
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_wire::AGGREGATED_DISCOVERY;
use std::time::Duration;

/// Size limit of one discovery document. A cluster with 2,000 CRDs sends about 2 MiB.
const MAX_BYTES: usize = 32 << 20;
const TIME: Duration = Duration::from_secs(30);

/// The API groups of the last received version of one discovery document.
#[derive(Default)]
pub(super) struct DiscoveryPage {
    tag: Option<HeaderValue>,
    pub(super) groups: Vec<ServedGroup>,
}

impl DiscoveryPage {
    /// Requests the document at `path` and replaces `groups`. A 304 leaves `groups` unchanged.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        path: &'static str,
    ) -> Result<(), RequestFault> {
        let request = ApiClient::new(client).get(path).within(TIME).at_most(MAX_BYTES);
        let request = request.accept(AGGREGATED_DISCOVERY);
        let request = match self.tag.clone() {
            Some(tag) => request.header(header::IF_NONE_MATCH, tag),
            None => request,
        };
        let response = request.send().await?;
        if response.status == StatusCode::NOT_MODIFIED && self.tag.is_some() {
            return Ok(());
        }
        let not_aggregated = || {
            let message = format!(
                "{path}: the API server has no aggregated discovery (apidiscovery.k8s.io/v2); \
                 kubewarm needs Kubernetes 1.32 or newer"
            );
            RequestFault::new(FaultReason::Unsupported, message).with_code(response.status.as_u16())
        };
        if response.status == StatusCode::NOT_ACCEPTABLE {
            return Err(not_aggregated());
        }
        self.groups = response.json::<RawGroupList>()?.groups().ok_or_else(not_aggregated)?;
        self.tag = response.headers.get(header::ETAG).cloned();
        Ok(())
    }
}
