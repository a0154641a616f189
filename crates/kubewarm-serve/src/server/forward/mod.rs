//! `--forward`: what is not served here goes to the API server, as the caller sent it and with the caller's
//! own token, and its answer comes back.

mod headers;
mod look;
mod piece;
#[cfg(test)]
mod tests;

use self::{
    headers::Sender,
    look::{Looked, Looks},
    piece::{Limited, Overflow, Passed},
};
use super::{
    api::refusal, body::Brought, counted::accept, tunnel::Tunnel, unwritten::ResponsePermit,
};
use crate::callers::{Callers, UserPermits};
use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    body::MessageBody,
    http::{StatusCode, header as asked},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use kubewarm_api::model::ResourceVersion;
use kubewarm_client::KeyedPermit;
use kubewarm_client::{NotSent, Piped, Upstream};
use kubewarm_wire::{Encoding, Failure, Onward, Written};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use tokio::time::timeout;
use tower::BoxError;

/// Until the head of an answer: the API server itself gives up after a minute.
const HEAD: Duration = Duration::from_secs(75);
/// A refusal that is no longer keeps no place while it is sent: whoever is refused must not keep others out.
const SHORT: u64 = 1 << 10;
/// Of a request's body. The API server takes 3 MiB of an object; what goes on to a pod may be more.
const MOST: u64 = 16 << 20;

/// What is known after a write: its version, and of what.
pub type Wrote = Box<dyn Fn(Written, ResourceVersion) + Send + Sync>;

/// Sends requests on to the API server.
pub struct Forward {
    upstream: Upstream,
    wrote: Wrote,
    looks: Looks,
}

impl Forward {
    /// To `upstream`; `wrote` is told before the writer is.
    #[must_use]
    pub fn new(upstream: Upstream, wrote: Wrote) -> Self {
        Self { upstream, wrote, looks: Looks::default() }
    }

    /// Sends `request` on, whatever it asks for.
    ///
    /// # Errors
    ///
    /// 400 and 405 for what no API is asked; 403 `CannotForward` without a bearer token, and 401 for one that the API
    /// server does not accept; 413; 429; 503 and 504 if the API server is away.
    pub(super) async fn send(
        &self,
        request: &HttpRequest,
        callers: &Callers,
    ) -> Result<HttpResponse, Failure> {
        let brought = request.extensions_mut().remove::<Brought>();
        let Some(Brought { body, upgrade }) = brought else {
            return Err(Failure::internal("the request has been taken already"));
        };
        let Onward { path, writes, lasts } =
            Onward::parse(request.method().as_str(), request.uri().path(), request.uri().query())?;
        let sender = Sender::of(request.headers(), upgrade.is_some())?;
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.ip());
        // Nobody whom the API server does not know makes it do, or this process hold, anything more.
        let forwarded = callers.forward(&sender.credentials(), peer).await;
        let (authentication, place) = forwarded.map_err(refusal)?;
        accept(request, || callers.connection(&authentication));
        let flags = (upgrade.is_some(), writes.is_some());
        let headers = headers::onward(request.headers(), &sender, peer, flags)?;
        let (sent, overflow) = onward(request, path, headers, body)?;
        let answering = self.upstream.send(sent);
        let answer = if lasts { Ok(answering.await) } else { timeout(HEAD, answering).await };
        let answer = answer.map_err(|_| Failure::unanswered())?.map_err(|not| {
            if overflow.has_happened() {
                return Failure::too_large_body(MOST);
            }
            match not {
                NotSent::Unconnected(fault) => {
                    tracing::debug!(%fault, "the API server cannot be reached");
                    Failure::unreachable()
                }
                NotSent::Unanswered(fault) => {
                    tracing::debug!(%fault, "the API server did not answer");
                    Failure::unanswered()
                }
            }
        })?;
        if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let bytes = callers.unwritten(&authentication);
            return self.passed(answer, writes, (place, bytes)).await;
        }
        let Some(caller) = upgrade else {
            return Err(Failure::unanswered());
        };
        Ok(tunnelled(answer, caller, place))
    }

    /// The answer as it comes. Of a write it is looked at first.
    async fn passed(
        &self,
        answer: Response<Incoming>,
        writes: Option<Written>,
        (place, bytes): (KeyedPermit, UserPermits),
    ) -> Result<HttpResponse, Failure> {
        let (head, mut body) = answer.into_parts();
        let size = body.size_hint().exact();
        if head.status.is_client_error() && size.is_some_and(|size| size <= SHORT) {
            // Whoever is refused, and does not take that, keeps no place.
            let said = timeout(HEAD, body.collect()).await.ok().and_then(Result::ok);
            let said = said.ok_or_else(Failure::unanswered)?.to_bytes();
            drop(place);
            let response = HttpResponse::with_body(code(head.status), said);
            return Ok(passed_on(response, head.headers, ResponsePermit::nothing()));
        }
        let (mut first, mut room) = (Bytes::new(), None);
        if let Some(written) = writes.filter(|_| head.status.is_success())
            && let Some(encoding) = encoding(&head.headers)
        {
            let looked = timeout(HEAD, self.looks.look(&mut body, encoding)).await;
            let looked = looked.ok().and_then(Result::ok).ok_or_else(Failure::unanswered)?;
            if let Some(version) = looked.version {
                (self.wrote)(written, version);
            }
            Looked { first, room, .. } = looked;
        }
        let response = HttpResponse::with_body(code(head.status), Passed { first, body, size });
        Ok(passed_on(response, head.headers, ResponsePermit::lasting((place, room), bytes)))
    }
}

