//! The listener of the read address: TLS only, HTTP/1.1 and HTTP/2, and a bound on all that a caller
//! can make it hold.
//!
//! | what | bound by | then |
//! |---|---|---|
//! | connections of all | [`ReaderLimits::connections`] | closed at once |
//! | of one address (of IPv6: of one /64), of those that have not carried an accepted request | [`ReaderLimits::address_connections`] | closed at once |
//! | a handshake, a head, an HTTP/1.1 connection without a request, a first request that is accepted | [`Limits::head`] | closed |
//! | bytes and lines of a head | [`Limits::head_bytes`]; of HTTP/1.1 100 lines | 431, or the stream reset |
//! | bodies | read only to be sent on, bound there; those of GET and HEAD, and all in chunks, refused | 413, 400 |
//! | requests under way, of all and of one user | [`ReaderLimits::requests`], [`ReaderLimits::user_share`] | 429 |
//! | requests under way of one HTTP/2 connection | [`Limits::streams`] | refused |
//! | streams that are reset, frames of a head, pings | the library: 20, 1,024, answered or closed | closed |
//! | part of an answer that is not taken | [`Limits::stall`], [`Limits::sent_bytes`] | closed |
//! | an answer that is taken slowly, but of watches and what is sent on | [`Limits::slowest`] | closed |
//! | a connection that is not used | [`Limits::idle`] | closed |
//! | the end of the process | [`STOP`] | dropped |
//!
//! The server is hyper's. That of actix-web, which serves the admin address, has no bound on the streams of HTTP/2, takes
//! heads of 16 MiB there, and bounds the time for the first head of a connection of HTTP/1.1 alone.

use super::{
    api::ReadApi,
    body::{Request, Response},
    connection::converse,
};
use crate::{
    ServeError,
    callers::{Asking, Authority, LimitUsage, ReadLimit, ReaderLimits, network},
    certificate::{Certificate, look_after},
    listen::everywhere,
    metrics::ReadMetrics,
};
use futures::future::LocalBoxFuture;
use kubewarm_client::{Exhausted, KeyedPermit, KeyedSemaphore};
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

/// How long the last answers may take when the process ends.
const STOP: Duration = Duration::from_secs(10);
const ENDED: &str = "the read server ended";
/// After a connection could not be accepted, for lack of memory or files.
const PAUSE: Duration = Duration::from_millis(100);

/// How much callers can make the read address hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// What an administrator sets.
    pub(super) readers: ReaderLimits,
    /// Until a head is complete, with HTTP/1.1 from the end of the answer before; and until a connection has carried an
    /// accepted request.
    pub(super) head: Duration,
    /// Bytes of a head: a token of 16 KiB and selectors of hundreds of values.
    pub(super) head_bytes: u32,
    /// Of one HTTP/2 connection, as with the API server.
    pub(super) streams: u32,
    /// Bytes that one stream holds that the other end has not taken.
    pub(super) sent_bytes: usize,
    /// Until the other end has taken a part of an answer.
    pub(super) stall: Duration,
    /// Bytes a second that the other end takes of an answer at the least, but for [`Limits::stall`] in all: whoever has
    /// a permit for a request and takes a little at a time would keep it from others. The API server ends each after
    /// 60 s.
    pub(super) slowest: NonZeroU64,
    /// Without a request: clients in Go leave a connection alone for 90 s.
    pub(super) idle: Duration,
    /// How often each connection is looked at.
    pub(super) look: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            readers: ReaderLimits::default(),
            head: Duration::from_secs(10),
            head_bytes: 32 << 10,
            streams: 100,
            sent_bytes: 64 << 10,
            stall: Duration::from_mins(1),
            slowest: const { NonZeroU64::new(64 << 10).unwrap() },
            idle: Duration::from_mins(2),
            look: Duration::from_secs(5),
        }
    }
}

/// A bound listener of the read address.
#[derive(Debug)]
pub struct Reading {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    limits: Limits,
    connections: ConnectionSlots,
}

/// The slots of connections. Clones share them.
#[derive(Clone, Debug)]
pub struct ConnectionSlots {
    all: Arc<Semaphore>,
    /// Of connections that have carried no accepted request. There are as many as of all connections.
    addresses: KeyedSemaphore<IpAddr>,
}

/// Binds `address` for `readers`. `[::]` means every address of both families, as for the admin address.
///
/// # Errors
///
/// [`ServeError`] if the kernel refuses the address.
pub fn bind(address: SocketAddr, readers: ReaderLimits) -> Result<Reading, ServeError> {
    let (listeners, address) = everywhere(address).map_err(ServeError::of(format!(
        "--api-addr {address} cannot be bound; name one that is free, such as [::]:8444, or '' for none"
    )))?;
    let limits = Limits { readers, ..Limits::default() };
    Ok(Reading { listeners, address, limits, connections: ConnectionSlots::new(readers) })
}

impl Reading {
    /// The bound address, with the port that was found for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The slots of its connections.
    #[must_use]
    pub fn connections(&self) -> ConnectionSlots {
        self.connections.clone()
    }

