//! The requests that handlers of the read API receive, and the bodies of responses. A response body
//! holds the permit of its request until the connection has written the body.

use super::{
    connection::ConnectionState,
    unwritten_response::{PermitWait, ResponsePermit, UnwrittenResponse},
};
use crate::reads::PART_BYTES;
use bytes::Bytes;
use futures::{FutureExt as _, Stream, TryStreamExt as _};
use http::{
    HeaderMap, Method, Version,
    header::{CONNECTION, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    upgrade::OnUpgrade,
};
use kubewarm_client::KeyedPermit;
use kubewarm_wire::StatusError;
use prometheus::IntCounter;
use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tower::BoxError;

/// The values of the `Upgrade` header with which kubewarm forwards a request: the protocols of
/// exec, attach and port-forward. After a switch to a different protocol, such as h2c, requests
/// could bypass kubewarm's checks.
const PROTOCOLS: [&str; 2] = ["websocket", "spdy/3.1"];

/// The maximum number of bytes of the heads of a connection's GETs that wait for the end of their
/// body: those of 100 usual requests. kubewarm waits before it authenticates the client, and HTTP/2
/// permits a client to end 100 requests of 32 KiB each only after seconds.
const MAX_WAITING_HEADS: usize = 256 << 10;
/// What one header takes in addition to its name and its value, as in HTTP/2.
const HEADER_BYTES: usize = 32;

/// The head of a request that waits for the end of its body.
struct WaitingHead<'c> {
    connection: &'c ConnectionState,
    bytes: usize,
}

pub(super) struct IncomingRequest {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// Resolves to the raw connection when the protocol has been switched. `None` if the request
    /// has no `Upgrade` header with one of `PROTOCOLS`.
    pub(super) upgrade: Option<OnUpgrade>,
    pub(super) connection: Rc<ConnectionState>,
}

pub(super) type OutgoingResponse = http::Response<ResponseBody>;

/// The connection to the API server broke after kubewarm might have sent the request. kubewarm then
/// breaks the client's HTTP/2 stream or HTTP/1.1 connection too, because clients such as client-go
/// retry a broken connection, but do not retry after a 504.
///
/// The error has no source. hyper would copy the reason of an HTTP/2 source into its reset of the
/// stream. A client can repeat a write after the reason `REFUSED_STREAM`, although the API server
/// can have executed the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the API server broke")]
pub(super) struct BrokenUpstream;

/// Why kubewarm does not answer a request as the client wants.
#[derive(Debug)]
pub(super) enum RequestError {
    /// kubewarm returns this error to the client.
    Status(StatusError),
    /// kubewarm sends no response.
    Broken(BrokenUpstream),
}

/// A response body, which kubewarm passes to hyper in parts. The permit of the request is released
/// when hyper has written all parts.
pub(super) struct ResponseBody {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>,
    /// The bytes that `body` has produced and kubewarm has not passed to hyper yet.
    left: Bytes,
    /// This permit counts the bytes that `body` produced last against the limits on unwritten
    /// response bytes. All parts of these bytes share the permit.
    permit: Option<Arc<KeyedPermit>>,
    /// The unfinished wait for `permit`; `None` if the body waits for no permit.
    wait: Option<PermitWait>,
    unwritten: Arc<UnwrittenResponse>,
}

impl IncomingRequest {
    /// Converts a request that arrived on `connection`. Rejects a request body that kubewarm does
    /// not accept. For a GET or HEAD with a chunked body, waits at most `timeout` for the end of
    /// the body, which must be empty.
    ///
    /// # Errors
    ///
    /// - 400 for a `Transfer-Encoding` header other than `chunked`
    /// - 413 for a GET or HEAD with a body, or while too many of them wait for the end of theirs
    pub(super) async fn receive(
        mut request: http::Request<Incoming>,
        connection: Rc<ConnectionState>,
        timeout: Duration,
    ) -> Result<Self, StatusError> {
        if has_unknown_encoding(request.headers()) {
            let message = "the only Transfer-Encoding of a request is chunked";
            return Err(StatusError::bad_request(message));
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && !request.body().is_end_stream() {
            let _waits =
                WaitingHead::of(&request, &connection).ok_or_else(StatusError::unwanted_body)?;
            let ending = tokio::time::timeout(timeout, is_empty(request.body_mut()));
            if !ending.await.unwrap_or(false) {
                return Err(StatusError::unwanted_body());
            }
        }
        let upgrade = has_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        Ok(Self { head, body, upgrade, connection })
    }
}

impl<'c> WaitingHead<'c> {
    /// Returns `None` if the heads of the connection's other waiting requests are too large.
    fn of(request: &http::Request<Incoming>, connection: &'c ConnectionState) -> Option<Self> {
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| HEADER_BYTES + name.as_str().len() + value.len());
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let bytes = path + headers.sum::<usize>();
        let all = connection.waiting_heads.get() + bytes;
        if all > MAX_WAITING_HEADS {
            return None;
        }
        connection.waiting_heads.set(all);
        Some(Self { connection, bytes })
    }
}

