//! `kubewarm run`: starts the operator's tasks, and stops them at the shutdown.

use super::{
    AppError,
    access_checker::new_access_checker,
    api_ca::ApiCaPublisher,
    callers,
    certificate_secret::CertificateSecret,
    core_dumps,
    fail_open::FailOpenSlices,
    file_limit,
    injection_parameters::InjectionParameters,
    listener_certificates::ListenerCertificates,
    memory::MemorySplit,
    operator_identity::{learn_subject, watch_authors},
    operator_view::OperatorView,
    rbac::{RbacContext, spawn_rbac},
    reads::{self, ReadApiContext},
    supervise::{ServiceTasks, supervise, termination_signal},
};
use crate::{
    cli::{self, CallerAuthorizationMode, CertificateArgs, RunArgs},
    controller::{Controller, ControllerDependencies, ProfileQuota},
    forecast::{self, ForecastSampler, Forecaster},
    metrics::{BuildInfo, MetricsRegistry, OperatorMetrics},
    server::{self, AdminState, MetricsAccess, ReadinessTracker},
    status::{self, EventRecorder, StatusWriter},
    telemetry,
};
use jiff::Timestamp;
use kubewarm_api::{
    manifests::{LEASE, NAMESPACE},
    model::{AccountPolicyEnforcement, InformerKey, OperatorScope, WatchedNamespaces},
};
use kubewarm_cache::{
    informer::{
        FreshnessChecker, InformerRegistry, InformerTiming, PermissionState, RegistryLimits,
    },
    store::StoreCatalog,
};
use kubewarm_client::{
    ApiClient, ApiServerConnection, ClientProvider, Discovery, LeaderElector, LeaseState,
    NamespaceBuckets, PeerReplicas,
};
use kubewarm_serve::{
    ApplierRegistry, ServeError, UserReads, WatcherRegistry, callers::AuthorizationMode,
    server::bind as bind_reads,
};
use std::sync::Arc;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

pub(super) async fn run(args: RunArgs) -> Result<(), AppError> {
    let started = Instant::now();
    callers::validate_flags(&args)?;
    reads::validate_flags(&args)?;
    let filter = telemetry::start(&args.log, args.log_format)?;
    for variable in cli::unknown_variables() {
        tracing::warn!(
            %variable,
            "no flag has this environment variable; remove it, or use the name that `kubewarm run --help` prints"
        );
    }
    core_dumps::disable();
    file_limit::raise();
    let signal = termination_signal().map_err(AppError::Signal)?;
    let connection = args.cluster.connect()?;
    let flag = args.operator_namespace.as_deref();
    let namespace: Arc<str> =
        flag.or_else(|| connection.service_account_namespace()).unwrap_or(NAMESPACE).into();
    let listening = server::bind(args.admin_addr).map_err(AppError::Serve)?;
    let certificates = ListenerCertificates::load(&args, &namespace)?;
    tracing::info!(
        addr = %listening.address(), tls = certificates.admin.is_some(), server = %connection.server(),
        %namespace, version = env!("CARGO_PKG_VERSION"), "admin listening"
    );

    let stop = CancellationToken::new();
    let (buckets, watchers) = (NamespaceBuckets::default(), WatcherRegistry::default());
    let user_reads = UserReads::default();
    let seen = (watchers.clone(), user_reads.clone());
    let metrics = Arc::new(MetricsRegistry::new(&BuildInfo::current())?);
    let operator = metrics.operator().clone();
    let memory = MemorySplit::detect(&args, &operator);
    let context = OperatorContext {
        namespace,
        started,
        stop: stop.clone(),
        memory,
        clients: Arc::new(connection.new_account_clients(buckets.clone())),
        buckets,
        forecasts: Forecaster::default(),
        watchers,
        user_reads,
        certificates: certificates.clone(),
    };
    let mut tasks = ServiceTasks::default();
    let identity = new_lease_identity();
    let elector = LeaderElector::new(&connection.client(), &context.namespace, LEASE, &identity);
    let authorities =
        spawn_certificates(&mut tasks, &args.certificate, &connection, &context, &elector);
    let (view, freshness_checker) =
        spawn_controller(&mut tasks, &connection, &args, &metrics, &context)?;
    spawn_reads(&mut tasks, &args, &connection, freshness_checker, &view, &metrics, &context)?;
    metrics.observe_certificates(certificates.list())?;
    spawn_status(&mut tasks, &connection, &view, operator, context, elector, &identity);
    let mut readiness = ReadinessTracker::new(view.peers.clone());
    if let Some(authorities) = authorities {
        readiness = readiness.with_certificate(authorities);
    }
    if args.certificate.inject {
        readiness = readiness.with_fallback();
    }
    let readiness = Arc::new(readiness);
    let scrapers = callers::metrics_access(&args, &connection, &metrics)?;
    let admin = new_admin_state(&metrics, &view, &readiness, scrapers, seen, filter)?;
    let until = stop.clone();
    tasks.spawn("admin server", async move {
        if let Err(error) = listening.serve(admin, certificates.admin, until).await {
            tracing::error!(%error, "the admin server failed");
        }
    });
    supervise(tasks, stop, signal, || readiness.begin_shutdown(), args.shutdown_delay).await
}

