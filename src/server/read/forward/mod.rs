//! `--forward`: what is not served here goes to the API server, as the caller sent it and with the caller's
//! own token, and its answer comes back.

mod headers;
mod piece;
#[cfg(test)]
mod tests;

use self::{
    headers::Sender,
    piece::{Limited, Overflow, Passed},
};
use super::{
    body::{Brought, PlaceOfItsOwn},
    newcomers::introduce,
    tunnel::Tunnel,
};
use crate::{
    callers::{Callers, SentOn},
    cluster::{NotSent, Piped, Upstream},
    model::ResourceVersion,
    wire::{Encoding, Failure, Onward, Written, version_of},
};
use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    http::{StatusCode, header as asked},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};
use tower::BoxError;

/// Until the head of an answer: the API server itself gives up after a minute.
const HEAD: Duration = Duration::from_secs(75);
/// Of a request's body. The API server takes 3 MiB of an object; what goes on to a pod may be more.
const MOST: u64 = 16 << 20;
/// Bytes of an answer to a write that its version is looked for in: no object in etcd is larger.
const LOOKED_AT: usize = 2 << 20;
/// How many of them are held at once.
const LOOKS: usize = 16;

/// What is known after a write: its version, and of what.
pub type Wrote = Box<dyn Fn(Written, ResourceVersion) + Send + Sync>;

/// Sends requests on to the API server.
pub struct Forward {
    upstream: Upstream,
    wrote: Wrote,
    looks: Semaphore,
}

impl Forward {
    /// To `upstream`; `wrote` is told before the writer is.
    #[must_use]
    pub fn new(upstream: Upstream, wrote: Wrote) -> Self {
        Self { upstream, wrote, looks: Semaphore::new(LOOKS) }
    }

    /// Sends `request` on, whatever it asks for.
    ///
    /// # Errors
    ///
    /// 400 and 405 for what no API is asked; 403 `CannotForward` without a bearer token; 413; 429; 503 and 504
    /// if the API server is away.
    pub(super) async fn send(
        &self,
        request: &HttpRequest,
        callers: &Callers,
    ) -> Result<HttpResponse, Failure> {
        let brought = request.extensions_mut().remove::<Brought>();
        let Some(Brought { body, upgrade }) = brought else {
            return Err(Failure::internal("the request has been taken already"));
        };
        let Onward { path, writes, needs_rights } =
            Onward::parse(request.method().as_str(), request.uri().path())?;
        let sender = Sender::of(request.headers(), upgrade.is_some())?;
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.ip());
        let token = sender.token().as_bytes();
        let place = callers.send_on(token, peer).map_err(|_| Failure::too_many_requests(1))?;
        let flags = (upgrade.is_some(), writes.is_some());
        let headers = headers::onward(request.headers(), &sender, peer, flags)?;
        let (sent, overflow) = onward(request, path, headers, body)?;
        let answer = timeout(HEAD, self.upstream.send(sent)).await;
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
        if needs_rights && is_for_who_is_known(answer.status()) {
            introduce(request, || callers.connection_sent_on(token));
        }
        if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            return self.passed(answer, writes, place).await;
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
        place: SentOn,
    ) -> Result<HttpResponse, Failure> {
        let (head, mut body) = answer.into_parts();
        let size = body.size_hint().exact();
        let mut first = Bytes::new();
        if let Some(written) = writes.filter(|_| head.status.is_success())
            && let Some(encoding) = encoding(&head.headers)
        {
            // Never closed.
            let _look = self.looks.acquire().await;
            let looked = timeout(HEAD, beginning(&mut body)).await;
            first = looked.ok().and_then(Result::ok).ok_or_else(Failure::unanswered)?;
            if let Some(version) = version_of(&first, encoding) {
                (self.wrote)(written, version);
            }
        }
        let mut response =
            HttpResponse::with_body(code(head.status), Passed { first, body, size, _place: place });
        copy(head.headers, &mut response);
        response.extensions_mut().insert(PlaceOfItsOwn);
        Ok(response.map_into_boxed_body())
    }
}

/// Whether the API server must have known who calls, and let them: of some requests it refuses what they say before
/// it looks at who says it.
fn is_for_who_is_known(status: http::StatusCode) -> bool {
    status.is_success() || status == http::StatusCode::SWITCHING_PROTOCOLS
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
fn tunnelled(mut answer: Response<Incoming>, caller: OnUpgrade, place: SentOn) -> HttpResponse {
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
    response.extensions_mut().insert(PlaceOfItsOwn);
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

/// The whole of a body, or so much of it that its metadata is there.
async fn beginning(body: &mut Incoming) -> hyper::Result<Bytes> {
    let mut first = BytesMut::new();
    while first.len() < LOOKED_AT
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            first.extend_from_slice(&data);
        }
    }
    Ok(first.freeze())
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