impl Drop for WaitingHead<'_> {
    fn drop(&mut self) {
        let all = &self.connection.waiting_heads;
        all.set(all.get().saturating_sub(self.bytes));
    }
}

impl From<StatusError> for RequestError {
    fn from(failure: StatusError) -> Self {
        Self::Status(failure)
    }
}

fn has_unknown_encoding(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    encodings.next().is_some_and(|first| !is_chunked(first)) || encodings.next().is_some()
}

/// Whether a body ends without a byte, so that a chunked body without bytes counts as no body.
/// Reads the body up to its first byte.
async fn is_empty(body: &mut Incoming) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.map_or(true, |frame| frame.data_ref().is_some_and(|data| !data.is_empty())) {
            return false;
        }
    }
    true
}

fn has_upgrade(request: &http::Request<Incoming>) -> bool {
    let values = |name| request.headers().get_all(name).iter().map(|value| value.to_str());
    let options = values(CONNECTION).flatten().flat_map(|value| value.split(','));
    // kubewarm accepts only one `Upgrade` header. With several headers, kubewarm and the API server
    // could select different protocols.
    let mut protocols = values(UPGRADE);
    let protocol = protocols.next().and_then(Result::ok).filter(|_| protocols.next().is_none());
    request.version() == Version::HTTP_11
        && options.map(str::trim).any(|option| option.eq_ignore_ascii_case("upgrade"))
        && protocol.is_some_and(|protocol| {
            PROTOCOLS.iter().any(|known| protocol.eq_ignore_ascii_case(known))
        })
}

impl ResponseBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + 'static,
    {
        Self {
            body: Box::pin(body.map_err(Into::into)),
            left: Bytes::new(),
            permit: None,
            wait: None,
            unwritten: Arc::default(),
        }
    }

    /// A response body that sends each item of the stream `pieces` as soon as the stream produces
    /// the item.
    pub(super) fn streamed<E: Into<BoxError> + 'static>(
        pieces: impl Stream<Item = Result<Bytes, E>> + 'static,
    ) -> Self {
        Self::new(StreamBody::new(pieces.map_ok(Frame::data)))
    }

    /// Holds `permit`, the permit of the request, until the connection has written the response. A
    /// response without a permit shows that kubewarm rejected the request, and that perhaps no
    /// handler has read the request's body. kubewarm then closes an HTTP/1.1 connection after the
    /// response, so that hyper does not parse the body as the next request.
    pub(super) fn keep(&self, permit: ResponsePermit) {
        self.unwritten.keep(permit);
    }

    /// Adds the bytes of all parts that kubewarm passes to hyper after this call to `counter`.
    pub(super) fn count_bytes(&self, counter: IntCounter) {
        self.unwritten.count_bytes(counter);
    }

    pub(super) fn unwritten(&self) -> &Arc<UnwrittenResponse> {
        &self.unwritten
    }
}

impl<B: Into<Bytes>> From<B> for ResponseBody {
    fn from(whole: B) -> Self {
        Self::new(Full::new(whole.into()))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.left.is_empty() {
            match ready!(self.body.as_mut().poll_frame(context)?) {
                // Drops trailers, which Kubernetes never sends.
                Some(frame) => self.left = frame.into_data().unwrap_or_default(),
                None => return Poll::Ready(None),
            }
            self.wait = self.unwritten.permit(self.left.len());
        }
        if let Some(wait) = &mut self.wait {
            self.permit = ready!(wait.poll_unpin(context)).map(Arc::new);
            self.wait = None;
        }
        // hyper's HTTP/2 connection buffers every part that kubewarm passes to it, even if the
        // client reads nothing. Small parts limit that buffer.
        let most = self.left.len().min(PART_BYTES);
        let part = self.left.split_to(most);
        let permit = if self.left.is_empty() { self.permit.take() } else { self.permit.clone() };
        Poll::Ready(Some(Ok(Frame::data(self.unwritten.part(part, self.left.len(), permit)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.left.len() as u64;
        let rest = self.body.size_hint().exact();
        rest.map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes + left))
    }
}
