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
//! actix-web's own server is not used here. Its HTTP/2 has no bound on streams and takes heads of 16 MiB,
//! and its HTTP/1.1 no bound on the time for a head but the first. Handlers are actix-web's all the same:
//! each thread has its own, and hyper brings them their requests.

use super::{
    connection::{Shared, converse},
    counted::ConnectionCount,
    identity::{Asking, Authority},
};
use crate::{
    callers::{ReaderLimits, network},
    certificate::{Certificate, CertificateError, look_after},
    listen::everywhere,
    metrics::ReadMetrics,
};
use actix_http::Request;
use actix_service::IntoServiceFactory;
use actix_web::{
    App,
    dev::{AppConfig, Service, ServiceFactory, ServiceResponse},
    web::ServiceConfig,
};
use kubewarm_client::KeyedSemaphore;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    num::{NonZeroU64, NonZeroUsize},
    rc::Rc,
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
    sync::Semaphore,
    task::{JoinError, JoinSet, LocalSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long the last answers may take when the process ends.
const STOP: Duration = Duration::from_secs(10);
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
    pub(super) limits: Limits,
}

/// The read address cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be bound.
    #[error(
        "--api-addr {address} cannot be bound; name one that is free, such as [::]:8444, or '' for none"
    )]
    Bind {
        /// As the user wrote it.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no certificate to serve with.
    #[error("the read address has no certificate")]
    Certificate(#[from] CertificateError),
    /// What says whose client certificates count cannot be read.
    #[error("the read address does not know whose client certificates count")]
    ClientAuthority(#[source] CertificateError),
    /// Serving ended.
    #[error("the read server ended")]
    Serve(#[source] io::Error),
    /// A thread of it broke: a bug.
    #[error("a thread of the read server broke")]
    Broken(#[source] JoinError),
}

/// Binds `address` for `readers`. `[::]` means every address of both families, as for the admin address.
///
/// # Errors
///
/// [`ReadError::Bind`].
pub fn bind(address: SocketAddr, readers: ReaderLimits) -> Result<Reading, ReadError> {
    let (listeners, address) =
        everywhere(address).map_err(|source| ReadError::Bind { address, source })?;
    Ok(Reading { listeners, address, limits: Limits { readers, ..Limits::default() } })
}

impl Reading {
    /// The bound address, with the port that was found for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows `certificate`, and has clients show theirs if any counts by `authority`. Answers requests by `routes`, on
    /// as many threads as there are processors, until `stop`; then finishes those under way, for at most 10 s. What
    /// reaches no route is counted in `metrics`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Certificate`]; [`ReadError::Serve`] and [`ReadError::Broken`] if a thread ends.
    pub async fn serve<R>(
        self,
        (certificate, authority): (Arc<Certificate>, Option<Arc<Authority>>),
        (routes, metrics): (R, ReadMetrics),
        stop: CancellationToken,
    ) -> Result<(), ReadError>
    where
        R: Fn(&mut ServiceConfig) + Clone + Send + 'static,
    {
        let Self { listeners, address, limits } = self;
        let asking = authority.is_some().then(Asking::verifier);
        let tls = TlsAcceptor::from(certificate.tls(asking)?);
        let sha256 = certificate.fingerprint();
        tracing::info!(%address, %sha256, "serving reads");
        let (all, of_address) =
            (limits.readers.connections.get(), limits.readers.address_connections.get());
        let doors = Doors {
            all: Arc::new(Semaphore::new(all)),
            places: KeyedSemaphore::new(all, of_address),
            metrics,
            full: Arc::default(),
            failing: Arc::default(),
        };
        // Threads are not dropped with this future: they are told.
        let stop = stop.child_token();
        let _told = stop.clone().drop_guard();
        let mut threads = JoinSet::new();
        let count = thread::available_parallelism().map_or(2, NonZeroUsize::get);
        for _ in 0..count {
            let copies =
                listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
            let copies = copies.map_err(ReadError::Serve)?;
            let (doors, routes, stop) = (doors.clone(), routes.clone(), stop.clone());
            let door = (tls.clone(), authority.clone());
            threads.spawn_blocking(move || serve_here(copies, &doors, door, limits, routes, stop));
        }
        drop(listeners);
        let until_all_have_ended = async {
            while let Some(ended) = threads.join_next().await {
                ended.map_err(ReadError::Broken)?.map_err(ReadError::Serve)?;
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

/// What all threads share.
#[derive(Clone, Debug)]
struct Doors {
    /// For connections.
    all: Arc<Semaphore>,
    /// For those that have not carried an accepted request.
    places: KeyedSemaphore<IpAddr>,
    metrics: ReadMetrics,
    /// Whether the last connection found no place.
    full: Arc<AtomicBool>,
    /// Whether the last connection could not be accepted.
    failing: Arc<AtomicBool>,
}

/// Serves on this thread until `stop` and the end of what is under way.
fn serve_here<R>(
    listeners: Vec<TcpListener>,
    doors: &Doors,
    (tls, authority): (TlsAcceptor, Option<Arc<Authority>>),
    limits: Limits,
    routes: R,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: Fn(&mut ServiceConfig) + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let here = LocalSet::new();
    runtime.block_on(here.run_until(async move {
        let service = service_of(App::new().configure(routes)).await?;
        let metrics = doors.metrics.clone();
        let shared = Rc::new(Shared { tls, authority, service, limits, metrics, stop });
        let (connections, mut accepting) = (TaskTracker::new(), JoinSet::new());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = net::TcpListener::from_std(listener)?;
            let (shared, doors, connections) =
                (Rc::clone(&shared), doors.clone(), connections.clone());
            accepting.spawn_local(accept(listener, shared, doors, connections));
        }
        while accepting.join_next().await.is_some() {}
        connections.close();
        // Those that are left are dropped with this thread's tasks.
        let _finished = timeout(STOP, connections.wait()).await;
        Ok(())
    }))
}

/// What answers on this thread.
async fn service_of<A, F>(app: A) -> io::Result<F::Service>
where
    A: IntoServiceFactory<F, Request>,
    F: ServiceFactory<
            Request,
            Config = AppConfig,
            Response = ServiceResponse,
            Error = actix_web::Error,
            InitError = (),
        >,
{
    let failed = |()| io::Error::other("the routes of the read address cannot be set up");
    app.into_factory().new_service(AppConfig::default()).await.map_err(failed)
}

/// Takes connections until the stop.
async fn accept<S>(
    listener: net::TcpListener,
    shared: Rc<Shared<S>>,
    doors: Doors,
    connections: TaskTracker,
) where
    S: Service<Request, Response = ServiceResponse, Error = actix_web::Error> + 'static,
    S::Future: 'static,
{
    loop {
        let accepted = select! {
            biased;
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let was_failing = doors.failing.swap(accepted.is_err(), Ordering::Relaxed);
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
        let of_all = Arc::clone(&doors.all).try_acquire_owned().ok();
        let taken = of_all.zip(doors.places.try_acquire(&network(peer.ip())));
        let was_full = doors.full.swap(taken.is_none(), Ordering::Relaxed);
        if taken.is_none() && !was_full {
            tracing::warn!(%peer, "too many connections to the read address; some are closed");
        }
        let Some((of_all, place)) = taken else { continue };
        let shared = Rc::clone(&shared);
        connections.spawn_local(async move {
            converse(stream, peer, shared, ConnectionCount::of_address(place)).await;
            drop(of_all);
        });
    }
}
