//! Implements `--forward`: sends requests that kubewarm does not serve to the API server, with the
//! caller's own token.

mod headers;
mod inspection;
#[cfg(test)]
mod tests;

use self::{
    headers::{ForwardCredentials, ForwardHeaderOptions},
    inspection::WriteInspectionPermits,
};
use super::{
    body::{BrokenUpstream, IncomingRequest, OutgoingResponse, RequestError, ResponseBody},
    connection::ConnectionState,
    rejection::refusal,
    response::response,
    unwritten_response::ResponsePermit,
};
use crate::{
    ApplierRegistry, UserReads,
    callers::{CallerGate, ForwardAuthentication, UserPermits, proves_authentication},
    metrics::{HandlerLabel, ReadMetrics},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kubewarm_api::model::{Resource, ResourceVersion};
use kubewarm_client::{CallerInfo, KeyedPermit, StreamingBody, UpstreamError, UpstreamProxy};
use kubewarm_wire::{ForwardPlan, StatusError, WriteTarget, has_object};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{io::copy_bidirectional_with_sizes, time::timeout, try_join};

/// The time limit for the head of the API server's response. The API server itself ends a request
/// after 60 s, so this limit is longer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// After this time without a response, the API server has probably accepted the token, because it
/// rejects an invalid token before it executes the request. So the request no longer counts against
/// the limits on unverified tokens. Otherwise, slow requests with valid tokens would use up these
/// limits.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size in bytes of an error response that kubewarm buffers. After buffering, kubewarm
/// can release the request's permit before the client has read the response. Otherwise rejected
/// callers that read slowly could hold all permits.
const SHORT_ERROR: u64 = 1 << 10;
/// The maximum size of the body of a forwarded request, in bytes. The API server limits objects to
/// 3 MiB, but a pod behind `pods/proxy` can accept larger bodies.
const MAX_BODY: usize = 16 << 20;
/// The buffer size in bytes for each direction of an upgraded connection, such as `exec`.
const TUNNEL_BUFFER: usize = 16 << 10;

/// A callback that receives the resource and the object's new resource version after each forwarded
/// write. Later reads wait until a store has reached this version.
pub type WriteObserver = Box<dyn Fn(WriteTarget, ResourceVersion) + Send + Sync>;

/// What kubewarm knows about a request that it forwards, for metrics and `/debug/forwarded`, also
/// if the request fails.
#[derive(Debug, Default)]
pub(super) struct ForwardedRequest {
    /// The resource that the request's path names.
    pub(super) resource: Option<Resource>,
    /// The kind and resource of a read that kubewarm forwards because no profile declares the
    /// objects.
    pub(super) undeclared: Option<(HandlerLabel, Resource)>,
    /// The user of the token's last TokenReview; `None` if kubewarm does not know the user.
    pub(super) user: Option<Arc<CallerInfo>>,
}

impl ForwardedRequest {
    /// Records that the API server answered the request with success. This proves that the API
    /// server serves the request's resource, so clients cannot create metrics for invented
    /// resources.
    pub(super) fn record_success(&self, metrics: &ReadMetrics, reads: &UserReads) {
        if let Some(resource) = &self.resource {
            metrics.admit_forwarded(resource);
        }
        if let (Some((kind, resource)), Some(user)) = (&self.undeclared, &self.user) {
            reads.count_forwarded(*kind, resource.clone(), &user.name, Timestamp::now());
        }
    }
}

/// Forwards requests to the API server.
pub struct RequestForwarder {
    upstream: UpstreamProxy,
    observe_write: WriteObserver,
    appliers: ApplierRegistry,
    inspection_permits: WriteInspectionPermits,
}

impl RequestForwarder {
    /// Creates a forwarder to the API server `upstream`. After a write, the forwarder calls
    /// `observe_write` before the client receives the response.
    pub fn new(upstream: UpstreamProxy, observe_write: WriteObserver) -> Self {
        Self {
            upstream,
            observe_write,
            appliers: ApplierRegistry::default(),
            inspection_permits: WriteInspectionPermits::default(),
        }
    }

    /// Sets `appliers`, in which the forwarder records the users of forwarded server-side applies.
    pub fn with_appliers(self, appliers: ApplierRegistry) -> Self {
        Self { appliers, ..self }
    }

    /// Sends the request to the API server with the caller's own token. Writes to `sent` what
    /// kubewarm knows about the request, also if it fails.
    ///
    /// # Errors
    ///
    /// - 400 for a header that kubewarm cannot read, and 405 for a method that the Kubernetes API
    ///   does not have
    /// - 401 if the API server does not accept the token
    /// - 403 `CannotForward` if the request has no bearer token
    /// - 413 if the request body is too large
    /// - 429 if the caller has too many requests in progress
    /// - 503 if kubewarm cannot connect to the API server, and 504 if the API server does not
    ///   respond in time
    /// - [`RequestError::Broken`] if the connection breaks after kubewarm might have sent the
    ///   request
    pub(super) async fn send(
        &self,
        IncomingRequest { head, body, upgrade, connection }: IncomingRequest,
        callers: &CallerGate,
        metrics: &ReadMetrics,
        sent: &mut ForwardedRequest,
    ) -> Result<OutgoingResponse, RequestError> {
        let ForwardPlan { path, resource, is_write, writes, is_long_running } =
            ForwardPlan::parse(head.method.as_str(), head.uri.path(), head.uri.query())?;
        sent.resource = resource;
        let sender = ForwardCredentials::from_headers(&head.headers, upgrade.is_some())?;
        let peer = connection.peer;
        // Only for a short write, the response's status shows whether the API server accepted the
        // token. A server behind the API server, such as a pod, can answer a long-running request
        // or a request that upgrades its connection. So for these requests, kubewarm sends a
        // TokenReview.
        let authentication = if is_write && !is_long_running && upgrade.is_none() {
            ForwardAuthentication::ApiServer
        } else {
            ForwardAuthentication::Review
        };
        let admitted = callers.admit_forwarded(&sender.credentials(), peer, authentication).await;
        let (mut caller, permit) = admitted.map_err(|refused| {
            metrics.count_refusal(&refused);
            refusal(refused, callers)
        })?;
        sent.user.clone_from(&caller.user);
        let limit_key = caller.limit_key;
        let accept = || connection.accept(|| callers.acquire_connection(limit_key));
        if caller.is_verified() {
            accept();
        }
        let kept = ForwardHeaderOptions {
            has_upgrade: upgrade.is_some(),
            has_accept_encoding: writes.is_none(),
        };
        let headers = headers::forwarded_headers(&head.headers, &sender, peer, kept)?;
        let is_apply = is_apply(&head);
        let (request, is_too_large) = build_request(&head, path, headers, body)?;
        let on_slow = || {
            caller.release_permit();
            accept();
        };
        let answer = await_head(self.upstream.send(request), is_long_running, on_slow).await?;
        let answer = answer.map_err(|not| {
            if is_too_large.load(Ordering::Relaxed) {
                return StatusError::too_large_body(MAX_BODY as u64).into();
            }
            match not {
                UpstreamError::Unconnected(fault) => {
                    tracing::debug!(%fault, "the API server cannot be reached");
                    StatusError::unreachable().into()
                }
                UpstreamError::Unanswered(fault) => broken(&fault),
            }
        })?;
        if !is_long_running {
            callers.record_forwarded_response(&mut caller, answer.status());
        }
        if let (Some(user), Some(written)) = (&caller.user, &writes)
            && is_apply
            && answer.status().is_success()
        {
            self.appliers.record_apply(&user.name, written, Timestamp::now());
        }
        // Until a response proves that the API server accepts the token, anyone could have sent the
        // request. So its connection does not count as accepted, and its response holds no permit
        // for forwarded requests while the client reads it.
        let is_authenticated = authentication == ForwardAuthentication::Review
            || proves_authentication(answer.status());
        if is_authenticated {
            accept();
        }
        let permit = is_authenticated.then_some(permit);
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let bytes = callers.unwritten_byte_permits(limit_key);
            return self.pass_response(answer, writes, permit, bytes).await;
        }
        let Some(upgrade) = upgrade else {
            return Err(StatusError::unanswered().into());
        };
        Ok(switch_protocols(answer, upgrade, permit, &connection))
    }

    /// Passes the API server's response to the client. For a write, kubewarm first reads the
    /// beginning of the body, up to the object's resource version.
    async fn pass_response(
        &self,
        answer: http::Response<Incoming>,
        writes: Option<WriteTarget>,
        permit: Option<KeyedPermit>,
        bytes: UserPermits,
    ) -> Result<OutgoingResponse, RequestError> {
        let (mut head, mut body) = answer.into_parts();
        headers::without_connection(&mut head.headers);
        let size = body.size_hint().exact();
        if head.status.is_client_error() && size.is_some_and(|size| size <= SHORT_ERROR) {
            // kubewarm buffers this error response. So a rejected caller that reads slowly does not
            // hold a permit of the limits on forwarded requests.
            let content = timeout(HEAD_TIMEOUT, body.collect()).await;
            let content = content.map_err(|_| StatusError::unanswered())?;
            let content = content.map_err(|error| broken(&error))?.to_bytes();
            drop(permit);
            let body = ResponseBody::from(content);
            body.keep(ResponsePermit::nothing());
            return Ok(response(head.status, head.headers, body));
        }
        let (mut first, mut memory_permit) = (Bytes::new(), None);
        let content_type =
            head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(written) = writes.filter(|_| head.status.is_success())
            && content_type.is_some_and(has_object)
        {
            let record = |version| (self.observe_write)(written, version);
            let inspected =
                timeout(HEAD_TIMEOUT, self.inspection_permits.read_version(&mut body, record))
                    .await;
            let inspected = inspected.map_err(|_| StatusError::unanswered())?;
            (first, memory_permit) = inspected.map_err(|error| broken(&error))?;
        }
        let body = if first.is_empty() {
            ResponseBody::new(body)
        } else {
            ResponseBody::streamed(stream::iter([Ok(first)]).chain(body.into_data_stream()))
        };
        body.keep(ResponsePermit::lasting((permit, memory_permit), bytes));
        Ok(response(head.status, head.headers, body))
    }
}

