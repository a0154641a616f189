//! The listener of the read API: TLS with HTTP/1.1 and HTTP/2, and limits on the resources that
//! clients can use.
//!
//! If the table names no value, the limit is a field of [`ReaderLimits`] or [`ConnectionLimits`].
//! An accepted request is a request that kubewarm does not reject.
//!
//! | resource | limit | reaction to a higher value |
//! |---|---|---|
//! | connections in total | `connections` | connection closed at once |
//! | connections of one address without an accepted request | `address_connections` | closed at once |
//! | connections of one IPv6 /64 without an accepted request | half of `connections` | closed at once |
//! | time for a handshake, each head, and the first accepted request | `head_timeout` | connection closed |
//! | bytes of a head | `head_bytes` | 431, or HTTP/2 stream reset |
//! | lines of an HTTP/1.1 head | 100 | 431 |
//! | bytes of a request body | 16 MiB if kubewarm forwards the request, 0 for a GET or HEAD | 413 |
//! | requests in progress, in total and per user | `requests`, `user_quota` | a wait, then 429 |
//! | requests in progress per HTTP/2 connection | `max_streams` | HTTP/2 stream refused |
//! | reset streams, and frames of a head | hyper's limits: 20 and 1,024 | connection closed |
//! | time and bytes of an unread piece of a response | `piece_timeout`, `max_buffered_bytes` | connection closed |
//! | time to read a response, except watches and forwarded ones | `min_bytes_per_second` | connection closed |
//! | time without a request | `idle_timeout` | connection closed |
//! | time without an answer to an HTTP/2 ping | `ping_interval` + `head_timeout` | connection closed |
//! | time for responses in progress when the server stops | [`STOP`] | connection dropped |
//!
//! This listener uses hyper, because actix-web, which serves the metrics and debug information, has
//! too few limits. actix-web does not limit HTTP/2 streams, and accepts HTTP/2 heads of 16 MiB.
//! With HTTP/1.1, actix-web limits only the time for the first head of a connection.

use super::{
    api::ReadApi,
    body::{BrokenUpstream, IncomingRequest, OutgoingResponse},
    connection::serve_connection,
};
use crate::{
    ServeError,
    callers::{
        ClientCa, LimitUsage, OptionalClientCertVerifier, ReadLimit, ReaderLimits, network,
        network_part,
    },
    certificate::{ServingCertificate, keep_refreshed},
    listen::bind_all_families,
    metrics::ReadMetrics,
};
use futures::future::LocalBoxFuture;
use kubewarm_client::{KeyedAcquireError, KeyedPermit, KeyedSemaphore};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    num::{NonZeroU64, NonZeroUsize},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    net,
    runtime::Builder,
    select,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// When the server stops, responses in progress can continue for this time.
const STOP: Duration = Duration::from_secs(10);
const ENDED: &str = "the read server ended";
/// The pause after an `accept` call fails, for example for lack of memory or file descriptors.
/// Without the pause, the server would repeat the failing call in a tight loop.
const PAUSE: Duration = Duration::from_millis(100);

/// The limits of one connection. No command-line flag sets these limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// The time limit of a TLS handshake, of each request head, and of the wait for the first
    /// request that kubewarm does not reject. The time for an HTTP/1.1 head starts at the end of
    /// the previous response.
    pub(super) head_timeout: Duration,
    /// The maximum size of a request head in bytes. A head with a token of 16 KiB, and with
    /// selectors of hundreds of values, is smaller.
    pub(super) head_bytes: u32,
    /// The maximum number of concurrent streams of an HTTP/2 connection, as in the API server.
    pub(super) max_streams: u32,
    /// The maximum number of response bytes that kubewarm buffers for one HTTP/2 stream until the
    /// client reads them.
    pub(super) max_buffered_bytes: usize,
    /// The time in which a client must read one piece of a response, also of a watch. For each
    /// `min_bytes_per_second` of the piece, the client has another second. A piece has 64 KiB, or
    /// contains a larger object, which uses its user's memory meanwhile.
    pub(super) piece_timeout: Duration,
    /// The minimum rate at which a client must read a response, in bytes per second. The client has
    /// `piece_timeout` plus the response's size divided by this rate. Otherwise slow clients could
    /// use up the limits on requests.
    pub(super) min_bytes_per_second: NonZeroU64,
    /// How long a connection can stay open without a request. Go clients keep idle connections for
    /// 90 s, so the default is longer: 2 minutes.
    pub(super) idle_timeout: Duration,
    /// The interval at which kubewarm pings an HTTP/2 client that sends nothing, to notice that it
    /// is gone. client-go uses the same interval.
    pub(super) ping_interval: Duration,
    /// The interval at which kubewarm checks for idle connections and clients that read too slowly.
    pub(super) check_interval: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            head_bytes: 32 << 10,
            max_streams: 100,
            max_buffered_bytes: 64 << 10,
            piece_timeout: Duration::from_mins(1),
            min_bytes_per_second: const { NonZeroU64::new(64 << 10).unwrap() },
            idle_timeout: Duration::from_mins(2),
            ping_interval: Duration::from_secs(30),
            check_interval: Duration::from_secs(5),
        }
    }
}

