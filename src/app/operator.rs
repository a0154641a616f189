//! `kubewarm run`: puts the operator together, runs it, and takes it down in order.

use super::{
    Error, callers, dumps, files,
    learned::{learn_subject, watch_authors},
    memory::MemorySplit,
    reads::{self, Upstream},
    tables::{CatalogTables, OperatorTables},
    verified::verifier,
    view::View,
};
use crate::{
    access::Standing,
    cli::RunArgs,
    controller::{Admission, Controller, InformerLimits, Sources},
    forecast::{Forecaster, Forecasts},
    metrics::{BuildInfo, Leadership, Metrics, OperatorMetrics},
    server::{self, Admin, Gate, Scrapers, ServeError},
    status::{self, ApiServer},
    telemetry,
};
use jiff::Timestamp;
use kubewarm_api::model::{AuthorCheck, CellKey, Home, Watched};
use kubewarm_cache::{
    informer::{Bounds, Registry, Timing},
    store::Catalog,
};
use kubewarm_client::{Buckets, Clients, Connection, Discovery, Elector, LeaseConfig, LeaseState};
use kubewarm_serve::{
    Watchers,
    callers::Callers,
    certificate::Certificate,
    server::{ReadError, bind as bind_reads},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end. With the shutdown delay below the 30 s that Kubernetes grants.
const DRAIN: Duration = Duration::from_secs(20);
/// Where the operator lives if nothing says otherwise.
const NAMESPACE: &str = "kubewarm-system";
/// The Lease that decides who writes statuses.
const LEASE: &str = "kubewarm";

type Tasks = JoinSet<&'static str>;

/// Runs the operator until a signal asks it to end.
pub(super) async fn run(args: RunArgs) -> Result<(), Error> {
    let started = Instant::now();
    callers::check(&args)?;
    reads::check(&args)?;
    let filter = telemetry::start(&args.log.filter, args.log.format)?;
    dumps::forbid();
    files::take_all();
    let signal = terminated().map_err(Error::Signal)?;
    let connection = Connection::load(
        args.connection.kubeconfig.as_deref(),
        args.connection.context.as_deref(),
    )?;
    let home = args.operator_namespace.as_deref();
    let namespace: Arc<str> =
        home.or_else(|| connection.service_account_namespace()).unwrap_or(NAMESPACE).into();
    let listening = server::bind(args.admin_addr)?;
    let certificate = certificate(&args, &namespace)?;
    tracing::info!(
        addr = %listening.address(), tls = certificate.is_some(), server = %connection.server(),
        %namespace, version = env!("CARGO_PKG_VERSION"), "admin listening"
    );

    let stop = CancellationToken::new();
    let (identity, buckets) = (identity().into(), Buckets::default());
    let watchers = Watchers::default();
    let seen = watchers.clone();
    let metrics = Arc::new(Metrics::new(&BuildInfo::current())?);
    let operator = metrics.operator().clone();
    let memory = MemorySplit::of(&args, &operator);
    let frame =
        Frame { namespace, identity, started, stop: stop.clone(), memory, buckets, watchers };
    let mut tasks = Tasks::new();
    let limits = frame.memory.limits(&args);
    let callers = reads::callers((&args, limits), &connection, &metrics)?;
    let Spawned { view, forecaster, upstream } =
        spawn_controller(&mut tasks, &connection, &args, &metrics, &frame)?;
    let of_cluster = (&connection, upstream);
    spawn_reads(&mut tasks, &args, of_cluster, (&view, &metrics, callers), &frame)?;
    spawn_status(&mut tasks, &connection, &view, (operator, forecaster), frame);
    let gate = Arc::new(Gate::default());
    let scrapers = callers::scrapers(&args, &connection, &metrics)?;
    let admin = observe(&metrics, &view, (&gate, scrapers, seen), filter)?;
    let until = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = listening.serve(admin, certificate, until).await {
            tracing::error!(%error, "the admin server failed");
        }
        "admin server"
    });
    supervise(tasks, stop, signal, || gate.begin_shutdown(), args.shutdown_delay).await
}

/// What the admin address shows of itself, if it speaks TLS.
fn certificate(args: &RunArgs, namespace: &str) -> Result<Option<Arc<Certificate>>, ServeError> {
    let files = args.admin_tls_cert_file.clone().zip(args.admin_tls_private_key_file.clone());
    let is_tls = args.admin_tls || files.is_some();
    Ok(is_tls.then(|| reads::certificate(files, namespace)).transpose()?)
}

/// What both halves need.
struct Frame {
    /// Where the operator lives.
    namespace: Arc<str>,
    /// Who this process is among the replicas.
    identity: Arc<str>,
    /// When it started.
    started: Instant,
    /// When to stop.
    stop: CancellationToken,
    /// How memory is split.
    memory: MemorySplit,
    /// What the requests for each namespace are drawn from.
    buckets: Buckets,
    /// Those who watch through the read API.
    watchers: Watchers,
}