    /// Changes the limits, before it serves.
    #[cfg(test)]
    pub(super) fn change_limits(&mut self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.limits);
        self.connections = ConnectionSlots::new(self.limits.readers);
    }

    /// Shows `certificate`, and has clients show theirs if any counts by `authority`. Answers requests by `api`, on
    /// as many threads as there are processors, until `stop`; then finishes those under way, for at most 10 s.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the certificate cannot be used, or a thread ends.
    pub async fn serve(
        self,
        shown: (Arc<Certificate>, Option<Arc<Authority>>),
        api: Arc<ReadApi>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let metrics = api.metrics.clone();
        let handler: RequestHandler = Box::new(move |request| {
            let api = Arc::clone(&api);
            Box::pin(async move { api.handle(request).await })
        });
        self.serve_by(shown, (handler, metrics), stop).await
    }

    /// The same by `handler`. Requests that do not reach it are counted in `metrics`.
    pub(super) async fn serve_by(
        self,
        (certificate, authority): (Arc<Certificate>, Option<Arc<Authority>>),
        (handler, metrics): (RequestHandler, ReadMetrics),
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let Self { listeners, address, limits, connections } = self;
        let asking = authority.is_some().then(Asking::verifier);
        let no_certificate = ServeError::of("the read address has no certificate");
        let tls = certificate.tls(asking, &[b"h2", b"http/1.1"]).map_err(no_certificate)?;
        let sha256 = certificate.fingerprint();
        tracing::info!(%address, %sha256, "serving reads");
        // Threads are not dropped with this future: they are told.
        let stop = stop.child_token();
        let _told = stop.clone().drop_guard();
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
            threads.spawn_blocking(move || serve_here(copies, &shared));
        }
        drop(listeners);
        let until_all_have_ended = async {
            while let Some(ended) = threads.join_next().await {
                let ended = ended.map_err(ServeError::of("a thread of the read server broke"))?;
                ended.map_err(ServeError::of(ENDED))?;
            }
            Ok(())
        };
        select! {
            ended = until_all_have_ended => ended,
            () = look_after(Some(&certificate), Certificate::refresh) => Ok(()),
            () = look_after(authority.as_ref(), Authority::refresh) => Ok(()),
        }
    }
}

impl ConnectionSlots {
    fn new(limits: ReaderLimits) -> Self {
        let (all, of_address) = (limits.connections.get(), limits.address_connections.get());
        let addresses = KeyedSemaphore::new(all, of_address);
        Self { all: Arc::new(Semaphore::new(all)), addresses }
    }

    /// A slot among all connections, and one among the connections of `address`; or the limit that leaves none.
    fn acquire(&self, address: IpAddr) -> Result<(OwnedSemaphorePermit, KeyedPermit), ReadLimit> {
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| ReadLimit::Connections)?;
        let slot = self.addresses.acquire_now(&address).map_err(|exhausted| match exhausted {
            Exhausted::All => ReadLimit::Connections,
            Exhausted::Key => ReadLimit::AddressConnections,
        })?;
        Ok((of_all, slot))
    }

    /// The slots in use. Visits each address that has one: for a scrape, not for a request.
    #[must_use]
    pub fn usage(&self) -> Vec<LimitUsage> {
        let mut usage = self.addresses.usage();
        usage.in_use = usage.size.saturating_sub(self.all.available_permits());
        LimitUsage::of(usage, ReadLimit::Connections, ReadLimit::AddressConnections).into()
    }
}

/// Answers a request.
pub(super) type RequestHandler =
    Box<dyn Fn(Request) -> LocalBoxFuture<'static, Response> + Send + Sync>;

/// What all threads and connections share.
pub(super) struct ReadServer {
    pub(super) tls: TlsAcceptor,
    /// Whose certificates count, if any do.
    pub(super) authority: Option<Arc<Authority>>,
    pub(super) handler: RequestHandler,
    pub(super) limits: Limits,
    /// Of what is refused before any handler has it.
    pub(super) metrics: ReadMetrics,
    pub(super) stop: CancellationToken,
    connections: ConnectionSlots,
    /// Whether the last connection found no slot.
    is_full: AtomicBool,
    /// Whether the last connection could not be accepted.
    is_failing: AtomicBool,
}

/// Serves on this thread until the stop and the end of what is under way.
fn serve_here(listeners: Vec<TcpListener>, shared: &Arc<ReadServer>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let here = LocalSet::new();
    runtime.block_on(here.run_until(async move {
        let (connections, mut accepting) = (TaskTracker::new(), JoinSet::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = net::TcpListener::from_std(listener)?;
            accepting.spawn_local(accept(listener, Arc::clone(shared), connections.clone()));
        }
        while accepting.join_next().await.is_some() {}
        connections.close();
        // Those that are left are dropped with this thread's tasks.
        let _finished = timeout(STOP, connections.wait()).await;
        Ok(())
    }))
}

/// Takes connections until the stop.
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
        let slots = shared.connections.acquire(network(peer.ip()));
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
            converse(stream, peer, shared, slot).await;
            drop(of_all);
        });
    }
}