/// The answer with the API server's `headers`, and the `permit` that it keeps until it is written.
fn passed_on<B: MessageBody + 'static>(
    mut response: HttpResponse<B>,
    headers: HeaderMap,
    permit: ResponsePermit,
) -> HttpResponse {
    copy(headers, &mut response);
    response.extensions_mut().insert(permit);
    response.map_into_boxed_body()
}

/// What the API server is sent, and whether its body has turned out to be too large.
fn onward(
    request: &HttpRequest,
    path: &str,
    headers: HeaderMap,
    body: Incoming,
) -> Result<(Request<Piped>, Overflow), Failure> {
    if body.size_hint().lower() > MOST {
        return Err(Failure::too_large_body(MOST));
    }
    let query = request.uri().query();
    let uri = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let unreadable = || Failure::bad_request("the request cannot be sent on");
    let overflow = Overflow::default();
    let body = Limited::new(body, MOST, overflow.clone());
    let mut sent = Request::new(body.map_err(BoxError::from).boxed_unsync());
    let method = request.method().as_str();
    *sent.method_mut() = method.parse().map_err(|_| unreadable())?;
    *sent.uri_mut() = uri.parse().map_err(|_| unreadable())?;
    *sent.headers_mut() = headers;
    Ok((sent, overflow))
}

/// The answer that makes a tunnel of the caller's connection, once it has been sent.
fn tunnelled(
    mut answer: Response<Incoming>,
    caller: OnUpgrade,
    place: KeyedPermit,
) -> HttpResponse {
    let upstream = hyper::upgrade::on(&mut answer);
    let mut headers = answer.into_parts().0.headers;
    let protocol = headers.get(header::UPGRADE).cloned();
    headers::without_connection(&mut headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    let mut response = HttpResponse::new(StatusCode::SWITCHING_PROTOCOLS);
    append(&headers, &mut response);
    response.extensions_mut().insert(Tunnel { caller, upstream, place });
    response.extensions_mut().insert(ResponsePermit::nothing());
    response
}

/// What `answer` says, but for what is of its connection.
fn copy<B>(mut headers: HeaderMap, response: &mut HttpResponse<B>) {
    headers::without_connection(&mut headers);
    append(&headers, response);
}

fn append<B>(headers: &HeaderMap, response: &mut HttpResponse<B>) {
    for (name, value) in headers {
        let name = asked::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = asked::HeaderValue::from_bytes(value.as_bytes());
        // Both libraries take the same.
        if let (Ok(name), Ok(value)) = (name, value) {
            response.headers_mut().append(name, value);
        }
    }
}

fn code(status: http::StatusCode) -> StatusCode {
    // Both libraries take the same.
    StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY)
}

fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok().and_then(Encoding::of)
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
