//! Serves one connection from the TLS handshake to its end. Closes a connection that is idle, or
//! whose client reads too slowly.

use super::{
    body::{BrokenUpstream, IncomingRequest, ResponseBody},
    listen::{ConnectionLimits, ReadServer},
    response::failure,
    unwritten_response::UnwrittenResponse,
};
use crate::{
    callers::{ADMISSION_TIMEOUT, ClientCertChain},
    metrics::{HandlerLabel, ResponseLabels, ResponseSource},
};
use futures::future::LocalBoxFuture;
use hyper::{
    Version,
    body::{Body as _, Incoming},
    header::{CONNECTION, HeaderValue, TRANSFER_ENCODING},
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use kubewarm_api::model::MetricOutcome;
use kubewarm_client::KeyedPermit;
use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, SocketAddr},
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
use tokio_util::sync::CancellationToken;

/// The state that all requests and responses of one connection share.
pub(super) struct ConnectionState {
    pub(super) peer: IpAddr,
    /// The certificates that the client presented in the TLS handshake.
    pub(super) chain: Option<Arc<ClientCertChain>>,
    /// The future that copies bytes between the client and the API server, after the response 101
    /// has ended HTTP on this connection.
    pub(super) tunnel: Cell<Option<LocalBoxFuture<'static, ()>>>,
    /// Counts the connection against the limit of the client's address. After the first accepted
    /// request, counts it against the limit of the user instead, so that many users can share one
    /// address.
    slot: Cell<KeyedPermit>,
    /// Whether kubewarm has accepted a request of this connection: kubewarm has authorized the
    /// request, or has forwarded it with a token that a TokenReview or the API server has accepted.
    is_accepted: Cell<bool>,
    has_user_slot: Cell<bool>,
    since: Instant,
    /// The last time at which a request of this connection was in progress; `None` before the first
    /// request.
    last_used: Cell<Option<Instant>>,
    /// The bytes of the heads of requests that wait for the end of their body.
    pub(super) waiting_heads: Cell<usize>,
    /// Each request in progress holds one clone, so the number of references shows how many
    /// requests are in progress.
    requests_in_progress: Rc<()>,
    /// The responses that the connection has not written completely. Calls of `check_activity`
    /// remove entries of written responses.
    pending_responses: RefCell<Vec<Weak<UnwrittenResponse>>>,
}

/// What happens on a connection. kubewarm selects the connection's timeout by this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionActivity {
    Busy,
    /// No request is in progress, and `idle_timeout` has not passed.
    Quiet,
    /// The connection had no request within `idle_timeout`, or kubewarm accepted no request of the
    /// connection in time. kubewarm shuts down such a connection.
    Idle,
    /// The client reads a response too slowly, or does not read the response at all. kubewarm drops
    /// such a connection.
    Stalled,
}

/// The executor for tasks of HTTP/2 streams. It runs the tasks on the current thread, because the
/// futures of request handlers are not `Send`.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F: Future + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        // The task ends with its HTTP/2 stream, so nothing awaits the task.
        drop(tokio::task::spawn_local(future));
    }
}

/// Serves `stream` until the connection ends or kubewarm closes it. `slot` counts the connection
/// against the limit of the client's address.
pub(super) async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<ReadServer>,
    slot: KeyedPermit,
) {
    let limits = shared.limits;
    // With Nagle's algorithm, the kernel would delay a small response until the client acknowledges
    // the previous response.
    let _set = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(limits.head_timeout, shared.tls.accept(stream)).await else {
        return;
    };
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let shown = shared.authority.as_ref().zip(stream.get_ref().1.peer_certificates());
    let chain = shown
        .map(|(authority, shown)| Arc::new(ClientCertChain::new(shown, Arc::clone(authority))));
    let state = Rc::new(ConnectionState::new(peer.ip(), chain, slot));
    let io = TokioIo::new(stream);
    let (of_request, stop) = (Rc::clone(&state), shared.stop.clone());
    let service =
        service_fn(move |request| respond(request, Arc::clone(&shared), Rc::clone(&of_request)));
    if is_h2 {
        let connection = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .max_header_list_size(limits.head_bytes)
            .max_concurrent_streams(limits.max_streams)
            // The flow-control windows for request bodies are small, because kubewarm reads a
            // request body only to forward it.
            .initial_stream_window_size(limits.head_bytes)
            .initial_connection_window_size(limits.head_bytes)
            .max_send_buf_size(limits.max_buffered_bytes)
            .keep_alive_interval(limits.ping_interval)
            .keep_alive_timeout(limits.head_timeout)
            .serve_connection(io, service);
        run_connection(connection, http2::Connection::graceful_shutdown, &state, limits, &stop)
            .await;
    } else {
        let head_bytes = limits.head_bytes as usize;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_header_size(head_bytes)
            .max_buf_size(head_bytes)
            .serve_connection(io, service)
            .with_upgrades();
        let finish = http1::UpgradeableConnection::graceful_shutdown;
        run_connection(connection, finish, &state, limits, &stop).await;
        if let Some(tunnel) = state.tunnel.take() {
            tunnel.await;
        }
    }
}

