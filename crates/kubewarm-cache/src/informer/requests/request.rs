//! Sends an informer's requests, and converts every error into a `RequestFault`.

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE, response::Parts};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::Body;
use kubewarm_api::model::{FaultReason, ObjectEncoding, RequestFault};
use kubewarm_client::fault;
use kubewarm_wire::upstream::{ListMetadata, ListSplitter, SplitItem};
use kubewarm_wire::{MediaType, PROTOBUF};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of bytes that kubewarm reads of an error response. A `Status` object is smaller.
const MAX_ERROR_BODY: usize = 64 << 10;

pub(crate) type BodyChunks = BoxStream<'static, Result<Bytes, RequestFault>>;

/// The body of a successful response.
pub(crate) struct UpstreamBody {
    pub(crate) chunks: BodyChunks,
    pub(crate) media_type: MediaType,
    pub(crate) headers: HeaderMap,
}

/// Sends `request` and waits for the headers of a successful response.
///
/// # Errors
///
/// [`FaultReason::TimedOut`] if the headers do not arrive within `headers_within`;
/// [`FaultReason::Unreachable`] if the connection fails; otherwise the fault for the HTTP status.
pub(crate) async fn open(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    headers_within: Duration,
) -> Result<UpstreamBody, RequestFault> {
    let timed_out = || {
        let seconds = headers_within.as_secs();
        RequestFault::new(
            FaultReason::TimedOut,
            format!("no answer from the API server within {seconds} s"),
        )
        .unanswered()
    };
    let response = timeout(headers_within, client.send(request.map(Body::from)))
        .await
        .map_err(|_elapsed| timed_out())?
        .map_err(|error| fault::of_transport(&error))?;
    if !response.status().is_success() {
        return Err(read_error_response(response, headers_within).await);
    }
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_protobuf = content_type.is_some_and(|value| value.starts_with(PROTOBUF.as_bytes()));
    let media_type = if is_protobuf { MediaType::Protobuf } else { MediaType::Json };
    let (Parts { headers, .. }, body) = response.into_parts();
    let chunks = body.into_data_stream();
    let chunks = chunks.map(|chunk| chunk.map_err(|error| fault::of_transport(&error))).boxed();
    Ok(UpstreamBody { chunks, media_type, headers })
}

/// Reads a list to its end and passes each item to `each`, with the result of
/// [`ListSplitter::encoding`]. Holds one item in memory at a time.
///
/// # Errors
///
/// [`FaultReason::Malformed`] for an incomplete list; [`FaultReason::TimedOut`] if the list does
/// not end by `until`; the errors of `each`.
pub(crate) async fn items(
    body: UpstreamBody,
    until: Instant,
    each: impl FnMut(Option<ObjectEncoding>, SplitItem<'_>) -> Result<(), RequestFault>,
) -> Result<ListMetadata, RequestFault> {
    let timed_out = |_| RequestFault::new(FaultReason::TimedOut, "the list did not end in time");
    timeout_at(until, read_items(body, each)).await.map_err(timed_out)??.metadata()
}

/// Like [`items`], but without a time limit. Returns the splitter.
pub(crate) async fn read_items(
    body: UpstreamBody,
    mut each: impl FnMut(Option<ObjectEncoding>, SplitItem<'_>) -> Result<(), RequestFault>,
) -> Result<ListSplitter, RequestFault> {
    let UpstreamBody { mut chunks, media_type, .. } = body;
    let mut splitter = ListSplitter::new(media_type);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let encoding = splitter.encoding();
            let (consumed, item) = splitter.feed(rest)?;
            if let Some(item) = item {
                each(encoding, item)?;
            }
            rest = rest.get(consumed..).unwrap_or_default();
        }
    }
    if !splitter.is_complete() {
        return Err(RequestFault::new(
            FaultReason::Malformed,
            "the list ended before it was complete",
        ));
    }
    Ok(splitter)
}

async fn read_error_response(response: Response<Body>, within: Duration) -> RequestFault {
    let (parts, body) = response.into_parts();
    let body = match timeout(within, Limited::new(body, MAX_ERROR_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        // kubewarm cannot read the body of the error response. The HTTP status is enough to create
        // the fault.
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    fault::of_response(parts.status, &parts.headers, &body, Timestamp::now())
}