/// What others go on with.
struct Spawned {
    view: View,
    forecaster: Forecaster,
    /// For reads.
    upstream: Upstream,
}

/// Discovery, the subject, and the controller with its cells.
fn spawn_controller(
    tasks: &mut Tasks,
    connection: &Connection,
    args: &RunArgs,
    metrics: &Metrics,
    frame: &Frame,
) -> Result<Spawned, Error> {
    let catalog = Catalog::new();
    let Frame { namespace, started, stop, buckets, memory, .. } = frame;
    // Of their own, so that nothing that a tenant may have sent keeps a loss of access from being noticed.
    let checks = Buckets::default();
    let bounds = Bounds {
        lists: args.max_concurrent_lists.get(),
        namespace_share: args.namespace_share.into(),
        buckets: checks.clone(),
    };
    let clients: Arc<dyn Clients> = Arc::new(connection.clients(buckets.clone()));
    let admission = Admission::new(Arc::clone(namespace));
    let tables =
        OperatorTables { tables: CatalogTables(catalog.clone()), admission: admission.clone() };
    let registry = Registry::new(
        Arc::clone(&clients),
        Arc::new(tables),
        metrics.engine(),
        bounds,
        Timing::default(),
    );
    let discovery = Discovery::new(connection.client());
    let (tell_subject, subject) = watch::channel(None);
    let (tell_authors, authors) = watch::channel(AuthorCheck::Unknown);
    let (reports, changes) = (registry.reports(), registry.changes());
    let proofs = registry.proofs();
    let forecasts = Forecasts::default();
    let sources = Sources {
        catalog: catalog.clone(),
        reports: reports.clone(),
        changes: changes.clone(),
        discovery: discovery.clone(),
        forecasts: forecasts.clone(),
        subject,
        authors,
        memory: memory.bounds(args),
        informers: InformerLimits {
            process: args.max_informers.get(),
            namespace: args.namespace_informers.get(),
        },
        admission,
    };
    let home =
        Home { namespace: Arc::clone(namespace), watched: Watched::of(&args.watch_namespaces) };
    let controller =
        Controller::new(sources, registry, home, metrics.operator().clone(), *started)?;
    let (declarations, own) = (controller.declarations(), controller.own());
    let forecaster = Forecaster::new(forecasts, Arc::clone(&clients), buckets.clone());
    let asking = (clients, checks);
    let operator = metrics.operator().clone();
    let verifier = verifier(asking, (&declarations, &own), &reports, changes.clone(), operator);
    let served = discovery.served();
    let access = verifier.reports();
    let until = stop.clone();
    tasks.spawn(async move {
        verifier.run(until).await;
        "access verifier"
    });
    tasks.spawn(watch_authors(connection.client(), tell_authors, stop.clone()));
    tasks.spawn(learn_subject(connection.client(), tell_subject, stop.clone()));
    let until = stop.clone();
    tasks.spawn(async move {
        discovery.run(until).await;
        "discovery"
    });
    let until = stop.clone();
    tasks.spawn(async move {
        controller.run(until).await.shut_down().await;
        "controller"
    });
    let home = Arc::clone(namespace);
    let statuses = Arc::default();
    let view = View { catalog, reports, own, declarations, access, home, statuses };
    let upstream = Upstream { served, changes, proofs };
    Ok(Spawned { view, forecaster, upstream })
}

/// The read API, if an address is given for it.
fn spawn_reads(
    tasks: &mut Tasks,
    args: &RunArgs,
    (connection, upstream): (&Connection, Upstream),
    (view, metrics, callers): (&View, &Metrics, Option<Arc<Callers>>),
    frame: &Frame,
) -> Result<(), Error> {
    let Some((address, callers)) = args.api.api_addr.0.zip(callers) else { return Ok(()) };
    let listening = bind_reads(address, frame.memory.limits(args))?;
    let files = args.api.tls_cert_file.clone().zip(args.api.tls_private_key_file.clone());
    let certificate = reads::certificate(files, &frame.namespace).map_err(ReadError::from)?;
    let authority = reads::client_authority(&args.api).map_err(ReadError::ClientAuthority)?;
    let (api, answering) = {
        let watched = (frame.watchers.clone(), frame.stop.clone());
        reads::api(args, (connection, callers), view, upstream, metrics, watched)?
    };
    let until = frame.stop.clone();
    tasks.spawn(async move {
        answering.run(until).await;
        "reads"
    });
    let (until, metrics) = (frame.stop.clone(), metrics.reads().clone());
    tasks.spawn(async move {
        let routes = move |app: &mut _| api.routes(app);
        let shown = (certificate, authority);
        if let Err(error) = listening.serve(shown, (routes, metrics), until).await {
            tracing::error!(%error, "the read server failed");
        }
        "read server"
    });
    Ok(())
}