/// Starts the task that keeps this replica's certificate equal to the Secret's, and with `--inject`
/// the task that publishes the CAs in other namespaces. Returns the CAs, or `None` without
/// `--certificate-secret`.
fn spawn_certificates(
    tasks: &mut ServiceTasks,
    args: &CertificateArgs,
    connection: &ApiServerConnection,
    context: &OperatorContext,
    elector: &LeaderElector,
) -> Option<watch::Receiver<Option<Arc<str>>>> {
    let serving = context.certificates.issued.clone()?;
    let (sender, authorities) = watch::channel(None);
    let client = ApiClient::new(&connection.client());
    let secret = CertificateSecret {
        client: client.clone(),
        namespace: Arc::clone(&context.namespace),
        name: args.certificate_secret.clone()?,
        names: args.names(&context.namespace),
        lifetimes: args.lifetimes(),
        serving,
        authorities: sender,
    };
    let synchronizing = secret.run(elector.state());
    tasks.spawn("certificates", context.stop.clone().run_until_cancelled_owned(synchronizing));
    if args.inject {
        let slices = FailOpenSlices::new(client.clone(), Arc::clone(&context.namespace));
        let mirroring = slices.run(elector.state());
        tasks.spawn("fail-open slices", context.stop.clone().run_until_cancelled_owned(mirroring));
        let parameters = args.inject_policy.then(|| InjectionParameters {
            client: client.clone(),
            namespace: Arc::clone(&context.namespace),
            domain: args.domain(),
        });
        let namespace = Arc::clone(&context.namespace);
        let publisher = ApiCaPublisher::new(client, namespace, authorities.clone(), parameters);
        let publishing = publisher.run(elector.state());
        tasks.spawn("CA publisher", context.stop.clone().run_until_cancelled_owned(publishing));
    }
    Some(authorities)
}

struct OperatorContext {
    /// The operator namespace.
    namespace: Arc<str>,
    started: Instant,
    stop: CancellationToken,
    memory: MemorySplit,
    /// Clients that authenticate as the informers' identities.
    clients: Arc<dyn ClientProvider>,
    /// Rate limits, one per namespace, for kubewarm's requests to the API server. Access checks and
    /// the informers' own requests count against separate rate limits, so that other requests do
    /// not delay the detection of lost access.
    buckets: NamespaceBuckets,
    forecasts: Forecaster,
    watchers: WatcherRegistry,
    user_reads: UserReads,
    certificates: ListenerCertificates,
}

