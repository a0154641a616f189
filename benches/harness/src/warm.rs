//! kubewarm's engine and store as a measured cache: one informer of all pods, in this process.

use crate::{
    drain::Strategy,
    lag::LagRecorder,
    subject::{self, SyncedCache},
};
use anyhow::{Context, Result};
use kubewarm_api::model::{
    Delta, DeltaOutcome, DeltaSink, GroupResource, InformerKey, InformerScope, InformerSpec,
    LabelRequirement, LabelSelector, LabelSelectorOperator, ListStrategy, ManagedFieldsPolicy,
    ProfileRef, Projection, Resource,
};
use kubewarm_cache::{
    informer::{
        InformerHandles, InformerMetrics, InformerRegistry, InformerTiming, RegistryLimits,
    },
    store::{ObjectQuery, StoreCatalog, StoreReader, StoreWriter, StoredObjectView},
};
use kubewarm_client::{ApiServerConnection, ConnectionOptions, NamespaceBuckets};
use std::{
    hint::black_box,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Syncs all pods and answers commands.
///
/// # Errors
///
/// If the cluster cannot be reached, or a command cannot be answered.
pub async fn serve(kubeconfig: &Path, strategy: Strategy) -> Result<()> {
    let connection = ApiServerConnection::load(&ConnectionOptions::of_file(kubeconfig))?;
    let clients = Arc::new(connection.new_account_clients(NamespaceBuckets::default()));
    let spec = pods(strategy)?;
    let (catalog, lag) = (StoreCatalog::new(), Arc::new(LagRecorder::default()));
    let warm = WarmStore { catalog: catalog.clone(), lag: Arc::clone(&lag), key: spec.key.clone() };

    let started = Instant::now();
    let bounds =
        RegistryLimits { lists: 8, namespace_quota: 100, buckets: NamespaceBuckets::default() };
    let mut registry = InformerRegistry::new(
        clients,
        catalog,
        Arc::new(InformerMetrics::new()?),
        bounds,
        InformerTiming::default(),
    )
    .with_sinks(move |_, writer| Box::new(Timed { writer, lag: Arc::clone(&lag) }));
    let mut changes = registry.changes().subscribe();
    let reports = registry.reports();
    registry.start(&spec);
    while !is_warm(&reports, &spec.key) {
        changes.changed().await.context("the registry has ended")?;
    }
    subject::serve(&warm, started.elapsed()).await?;
    registry.shut_down().await;
    Ok(())
}

struct WarmStore {
    catalog: StoreCatalog,
    lag: Arc<LagRecorder>,
    key: InformerKey,
}

impl WarmStore {
    fn reader(&self) -> Result<StoreReader> {
        self.catalog.reader(&self.key).context("the informer has no table")
    }
}

impl SyncedCache for WarmStore {
    fn objects(&self) -> u64 {
        self.reader().map_or(0, |reader| reader.usage().objects)
    }

    fn list(&self, key: &str, value: &str) -> Result<u64> {
        let carries = LabelRequirement::new(key, LabelSelectorOperator::In, [value])?;
        let wanted =
            ObjectQuery { labels: LabelSelector::new([carries]), ..ObjectQuery::default() };
        let (mut selected, mut objects) = (self.reader()?.select(&wanted, None, None), 0);
        while selected.filter_next() {}
        let mut count = |object: StoredObjectView<'_>| {
            black_box(object.body);
            objects += 1;
            ControlFlow::Continue(())
        };
        while selected.visit_next(&mut count) {}
        Ok(objects)
    }

    fn lag(&self) -> &LagRecorder {
        &self.lag
    }
}

/// Records the lag of every event once the store contains it.
struct Timed {
    writer: StoreWriter,
    lag: Arc<LagRecorder>,
}

impl DeltaSink for Timed {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        let body = if let Delta::Upsert(item) | Delta::WatchEvent(item) = &delta {
            Some(item.body)
        } else {
            None
        };
        let outcome = self.writer.apply(delta);
        if let (DeltaOutcome::Modified, Some(body)) = (outcome, body) {
            self.lag.seen_object(body);
        }
        outcome
    }
}

fn is_warm(reports: &InformerHandles, key: &InformerKey) -> bool {
    reports.get(key).is_some_and(|report| report.warmed.is_some())
}

fn pods(strategy: Strategy) -> Result<InformerSpec> {
    let of_own = InformerKey::all(
        Resource::new(GroupResource::new("", "pods")?, "v1")?,
        InformerScope::AllNamespaces,
        Projection::Full(ManagedFieldsPolicy::Keep),
    );
    let key = InformerKey { declared_in: Some("bench".into()), ..of_own };
    let profile = ProfileRef { namespace: "bench".into(), name: "pods".into() };
    let strategy = match strategy {
        Strategy::Whole => ListStrategy::List,
        Strategy::Streaming => ListStrategy::WatchList,
        Strategy::Paged => ListStrategy::PagedList,
        Strategy::Auto => ListStrategy::Auto,
    };
    let mut spec = InformerSpec::new(key, profile);
    spec.settings.lists.strategy = strategy;
    spec.settings.lists.watch_list_timeout = Duration::from_mins(1);
    Ok(spec)
}