/// The lease, and the writer that it lets write. The lease is given back only after the last status
/// has been written.
fn spawn_status(
    tasks: &mut Tasks,
    connection: &Connection,
    view: &View,
    (metrics, forecaster): (OperatorMetrics, Forecaster),
    Frame { namespace, identity, started, stop, buckets, .. }: Frame,
) {
    let config = LeaseConfig::new(&namespace, LEASE, &identity);
    let elector = Elector::new(&connection.client(), config);
    tasks.spawn(follow_lease(elector.state(), metrics.clone(), stop.clone()));
    let leadership = elector.leadership();
    let (planning, access) = (elector.leadership(), view.access.clone());
    let may_read = move |key: &CellKey| {
        let standing = access.get(key).map(|access| access.standing);
        matches!(standing, Some(Standing::Granted { .. }))
    };
    let until = stop.clone();
    tasks.spawn(async move {
        forecaster.run(move || planning.is_leader(), may_read, until).await;
        "forecaster"
    });
    let written = CancellationToken::new();
    let until = written.clone();
    tasks.spawn(async move {
        elector.run(until).await;
        "leader election"
    });
    let sink = ApiServer::new(&connection.client(), &identity, buckets);
    let profiles = view.clone().into_profiles(metrics);
    tasks.spawn(async move {
        status::run(profiles, sink, move || leadership.is_leader(), started, stop).await;
        written.cancel();
        "status writer"
    });
}

/// What the admin address answers from.
fn observe(
    metrics: &Arc<Metrics>,
    view: &View,
    (gate, scrapers, watchers): (&Arc<Gate>, Scrapers, Watchers),
    filter: telemetry::LogFilter,
) -> Result<Arc<Admin>, Error> {
    let all = || view.clone();
    let (scraped, profiles, cells) = (all(), all(), all());
    let (declared, unlisted) = (all(), all());
    metrics.observe_cells(move || scraped.cells())?;
    metrics.observe_profiles(move || profiles.profiles())?;
    metrics.observe_process(tokio::runtime::Handle::current())?;
    Ok(Arc::new(Admin {
        metrics: Arc::clone(metrics),
        cells: Box::new(move || cells.cells()),
        declared: Box::new(move || declared.declared()),
        unlisted: Box::new(move || unlisted.unlisted()),
        gate: Arc::clone(gate),
        scrapers,
        set_log_filter: Box::new(move |text| filter.set(text).map_err(|error| error.to_string())),
        watchers,
        now: Timestamp::now,
    }))
}

/// Tells the metrics who leads, and the log when that changes.
async fn follow_lease(
    mut state: watch::Receiver<LeaseState>,
    metrics: OperatorMetrics,
    stop: CancellationToken,
) -> &'static str {
    let following = async {
        loop {
            let leads = matches!(&*state.borrow_and_update(), LeaseState::Leader);
            metrics.set_leadership(if leads { Leadership::Leading } else { Leadership::Following });
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    stop.run_until_cancelled(following).await.unwrap_or(());
    "lease follower"
}

/// Unique to this process: the pod's name says which one, the rest that it is not its predecessor.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kubewarm".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
}

/// Completes when Kubernetes, or someone at a terminal, asks the process to end.
fn terminated() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Runs `tasks` until `signal` completes, says so by `announce`, serves on for `delay`, then asks
/// the tasks to stop and waits for them.
///
/// Each task returns its own name. One that ends before the signal takes the process down: half an
/// operator that still answers its probes is worse than a restart.
async fn supervise(
    mut tasks: Tasks,
    stop: CancellationToken,
    signal: impl Future<Output = ()>,
    announce: impl FnOnce(),
    delay: Duration,
) -> Result<(), Error> {
    let outcome = tokio::select! {
        () = signal => Ok(()),
        Some(ended) = tasks.join_next() => Err(match ended {
            Ok(name) => Error::TaskEnded(name),
            Err(error) => Error::TaskPanicked(error),
        }),
    };
    announce();
    if outcome.is_ok() {
        tracing::info!("asked to end");
        tokio::time::sleep(delay).await;
    }
    stop.cancel();
    let drained = timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    outcome?;
    drained.map_err(|_elapsed| Error::Undrained(tasks.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    async fn until(stop: CancellationToken, name: &'static str) -> &'static str {
        stop.cancelled().await;
        name
    }

    #[tokio::test(start_paused = true)]
    async fn the_signal_stops_every_task_after_the_delay() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::new());
        tasks.spawn(until(stop.clone(), "server"));
        let began = Instant::now();
        supervise(tasks, stop, ready(()), || (), Duration::from_secs(3)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_early_ends_the_process() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::new());
        tasks.spawn(until(stop.clone(), "server"));
        tasks.spawn(async { "controller" });
        let error = supervise(tasks, stop, pending(), || (), Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, Error::TaskEnded("controller")), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ignores_the_stop_is_reported_after_the_drain_time() {
        let mut tasks = Tasks::new();
        tasks.spawn(async { pending().await });
        let stop = CancellationToken::new();
        let error = supervise(tasks, stop, ready(()), || (), Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, Error::Undrained(1)), "{error}");
    }
}