/// Starts the tasks for API discovery, for access checks and for the controller with its informers.
fn spawn_controller(
    tasks: &mut ServiceTasks,
    connection: &ApiServerConnection,
    args: &RunArgs,
    metrics: &MetricsRegistry,
    context: &OperatorContext,
) -> Result<(OperatorView, FreshnessChecker), AppError> {
    let counted = metrics.informers();
    let catalog = StoreCatalog::new().with_error_counter(move |resource| {
        counted.for_resource(resource).store_decode_errors.inc();
    });
    let OperatorContext { namespace, started, stop, clients, memory, forecasts, .. } = context;
    // Access checks and informers have their own rate limits. All other requests of kubewarm to the
    // API server therefore cannot delay the detection of lost access.
    let checks = NamespaceBuckets::default();
    let bounds = RegistryLimits {
        lists: args.max_concurrent_lists.get(),
        namespace_quota: args.namespace_quota.into(),
        buckets: checks.clone(),
    };
    let quota = ProfileQuota::new(Arc::clone(namespace), memory.operator_limits(args));
    let registry = InformerRegistry::new(
        Arc::clone(clients),
        catalog.clone(),
        metrics.informers(),
        bounds,
        InformerTiming::default(),
    );
    let shared_quota = quota.clone();
    let peers = args.api.api_addr.and_then(|_| args.api.peers()).map(PeerReplicas::new);
    let registry = registry.with_peers(peers.clone());
    // The informers for which `is_own` returns true watch CacheProfiles. `shared_quota.guard`
    // limits the number of CacheProfiles in the store of such an informer.
    let registry = registry.with_sinks(move |key, writer| {
        if key.is_own() { Box::new(shared_quota.guard(writer, key)) } else { Box::new(writer) }
    });
    let discovery = Discovery::new(connection.client());
    let (subject_sender, subject) = watch::channel(None);
    let (authors_sender, authors) = watch::channel(AccountPolicyEnforcement::Unknown);
    let (reports, changes) = (registry.reports(), registry.changes());
    let server_version = registry.server_version();
    let freshness_checker = registry.freshness_checker();
    let sources = ControllerDependencies {
        catalog: catalog.clone(),
        discovery: discovery.clone(),
        forecasts: forecasts.clone(),
        subject,
        authors,
        limits: memory.operator_limits(args),
        lists: args.lists.policy(),
        quota,
    };
    let scope = OperatorScope {
        namespace: Arc::clone(namespace),
        watched: WatchedNamespaces::of(&args.watch_namespaces),
    };
    let controller =
        Controller::new(sources, registry, scope, metrics.operator().clone(), *started)?;
    let (declarations, profile_informers) =
        (controller.declarations(), controller.profile_informers());
    let checker = new_access_checker(
        Arc::clone(clients),
        checks,
        declarations.clone(),
        &profile_informers,
        &reports,
        metrics.operator().clone(),
        args.api.outage_grace_period,
    );
    let served = discovery.served();
    let access = checker.reports();
    tasks.spawn("access checker", checker.run(stop.clone()));
    let authors = watch_authors(connection.client(), authors_sender);
    tasks.spawn("author check", stop.clone().run_until_cancelled_owned(authors));
    let subject = learn_subject(connection.client(), subject_sender);
    tasks.spawn("subject", stop.clone().run_until_cancelled_owned(subject));
    let until = stop.clone();
    tasks.spawn("discovery", async move { discovery.run(until).await });
    let until = stop.clone();
    tasks.spawn("controller", async move { controller.run(until).await.shut_down().await });
    let operator_namespace = Arc::clone(namespace);
    let statuses = Arc::default();
    let view = OperatorView {
        catalog,
        reports,
        changes,
        served_resources: served,
        server_version,
        profile_informers,
        declarations,
        access,
        operator_namespace,
        peers,
        appliers: ApplierRegistry::default(),
        statuses,
    };
    Ok((view, freshness_checker))
}

/// Starts the read API, unless `--api-addr` is empty.
fn spawn_reads(
    tasks: &mut ServiceTasks,
    args: &RunArgs,
    connection: &ApiServerConnection,
    freshness_checker: FreshnessChecker,
    view: &OperatorView,
    metrics: &MetricsRegistry,
    context: &OperatorContext,
) -> Result<(), AppError> {
    let (Some(address), Some(certificate)) = (args.api.api_addr, context.certificates.read.clone())
    else {
        return Ok(());
    };
    let limits = context.memory.reader_limits(args);
    let authorization = spawn_authorization(tasks, args, connection, metrics, context)?;
    let callers = reads::new_caller_gate(args, limits, connection, metrics, authorization)?;
    let listening = bind_reads(address, limits).map_err(AppError::Read)?;
    let authority = reads::load_client_authority(&args.api)
        .map_err(ServeError::of("the CA of client certificates cannot be loaded"))
        .map_err(AppError::Read)?;
    let (slots, counted) = (listening.connections(), Arc::clone(&callers));
    metrics.observe_read_limits(move || [slots.usage(), counted.usage()].concat())?;
    let (watchers, stop) = (context.watchers.clone(), context.stop.clone());
    let user_reads = context.user_reads.clone();
    let runtime = ReadApiContext {
        callers,
        freshness_checker,
        watchers,
        user_reads,
        change_cache_bytes: limits.change_cache_bytes,
        stop,
    };
    let (api, service) = reads::new_read_api(args, connection, view, metrics, runtime)?;
    let until = context.stop.clone();
    tasks.spawn("reads", async move { service.run(until).await });
    let until = context.stop.clone();
    tasks.spawn("read server", async move {
        if let Err(error) = listening.serve(certificate, authority, api, until).await {
            tracing::error!(%error, "the read server failed");
        }
    });
    Ok(())
}

