//! Creates, pauses and stops all informers, and runs one task for each informer.

use super::{
    AccessCounter, ChangeNotifier, FreshnessChecker, InformerChanges, InformerMetrics,
    InformerPermission, InformerPhase, InformerReport, InformerTiming, OwnRequests, RelistReason,
    Verb,
    report::new_results::NewResults,
    requests::{digest::ObjectSetDigest, list_method::ListMethodSupport, list_slots::ListSlots},
    shared_informer::SharedInformer,
    task::{
        InformerTask, TaskContext, backoff::RetryBackoff, protobuf_support::ProtobufSupport,
        session::InformerSession,
    },
};
use crate::store::{StoreCatalog, StoreTransfer, StoreWriter};
use futures::FutureExt as _;
use kubewarm_api::model::{
    DeltaSink, FaultReason, Identity, InformerKey, InformerSpec, ProfileMode, RequestFault,
};
use kubewarm_client::{
    ClientProvider, ExpiringCache, KeyedSemaphore, NamespaceBuckets, PeerReplicas,
    ServerVersionCache,
};
use kubewarm_wire::PeerStoreSummary;
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::task::JoinSet;

/// Limits on the requests of all informers in the process.
#[derive(Clone, Debug)]
pub struct RegistryLimits {
    /// Maximum number of concurrent lists.
    pub lists: usize,
    /// Percentage of the concurrent lists, consistency checks and probes (second, short watches)
    /// that the profiles of one namespace can use. The rest stays free for other namespaces.
    pub namespace_quota: usize,
    /// Rate limits for requests of informers, by the namespace of the informer's profile. Freshness
    /// checks and consistency checks use at most half of a limit, because access checks need the
    /// other half.
    pub buckets: NamespaceBuckets,
}

/// Maximum number of concurrent probes. A probe is a second, short watch of about 2 s, which shows
/// whether a silent watch missed events.
///
/// At the default `--namespace-quota` of 25 %, the profiles of one namespace can start 16 probes
/// per second. With a `maxStalenessSeconds` of 30, an informer with a silent watch sends a probe
/// about every 24 s. So the rate is enough for about 400 such informers.
const MAX_PROBES: usize = 128;

/// Maximum number of concurrent consistency checks. The number is small because no client waits for
/// a consistency check.
const MAX_CONSISTENCY_CHECKS: usize = 4;

/// Maximum number of cached consistent lists of one object, and of cached namespace lookups. If the
/// cache drops a result, kubewarm sends one more request.
const MAX_CACHED_RESULTS: u64 = 4_096;
/// How long consistent lists of one object and namespace lookups stay cached, so that informers can
/// share them. The exact time matters little, because each informer states how recent a result must
/// be, for example requested after the informer's own watch broke.
const RESULT_TTL: Duration = Duration::from_mins(1);

/// Handle to all informers of the process, cheap to clone. Callers read reports through the handle,
/// and the access checker publishes its decisions to the informers.
#[derive(Clone, Default)]
pub struct InformerHandles {
    informers: Arc<RwLock<BTreeMap<InformerKey, Arc<SharedInformer>>>>,
    new_results: Arc<NewResults>,
}

/// Age above which no replica copies a store: [`InformerHandles::transfer`].
const MAX_PEER_STORE_AGE: Duration = Duration::from_mins(5);

/// A store for another replica.
pub struct PeerStore {
    /// What the other replica must have at the end.
    pub summary: PeerStoreSummary,
    /// The objects and changes.
    pub transfer: StoreTransfer,
}

/// A function that creates the sink for one informer. The sink receives the informer's deltas and
/// writes them to the store with the `StoreWriter`.
type SinkFactory = Box<dyn Fn(&InformerKey, StoreWriter) -> Box<dyn DeltaSink> + Send + Sync>;

