//! Runs the engine and its controller in this process, so that the test can read the stores.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kubewarm::controller::{Controller, ControllerDependencies, OperatorLimits, ProfileQuota};
use kubewarm::forecast::Forecaster;
use kubewarm::metrics::{BuildInfo, MetricsRegistry};
use kubewarm_api::model::{
    AccountPolicyEnforcement, InformerKey, ListPolicy, OperatorScope, WatchedNamespaces,
};
use kubewarm_cache::informer::{InformerHandles, InformerRegistry, InformerTiming, RegistryLimits};
use kubewarm_cache::store::{StoreCatalog, StoreReader};
use kubewarm_client::{ApiServerConnection, Discovery, NamespaceBuckets};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::contents::{difference, listed, read_store, states};
use crate::operator::NAMESPACE;
use crate::world::Failure;
use crate::writers::KINDS;

/// Timeout until stores equal the API server's lists. Informers notice an edited CRD within a
/// minute, and their lists wait for free slots.
const EQUAL: Duration = Duration::from_mins(2);

/// An engine (informers, stores and controller) that follows the profiles of a cluster and writes
/// nothing to it.
pub(crate) struct SoakEngine {
    catalog: StoreCatalog,
    reports: InformerHandles,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl SoakEngine {
    /// Starts the engine.
    pub(crate) fn start(connection: &ApiServerConnection) -> Result<Self, Failure> {
        let (catalog, stop) = (StoreCatalog::new(), CancellationToken::new());
        let metrics = MetricsRegistry::new(&BuildInfo::current())?;
        let registry = InformerRegistry::new(
            Arc::new(connection.new_account_clients(NamespaceBuckets::default())),
            catalog.clone(),
            metrics.informers(),
            RegistryLimits { lists: 8, namespace_quota: 100, buckets: NamespaceBuckets::default() },
            InformerTiming::default(),
        );
        let discovery = Discovery::new(connection.client());
        let reports = registry.reports();
        let sources = ControllerDependencies {
            catalog: catalog.clone(),
            discovery: discovery.clone(),
            forecasts: Forecaster::default(),
            subject: watch::channel(None).1,
            authors: watch::channel(AccountPolicyEnforcement::Enforced).1,
            limits: OperatorLimits::default(),
            lists: ListPolicy::default(),
            quota: ProfileQuota::new(NAMESPACE.into(), OperatorLimits::default()),
        };
        let operator = metrics.operator().clone();
        let started = Instant::now();
        let home =
            OperatorScope { namespace: NAMESPACE.into(), watched: WatchedNamespaces::Everywhere };
        let controller = Controller::new(sources, registry, home, operator, started)?;
        let mut tasks = JoinSet::new();
        let until = stop.clone();
        tasks.spawn(async move { discovery.run(until).await });
        let until = stop.clone();
        tasks.spawn(async move { controller.run(until).await.shut_down().await });
        Ok(Self { catalog, reports, tasks, stop })
    }

    /// The informers of the kinds that the test writes, and their stores.
    pub(crate) fn informers(&self) -> Vec<(InformerKey, StoreReader)> {
        let all = self.catalog.usage().into_iter().map(|(key, _)| key);
        let written =
            all.filter(|key| KINDS.iter().any(|kind| kind.plural == key.resource.resource()));
        written.filter_map(|key| self.catalog.reader(&key).map(|table| (key, table))).collect()
    }

    /// Waits until `wanted` informers exist and each store equals the API server's list. Returns
    /// the number of objects.
    pub(crate) async fn compare(&self, client: &Client, wanted: usize) -> Result<usize, Failure> {
        let deadline = Instant::now() + EQUAL;
        loop {
            match self.look(client, wanted).await {
                Ok(objects) => return Ok(objects),
                Err(error) if Instant::now() > deadline => {
                    let states = states(&self.reports);
                    return Err(format!("not within {EQUAL:?}: {error}; {states}").into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn look(&self, client: &Client, wanted: usize) -> Result<usize, Failure> {
        let informers = self.informers();
        if informers.len() != wanted {
            return Err(format!("{} informers instead of {wanted}", informers.len()).into());
        }
        let mut objects = 0;
        for (key, table) in informers {
            let expected = listed(client, &path(&key)).await?;
            let contents = read_store(&table)?;
            if contents != expected {
                return Err(format!("{key}: {}", difference(&expected, &contents)).into());
            }
            objects += contents.len();
        }
        Ok(objects)
    }

    /// Stops the engine.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

/// The path of an informer's list.
fn path(key: &InformerKey) -> String {
    let place = key.scope.namespace().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let labels: String =
        form_urlencoded::byte_serialize(key.labels.to_string().as_bytes()).collect();
    let resource = &key.resource;
    format!("{}{place}/{}?labelSelector={labels}", resource.api_path(), resource.resource())
}