/// Returns how the read API authorizes its clients. With `--authorization=rbac`, also starts the
/// informers of RBAC rules.
fn spawn_authorization(
    tasks: &mut ServiceTasks,
    args: &RunArgs,
    connection: &ApiServerConnection,
    metrics: &MetricsRegistry,
    context: &OperatorContext,
) -> Result<AuthorizationMode, AppError> {
    Ok(match args.api.authorization {
        CallerAuthorizationMode::Reviews => AuthorizationMode::Reviews,
        CallerAuthorizationMode::SharedReviews => AuthorizationMode::SharedReviews,
        CallerAuthorizationMode::Rbac => {
            let rbac = RbacContext {
                clients: Arc::clone(&context.clients),
                informer_metrics: metrics.informers(),
                operator_metrics: metrics.operator().clone(),
                max_bytes: context.memory.rbac_bytes(),
                client: connection.client(),
                operator_namespace: Arc::clone(&context.namespace),
                stop: context.stop.clone(),
            };
            AuthorizationMode::Rbac(spawn_rbac(tasks, rbac)?)
        }
    })
}

/// Starts the leader election, the forecaster and the status writer. kubewarm releases the Lease
/// only after the status writer has stopped, so that the next leader does not write statuses at the
/// same time.
fn spawn_status(
    tasks: &mut ServiceTasks,
    connection: &ApiServerConnection,
    view: &OperatorView,
    metrics: OperatorMetrics,
    OperatorContext { started, stop, clients, buckets, forecasts, .. }: OperatorContext,
    elector: LeaderElector,
    identity: &str,
) {
    let following = follow_lease(elector.state(), metrics.clone());
    tasks.spawn("lease follower", stop.clone().run_until_cancelled_owned(following));
    let lease = elector.state();
    let (planning, access) = (elector.state(), view.access.clone());
    let can_read = move |key: &InformerKey| {
        let state = access.get(key).map(|access| access.state);
        matches!(state, Some(PermissionState::Granted { .. }))
    };
    let sampler = ForecastSampler::new(clients, forecast::REQUEST_PAUSE, buckets.clone());
    let is_leader = move || planning.borrow().is_leader();
    let forecasting = forecast::run(forecasts, sampler, is_leader, can_read, stop.clone());
    tasks.spawn("forecaster", forecasting);
    let written = CancellationToken::new();
    tasks.spawn("leader election", elector.run(written.clone()));
    let writer = StatusWriter::new(&connection.client());
    let recorder = EventRecorder::new(&connection.client(), identity, buckets);
    let view = view.clone();
    let round =
        move |reporter: &mut _, is_leader, clock| view.update_statuses(reporter, is_leader, clock);
    let count = move |outcome| metrics.count_status_write(outcome);
    let is_leader = move || lease.borrow().is_leader();
    tasks.spawn("status writer", async move {
        status::run(round, count, writer, recorder, is_leader, started, stop).await;
        written.cancel();
    });
}

/// Returns the state of the admin server. This function also registers the metrics that kubewarm
/// computes during each scrape.
fn new_admin_state(
    metrics: &Arc<MetricsRegistry>,
    view: &OperatorView,
    readiness: &Arc<ReadinessTracker>,
    scrapers: MetricsAccess,
    (watchers, user_reads): (WatcherRegistry, UserReads),
    filter: telemetry::LogFilter,
) -> Result<Arc<AdminState>, AppError> {
    let all = || view.clone();
    let (profiles, declared, unlisted) = (all(), all(), all());
    let (scraped, reports) = (view.reports.clone(), view.reports.clone());
    metrics.observe_informers(move || scraped.list_reports())?;
    metrics.observe_profiles(move || profiles.snapshot_profiles())?;
    let appliers = view.appliers.clone();
    metrics.observe_appliers(move || appliers.count_users())?;
    metrics.observe_process(tokio::runtime::Handle::current())?;
    Ok(Arc::new(AdminState {
        metrics: Arc::clone(metrics),
        informers: Box::new(move || reports.list_reports()),
        declared: Box::new(move || declared.declared_informers()),
        failing_watches: Box::new(move || unlisted.list_failing_watches()),
        readiness: Arc::clone(readiness),
        scrapers,
        set_log_filter: Box::new(move |text| filter.set(text).map_err(|error| error.to_string())),
        watchers,
        user_reads,
        appliers: view.appliers.clone(),
        now: Timestamp::now,
    }))
}

async fn follow_lease(mut state: watch::Receiver<LeaseState>, metrics: OperatorMetrics) {
    loop {
        metrics.set_leader(&state.borrow_and_update());
        if state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Identity of this process in the leader election: the pod's name and a random number. The number
/// distinguishes the process from earlier processes of the pod.
fn new_lease_identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kubewarm".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
}