/// Creates and stops the informers. The process has one registry, which the controller owns.
pub struct InformerRegistry {
    shared: Arc<TaskContext>,
    clients: Arc<dyn ClientProvider>,
    catalog: StoreCatalog,
    make_sink: SinkFactory,
    informers: InformerHandles,
    tasks: JoinSet<()>,
}

impl InformerHandles {
    pub(super) fn informer(&self, key: &InformerKey) -> Option<Arc<SharedInformer>> {
        self.informers.read().get(key).cloned()
    }

    fn every(&self) -> Vec<Arc<SharedInformer>> {
        self.informers.read().values().cloned().collect()
    }

    /// Returns the report of one informer. `None` if the registry has no informer for `key`.
    pub fn get(&self, key: &InformerKey) -> Option<InformerReport> {
        self.informer(key).map(|informer| informer.report())
    }

    /// Returns the report of one informer without the store's size and latencies. Cheap enough to
    /// call for every client request.
    pub fn get_summary(&self, key: &InformerKey) -> Option<InformerReport> {
        self.informer(key).map(|informer| informer.get_summary())
    }

    /// Returns the counter of the changes after which clients' access to the informer's store can
    /// differ. `None` if the registry has no informer for `key`.
    pub fn access_counter(&self, key: &InformerKey) -> Option<AccessCounter> {
        self.informer(key).map(|informer| informer.access_counter.clone())
    }

    /// Returns the same as [`InformerHandles::get_summary`], and records that a client reads the
    /// store. Only for stores with recent reads, kubewarm sends the extra requests that a
    /// `maxStalenessSeconds` below 2 minutes needs.
    pub fn get_summary_for_read(&self, key: &InformerKey) -> Option<InformerReport> {
        let informer = self.informer(key)?;
        let is_first = informer.status().record_demand();
        if is_first {
            // The read can lower the age at which the store is stale. So wake the informer's task,
            // which then computes its deadlines again.
            informer.control.send_modify(|_| ());
        }
        Some(informer.get_summary())
    }

    /// Records the latency of a client's request that kubewarm answered from the informer's store.
    pub fn observe_read(&self, key: &InformerKey, took: Duration) {
        if let Some(informer) = self.informer(key) {
            informer.observe_read(took);
        }
    }

    /// Copies the store of the informer with this [`peer_store_path`] for another replica. `None`
    /// if no informer has the path, or its store is not fit to be copied:
    ///
    /// - It has no complete list, or a list is due or changes it.
    /// - Its informer is paused, or has no access.
    /// - It lacks an object that could not be decoded, or it is in JSON because one could not be
    ///   read in protobuf. A list can find another object.
    /// - It was last confirmed more than 5 minutes ago. kube-apiserver removes old versions from
    ///   etcd every 5 minutes, so a watch after the copy would fail.
    ///
    /// # Cost
    ///
    /// The cost of [`StoreReader::transfer`], and 0.2 µs for each object.
    ///
    /// [`StoreReader::transfer`]: crate::store::StoreReader::transfer
    /// [`peer_store_path`]: kubewarm_wire::peer_store_path
    pub fn transfer(&self, path: &str) -> Option<PeerStore> {
        let informer = self.every().into_iter().find(|informer| *informer.peer_path == *path)?;
        let report = informer.get_summary();
        let is_fit = matches!(
            report.phase,
            InformerPhase::Watching
                | InformerPhase::Silent
                | InformerPhase::Reconnecting
                | InformerPhase::Failing
        );
        let age = report.current_at?.elapsed();
        let is_whole = || {
            let status = informer.status();
            status.required_relist().is_none()
                && !status.has_undecodable()
                && !status.must_read_json()
        };
        if !is_fit || !is_whole() || age > MAX_PEER_STORE_AGE {
            return None;
        }
        let mut digest = ObjectSetDigest::with_fixed_keys();
        let transfer = informer.reader.transfer(|identity| digest.add(&identity))?;
        // The informer can have rejected an object, and removed it, while the store was copied.
        if !is_whole() {
            return None;
        }
        let summary = PeerStoreSummary::new(&transfer.end, digest.parts(), age);
        Some(PeerStore { summary, transfer })
    }