impl ConnectionLimits {
    /// The time in which a client must read `bytes` bytes.
    pub(super) fn time_to_read(&self, bytes: u64) -> Duration {
        self.piece_timeout + Duration::from_secs(bytes / self.min_bytes_per_second)
    }
}

/// A bound listener of the read API.
#[derive(Debug)]
pub struct ReadListener {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    limits: ConnectionLimits,
    connections: ConnectionSlots,
}

/// Limits open connections, in total and per client address. Clones share the limits.
#[derive(Clone, Debug)]
pub struct ConnectionSlots {
    all: Arc<Semaphore>,
    /// Limits the connections per client address, and per IPv6 /64, that have sent no request yet,
    /// or only requests that kubewarm rejected. All addresses together can have as many connections
    /// as `all` permits.
    addresses: KeyedSemaphore<IpAddr>,
}

/// Binds `address`, at which the read API listens, with the connection limits of `readers`. `[::]`
/// binds all IPv4 and IPv6 addresses of the host.
///
/// # Errors
///
/// [`ServeError`] if the kernel cannot bind the address.
pub fn bind(address: SocketAddr, readers: ReaderLimits) -> Result<ReadListener, ServeError> {
    let (listeners, address) = bind_all_families(address).map_err(ServeError::of(format!(
        "--api-addr {address} cannot be bound; name one that is free, such as [::]:8444, or '' for none"
    )))?;
    let connections = ConnectionSlots::new(readers);
    Ok(ReadListener { listeners, address, limits: ConnectionLimits::default(), connections })
}

impl ReadListener {
    /// The bound address. If the configured port is 0, the bound address has the port that the
    /// kernel has chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection slots of this listener.
    pub fn connections(&self) -> ConnectionSlots {
        self.connections.clone()
    }

    #[cfg(test)]
    pub(super) fn change_limits(&mut self, change: impl FnOnce(&mut ConnectionLimits)) {
        change(&mut self.limits);
    }

    /// Serves `api` with one thread per processor until `stop` is cancelled. Requests in progress
    /// then have 10 s to end. The server accepts client certificates that a CA of `authority` has
    /// signed.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the server cannot use the serving certificate, or a server thread fails.
    pub async fn serve(
        self,
        certificate: Arc<ServingCertificate>,
        authority: Option<Arc<ClientCa>>,
        api: Arc<ReadApi>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let metrics = api.metrics.clone();
        self.serve_by(certificate, authority, request_handler(api), metrics, stop).await
    }

    /// Like [`ReadListener::serve`], with any request handler instead of `ReadApi`. `metrics`
    /// counts the requests that kubewarm rejects before the handler receives them.
    pub(super) async fn serve_by(
        self,
        certificate: Arc<ServingCertificate>,
        authority: Option<Arc<ClientCa>>,
        handler: RequestHandler,
        metrics: ReadMetrics,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let Self { listeners, address, limits, connections } = self;
        let client_verifier = authority.is_some().then(OptionalClientCertVerifier::verifier);
        let no_certificate = ServeError::of("the read address has no certificate");
        let tls =
            certificate.tls(client_verifier, &[b"h2", b"http/1.1"]).map_err(no_certificate)?;
        let sha256 = certificate.fingerprint();
        tracing::info!(%address, %sha256, "serving reads");
        // If the caller drops this future, the server threads continue. So a guard cancels `stop`
        // of the threads when the future is dropped.
        let stop = stop.child_token();
        let _stop_on_drop = stop.clone().drop_guard();
        let shared = Arc::new(ReadServer {
            tls: Arc::new(tls).into(),
            authority: authority.clone(),
            handler,
            limits,
            metrics,
            stop,
            connections,
            is_full: AtomicBool::default(),
            is_failing: AtomicBool::default(),
        });
        let mut threads = JoinSet::new();
        let count = thread::available_parallelism().map_or(2, NonZeroUsize::get);
        for _ in 0..count {
            let copies =
                listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
            let copies = copies.map_err(ServeError::of(ENDED))?;
            let shared = Arc::clone(&shared);
            threads.spawn_blocking(move || serve_on_thread(copies, &shared));
        }
        drop(listeners);
        let until_all_have_ended = async {
            while let Some(ended) = threads.join_next().await {
                let ended =
                    ended.map_err(ServeError::of("a thread of the read server panicked"))?;
                ended.map_err(ServeError::of(ENDED))?;
            }
            Ok(())
        };
        select! {
            ended = until_all_have_ended => ended,
            () = keep_refreshed(Some(&certificate), ServingCertificate::refresh) => Ok(()),
            () = keep_refreshed(authority.as_ref(), ClientCa::refresh) => Ok(()),
        }
    }
}

