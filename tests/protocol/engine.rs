//! The engine (informers, stores and metrics) as the operator assembles it, with short waits, and
//! functions that read its counters.

use crate::{
    reply::{Feed, Reply},
    server::{Kind, PROBE_SECONDS, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::{
    DeltaSink, GroupResource, Identity, InformerKey, InformerScope, InformerSpec,
    ManagedFieldsPolicy, ProfileRef, Projection, Resource, Verb,
};
use kubewarm_cache::{
    informer::{
        InformerHandles, InformerMetrics, InformerPhase, InformerRegistry, InformerReport,
        InformerTiming, RegistryLimits, RelistReason, ResourceMetrics,
    },
    store::{StoreCatalog, StoreWriter, StoredObject},
};
use kubewarm_client::{ClientProvider, PeerReplicas};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use std::{
    fmt::Debug,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};
use strum::VariantArray as _;
use tokio::time::Instant;

/// Values of the metrics' label for the status codes of failed requests in these scripts. `none`
/// stands for a missing response.
const CODES: [&str; 7] = ["none", "403", "404", "410", "429", "500", "503"];

/// The time limit of each wait. On a busy machine, 200 MiB in an unoptimised build need half a
/// minute.
const PATIENCE: Duration = Duration::from_mins(5);

/// A registry of informers with its reports, stores and metrics.
pub(crate) struct Engine {
    registry: InformerRegistry,
    pub(crate) catalog: StoreCatalog,
    pub(crate) reports: InformerHandles,
    pub(crate) metrics: Arc<InformerMetrics>,
}

/// Clients for a scripted server. As token, each client sends the name of the identity, so that the
/// server knows who sent a request.
pub(crate) struct ByName(pub(crate) SocketAddr);

impl ClientProvider for ByName {
    fn client_for(&self, identity: &Identity) -> Arc<kube::Client> {
        let mut config = kube::Config::new(format!("http://{}", self.0).parse().unwrap());
        config.default_retry = false;
        config.read_timeout = None;
        config.auth_info.token = Some(identity.to_string().into());
        Arc::new(kube::Client::try_from(config).unwrap())
    }
}

/// Short waits between requests, with response timeouts that suit a busy machine.
pub(crate) fn quick() -> InformerTiming {
    InformerTiming {
        list_headers: Duration::from_secs(20),
        watch_headers: Duration::from_secs(20),
        list_window: Duration::from_secs(20),
        probe: Duration::from_secs(PROBE_SECONDS),
        probe_margin: Duration::from_millis(500),
        probe_grace: Duration::from_millis(200),
        probe_pause: Duration::from_millis(100),
        immediate_end: Duration::from_millis(300),
        backoff: Duration::from_millis(10),
        reconnect_jitter: Duration::from_millis(20),
        ..InformerTiming::default()
    }
}

impl Engine {
    /// An engine that reads from `server`.
    pub(crate) fn new(server: &ScriptedServer, timing: InformerTiming) -> Self {
        Self::with_clients(Arc::new(ByName(server.address)), timing)
    }

    pub(crate) fn with(
        server: &ScriptedServer,
        timing: InformerTiming,
        bounds: RegistryLimits,
    ) -> Self {
        Self::assemble(Arc::new(ByName(server.address)), timing, bounds)
    }

    /// An engine that sends its requests with `clients`.
    pub(crate) fn with_clients(clients: Arc<dyn ClientProvider>, timing: InformerTiming) -> Self {
        let bounds = RegistryLimits {
            lists: 8,
            namespace_quota: 100,
            buckets: kubewarm_client::NamespaceBuckets::default(),
        };
        Self::assemble(clients, timing, bounds)
    }

    fn assemble(
        clients: Arc<dyn ClientProvider>,
        timing: InformerTiming,
        bounds: RegistryLimits,
    ) -> Self {
        let catalog = StoreCatalog::new();
        let metrics = Arc::new(InformerMetrics::new().unwrap());
        let registry =
            InformerRegistry::new(clients, catalog.clone(), Arc::clone(&metrics), bounds, timing);
        Self { reports: registry.reports(), registry, catalog, metrics }
    }

    /// Lets informers copy their stores from these servers.
    pub(crate) fn with_peers(self, peers: &[&ScriptedServer]) -> Self {
        let clients = peers.iter().map(|peer| ByName(peer.address).client_for(&Identity::Operator));
        self.with_replicas(PeerReplicas::of_clients(clients.map(|client| (*client).clone())))
    }

    /// Lets informers copy their stores from these replicas.
    pub(crate) fn with_replicas(self, peers: PeerReplicas) -> Self {
        Self { registry: self.registry.with_peers(Some(peers)), ..self }
    }

    /// Replaces the sink of each informer by the result of `make`, which receives the writer of the
    /// store.
    pub(crate) fn with_sinks(
        self,
        make: impl Fn(&InformerKey, StoreWriter) -> Box<dyn DeltaSink> + Send + Sync + 'static,
    ) -> Self {
        Self { registry: self.registry.with_sinks(make), ..self }
    }

    /// The sum of a counter over all resources. `counter` reads the counter of one resource.
    pub(crate) fn count(&self, counter: impl Fn(&ResourceMetrics) -> u64) -> u64 {
        count(&self.metrics, counter)
    }

    pub(crate) fn relists(&self) -> u64 {
        self.count(|metrics| sum(&metrics.upstream_relists, RelistReason::VARIANTS))
    }

    /// The number of failed requests.
    pub(crate) fn failures(&self) -> u64 {
        let verbs = [Verb::List, Verb::Watch].map(Verb::as_str);
        let failed = |metrics: &ResourceMetrics, verb: &str, code: &str| {
            metrics.upstream_request_errors.with_label_values(&[verb, code]).get()
        };
        let of_verb = |metrics: &ResourceMetrics, verb| -> u64 {
            CODES.iter().map(|code| failed(metrics, verb, code)).sum()
        };
        self.count(|metrics| verbs.iter().map(|verb| of_verb(metrics, verb)).sum())
    }

    /// Stops every informer.
    pub(crate) async fn shut_down(self) {
        self.registry.shut_down().await;
    }

    /// Waits until the report of `key` satisfies `is`.
    pub(crate) async fn until(
        &self,
        key: &InformerKey,
        is: impl Fn(&InformerReport) -> bool,
    ) -> InformerReport {
        self.until_all(key, |report, _| is(report)).await
    }

    /// Waits until the store of `key` contains exactly these objects: see [`Engine::shown`].
    pub(crate) async fn until_shown(&self, key: &InformerKey, expected: &[&str]) -> InformerReport {
        self.until_all(key, |_, shown| shown == expected).await
    }

    /// Waits until the report and the store of `key` satisfy `is`.
    #[track_caller]
    pub(crate) fn until_all(
        &self,
        key: &InformerKey,
        is: impl Fn(&InformerReport, &[String]) -> bool,
    ) -> impl Future<Output = InformerReport> {
        let at = std::panic::Location::caller();
        async move {
            let until = Instant::now() + PATIENCE;
            loop {
                let report = self.reports.get(key).unwrap();
                let shown = self.shown(key);
                if is(&report, &shown) {
                    return report;
                }
                assert!(Instant::now() < until, "{at}: never came, last: {report:#?} {shown:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Waits until the informer has an open watch.
    pub(crate) async fn until_watching(&self, key: &InformerKey) -> InformerReport {
        self.until(key, |report| report.phase == InformerPhase::Watching).await
    }

    /// The objects in the store of `key`, in key order.
    pub(crate) fn objects(&self, key: &InformerKey) -> Vec<StoredObject> {
        let table = self.catalog.reader(key).unwrap();
        table.versions(None, usize::MAX).iter().filter_map(|(key, _)| table.get(key)).collect()
    }

    /// The objects in the store of `key` as `name@version`, in key order.
    pub(crate) fn shown(&self, key: &InformerKey) -> Vec<String> {
        let objects = self.objects(key).into_iter();
        objects
            .map(|object| {
                let version =
                    object.version.map_or_else(String::new, |version| version.to_string());
                format!("{}@{version}", object.key.name)
            })
            .collect()
    }
}

impl Deref for Engine {
    type Target = InformerRegistry;

    fn deref(&self) -> &InformerRegistry {
        &self.registry
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut InformerRegistry {
        &mut self.registry
    }
}

/// The sum of a counter over all resources. `counter` reads the counter of one resource.
pub(crate) fn count(metrics: &InformerMetrics, counter: impl Fn(&ResourceMetrics) -> u64) -> u64 {
    metrics.all().iter().map(|metrics| counter(metrics)).sum()
}

/// The sum of a counter over these label values.
pub(crate) fn sum<L: AsRef<str> + Debug>(counters: &IntCounterVec, labels: &[L]) -> u64 {
    labels.iter().map(|label| counters.with_label_values(&[label]).get()).sum()
}

/// Starts a server with this script, and an engine that runs these informers on it.
pub(crate) async fn run(
    timing: InformerTiming,
    informers: &[&InformerSpec],
    script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, Engine) {
    let server = ScriptedServer::start(script).await;
    let mut engine = Engine::new(&server, timing);
    for informer in informers {
        engine.start(informer);
    }
    (server, engine)
}

/// A script whose first watch the test writes through the feed.
pub(crate) fn fed(
    otherwise: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (Feed, impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static) {
    let (feed, watch) = Reply::fed();
    let watch = Mutex::new(Some(watch));
    let script = move |asked: &ReceivedQuery| {
        let first = (asked.kind == Kind::Watch).then(|| watch.lock().take()).flatten();
        first.unwrap_or_else(|| otherwise(asked))
    };
    (feed, script)
}

/// An informer in namespace `ns`, of a resource such as `pods` or `widgets.example.com`.
pub(crate) fn informer(resource: &str) -> InformerSpec {
    informer_in(resource, "ns")
}

/// An informer in this namespace.
pub(crate) fn informer_in(resource: &str, namespace: &str) -> InformerSpec {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let group_resource = GroupResource::new(group, plural).unwrap();
    let key = InformerKey::all(
        Resource::new(group_resource, "v1").unwrap(),
        InformerScope::Namespace(namespace.into()),
        Projection::Full(ManagedFieldsPolicy::Drop),
    );
    let mut spec = InformerSpec::new(key, ProfileRef { namespace: "ns".into(), name: "p".into() });
    spec.settings.list_slot_owner.max_concurrent_lists = 100;
    spec.settings.list_slot_owner.priority = 0;
    spec.settings.lists.watch_list_timeout = Duration::from_secs(20);
    spec.settings.max_staleness = Duration::from_mins(10);
    spec
}