    /// Returns the results of an informer's own lists and watches.
    pub fn own_requests(&self, key: &InformerKey) -> Option<OwnRequests> {
        self.informer(key).map(|informer| informer.own_requests())
    }

    /// Returns when an informer's own requests have new results, or an informer was created, since
    /// the last call returned. The method supports one caller, the access checker, because each
    /// result wakes only one.
    pub async fn new_results(&self) {
        self.new_results.added().await;
    }

    /// Returns the informers whose own requests have results that the last call did not return, and
    /// the informers that were created since that call.
    pub fn take_new_results(&self) -> BTreeSet<InformerKey> {
        self.new_results.take()
    }

    /// Publishes the access checker's decision about an informer. An unknown key has no effect.
    ///
    /// If the decision blocks the informer, the informer's watch ends and clients cannot read the
    /// store. If the API server rejected the informer's identity, the informer also purges its
    /// store. If kubewarm only failed to confirm access in time ([`FaultReason::Unverified`]), the
    /// store keeps its objects. If a profile sets `onAccessLost: ServeStale`, the store keeps its
    /// objects in both cases, and this profile's clients can still read them.
    pub fn set_permission(&self, key: &InformerKey, permission: &InformerPermission) {
        if let Some(informer) = self.informer(key) {
            informer.set_permission(permission);
        }
    }

    /// Returns the reports of all informers, ordered by key.
    pub fn list_reports(&self) -> Vec<(InformerKey, InformerReport)> {
        let every = self.every().into_iter();
        every.map(|informer| (informer.key.clone(), informer.report())).collect()
    }
}