/// Waits for the head of the API server's response. Calls `on_slow` if the wait takes longer than
/// [`VERIFY_TIMEOUT`].
///
/// # Errors
///
/// 504 if the API server does not answer in time. A long-running request has no time limit.
async fn await_head<T>(
    answering: impl Future<Output = T>,
    is_long_running: bool,
    on_slow: impl FnOnce(),
) -> Result<T, StatusError> {
    let mut answering = pin!(answering);
    if let Ok(answer) = timeout(VERIFY_TIMEOUT, answering.as_mut()).await {
        return Ok(answer);
    }
    on_slow();
    if is_long_running {
        return Ok(answering.await);
    }
    let left = HEAD_TIMEOUT.saturating_sub(VERIFY_TIMEOUT);
    timeout(left, answering).await.map_err(|_| StatusError::unanswered())
}

fn broken(fault: &dyn fmt::Display) -> RequestError {
    tracing::debug!(%fault, "the connection to the API server broke");
    RequestError::Broken(BrokenUpstream)
}

/// Whether the request is a server-side apply: a PATCH with a content type for applies. client-go
/// sends YAML or CBOR.
fn is_apply(head: &Parts) -> bool {
    let content_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    head.method == Method::PATCH
        && content_type.is_some_and(|value| value.starts_with(b"application/apply-patch+"))
}