impl ConnectionSlots {
    pub(super) fn new(limits: ReaderLimits) -> Self {
        let (all, of_address) = (limits.connections.get(), limits.address_connections.get());
        let addresses =
            KeyedSemaphore::new(all, of_address).with_groups(network_part(all), network);
        Self { all: Arc::new(Semaphore::new(all)), addresses }
    }

    /// Counts a connection against the total limit and against the limits of `address` and its IPv6
    /// /64, until the results are dropped. The error is the limit that the connection would exceed.
    pub(super) fn acquire(
        &self,
        address: IpAddr,
    ) -> Result<(OwnedSemaphorePermit, KeyedPermit), ReadLimit> {
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| ReadLimit::Connections)?;
        let slot = self.addresses.acquire_now(&address).map_err(|exhausted| match exhausted {
            KeyedAcquireError::All => ReadLimit::Connections,
            // The group of an address is its IPv6 /64.
            KeyedAcquireError::Key | KeyedAcquireError::Group => ReadLimit::AddressConnections,
        })?;
        Ok((of_all, slot))
    }

    /// The usage of two limits: the limit on all connections, and the limit per client address, for
    /// the address with the most connections.
    ///
    /// Cost: visits each address with a connection, so call it for a metrics scrape, not for a
    /// request.
    pub fn usage(&self) -> Vec<LimitUsage> {
        let mut usage = self.addresses.usage();
        usage.in_use = usage.size.saturating_sub(self.all.available_permits());
        LimitUsage::of(usage, ReadLimit::Connections, ReadLimit::AddressConnections).into()
    }
}

pub(super) type RequestHandler = Box<
    dyn Fn(IncomingRequest) -> LocalBoxFuture<'static, Result<OutgoingResponse, BrokenUpstream>>
        + Send
        + Sync,
>;

/// Creates the handler in this crate, so that it is compiled for speed together with everything
/// that it awaits. The crate that awaits an async method compiles the method's body: without this
/// function, that crate would be `kubewarm`, which is compiled for size.
#[inline(never)]
fn request_handler(api: Arc<ReadApi>) -> RequestHandler {
    Box::new(move |request| {
        let api = Arc::clone(&api);
        Box::pin(async move { api.handle(request).await })
    })
}

/// The state that all threads and connections of the read API's server share.
pub(super) struct ReadServer {
    pub(super) tls: TlsAcceptor,
    /// The accepted CAs of client certificates; `None` if the server does not request client
    /// certificates.
    pub(super) authority: Option<Arc<ClientCa>>,
    pub(super) handler: RequestHandler,
    pub(super) limits: ConnectionLimits,
    /// Counts requests that kubewarm rejects before the handler receives them.
    pub(super) metrics: ReadMetrics,
    pub(super) stop: CancellationToken,
    connections: ConnectionSlots,
    is_full: AtomicBool,
    /// Whether the last `accept` call of a listener failed. kubewarm logs a warning when this
    /// becomes true.
    is_failing: AtomicBool,
}

/// Serves connections on this thread until the server stops and the requests in progress have
/// ended.
fn serve_on_thread(listeners: Vec<TcpListener>, shared: &Arc<ReadServer>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async move {
        let (connections, mut accepting) = (TaskTracker::new(), JoinSet::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = net::TcpListener::from_std(listener)?;
            accepting.spawn_local(accept(listener, Arc::clone(shared), connections.clone()));
        }
        while accepting.join_next().await.is_some() {}
        connections.close();
        // After the time limit `STOP`, the drop of `local` closes all connections that are still
        // open.
        let _finished = timeout(STOP, connections.wait()).await;
        Ok(())
    }))
}

async fn accept(listener: net::TcpListener, shared: Arc<ReadServer>, connections: TaskTracker) {
    loop {
        let accepted = select! {
            biased;
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let was_failing = shared.is_failing.swap(accepted.is_err(), Ordering::Relaxed);
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !was_failing {
                    tracing::warn!(%error, "connections to the read address cannot be accepted");
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        let slots = shared.connections.acquire(peer.ip().to_canonical());
        let was_full = shared.is_full.swap(slots.is_err(), Ordering::Relaxed);
        let (of_all, slot) = match slots {
            Ok(slots) => slots,
            Err(limit) => {
                shared.metrics.count_rejection(limit);
                if !was_full {
                    tracing::warn!(%peer, "too many connections to the read address; some are closed");
                }
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        connections.spawn_local(async move {
            serve_connection(stream, peer, shared, slot).await;
            drop(of_all);
        });
    }
}