async fn respond(
    request: hyper::Request<Incoming>,
    shared: Arc<ReadServer>,
    state: Rc<ConnectionState>,
) -> Result<hyper::Response<ResponseBody>, BrokenUpstream> {
    let _in_progress = state.start_request();
    // If no handler reads an HTTP/1.1 request body, kubewarm must close the connection. Otherwise
    // hyper would parse the body as the next request.
    let has_body = request.version() < Version::HTTP_2 && !request.body().is_end_stream();
    // If a request has `Transfer-Encoding` and `Content-Length`, hyper ignores `Content-Length`,
    // but a proxy in front of kubewarm can use it. Both can then see different ends of the request,
    // so kubewarm parses no byte after it.
    let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
    let received = IncomingRequest::receive(request, Rc::clone(&state), shared.limits.head_timeout);
    let mut response = match received.await {
        // After an error, hyper resets the HTTP/2 stream with `INTERNAL_ERROR`, or closes the
        // HTTP/1.1 connection.
        Ok(request) => (shared.handler)(request).await?,
        Err(refusal) => {
            // kubewarm rejects this request before a handler receives it, so this function, not the
            // handler, counts the response in the metrics.
            let response = failure(&refusal, kubewarm_wire::MediaType::Json, false);
            let code = response.status().as_u16();
            let observed = ResponseLabels {
                handler: HandlerLabel::Other,
                resource: None,
                code: Some(code),
                outcome: MetricOutcome::of_status(code),
                source: ResponseSource::Rejected,
            };
            shared.metrics.observe_response(&observed, Duration::ZERO);
            response.body().count_bytes(shared.metrics.response_bytes(None));
            response
        }
    };
    let unwritten = response.body().unwritten();
    state.track_response(unwritten);
    if is_chunked || (has_body && !unwritten.has_permit()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Runs `connection`, and checks its activity at each `check_interval`. Shuts down an idle
/// connection, and all connections when `stop` is cancelled. Drops a connection whose client reads
/// too slowly, and a connection that does not end after the shutdown.
async fn run_connection<C: Future>(
    connection: C,
    finish: fn(Pin<&mut C>),
    state: &ConnectionState,
    limits: ConnectionLimits,
    stop: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let mut ticks = interval(limits.check_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut finishing = None;
    loop {
        select! {
            // kubewarm does not log the connection's error, because clients can cause such errors.
            _ = connection.as_mut() => return,
            () = stop.cancelled(), if finishing.is_none() => {
                finish(connection.as_mut());
                finishing = Some(Instant::now());
            }
            now = ticks.tick() => match (state.check_activity(now, limits), finishing) {
                (ConnectionActivity::Stalled, _) => return,
                (ConnectionActivity::Idle, None) => {
                    finish(connection.as_mut());
                    finishing = Some(now);
                }
                (ConnectionActivity::Idle | ConnectionActivity::Quiet, Some(since)) if now.saturating_duration_since(since) >= limits.check_interval => return,
                (ConnectionActivity::Busy | ConnectionActivity::Quiet | ConnectionActivity::Idle, _) => {}
            }
        }
    }
}

impl ConnectionState {
    fn new(peer: IpAddr, chain: Option<Arc<ClientCertChain>>, slot: KeyedPermit) -> Self {
        Self {
            peer,
            chain,
            tunnel: Cell::default(),
            slot: Cell::new(slot),
            is_accepted: Cell::default(),
            has_user_slot: Cell::default(),
            since: Instant::now(),
            last_used: Cell::default(),
            waiting_heads: Cell::default(),
            requests_in_progress: Rc::default(),
            pending_responses: RefCell::default(),
        }
    }

    /// Records that kubewarm has accepted a request of this connection. `user_slot` counts the
    /// connection against the limit of the user. If the user has reached this limit, the connection
    /// still counts against the limit of its address.
    pub(super) fn accept(&self, user_slot: impl FnOnce() -> Option<KeyedPermit>) {
        self.is_accepted.set(true);
        if !self.has_user_slot.get()
            && let Some(slot) = user_slot()
        {
            self.slot.set(slot);
            self.has_user_slot.set(true);
        }
    }

    fn start_request(&self) -> Rc<()> {
        self.last_used.set(Some(Instant::now()));
        Rc::clone(&self.requests_in_progress)
    }

    fn track_response(&self, unwritten: &Arc<UnwrittenResponse>) {
        let mut pending_responses = self.pending_responses.borrow_mut();
        // When the list is full, this code removes the entries of written responses before the list
        // grows. Many responses can end between two calls of `check_activity`.
        if pending_responses.len() == pending_responses.capacity() {
            pending_responses.retain(|answer| answer.strong_count() > 0);
        }
        pending_responses.push(Arc::downgrade(unwritten));
    }

    fn check_activity(&self, now: Instant, limits: ConnectionLimits) -> ConnectionActivity {
        let mut pending_responses = self.pending_responses.borrow_mut();
        pending_responses.retain(|answer| answer.strong_count() > 0);
        if pending_responses
            .iter()
            .filter_map(Weak::upgrade)
            .any(|answer| answer.is_too_slow(now, limits))
        {
            return ConnectionActivity::Stalled;
        }
        let has_request = Rc::strong_count(&self.requests_in_progress) > 1;
        // While a request is in progress, its caller can still wait for reviews. So the connection
        // stays open for longer, and the client receives the response.
        let to_be_accepted =
            limits.head_timeout + if has_request { ADMISSION_TIMEOUT } else { Duration::ZERO };
        if !self.is_accepted.get() && now.saturating_duration_since(self.since) >= to_be_accepted {
            return ConnectionActivity::Idle;
        }
        if !pending_responses.is_empty() || has_request {
            self.last_used.set(Some(now));
            return ConnectionActivity::Busy;
        }
        // A connection that has sent no request becomes idle after `head_timeout`, the time for one
        // request head.
        let (since, most) = match self.last_used.get() {
            Some(last_used) => (last_used, limits.idle_timeout),
            None => (self.since, limits.head_timeout),
        };
        if now.saturating_duration_since(since) >= most {
            ConnectionActivity::Idle
        } else {
            ConnectionActivity::Quiet
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kubewarm_client::KeyedSemaphore;
    use std::net::Ipv4Addr;

    fn connection() -> ConnectionState {
        counted(KeyedSemaphore::new(1, 1).try_acquire(&()).unwrap())
    }

    fn counted(slot: KeyedPermit) -> ConnectionState {
        ConnectionState::new(Ipv4Addr::LOCALHOST.into(), None, slot)
    }

    #[tokio::test]
    async fn a_connection_counts_against_its_address_until_its_user_has_a_slot() {
        let (addresses, users) = (KeyedSemaphore::new(9, 1), KeyedSemaphore::new(9, 1));
        let new = || addresses.try_acquire(&"10.0.0.7").map(counted);
        let first = new().unwrap();
        assert!(new().is_none() && !first.is_accepted.get());
        first.accept(|| users.try_acquire(&"jane"));
        // The connection already counts against the limit of a user, so `accept` must not call this
        // function.
        first.accept(|| unreachable!());
        let second = new().unwrap();
        second.accept(|| users.try_acquire(&"jane"));
        assert!(second.is_accepted.get() && new().is_none(), "jane already has a slot");
        drop(first);
        second.accept(|| users.try_acquire(&"jane"));
        assert!(users.try_acquire(&"jane").is_none() && new().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_accepted_request_in_time_is_idle() {
        let limits = ConnectionLimits::default();
        let state = connection();
        let look = |after| state.check_activity(Instant::now() + after, limits);
        assert_eq!(look(limits.head_timeout), ConnectionActivity::Idle, "there is no request");
        let _in_progress = state.start_request();
        assert_eq!(look(limits.head_timeout), ConnectionActivity::Busy, "the request can wait");
        let too_late = limits.head_timeout + ADMISSION_TIMEOUT;
        assert_eq!(look(too_late), ConnectionActivity::Idle, "no request was accepted");
        state.accept(|| None);
        assert_eq!(look(too_late), ConnectionActivity::Busy);
    }

    #[tokio::test(start_paused = true)]
    async fn the_state_of_a_connection_follows_its_requests_and_responses() {
        let limits = ConnectionLimits::default();
        let state = connection();
        state.accept(|| None);
        let look = |after: Duration| state.check_activity(Instant::now() + after, limits);
        assert_eq!(look(Duration::ZERO), ConnectionActivity::Quiet);
        assert_eq!(look(limits.head_timeout), ConnectionActivity::Idle, "there was no request");
        let requests_in_progress = state.start_request();
        assert_eq!(look(limits.idle_timeout), ConnectionActivity::Busy, "a request is in progress");
        let answer: Arc<UnwrittenResponse> = Arc::default();
        state.track_response(&answer);
        drop(requests_in_progress);
        let [first, second] =
            [b"a", b"b"].map(|part| answer.part(Bytes::from_static(part), 0, None));
        assert_eq!(look(limits.piece_timeout / 2), ConnectionActivity::Busy);
        assert_eq!(look(limits.piece_timeout), ConnectionActivity::Stalled);
        drop(first);
        assert_eq!(look(limits.piece_timeout / 2), ConnectionActivity::Busy);
        drop(answer);
        assert_eq!(
            look(limits.piece_timeout),
            ConnectionActivity::Stalled,
            "its last part is not written"
        );
        state.last_used.set(Some(Instant::now()));
        drop(second);
        assert_eq!(look(limits.head_timeout), ConnectionActivity::Quiet);
        assert_eq!(look(limits.idle_timeout), ConnectionActivity::Idle);
        assert!(state.pending_responses.borrow().is_empty());
    }
    #[tokio::test(start_paused = true)]
    async fn finished_responses_are_removed() {
        let state = connection();
        for _ in 0..10_000 {
            drop(state.start_request());
            state.track_response(&Arc::default());
        }
        assert!(state.pending_responses.borrow().len() < 64);
    }
}
