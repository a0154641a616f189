//! One connection, from the handshake to its end: however it is used, or not used, it ends.

use super::{
    body::{Answer, Refusal, answer, brought, request},
    counted::ConnectionCount,
    identity::{Authority, Chain},
    listen::Limits,
    tunnel::Tunnel,
    unwritten::{ResponsePermit, Unwritten},
};
use crate::{
    callers::Shown,
    metrics::{CacheUse, Handler, Method, ReadMetrics},
};
use actix_http::Request;
use actix_web::{
    HttpMessage as _, HttpResponse,
    dev::{Service, ServiceResponse},
};
use hyper::{
    Version,
    body::{Body as _, Incoming},
    header::{CONNECTION, HeaderValue},
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    select,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// What all connections of one thread share.
pub(super) struct Shared<S> {
    pub(super) tls: TlsAcceptor,
    /// Whose certificates count, if any do.
    pub(super) authority: Option<Arc<Authority>>,
    pub(super) service: S,
    pub(super) limits: Limits,
    /// Of what is refused before any handler has it.
    pub(super) metrics: ReadMetrics,
    pub(super) stop: CancellationToken,
}

/// What is known of a connection besides its bytes.
struct Life {
    since: Instant,
    /// When a request was last under way.
    used: Cell<Option<Instant>>,
    /// Those under way: as many as the protocol allows, and those that have ended since the last look.
    answers: RefCell<Vec<Weak<Unwritten>>>,
    /// What the connection is from now on: it is HTTP/1.1, and its last answer was 101.
    tunnel: Cell<Option<Tunnel>>,
    /// What it is counted by.
    counted: ConnectionCount,
    /// What the other end has shown of itself in the handshake.
    shown: Option<Shown>,
}

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Something is asked and answered.
    Busy,
    /// Nothing is, for a time that clients may leave a connection alone.
    Quiet,
    /// Nothing is, for longer; or no request was accepted in time.
    Idle,
    /// The other end does not take what it has asked for, or too slowly.
    Stalled,
}

/// On this thread: handlers stay where they began.
#[derive(Clone, Copy, Debug)]
struct Here;

impl<F: Future + 'static> Executor<F> for Here {
    fn execute(&self, future: F) {
        // Detached: it ends with its stream, and that with the connection.
        drop(tokio::task::spawn_local(future));
    }
}

/// Serves `stream` until it ends or must.
pub(super) async fn converse<S>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Rc<Shared<S>>,
    counted: ConnectionCount,
) where
    S: Service<Request, Response = ServiceResponse, Error = actix_web::Error> + 'static,
    S::Future: 'static,
{
    let limits = shared.limits;
    // Small answers must not wait for the ones before them to be acknowledged.
    let _set = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(limits.head, shared.tls.accept(stream)).await else { return };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let shown = shared.authority.as_ref().zip(stream.get_ref().1.peer_certificates());
    let shown = shown.map(|(authority, chain)| {
        let chain = Chain::new(chain, Arc::clone(authority));
        Shown(Arc::new(move || chain.user()))
    });
    let life = Rc::new(Life { counted, shown, ..Life::new() });
    let io = TokioIo::new(stream);
    let (own, stop) = (Rc::clone(&life), shared.stop.clone());
    let service =
        service_fn(move |asked| respond(asked, peer, Rc::clone(&shared), Rc::clone(&own)));
    if is_h2 {
        let connection = http2::Builder::new(Here)
            .timer(TokioTimer::new())
            .max_header_list_size(limits.head_bytes)
            .max_concurrent_streams(limits.streams)
            // Of bodies, which are read only to be sent on.
            .initial_stream_window_size(limits.head_bytes)
            .initial_connection_window_size(limits.head_bytes)
            .max_send_buf_size(limits.sent_bytes)
            .keep_alive_interval(limits.head)
            .keep_alive_timeout(limits.head)
            .serve_connection(io, service);
        until_it_ends(connection, http2::Connection::graceful_shutdown, &life, limits, &stop).await;
    } else {
        let head_bytes = limits.head_bytes as usize;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_header_size(head_bytes)
            .max_buf_size(head_bytes)
            .serve_connection(io, service)
            .with_upgrades();
        let finish = http1::UpgradeableConnection::graceful_shutdown;
        until_it_ends(connection, finish, &life, limits, &stop).await;
        if let Some(tunnel) = life.tunnel.take() {
            tunnel.carry().await;
        }
    }
}

