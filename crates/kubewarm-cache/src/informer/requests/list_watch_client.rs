//! Sends the requests of one informer, like client-go's `ListerWatcher`.
//!
//! For lists and watches, the informer's task reads the response itself. `peek` (a list of one
//! object) and `probe` (a short watch) return a parsed result.

use super::{
    request::{self, UpstreamBody},
    request_builder::InformerRequestBuilder,
};
use futures::StreamExt as _;
use http::Request;
use kubewarm_api::model::{FaultReason, InformerKey, RequestFault, ResourceVersion};
use kubewarm_client::fault;
use kubewarm_wire::upstream::{EventSplitter, ListMetadata, UpstreamEvent, UpstreamEventType};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of bytes that `peek` reads of a response. One object of 1.5 MiB, etcd's default
/// limit, fits.
const MAX_PEEK: usize = 8 << 20;

/// Builds and sends the requests of one informer. The client authenticates as the informer's
/// identity.
#[derive(Clone)]
pub(crate) struct ListWatchClient {
    pub(crate) client: Arc<kube::Client>,
    endpoint: InformerRequestBuilder,
}

#[derive(Debug)]
pub(crate) enum WatchProbeResult {
    Bookmark(ResourceVersion),
    Event(ResourceVersion),
    /// An event arrived that cannot be parsed.
    Unclear,
    /// Neither an event nor a bookmark arrived.
    Silent,
}

impl ListWatchClient {
    pub(crate) fn new(client: &Arc<kube::Client>, key: &InformerKey) -> Result<Self, RequestFault> {
        Ok(Self { client: Arc::clone(client), endpoint: InformerRequestBuilder::new(key)? })
    }

    /// Sets whether later lists and watches accept protobuf. Initially, they accept only JSON.
    pub(crate) fn accept_protobuf(&mut self, is_accepted: bool) {
        self.endpoint.can_use_protobuf = is_accepted;
    }

    pub(crate) fn can_use_protobuf(&self) -> bool {
        self.endpoint.can_use_protobuf
    }

    /// Sends the request that `build` creates, and waits for the headers of a successful response,
    /// at most for `within`.
    ///
    /// # Errors
    ///
    /// The errors of [`request::open`].
    pub(crate) async fn open(
        &self,
        within: Duration,
        build: impl FnOnce(&InformerRequestBuilder) -> Request<Vec<u8>>,
    ) -> Result<UpstreamBody, RequestFault> {
        request::open(&self.client, build(&self.endpoint), within).await
    }

    /// Lists one object with a consistent read.
    ///
    /// A success shows that the informer's identity is permitted to list. The result contains the
    /// current resource version and the number of objects after the listed object. A success whose
    /// response cannot be parsed or exceeds 8 MiB contains neither value.
    ///
    /// # Errors
    ///
    /// The fault of the response, or of a broken connection. If the identity has no access,
    /// [`FaultReason::is_access_denied`] returns `true` for the fault's reason.
    ///
    /// # Cost
    ///
    /// One request for the metadata of one object.
    pub(crate) async fn peek(&self, within: Duration) -> Result<ListMetadata, RequestFault> {
        let UpstreamBody { mut chunks, .. } =
            self.open(within, InformerRequestBuilder::one).await?;
        let mut body = Vec::new();
        let reading = async {
            // A response above 8 MiB is no error: a server that sends an object has authorized the
            // list.
            while body.len() <= MAX_PEEK {
                let Some(chunk) = chunks.next().await else { break };
                body.extend_from_slice(&chunk?);
            }
            Ok(ListMetadata::parse(&body).unwrap_or_default())
        };
        timeout(within, reading).await.unwrap_or_else(|_elapsed| {
            Err(RequestFault::new(FaultReason::TimedOut, "the answer did not end in time"))
        })
    }

    /// Opens a watch from resource version `from`, with a `timeoutSeconds` of `lasting`. Returns
    /// the first event or bookmark that arrives within twice `lasting`. The response headers must
    /// arrive within `within`.
    ///
    /// # Errors
    ///
    /// The fault of the response, of a broken connection, or of an `ERROR` event.
    pub(crate) async fn probe(
        &self,
        from: &ResourceVersion,
        lasting: Duration,
        within: Duration,
    ) -> Result<WatchProbeResult, RequestFault> {
        let until = Instant::now() + lasting * 2;
        let UpstreamBody { mut chunks, media_type, .. } =
            self.open(within, |endpoint| endpoint.watch(from, lasting)).await?;
        let mut events = EventSplitter::new(media_type);
        while let Ok(Some(chunk)) = timeout_at(until, chunks.next()).await {
            let chunk = chunk?;
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (consumed, split) = events.feed(rest);
                if let Some(split) = split {
                    return read_first_event(split.event);
                }
                rest = rest.get(consumed..).unwrap_or_default();
            }
        }
        Ok(WatchProbeResult::Silent)
    }
}

fn read_first_event(event: Option<UpstreamEvent<'_>>) -> Result<WatchProbeResult, RequestFault> {
    let Some(event) = event else { return Ok(WatchProbeResult::Unclear) };
    let result = match event.kind {
        UpstreamEventType::Error => return Err(fault::of_event(&event)),
        UpstreamEventType::Bookmark => {
            event.bookmark().map(|bookmark| WatchProbeResult::Bookmark(bookmark.version))
        }
        UpstreamEventType::Added | UpstreamEventType::Modified | UpstreamEventType::Deleted => {
            event.tombstone().and_then(|object| object.version).map(WatchProbeResult::Event)
        }
    };
    // An event that cannot be parsed does not show whether an object changed.
    Ok(result.unwrap_or(WatchProbeResult::Unclear))
}
