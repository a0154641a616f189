//! A request on its way to a handler, and the answer on its way back.

use super::{
    connection::ConnectionState,
    unwritten::{PermitWait, ResponsePermit, Unwritten},
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
use kubewarm_wire::Failure;
use prometheus::IntCounter;
use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tower::BoxError;

/// The protocols of exec, attach and port-forward. Any other could turn what follows into requests that
/// nobody looks at.
const PROTOCOLS: [&str; 2] = ["websocket", "spdy/3.1"];

/// A request, as handlers have it.
pub(super) struct Request {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// The connection itself, if the caller asks for another protocol that is known here.
    pub(super) upgrade: Option<OnUpgrade>,
    pub(super) connection: Rc<ConnectionState>,
}

pub(super) type Response = http::Response<ResponseBody>;

/// The body of a response. The connection takes it in parts, which hold the response's permit until they are written.
pub(super) struct ResponseBody {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>,
    /// The rest of the current piece, which the connection has not taken.
    left: Bytes,
    /// The permit of the piece, which its parts share.
    permit: Option<Arc<KeyedPermit>>,
    /// The wait for that permit.
    wait: Option<PermitWait>,
    unwritten: Arc<Unwritten>,
}

impl Request {
    /// `request` of that connection.
    ///
    /// # Errors
    ///
    /// A read that brings a body, and a body whose length two on the way may take for different ones.
    pub(super) fn new(
        mut request: http::Request<Incoming>,
        connection: Rc<ConnectionState>,
    ) -> Result<Self, Failure> {
        if request.headers().contains_key(TRANSFER_ENCODING) {
            return Err(Failure::bad_request("a request here has no Transfer-Encoding"));
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && !request.body().is_end_stream() {
            return Err(Failure::unwanted_body());
        }
        let upgrade = asks_for_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        Ok(Self { head, body, upgrade, connection })
    }
}

fn asks_for_upgrade(request: &http::Request<Incoming>) -> bool {
    let values = |name| request.headers().get_all(name).iter().map(|value| value.to_str());
    let options = values(CONNECTION).flatten().flat_map(|value| value.split(','));
    // One protocol: of several the API server might take another, or none.
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

    /// Pieces, as they come.
    pub(super) fn streamed<E: Into<BoxError> + 'static>(
        pieces: impl Stream<Item = Result<Bytes, E>> + 'static,
    ) -> Self {
        Self::new(StreamBody::new(pieces.map_ok(Frame::data)))
    }

    /// Keeps `permit` until the response is written. A handler that keeps none has not read the request's body.
    pub(super) fn keep(&self, permit: ResponsePermit) {
        self.unwritten.keep(permit);
    }

    /// Adds the bytes that the connection takes from now on to `counter`.
    pub(super) fn count_bytes(&self, counter: IntCounter) {
        self.unwritten.count_bytes(counter);
    }

    pub(super) fn unwritten(&self) -> &Arc<Unwritten> {
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
                // Trailers, of which Kubernetes has none, end here.
                Some(frame) => self.left = frame.into_data().unwrap_or_default(),
                None => return Poll::Ready(None),
            }
            self.wait = self.unwritten.permit(self.left.len());
        }
        if let Some(wait) = &mut self.wait {
            self.permit = ready!(wait.poll_unpin(context)).map(Arc::new);
            self.wait = None;
        }
        // HTTP/2 takes all of what it is handed, whatever the other end takes of it.
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
