//! The running cells: one task each, started, held and stopped from here.

use super::{
    CellReport, Changes, InformerMetrics, OwnAccess, Plan, Proofs, RelistReason, Timing, Verb,
    backoff::Backoff,
    cell::Informer,
    slots::Slots,
    strategy::Strategies,
    task::{Shared, Task},
};
use crate::store::{Catalog, Writer};
use futures::FutureExt as _;
use kubewarm_api::model::{CellKey, CellSpec, DeltaSink, Fault, Identity, Mode, Reason};
use kubewarm_client::{Buckets, Clients, Expiring, KeyedSemaphore};
use parking_lot::RwLock;
use std::{collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// Bounds of the whole process.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Lists under way at once.
    pub lists: usize,
    /// Percent of them that the profiles of one namespace may hold.
    pub namespace_share: usize,
    /// What is asked for each namespace, for its readers and to compare its tables.
    pub buckets: Buckets,
}

/// Probes under way at once: each is one connection for some 2 s. A quarter of them, the share of one
/// namespace, is 16 quiet cells a second: under a bound of 30 s, some 400 of them.
const PROBES: usize = 128;

/// Comparisons under way at once: lists of metadata that nobody is in a hurry for.
const COMPARISONS: usize = 4;

/// Small questions whose last answer is kept: one a resource or namespace of an identity. Beyond it, one is
/// asked more often.
const MAX_ANSWERS: u64 = 4_096;
/// Nobody takes an answer to a question that was sent before his need arose: some seconds would do.
const ANSWERS_KEPT: Duration = Duration::from_mins(1);

/// All informers: reads their reports, and tells them of access lost and returned. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reports(Arc<RwLock<BTreeMap<CellKey, Arc<Informer>>>>);

/// What an informer writes to, made of the writer of its store.
type MakeSink = Box<dyn Fn(&CellKey, Writer) -> Box<dyn DeltaSink> + Send + Sync>;

/// Starts and stops the cells. One a process, owned by the controller.
pub struct Registry {
    shared: Arc<Shared>,
    clients: Arc<dyn Clients>,
    catalog: Catalog,
    make_sink: MakeSink,
    informers: Reports,
    tasks: JoinSet<()>,
}

impl Reports {
    pub(super) fn informer(&self, key: &CellKey) -> Option<Arc<Informer>> {
        self.0.read().get(key).cloned()
    }

    fn every(&self) -> Vec<Arc<Informer>> {
        self.0.read().values().cloned().collect()
    }

    /// One cell's report.
    #[must_use]
    pub fn get(&self, key: &CellKey) -> Option<CellReport> {
        self.informer(key).map(|informer| informer.report())
    }

    /// One cell's report without usage, latencies and undecodable objects: for every read.
    #[must_use]
    pub fn glance(&self, key: &CellKey) -> Option<CellReport> {
        self.informer(key).map(|informer| informer.glance())
    }

    /// A read was answered by the cell, which took so long.
    pub fn read_took(&self, key: &CellKey, took: Duration) {
        if let Some(informer) = self.informer(key) {
            informer.status().read_took(took);
        }
    }

    /// What a cell's own requests say of its access, without the cost of a report.
    #[must_use]
    pub fn own_access(&self, key: &CellKey) -> Option<OwnAccess> {
        self.informer(key).map(|informer| informer.own_access())
    }

    /// The API server refuses the cell, this verb at the least: its store is dropped, unless a profile
    /// says `ServeStale`. Or for too long nobody has verified that it does not ([`Reason::Unverified`]): its
    /// store stays. Either way nothing of it is read from now on, and its watch ends. Does nothing for a
    /// cell that does not exist, and for one that knows, whose reason may be another now.
    pub fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault) {
        if let Some(informer) = self.informer(key) {
            informer.lose(verb, fault);
        }
    }

    /// The API server allows the cell again: it is retried now instead of after its wait. Also for a cell
    /// that was never lost, but whose own requests were refused last.
    pub fn returned(&self, key: &CellKey) {
        if let Some(informer) = self.informer(key) {
            informer.regain();
        }
    }

    /// Every cell's report, in the order of their keys.
    #[must_use]
    pub fn all(&self) -> Vec<(CellKey, CellReport)> {
        let every = self.every().into_iter();
        every.map(|informer| (informer.key.clone(), informer.report())).collect()
    }
}

