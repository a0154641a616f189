//! Requests of the read server, and response bodies that hold permits until they are written.

use super::{
    connection::ConnectionState,
    pending_response::{PendingResponse, PermitWait, ResponsePermit},
};
use crate::reads::PART_BYTES;
use bytes::Bytes;
use futures::{FutureExt as _, Stream, TryStreamExt as _};
use http::{
    Method, Version,
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
};
use tower::BoxError;

/// The protocols of exec, attach and port-forward. With any other protocol, the following bytes could be
/// requests that bypass kubewarm's checks.
const PROTOCOLS: [&str; 2] = ["websocket", "spdy/3.1"];

/// A request as handlers receive it.
pub(super) struct IncomingRequest {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// The connection after a switch of protocols, if the request asks for one of `PROTOCOLS`.
    pub(super) upgrade: Option<OnUpgrade>,
    pub(super) connection: Rc<ConnectionState>,
}

pub(super) type OutgoingResponse = http::Response<ResponseBody>;

/// A response body. The connection takes it in parts, and each part holds the response's permit until it is
/// written.
pub(super) struct ResponseBody {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>,
    /// The rest of the current piece, which the connection has not taken yet.
    left: Bytes,
    /// The permit for the bytes of the current piece. Its parts share the permit.
    permit: Option<Arc<KeyedPermit>>,
    /// The wait for that permit.
    wait: Option<PermitWait>,
    unwritten: Arc<PendingResponse>,
}

impl IncomingRequest {
    /// Accepts a request of `connection`.
    ///
    /// # Errors
    ///
    /// - 400 for `Transfer-Encoding`: proxies can disagree about where such a body ends
    /// - 413 for a GET or HEAD with a body
    pub(super) fn new(
        mut request: http::Request<Incoming>,
        connection: Rc<ConnectionState>,
    ) -> Result<Self, StatusError> {
        if request.headers().contains_key(TRANSFER_ENCODING) {
            return Err(StatusError::bad_request("a request here has no Transfer-Encoding"));
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && !request.body().is_end_stream() {
            return Err(StatusError::unwanted_body());
        }
        let upgrade = has_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        Ok(Self { head, body, upgrade, connection })
    }
}

fn has_upgrade(request: &http::Request<Incoming>) -> bool {
    let values = |name| request.headers().get_all(name).iter().map(|value| value.to_str());
    let options = values(CONNECTION).flatten().flat_map(|value| value.split(','));
    // Only one protocol, because the API server could select another one of several.
    let mut protocols = values(UPGRADE);
    let protocol = protocols.next().and_then(Result::ok).filter(|_| protocols.next().is_none());
    request.version() == Version::HTTP_11
        && options.map(str::trim).any(|option| option.eq_ignore_ascii_case("upgrade"))
        && protocol.is_some_and(|it| PROTOCOLS.iter().any(|known| it.eq_ignore_ascii_case(known)))
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

    /// A body that is sent piece by piece, as `pieces` produces them.
    pub(super) fn streamed<E: Into<BoxError> + 'static>(
        pieces: impl Stream<Item = Result<Bytes, E>> + 'static,
    ) -> Self {
        Self::new(StreamBody::new(pieces.map_ok(Frame::data)))
    }

    /// Holds `permit` until the response is written. A response without a permit shows that its handler has not
    /// read the request's body.
    pub(super) fn keep(&self, permit: ResponsePermit) {
        self.unwritten.keep(permit);
    }

    /// Adds the bytes that the connection takes from now on to `counter`.
    pub(super) fn count_bytes(&self, counter: IntCounter) {
        self.unwritten.count_bytes(counter);
    }

    pub(super) fn unwritten(&self) -> &Arc<PendingResponse> {
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
                // Trailers are dropped. Kubernetes sends none.
                Some(frame) => self.left = frame.into_data().unwrap_or_default(),
                None => return Poll::Ready(None),
            }
            self.wait = self.unwritten.permit(self.left.len());
        }
        if let Some(wait) = &mut self.wait {
            self.permit = ready!(wait.poll_unpin(context)).map(Arc::new);
            self.wait = None;
        }
        // The HTTP/2 library buffers all bytes that it receives, even if the client reads none. Small parts
        // limit that buffer.
        let most = self.left.len().min(PART_BYTES);
        let part = self.left.split_to(most);
        let permit = if self.left.is_empty() { self.permit.take() } else { self.permit.clone() };
        Poll::Ready(Some(Ok(Frame::data(self.unwritten.part(part, permit)))))
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
