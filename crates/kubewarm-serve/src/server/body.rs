//! A request on its way to a handler, and the answer on its way back, as the connection has them.

use super::{answer::failure, handed::Handed, unwritten::Unwritten};
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
use kubewarm_client::KeyedPermit;
use kubewarm_wire::Failure;
use std::{
    any::Any,
    cell::RefCell,
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// What a request brings beside its head: for handlers that send it on.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) body: Incoming,
    /// The connection itself, if the caller asks for another protocol that is known here.
    pub(super) upgrade: Option<OnUpgrade>,
}

/// The room of a request, for a handler to give back that has found another place for it.
#[derive(Clone, Debug)]
pub(super) struct Room(Rc<RefCell<Option<KeyedPermit>>>);

/// An answer holds this until it is written, if anything, and no room among the requests that are answered here.
#[derive(Debug)]
pub(super) struct PlaceOfItsOwn(pub(super) Option<Box<dyn Any + Send>>);

/// What an answer takes up until it is written.
#[derive(Debug)]
pub(super) enum Taken {
    /// Room among the requests that are answered here.
    Room { _place: KeyedPermit },
    /// What it has taken for itself.
    Own { _place: Option<Box<dyn Any + Send>> },
}

/// The protocols of exec, attach and port-forward. Any other could turn what follows into requests that
/// nobody looks at.
const PROTOCOLS: [&str; 2] = ["websocket", "spdy/3.1"];

/// What the connection itself refuses: as a Status, so that clients make an error of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// More requests than there is room for.
    Busy,
    /// A read that brings a body.
    Body,
    /// A body whose length two on the way may take for different ones.
    Chunked,
    /// What no request says.
    Malformed,
}

/// A refusal that is no longer keeps no room while it is sent: whoever is refused must not keep others out.
pub(super) const SHORT: u64 = 1 << 10;

/// An answer, and what it takes up until it is written.
pub(super) struct Answer {
    body: BoxBody,
    is_empty: bool,
    /// Of a piece of it, what has not been handed on.
    left: Bytes,
    /// The piece behind that, if it has come.
    next: Option<Bytes>,
    is_ended: bool,
    handed: Rc<Handed>,
    unwritten: Unwritten,
    taken: Option<Taken>,
    /// Whether the protocol asks for more of it only as far as the other end takes it.
    is_h2: bool,
}

impl Room {
    pub(super) fn of(place: KeyedPermit) -> Self {
        Self(Rc::new(RefCell::new(Some(place))))
    }

    /// Leaves it to another request.
    pub(super) fn give_back(&self) {
        drop(self.take());
    }

    /// What has not been given back.
    pub(super) fn take(&self) -> Option<KeyedPermit> {
        self.0.borrow_mut().take()
    }
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

/// `response` as the connection has it, which is HTTP/2 or not. What is `taken` is given back when it is written; of a
/// short refusal now.
pub(super) fn answer(
    response: HttpResponse,
    (handed, unwritten, is_h2): (Rc<Handed>, Unwritten, bool),
    taken: Option<Taken>,
) -> hyper::Response<Answer> {
    let (head, body) = response.into_parts();
    let is_refusal = head.status().is_client_error() || head.status().is_server_error();
    let is_short = matches!(body.size(), BodySize::None | BodySize::Sized(..=SHORT));
    let taken = taken.filter(|_| !(is_refusal && is_short));
    let is_empty = matches!(body.size(), BodySize::None | BodySize::Sized(0));
    let (left, next, is_ended) = (Bytes::new(), None, false);
    let answer = Answer { body, is_empty, left, next, is_ended, handed, unwritten, taken, is_h2 };
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
            Self::Busy => Failure::too_many_requests(1),
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
        self.handed.ask();
        while self.left.is_empty() {
            match self.piece(context) {
                Poll::Ready(Some(Ok(piece))) => self.left = piece,
                Poll::Ready(ended) => return Poll::Ready(ended.map(|it| it.map(Frame::data))),
                Poll::Pending => return Poll::Pending,
            }
        }
        // HTTP/2 takes all of what it is handed, whatever the other end takes of it.
        let mut most = self.left.len().min(PART_BYTES);
        if most == self.left.len() && self.next.is_none() {
            // The last byte by itself: HTTP/2 asks for it at once, and keeps this until the rest may be sent.
            if matches!(self.taken, Some(Taken::Room { .. })) {
                match self.piece(context) {
                    Poll::Ready(Some(Ok(piece))) => self.next = Some(piece),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) | Poll::Pending if most > 1 => most -= 1,
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                }
            } else if self.taken.is_some() && self.is_h2 && most > 1 {
                // What comes next may take its time, and this must not wait for it.
                most -= 1;
            }
        }
        let part = self.left.split_to(most);
        self.unwritten.hand(part.len());
        // Others wait for its room.
        self.handed.hand(part.len(), matches!(self.taken, Some(Taken::Room { .. })));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size() {
            BodySize::None => SizeHint::with_exact(0),
            BodySize::Sized(bytes) => {
                let next = self.next.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(bytes + (self.left.len() + next) as u64)
            }
            BodySize::Stream => SizeHint::default(),
        }
    }
}

impl Answer {
    /// The next piece of the body.
    fn piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(piece) = self.next.take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        let piece = ready!(Pin::new(&mut self.body).poll_next(context));
        self.is_ended = piece.is_none();
        Poll::Ready(piece.map(|it| it.map_err(|error| io::Error::other(error.to_string()))))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let is_whole = self.left.is_empty() && self.next.is_none();
        let is_whole = is_whole && (self.is_ended || self.body.size() == BodySize::Sized(0));
        // What the protocol has of another is thrown away.
        if let Some(taken) = self.taken.take().filter(|_| is_whole) {
            self.unwritten.keep(taken);
        }
    }
}