impl Registry {
    /// No cells yet. Their stores will be in `catalog`.
    #[must_use]
    pub fn new(
        clients: Arc<dyn Clients>,
        catalog: Catalog,
        metrics: Arc<InformerMetrics>,
        bounds: Bounds,
        timing: Timing,
    ) -> Self {
        let share = |all: usize| (all * bounds.namespace_share / 100).max(1);
        let shared = Shared {
            operator: clients.client_for(&Identity::Operator),
            metrics,
            lists: Slots::new(bounds.lists, share(bounds.lists)),
            probes: KeyedSemaphore::new(PROBES, share(PROBES)),
            comparisons: KeyedSemaphore::new(COMPARISONS, share(COMPARISONS)),
            buckets: bounds.buckets,
            strategies: Strategies::new(&timing),
            peeks: Expiring::new(MAX_ANSWERS, ANSWERS_KEPT),
            namespaces: Expiring::new(MAX_ANSWERS, ANSWERS_KEPT),
            changes: Changes::default(),
            timing,
        };
        Self {
            shared: Arc::new(shared),
            clients,
            catalog,
            make_sink: Box::new(|_, writer| Box::new(writer)),
            informers: Reports::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Has informers that start from now on write to what `make` makes of the writer of their store.
    #[must_use]
    pub fn with_sinks(
        self,
        make: impl Fn(&CellKey, Writer) -> Box<dyn DeltaSink> + Send + Sync + 'static,
    ) -> Self {
        Self { make_sink: Box::new(make), ..self }
    }

    /// A view of the reports that outlives any borrow of the registry.
    #[must_use]
    pub fn reports(&self) -> Reports {
        self.informers.clone()
    }

    /// Proves the tables of the cells current.
    #[must_use]
    pub fn proofs(&self) -> Proofs {
        Proofs::new(self.reports(), self.shared.buckets.clone())
    }

    /// Wakes when a cell changes phase, or namespaces come and go.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.shared.changes.clone()
    }

    /// Ends every task and waits for them.
    pub async fn shut_down(mut self) {
        for informer in self.informers.every() {
            informer.stop.cancel();
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// The informer of `spec`, and its task.
    fn make(&mut self, spec: &CellSpec) -> Arc<Informer> {
        if let Some(informer) = self.informers.informer(&spec.key) {
            return informer;
        }
        // Tasks that have ended are let go of here; there are at most as many as cells were stopped.
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        let writer = self.catalog.open(&spec.key, &spec.indexes);
        let reader = writer.reader();
        let sink = (self.make_sink)(&spec.key, writer);
        let client = self.clients.client_for(&spec.key.identity);
        let changes = shared.changes.clone();
        let informer = Arc::new(Informer::new(spec, &client, sink, reader, changes));
        self.informers.0.write().insert(spec.key.clone(), Arc::clone(&informer));
        let running = Arc::clone(&informer);
        self.tasks.spawn(async move {
            // Dropping a task is how it ends: its table is consistent between any two deltas.
            let stop = running.stop.clone();
            let _ended = stop.run_until_cancelled(supervise(running, shared)).await;
        });
        informer
    }

    /// Every informer there is, and whether it watches.
    #[must_use]
    pub fn running(&self) -> BTreeMap<CellKey, Mode> {
        let every = self.informers.every().into_iter();
        every.map(|informer| (informer.key.clone(), informer.mode())).collect()
    }

    /// Carries out `plan`. It stops last, so that a successor is there before its predecessor goes.
    pub fn apply(&mut self, plan: Plan) {
        // No `..`: a new field of `Plan` must be dealt with here before this compiles again.
        let Plan { start, hold, stop, retune } = plan;
        for spec in &retune {
            self.retune(spec);
        }
        for spec in &start {
            self.start(spec);
        }
        for spec in &hold {
            self.hold(spec);
        }
        for key in &stop {
            self.stop(key);
        }
    }

    /// Makes an informer, or resumes one that is held.
    pub fn start(&mut self, spec: &CellSpec) {
        let informer = self.make(spec);
        if informer.mode() != Mode::Active {
            informer.resume(spec);
        }
    }

    /// Ends an informer's watch, or makes an informer that has none. A store that is there is kept.
    pub fn hold(&mut self, spec: &CellSpec) {
        self.make(spec).pause();
    }

    /// Ends an informer and drops its store. Does nothing if there is none.
    pub fn stop(&mut self, key: &CellKey) {
        let Some(informer) = self.informers.0.write().remove(key) else { return };
        informer.stop.cancel();
        self.catalog.close(key);
        self.shared.changes.notify();
    }

    /// Changes how an informer runs, without interrupting it.
    pub fn retune(&mut self, spec: &CellSpec) {
        let Some(informer) = self.informers.informer(&spec.key) else { return };
        if informer.control.borrow().spec.indexes != spec.indexes {
            self.catalog.set_indexes(&spec.key, &spec.indexes);
        }
        informer.retune(spec);
    }

    /// Has a synced informer that watches list again for this reason. What it holds is served on.
    pub fn relist(&mut self, key: &CellKey, why: RelistReason) {
        if let Some(informer) = self.informers.informer(key) {
            informer.relist(why);
        }
    }
}

/// Runs the informer's task whenever it is to run; one that panics is reported, and begins again after a
/// wait. Alone writes the status and the store.
async fn supervise(informer: Arc<Informer>, shared: Arc<Shared>) {
    let mut panics = Backoff::new(shared.timing.backoff);
    let mut control = informer.control.subscribe();
    let mut relisted = 0;
    let mut was_closed = false;
    loop {
        // What is true now. Nothing is missed: whatever changes from here on ends the task below.
        let now = control.borrow_and_update().clone();
        informer.settle(&now.gate);
        if now.mode != Mode::Active || now.gate.is_closed() {
            was_closed |= now.gate.is_closed();
            // Also a change of tuning: what was kept to be served as stale may not be any more.
            let _changed = control.changed().await;
            continue;
        }
        if std::mem::take(&mut was_closed) {
            let mut status = informer.status();
            status.report.fault = None;
            if status.version().is_none() {
                // The time without access is no part of the warm-up.
                status.begin_warming();
            }
        }
        if let Some((number, why)) = now.relist.filter(|(number, _)| *number > relisted) {
            relisted = number;
            let mut status = informer.status();
            if status.is_synced() {
                status.owe(why);
            }
        }
        let ended = async {
            let _ends = control.wait_for(|control| control.ends != now.ends).await;
        };
        let task = match &informer.list_watch {
            Ok(list_watch) => Task::new(&informer, list_watch, &shared, now.gate.epoch),
            Err(fault) => {
                // Refused before any request; only an edit of the profile makes another cell.
                informer.failed(Verb::List, fault, 1, Duration::MAX);
                ended.await;
                continue;
            }
        };
        tokio::select! {
            biased;
            () = ended => continue,
            // Apart, so that a paused cell holds little.
            _panic = AssertUnwindSafe(Box::pin(task.run())).catch_unwind() => {}
        }
        let fault = Fault::new(Reason::Internal, "the cell's task panicked; see the log");
        let delay = panics.failed(None, fastrand::f64());
        tracing::error!(cell = %informer.key, "the task of a cell panicked; it starts again after a wait");
        informer.failed(Verb::List, &fault, panics.failures(), delay);
        tokio::time::sleep(delay).await;
        // What it held when it panicked may be half of something.
        informer.empty();
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").field(&self.0.read().len()).finish()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("informers", &self.informers).finish_non_exhaustive()
    }
}
