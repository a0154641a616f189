//! `--forward`: what is not served here goes to the API server, as the caller sent it and with the caller's
//! own token, and its answer comes back.

mod headers;
mod look;
#[cfg(test)]
mod tests;

use self::{headers::Sender, look::Looks};
use super::{
    answer::response,
    api::refusal,
    body::{Request, Response, ResponseBody},
    connection::ConnectionState,
    unwritten::ResponsePermit,
};
use crate::{
    callers::{Callers, UserPermits},
    metrics::ReadMetrics,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use kubewarm_api::model::ResourceVersion;
use kubewarm_client::{KeyedPermit, NotSent, Piped, Upstream};
use kubewarm_wire::{Failure, Onward, Written, has_object};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{io::copy_bidirectional_with_sizes, time::timeout, try_join};

/// Until the head of an answer: the API server itself gives up after a minute.
const HEAD: Duration = Duration::from_secs(75);
/// A refusal that is no longer keeps no place while it is sent: whoever is refused must not keep others out.
const SHORT: u64 = 1 << 10;
/// Of a request's body. The API server takes 3 MiB of an object; what goes on to a pod may be more.
const MOST: usize = 16 << 20;
/// Bytes that a tunnel holds of each direction.
const HELD: usize = 16 << 10;

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
        Request { head, body, upgrade, connection }: Request,
        (callers, metrics): (&Callers, &ReadMetrics),
    ) -> Result<Response, Failure> {
        let Onward { path, writes, lasts } =
            Onward::parse(head.method.as_str(), head.uri.path(), head.uri.query())?;
        let sender = Sender::of(&head.headers, upgrade.is_some())?;
        let peer = connection.peer;
        // Nobody whom the API server does not know makes it do, or this process hold, anything more.
        let forwarded = callers.forward(&sender.credentials(), peer).await;
        let (caller, place) = forwarded.map_err(|refused| {
            metrics.count_refusal(&refused);
            refusal(refused)
        })?;
        connection.accept(|| callers.connection(&caller));
        let flags = (upgrade.is_some(), writes.is_some());
        let headers = headers::onward(&head.headers, &sender, peer, flags)?;
        let (sent, is_too_large) = onward(&head, path, headers, body)?;
        let answering = self.upstream.send(sent);
        let answer = if lasts { Ok(answering.await) } else { timeout(HEAD, answering).await };
        let answer = answer.map_err(|_| Failure::unanswered())?.map_err(|not| {
            if is_too_large.load(Ordering::Relaxed) {
                return Failure::too_large_body(MOST as u64);
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
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let bytes = callers.unwritten(&caller);
            return self.passed(answer, writes, (place, bytes)).await;
        }
        let Some(upgrade) = upgrade else {
            return Err(Failure::unanswered());
        };
        Ok(tunnelled(answer, upgrade, place, &connection))
    }

    /// The answer as it comes. Of a write it is looked at first.
    async fn passed(
        &self,
        answer: http::Response<Incoming>,
        writes: Option<Written>,
        (place, bytes): (KeyedPermit, UserPermits),
    ) -> Result<Response, Failure> {
        let (mut head, mut body) = answer.into_parts();
        headers::without_connection(&mut head.headers);
        let size = body.size_hint().exact();
        if head.status.is_client_error() && size.is_some_and(|size| size <= SHORT) {
            // Whoever is refused, and does not take that, keeps no place.
            let said = timeout(HEAD, body.collect()).await.ok().and_then(Result::ok);
            let said = said.ok_or_else(Failure::unanswered)?.to_bytes();
            drop(place);
            let body = ResponseBody::from(said);
            body.keep(ResponsePermit::nothing());
            return Ok(response(head.status, head.headers, body));
        }
        let (mut first, mut room) = (Bytes::new(), None);
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if let Some(written) = writes.filter(|_| head.status.is_success())
            && content_type.is_some_and(has_object)
        {
            let found = |version| (self.wrote)(written, version);
            let looked = timeout(HEAD, self.looks.look(&mut body, found)).await;
            (first, room) = looked.ok().and_then(Result::ok).ok_or_else(Failure::unanswered)?;
        }
        let body = if first.is_empty() {
            ResponseBody::new(body)
        } else {
            ResponseBody::streamed(stream::iter([Ok(first)]).chain(body.into_data_stream()))
        };
        body.keep(ResponsePermit::lasting((place, room), bytes));
        Ok(response(head.status, head.headers, body))
    }
}

/// What the API server is sent, and whether its body has turned out to be too large.
fn onward(
    head: &Parts,
    path: &str,
    headers: HeaderMap,
    body: Incoming,
) -> Result<(http::Request<Piped>, Arc<AtomicBool>), Failure> {
    if body.size_hint().lower() > MOST as u64 {
        return Err(Failure::too_large_body(MOST as u64));
    }
    let uri = head.uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let uri = uri.parse().map_err(|_| Failure::bad_request("the request cannot be sent on"))?;
    let is_too_large = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_too_large);
    let body = Limited::new(body, MOST).map_err(move |error| {
        noted.fetch_or(error.is::<LengthLimitError>(), Ordering::Relaxed);
        error
    });
    let mut sent = http::Request::new(body.boxed_unsync());
    *sent.method_mut() = head.method.clone();
    *sent.uri_mut() = uri;
    *sent.headers_mut() = headers;
    Ok((sent, is_too_large))
}

/// The answer that makes a tunnel of the caller's connection, once it has been sent.
fn tunnelled(
    mut answer: http::Response<Incoming>,
    caller: OnUpgrade,
    place: KeyedPermit,
    connection: &ConnectionState,
) -> Response {
    let upstream = hyper::upgrade::on(&mut answer);
    let mut headers = answer.into_parts().0.headers;
    let protocol = headers.get(header::UPGRADE).cloned();
    headers::without_connection(&mut headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    connection.tunnel.set(Some(Box::pin(carry(caller, upstream, place))));
    let body = ResponseBody::from(Bytes::new());
    body.keep(ResponsePermit::nothing());
    response(StatusCode::SWITCHING_PROTOCOLS, headers, body)
}

/// Copies bytes both ways, once both ends have switched protocols, until either end closes. Holds the caller's slot.
async fn carry(caller: OnUpgrade, upstream: OnUpgrade, _slot: KeyedPermit) {
    // An end that is gone: nobody is left to answer.
    let Ok((caller, upstream)) = try_join!(caller, upstream) else { return };
    let (mut caller, mut upstream) = (TokioIo::new(caller), TokioIo::new(upstream));
    let _ended = copy_bidirectional_with_sizes(&mut caller, &mut upstream, HELD, HELD).await;
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
