//! A request on its way to a handler, and the answer on its way back, as the connection has them.

use super::{
    answer::failure,
    unwritten::{PermitWait, Unwritten},
};
use crate::reads::PART_BYTES;
use actix_http::body::{BodySize, BoxBody, MessageBody as _};
use actix_web::{HttpResponse, http::header};
use bytes::Bytes;
use hyper::{
    Version,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONNECTION, UPGRADE},
    upgrade::OnUpgrade,
};
use kubewarm_wire::Failure;
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// What a request brings beside its head: for handlers that send it on.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) body: Incoming,
    /// The connection itself, if the caller asks for another protocol that is known here.
    pub(super) upgrade: Option<OnUpgrade>,
}

/// The protocols of exec, attach and port-forward. Any other could turn what follows into requests that
/// nobody looks at.
const PROTOCOLS: [&str; 2] = ["websocket", "spdy/3.1"];

/// What the connection itself refuses: as a Status, so that clients make an error of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A read that brings a body.
    Body,
    /// A body whose length two on the way may take for different ones.
    Chunked,
    /// What no request says.
    Malformed,
}

/// An answer. Its parts hold what it takes up until they are written.
pub(super) struct Answer {
    body: BoxBody,
    is_empty: bool,
    /// Of a piece of it, what has not been handed on.
    left: Bytes,
    /// Until the next part of that may be handed on.
    wait: Option<PermitWait>,
    unwritten: Arc<Unwritten>,
}

/// `request` as handlers have it: its head, without what is said in headers of `proxy`.
///
/// # Errors
///
/// The reason not to look at it.
pub(super) fn request(
    request: &hyper::Request<Incoming>,
    peer: SocketAddr,
) -> Result<actix_http::Request, Refusal> {
    if request.headers().contains_key(hyper::header::TRANSFER_ENCODING) {
        return Err(Refusal::Chunked);
    }
    let is_read = matches!(*request.method(), hyper::Method::GET | hyper::Method::HEAD);
    if is_read && !request.body().is_end_stream() {
        return Err(Refusal::Body);
    }
    let mut asked = actix_http::Request::new();
    let head = asked.head_mut();
    head.method = request.method().as_str().parse().map_err(|_| Refusal::Malformed)?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse().map_err(|_| Refusal::Malformed)?;
    head.peer_addr = Some(peer);
    for (name, value) in request.headers() {
        let name = header::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = header::HeaderValue::from_bytes(value.as_bytes());
        let (Ok(name), Ok(value)) = (name, value) else { return Err(Refusal::Malformed) };
        head.headers.append(name, value);
    }
    Ok(asked)
}

/// What is left of `request`.
pub(super) fn brought(mut request: hyper::Request<Incoming>) -> Brought {
    let upgrade = asks_for_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
    Brought { body: request.into_body(), upgrade }
}

fn asks_for_upgrade(request: &hyper::Request<Incoming>) -> bool {
    let values = |name| request.headers().get_all(name).iter().map(|value| value.to_str());
    let options = values(CONNECTION).flatten().flat_map(|value| value.split(','));
    // One protocol: of several the API server might take another, or none.
    let mut protocols = values(UPGRADE);
    let protocol = protocols.next().and_then(Result::ok).filter(|_| protocols.next().is_none());
    request.version() == Version::HTTP_11
        && options.map(str::trim).any(|option| option.eq_ignore_ascii_case("upgrade"))
        && protocol.is_some_and(|it| PROTOCOLS.iter().any(|known| it.eq_ignore_ascii_case(known)))
}

/// `response` as the connection has it.
pub(super) fn answer(response: HttpResponse, unwritten: Arc<Unwritten>) -> hyper::Response<Answer> {
    let (head, body) = response.into_parts();
    let is_empty = matches!(body.size(), BodySize::None | BodySize::Sized(0));
    let answer = Answer { body, is_empty, left: Bytes::new(), wait: None, unwritten };
    let mut answer = hyper::Response::new(answer);
    // Both libraries take the same codes and headers.
    if let Ok(code) = hyper::StatusCode::from_u16(head.status().as_u16()) {
        *answer.status_mut() = code;
    }
    for (name, value) in head.headers() {
        let name = hyper::header::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = hyper::header::HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

impl Refusal {
    /// What to answer.
    pub(super) fn response(self) -> HttpResponse {
        failure(&match self {
            Self::Body => Failure::unwanted_body(),
            Self::Chunked => Failure::bad_request("a request here has no Transfer-Encoding"),
            Self::Malformed => Failure::bad_request("the request cannot be read"),
        })
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while self.left.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(context)) {
                Some(Ok(piece)) => self.left = piece,
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(io::Error::other(error.to_string()))));
                }
                None => return Poll::Ready(None),
            }
        }
        // HTTP/2 takes all of what it is handed, whatever the other end takes of it.
        let most = self.left.len().min(PART_BYTES);
        let permit = match self.wait.take().map_or_else(|| self.unwritten.permit(most), Err) {
            Ok(permit) => permit,
            Err(mut wait) => match wait.as_mut().poll(context) {
                Poll::Ready(permit) => permit,
                Poll::Pending => {
                    self.wait = Some(wait);
                    return Poll::Pending;
                }
            },
        };
        let part = self.left.split_to(most);
        Poll::Ready(Some(Ok(Frame::data(self.unwritten.part(part, permit)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size() {
            BodySize::None => SizeHint::with_exact(0),
            BodySize::Sized(bytes) => SizeHint::with_exact(bytes + self.left.len() as u64),
            BodySize::Stream => SizeHint::default(),
        }
    }
}