async fn respond<S>(
    asked: hyper::Request<Incoming>,
    peer: SocketAddr,
    shared: Rc<Shared<S>>,
    life: Rc<Life>,
) -> Result<hyper::Response<Answer>, Infallible>
where
    S: Service<Request, Response = ServiceResponse, Error = actix_web::Error>,
{
    let is_h2 = asked.version() >= Version::HTTP_2;
    let unwritten = life.begin();
    let method = if asked.method() == hyper::Method::GET { Method::Get } else { Method::Other };
    // At once, and by no handler, which would count it.
    let refused = |refusal: Refusal| {
        let response = refusal.response();
        let code = response.status().as_u16();
        shared.metrics.answered((Handler::Other, method), code, CacheUse::Miss, Duration::ZERO);
        response
    };
    // What is left of a body must not be waited for, nor taken for another request.
    let has_body = !is_h2 && !asked.body().is_end_stream();
    let mut response = match request(&asked, peer) {
        Ok(request) => {
            if let Some(shown) = life.shown.clone() {
                request.extensions_mut().insert(shown);
            }
            // Dropped with the request, unless a handler takes it.
            request.extensions_mut().insert(brought(asked));
            request.extensions_mut().insert(life.counted.clone());
            match shared.service.call(request).await {
                Ok(response) => response.into_parts().1,
                Err(error) => HttpResponse::from_error(error),
            }
        }
        Err(refusal) => refused(refusal),
    };
    let tunnel = response.extensions_mut().remove::<Tunnel>();
    let permit = response.extensions_mut().remove::<ResponsePermit>();
    let is_read = permit.is_some();
    if let Some(permit) = permit {
        unwritten.keep(permit);
    }
    let mut answer = answer(response, unwritten);
    if tunnel.is_some() {
        life.tunnel.set(tunnel);
    } else if has_body && !is_read {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

/// Runs `connection`, and looks after it. It is told to finish when it has been idle for too long and at
/// `stop`, and dropped when it stalls or does not finish.
async fn until_it_ends<C: Future>(
    connection: C,
    finish: fn(Pin<&mut C>),
    life: &Life,
    limits: Limits,
    stop: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let mut look = interval(limits.look);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut finishing = None;
    loop {
        select! {
            // What went wrong, if anything, went wrong with the other end.
            _ = connection.as_mut() => return,
            () = stop.cancelled(), if finishing.is_none() => {
                finish(connection.as_mut());
                finishing = Some(Instant::now());
            }
            now = look.tick() => match (life.look(now, limits), finishing) {
                (Standing::Stalled, _) => return,
                (Standing::Idle, None) => {
                    finish(connection.as_mut());
                    finishing = Some(now);
                }
                (Standing::Idle | Standing::Quiet, Some(since)) if now.saturating_duration_since(since) >= limits.look => return,
                (Standing::Busy | Standing::Quiet | Standing::Idle, _) => {}
            }
        }
    }
}

impl Life {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            used: Cell::default(),
            answers: RefCell::default(),
            tunnel: Cell::default(),
            counted: ConnectionCount::default(),
            shown: None,
        }
    }

    /// A request is under way for as long as what is returned lives.
    fn begin(&self) -> Arc<Unwritten> {
        let unwritten = Arc::default();
        self.answers.borrow_mut().push(Arc::downgrade(&unwritten));
        self.used.set(Some(Instant::now()));
        unwritten
    }

    fn look(&self, now: Instant, limits: Limits) -> Standing {
        let mut answers = self.answers.borrow_mut();
        answers.retain(|answer| answer.strong_count() > 0);
        if answers.iter().filter_map(Weak::upgrade).any(|answer| answer.is_late(now, limits)) {
            return Standing::Stalled;
        }
        if !self.counted.is_accepted() && now.saturating_duration_since(self.since) >= limits.head {
            return Standing::Idle;
        }
        if !answers.is_empty() {
            self.used.set(Some(now));
            return Standing::Busy;
        }
        // Whoever has asked for nothing yet gets no longer than for asking.
        let (since, most) = match self.used.get() {
            Some(used) => (used, limits.idle),
            None => (self.since, limits.head),
        };
        if now.saturating_duration_since(since) >= most { Standing::Idle } else { Standing::Quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_that_carries_no_accepted_request_in_time() {
        let limits = Limits::default();
        let life = Life::new();
        let look = || life.look(Instant::now() + limits.head, limits);
        let _answer = life.begin();
        assert_eq!(look(), Standing::Idle, "whatever is asked");
        life.counted.accept(|| None);
        assert_eq!(look(), Standing::Busy);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_stands_as_it_is_used() {
        let limits = Limits::default();
        let life = Life::new();
        life.counted.accept(|| None);
        let look = |after: Duration| life.look(Instant::now() + after, limits);
        assert_eq!(look(Duration::ZERO), Standing::Quiet);
        assert_eq!(look(limits.head), Standing::Idle, "nothing was ever asked");
        let answer = life.begin();
        assert_eq!(look(limits.idle), Standing::Busy, "it is being answered");
        let [first, second] = [b"a", b"b"].map(|part| answer.part(Bytes::from_static(part), None));
        assert_eq!(look(limits.stall / 2), Standing::Busy);
        assert_eq!(look(limits.stall), Standing::Stalled);
        drop(first);
        assert_eq!(look(limits.stall / 2), Standing::Busy);
        drop(answer);
        assert_eq!(look(limits.stall), Standing::Stalled, "its last part is not written");
        life.used.set(Some(Instant::now()));
        drop(second);
        assert_eq!(look(limits.head), Standing::Quiet);
        assert_eq!(look(limits.idle), Standing::Idle);
        assert!(life.answers.borrow().is_empty());
    }
}