/// Returns the request to the API server, and a flag that becomes true if the request body exceeds
/// `MAX_BODY`.
fn build_request(
    head: &Parts,
    path: &str,
    headers: HeaderMap,
    body: Incoming,
) -> Result<(http::Request<StreamingBody>, Arc<AtomicBool>), StatusError> {
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(StatusError::too_large_body(MAX_BODY as u64));
    }
    let uri = head.uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let uri =
        uri.parse().map_err(|_| StatusError::bad_request("the request cannot be forwarded"))?;
    let is_too_large = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_too_large);
    let body = Limited::new(body, MAX_BODY).map_err(move |error| {
        noted.fetch_or(error.is::<LengthLimitError>(), Ordering::Relaxed);
        error
    });
    let mut sent = http::Request::new(body.boxed_unsync());
    *sent.method_mut() = head.method.clone();
    *sent.uri_mut() = uri;
    *sent.headers_mut() = headers;
    Ok((sent, is_too_large))
}

/// The response 101. After kubewarm has sent it, the caller's connection is a raw connection to the
/// API server.
fn switch_protocols(
    mut answer: http::Response<Incoming>,
    caller: OnUpgrade,
    permit: Option<KeyedPermit>,
    connection: &ConnectionState,
) -> OutgoingResponse {
    let upstream = hyper::upgrade::on(&mut answer);
    let mut headers = answer.into_parts().0.headers;
    let protocol = headers.get(header::UPGRADE).cloned();
    headers::without_connection(&mut headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    connection.tunnel.set(Some(Box::pin(copy_both_ways(caller, upstream, permit))));
    let body = ResponseBody::from(Bytes::new());
    body.keep(ResponsePermit::nothing());
    response(StatusCode::SWITCHING_PROTOCOLS, headers, body)
}

/// Copies bytes between the caller and the API server until either of them closes its connection.
/// The connection counts against the limits on forwarded requests until then.
async fn copy_both_ways(caller: OnUpgrade, upstream: OnUpgrade, _slot: Option<KeyedPermit>) {
    // The switch of protocols fails if the caller or the API server has closed its connection.
    // kubewarm then has no connection on which it could send an error.
    let Ok((caller, upstream)) = try_join!(caller, upstream) else { return };
    let (mut caller, mut upstream) = (TokioIo::new(caller), TokioIo::new(upstream));
    let _ended =
        copy_bidirectional_with_sizes(&mut caller, &mut upstream, TUNNEL_BUFFER, TUNNEL_BUFFER)
            .await;
}