impl InformerRegistry {
    /// Creates a registry without informers. The registry opens the store of each later informer in
    /// `catalog`.
    pub fn new(
        clients: Arc<dyn ClientProvider>,
        catalog: StoreCatalog,
        metrics: Arc<InformerMetrics>,
        bounds: RegistryLimits,
        timing: InformerTiming,
    ) -> Self {
        let quota = |all: usize| (all * bounds.namespace_quota / 100).max(1);
        let shared = TaskContext {
            metrics,
            lists: ListSlots::new(bounds.lists, quota(bounds.lists)),
            probes: KeyedSemaphore::new(MAX_PROBES, quota(MAX_PROBES)),
            consistency_checks: KeyedSemaphore::new(
                MAX_CONSISTENCY_CHECKS,
                quota(MAX_CONSISTENCY_CHECKS),
            ),
            buckets: bounds.buckets,
            list_methods: ListMethodSupport::new(&clients.client_for(&Identity::Operator), &timing),
            protobuf: ProtobufSupport::default(),
            peeks: ExpiringCache::new(MAX_CACHED_RESULTS, RESULT_TTL),
            namespaces: ExpiringCache::new(MAX_CACHED_RESULTS, RESULT_TTL),
            changes: ChangeNotifier::default(),
            timing,
            reachability: clients.reachability(),
            peers: OnceLock::new(),
        };
        Self {
            shared: Arc::new(shared),
            clients,
            catalog,
            make_sink: Box::new(|_, writer| Box::new(writer)),
            informers: InformerHandles::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Sets the function that creates each later informer's sink, which writes the informer's
    /// deltas to its store. The operator uses this to limit the number of CacheProfiles in its own
    /// stores.
    pub fn with_sinks(
        self,
        make: impl Fn(&InformerKey, StoreWriter) -> Box<dyn DeltaSink> + Send + Sync + 'static,
    ) -> Self {
        Self { make_sink: Box::new(make), ..self }
    }

    /// Makes starting informers copy their stores from these replicas, if they can, instead of
    /// listing. `None` if replicas do not trust each other. Only the first call has an effect.
    pub fn with_peers(self, peers: Option<PeerReplicas>) -> Self {
        if let Some(peers) = peers {
            let _first = self.shared.peers.set(peers);
        }
        self
    }

    /// Returns a handle to the reports of all informers. The handle stays valid after the registry
    /// is dropped.
    pub fn reports(&self) -> InformerHandles {
        self.informers.clone()
    }

    /// Creates a checker that runs freshness checks of the registry's informers. The caller must be
    /// within the tokio runtime that is to run the checks.
    pub fn freshness_checker(&self) -> FreshnessChecker {
        let metrics = Arc::clone(&self.shared.metrics);
        FreshnessChecker::new(self.reports(), metrics, self.shared.buckets.clone())
    }

    /// Returns the cache of the API server's version that the informers use.
    pub fn server_version(&self) -> ServerVersionCache {
        self.shared.list_methods.version_cache().clone()
    }

    /// Returns the notifier that wakes its receivers when the state of an informer changes.
    pub fn changes(&self) -> ChangeNotifier {
        self.shared.changes.clone()
    }

    /// Stops every informer and waits until its task has ended.
    pub async fn shut_down(mut self) {
        for informer in self.informers.every() {
            informer.stop.cancel();
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Returns the informer of `spec`. If the registry has no such informer, creates it, opens its
    /// store and spawns its task.
    fn get_or_create(&mut self, spec: &InformerSpec) -> Arc<SharedInformer> {
        if let Some(informer) = self.informers.informer(&spec.key) {
            return informer;
        }
        // Remove the finished tasks of stopped informers. The `JoinSet` would otherwise keep their
        // results until shutdown.
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        let writer = self.catalog.open(&spec.key, &spec.indexes);
        let reader = writer.reader();
        let sink = (self.make_sink)(&spec.key, writer);
        let client = self.clients.client_for(&spec.key.identity);
        let changes = shared.changes.clone();
        let new_results = Arc::clone(&self.informers.new_results);
        let informer =
            Arc::new(SharedInformer::new(spec, &client, sink, reader, changes, new_results));
        self.informers.informers.write().insert(spec.key.clone(), Arc::clone(&informer));
        // Make the access checker visit the new informer: if the API server has already rejected an
        // access check for this key, the visit blocks the informer.
        self.informers.new_results.add(&spec.key);
        let running = Arc::clone(&informer);
        self.tasks.spawn(async move {
            // Cancelling the token `stop` drops the informer's task at an `await`. The store is
            // consistent then, because the task applies each delta without an `await`.
            let stop = running.stop.clone();
            let _ended = stop.run_until_cancelled(supervise(running, shared)).await;
        });
        informer
    }

    /// Returns the mode of every informer.
    pub fn running_informers(&self) -> BTreeMap<InformerKey, ProfileMode> {
        let every = self.informers.every().into_iter();
        every.map(|informer| (informer.key.clone(), informer.mode())).collect()
    }

    /// Applies `plan`. The registry stops informers last, so that a replacing informer starts
    /// before the replaced informer ends.
    pub fn apply(&mut self, plan: InformerChanges) {
        // No `..`: a new field of `InformerChanges` must not compile until this function handles
        // it.
        let InformerChanges { start, pause, stop, retune } = plan;
        for spec in &retune {
            self.retune(spec);
        }
        for spec in &start {
            self.start(spec);
        }
        for spec in &pause {
            self.pause(spec);
        }
        for key in &stop {
            self.stop(key);
        }
    }

    /// Creates an informer, or resumes a paused informer.
    pub fn start(&mut self, spec: &InformerSpec) {
        let informer = self.get_or_create(spec);
        if informer.mode() != ProfileMode::Active {
            informer.resume(spec);
        }
    }

    /// Pauses an informer, or creates a paused informer. An existing store keeps its objects.
    pub fn pause(&mut self, spec: &InformerSpec) {
        self.get_or_create(spec).pause();
    }

    /// Ends an informer and drops its store. An unknown key has no effect.
    pub fn stop(&mut self, key: &InformerKey) {
        let Some(informer) = self.informers.informers.write().remove(key) else { return };
        informer.access_counter.increment();
        informer.stop.cancel();
        self.informers.new_results.forget(key);
        self.catalog.close(key);
        self.shared.changes.notify();
    }

    /// Replaces the settings and the indexes of an informer without ending its watch. An unknown
    /// key has no effect.
    pub fn retune(&mut self, spec: &InformerSpec) {
        let Some(informer) = self.informers.informer(&spec.key) else { return };
        if informer.control.borrow().spec.indexes != spec.indexes {
            self.catalog.set_indexes(&spec.key, &spec.indexes);
        }
        informer.retune(spec);
    }

    /// Orders an informer to relist if it is active and synced. Clients can read its store until
    /// the relist finds a change.
    pub fn relist(&mut self, key: &InformerKey, why: RelistReason) {
        if let Some(informer) = self.informers.informer(key) {
            informer.relist(why);
        }
    }
}

/// Runs an informer's task again and again while the informer is active and not blocked. Only this
/// function and the task change the store's objects.
///
/// After a panic of the task, this function logs and reports the panic, waits for a backoff, and
/// purges the store. Then it runs the task again.
async fn supervise(informer: Arc<SharedInformer>, shared: Arc<TaskContext>) {
    let mut panics = RetryBackoff::new(shared.timing.backoff);
    let mut control = informer.control.subscribe();
    let mut relisted = 0;
    let mut was_blocked = false;
    loop {
        // Read `control` before the task starts. A later pause, relist or loss of access increases
        // `control.ends` and ends the task's run. The next iteration of this loop applies that
        // change.
        let now = control.borrow_and_update().clone();
        informer.purge_outdated(&now.access);
        if now.mode != ProfileMode::Active || now.access.is_blocked() {
            was_blocked |= now.access.is_blocked();
            // A change of the informer's settings must end this wait. For example, a profile can
            // remove `onAccessLost: ServeStale`; `purge_outdated` then purges the store.
            let _changed = control.changed().await;
            continue;
        }
        if std::mem::take(&mut was_blocked) {
            let mut status = informer.status();
            status.report.fault = None;
            if !status.is_synced() {
                status.restart_warmup();
            }
        }
        if let Some((number, why)) = now.relist.filter(|(number, _)| *number > relisted) {
            relisted = number;
            let mut status = informer.status();
            if status.is_synced() {
                status.require_relist(why);
            }
        }
        let ended = async {
            let _ends = control.wait_for(|control| control.ends != now.ends).await;
        };
        let task = match &informer.list_watch {
            Ok(list_watch) => {
                let refusals = now.access.refusals;
                InformerTask::new(InformerSession::new(&informer, list_watch, &shared, refusals))
            }
            Err(fault) => {
                // kubewarm itself rejects this informer, for example because of a forbidden Secret
                // payload, and sends no request. Only an edit of the profile can help, and the edit
                // creates another informer.
                informer.record_failure(Verb::List, fault, 1, Duration::MAX);
                ended.await;
                continue;
            }
        };
        tokio::select! {
            biased;
            () = ended => continue,
            // Box the task's large future, so that a paused informer uses little memory.
            _panic = AssertUnwindSafe(Box::pin(task.run())).catch_unwind() => {}
        }
        let fault =
            RequestFault::new(FaultReason::Internal, "the informer's task panicked; see the log");
        let delay = panics.record_failure(None, fastrand::f64());
        tracing::error!(informer = %informer.key, "the task of an informer panicked; it starts again after a wait");
        informer.record_failure(Verb::List, &fault, panics.failures(), delay);
        tokio::time::sleep(delay).await;
        // The panic can have left the store with a partly applied delta.
        informer.purge();
    }
}

impl fmt::Debug for InformerHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerHandles").field(&self.informers.read().len()).finish()
    }
}
