//! The running cells: one task each, started, held and stopped from here.

use super::{
    CellReport, Changes, Informers, Meter, OwnAccess, Proofs, RelistReason, Slots, Timing, Verb,
    backoff::Backoff,
    board::Board,
    compare::Turn,
    decode::Decoder,
    fence::{Face, Faces},
    lanes::{Lane, Lanes},
    list::Gap,
    list_watch::ListWatch,
    namespaces::Namespaces,
    room::Room,
    state::Signal,
    strategy::Strategies,
    task::{Shared, SharedSink, Task, is_followed},
};
use crate::{
    cluster::{Buckets, Clients},
    model::{
        CellKey, CellSpec, DeltaSink, Extent, Fault, FieldPath, Identity, Mode, Reason,
        ResourceVersion, Tuning,
    },
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// Where the tables of cells come from and go to.
pub trait Tables: Send + Sync + 'static {
    /// An empty table for `key`, in place of any other.
    fn open(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>) -> Box<dyn DeltaSink>;
    /// The declared indexes of a table, from now on.
    fn set_indexes(&self, key: &CellKey, indexes: &BTreeSet<FieldPath>);
    /// The table is not needed any more.
    fn close(&self, key: &CellKey);
}

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

/// Reads the cells' reports, and tells the cells of access lost and returned. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reports(Faces);

/// Starts and stops the cells. One a process, owned by the controller.
pub struct Registry {
    shared: Arc<Shared>,
    clients: Arc<dyn Clients>,
    tables: Arc<dyn Tables>,
    cells: BTreeMap<CellKey, Cell>,
    reports: Reports,
    tasks: JoinSet<()>,
}

struct Cell {
    spec: CellSpec,
    face: Arc<Face>,
    tuning: watch::Sender<Tuning>,
    /// `None` while the cell is held.
    running: Option<Running>,
}

/// A cell's task, as seen by whoever may end it.
struct Running {
    stop: CancellationToken,
    /// Locked while the task does anything.
    turn: Arc<Mutex<()>>,
}

impl Running {
    /// Ends the task: on return it does nothing any more, so that what follows on its table and its
    /// board is not mixed with the last of its own. Blocks for as long as it works on what has just
    /// arrived.
    fn end(self) {
        let _turn = self.turn.lock();
        self.stop.cancel();
    }
}

/// Runs `task` until `stop` is cancelled, and not a step further.
async fn run_in_turns(
    task: impl Future<Output = ()>,
    stop: CancellationToken,
    turn: Arc<Mutex<()>>,
) {
    let mut task = pin!(task);
    let in_turns = poll_fn(|context| {
        let _turn = turn.lock();
        if stop.is_cancelled() { Poll::Ready(()) } else { task.as_mut().poll(context) }
    });
    // Dropping the task is how it ends: its table is consistent between any two deltas.
    let _ended = stop.run_until_cancelled(in_turns).await;
}

impl Reports {
    pub(super) fn face(&self, key: &CellKey) -> Option<Arc<Face>> {
        self.0.read().get(key).cloned()
    }

    /// One cell's report.
    #[must_use]
    pub fn get(&self, key: &CellKey) -> Option<CellReport> {
        self.face(key).map(|face| face.board.report())
    }

    /// One cell's report without latencies and undecodable objects: for every read.
    #[must_use]
    pub fn glance(&self, key: &CellKey) -> Option<CellReport> {
        self.face(key).map(|face| face.board.glance())
    }

    /// A read was answered by the cell, which took so long.
    pub fn read_took(&self, key: &CellKey, took: Duration) {
        if let Some(face) = self.face(key) {
            face.board.read_took(took);
        }
    }

    /// What a cell's own requests say of its access, without the cost of a report.
    #[must_use]
    pub fn own_access(&self, key: &CellKey) -> Option<OwnAccess> {
        self.face(key).map(|face| face.board.own_access())
    }

    /// Whether a cell exists that does not know of any loss of access, without the cost of a report.
    #[must_use]
    pub fn is_open(&self, key: &CellKey) -> bool {
        self.face(key).is_some_and(|face| !face.board.state().access.is_closed())
    }

    /// Every cell's report, in the order of their keys.
    #[must_use]
    pub fn all(&self) -> Vec<(CellKey, CellReport)> {
        let faces: Vec<_> =
            self.0.read().iter().map(|(key, face)| (key.clone(), Arc::clone(face))).collect();
        faces.into_iter().map(|(key, face)| (key, face.board.report())).collect()
    }
}

impl Registry {
    /// No cells yet.
    #[must_use]
    pub fn new(
        clients: Arc<dyn Clients>,
        tables: Arc<dyn Tables>,
        meter: Arc<dyn Meter>,
        bounds: Bounds,
        timing: Timing,
    ) -> Self {
        let shared = Shared {
            operator: clients.client_for(&Identity::Operator),
            meter,
            lists: Slots::new(bounds.lists, bounds.namespace_share),
            probes: Slots::new(PROBES, bounds.namespace_share),
            comparisons: Slots::new(COMPARISONS, bounds.namespace_share),
            buckets: bounds.buckets,
            strategies: Strategies::default(),
            peeks: Lanes::default(),
            namespaces: Namespaces::default(),
            changes: Changes::default(),
            timing,
        };
        Self {
            shared: Arc::new(shared),
            clients,
            tables,
            cells: BTreeMap::new(),
            reports: Reports::default(),
            tasks: JoinSet::new(),
        }
    }

    /// A view of the reports that outlives any borrow of the registry.
    #[must_use]
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Proves the tables of the cells current.
    #[must_use]
    pub fn proofs(&self) -> Proofs {
        let buckets = self.shared.buckets.clone();
        Proofs::new(self.reports(), Arc::clone(&self.clients), buckets)
    }

    /// Wakes when a cell changes phase, or namespaces come and go.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.shared.changes.clone()
    }

    /// Ends every task and waits for them.
    pub async fn shut_down(mut self) {
        for cell in self.cells.values() {
            if let Some(running) = &cell.running {
                running.stop.cancel();
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn make(&mut self, spec: &CellSpec) -> &mut Cell {
        let (tables, reports) = (&self.tables, &self.reports);
        let changes = &self.shared.changes;
        self.cells.entry(spec.key.clone()).or_insert_with(|| {
            let tuning = watch::Sender::new(spec.tuning.clone());
            let face = Arc::new(Face {
                board: Arc::new(Board::new(changes.clone())),
                sink: Arc::new(Mutex::new(tables.open(&spec.key, &spec.indexes))),
                turn: Arc::default(),
                tuning: tuning.subscribe(),
                proof: Lane::default(),
            });
            reports.0.write().insert(spec.key.clone(), Arc::clone(&face));
            Cell { spec: spec.clone(), face, tuning, running: None }
        })
    }
}

impl Informers for Registry {
    fn running(&self) -> BTreeMap<CellKey, Mode> {
        let mode = |cell: &Cell| if cell.running.is_some() { Mode::Active } else { Mode::Paused };
        self.cells.iter().map(|(key, cell)| (key.clone(), mode(cell))).collect()
    }

    fn start(&mut self, spec: &CellSpec) {
        // Tasks that have ended are let go of here; there are at most as many as cells were stopped.
        while self.tasks.try_join_next().is_some() {}
        let shared = Arc::clone(&self.shared);
        let client = self.clients.client_for(&spec.key.identity);
        let cell = self.make(spec);
        if cell.running.is_some() {
            return;
        }
        if cell.face.board.state().phase == super::Phase::Paused {
            cell.face.board.signal(&spec.key, Signal::Resumed);
        }
        cell.spec.clone_from(spec);
        cell.tuning.send_replace(spec.tuning.clone());
        let stop = CancellationToken::new();
        let turn = Arc::clone(&cell.face.turn);
        cell.running = Some(Running { stop: stop.clone(), turn: Arc::clone(&turn) });
        let supervised = supervise(
            spec.key.clone(),
            Arc::clone(&cell.face.sink),
            Arc::clone(&cell.face.board),
            shared,
            client,
            cell.tuning.subscribe(),
        );
        self.tasks.spawn(run_in_turns(supervised, stop, turn));
    }

    fn hold(&mut self, spec: &CellSpec) {
        let cell = self.make(spec);
        if let Some(running) = cell.running.take() {
            running.end();
        }
        cell.face.board.signal(&spec.key, Signal::Held);
    }

    fn stop(&mut self, key: &CellKey) {
        let Some(cell) = self.cells.remove(key) else { return };
        if let Some(running) = cell.running {
            running.end();
        }
        self.reports.0.write().remove(key);
        self.tables.close(key);
        let cells = &self.cells;
        self.shared.peeks.retain(|(identity, resource)| {
            cells.keys().any(|key| key.identity == *identity && key.resource == *resource)
        });
        if let Extent::Namespace(name) = &key.extent
            && !cells
                .keys()
                .any(|left| (&left.identity, &left.extent) == (&key.identity, &key.extent))
        {
            self.shared.namespaces.forget(&key.identity, name);
        }
        self.shared.changes.notify();
    }

    fn retune(&mut self, spec: &CellSpec) {
        let Some(cell) = self.cells.get_mut(&spec.key) else { return };
        if cell.spec.indexes != spec.indexes {
            self.tables.set_indexes(&spec.key, &spec.indexes);
        }
        if cell.spec.tuning != spec.tuning {
            cell.tuning.send_replace(spec.tuning.clone());
        }
        cell.spec.clone_from(spec);
    }

    fn relist(&mut self, key: &CellKey, why: RelistReason) {
        let Some(cell) = self.cells.get_mut(key) else { return };
        let board = Arc::clone(&cell.face.board);
        // One that is owed already does as well, and may have a reason that asks for more.
        if board.state().synced && board.owed().is_none() {
            let Some(running) = cell.running.take() else { return };
            running.end();
            board.owe(why);
            let spec = cell.spec.clone();
            self.start(&spec);
        }
    }

    fn free_fenced(&mut self) {
        for (key, cell) in &self.cells {
            cell.face.free(key);
        }
    }
}

/// Runs the cell's task; one that panics is reported in its cell and started anew after a wait.
async fn supervise(
    key: CellKey,
    sink: SharedSink,
    board: Arc<Board>,
    shared: Arc<Shared>,
    client: Arc<kube::Client>,
    tuning: watch::Receiver<Tuning>,
) {
    let mut panics = Backoff::new(shared.timing.backoff);
    let mut access = board.access();
    loop {
        // No turn is missed: the task that is made below begins with what is true now.
        let losses = access.borrow_and_update().losses;
        if board.state().access.is_closed() {
            let _ended = access.changed().await;
            continue;
        }
        let list_watch = match ListWatch::new(&client, &key) {
            Ok(list_watch) => list_watch,
            Err(guarded) => {
                // Refused before any request; only an edit of the profile makes another cell.
                let fault = Fault::new(Reason::Forbidden, guarded.to_string());
                board.failed(&key, Verb::List, &fault, 1, Duration::MAX);
                let _ended = access.wait_for(|turns| turns.losses > losses).await;
                continue;
            }
        };
        let version = resumable(&board);
        let task = Task {
            decoder: Decoder::new(&key),
            key: key.clone(),
            list_watch,
            objects: sink.lock().objects(),
            sink: Arc::clone(&sink),
            board: Arc::clone(&board),
            backoff: Backoff::new(shared.timing.backoff),
            shared: Arc::clone(&shared),
            client: Arc::clone(&client),
            tuning: tuning.clone(),
            version,
            closed_at_once: 0,
            broken_lists: 0,
            short_watches: 0,
            news: 0,
            is_followed: is_followed(&key),
            gap: Gap::default(),
            listed_at: None,
            opened_at: None,
            rejected: 0,
            room: Room::default(),
            turn: Turn::new(),
        };
        tokio::select! {
            biased;
            // The task may not take one more step: its table may have been emptied behind its back.
            _ = access.wait_for(|turns| turns.losses > losses) => continue,
            _panic = AssertUnwindSafe(task.run()).catch_unwind() => {}
        }
        let fault = Fault::new(Reason::Internal, "the cell's task panicked; see the log");
        let delay = panics.failed(None, fastrand::f64());
        tracing::error!(cell = %key, "the task of a cell panicked and is started anew");
        board.failed(&key, Verb::List, &fault, panics.failures(), delay);
        tokio::time::sleep(delay).await;
        // What it held when it panicked may be half of something.
        sink.lock().apply(crate::model::Delta::Purge);
        board.signal(&key, Signal::Purged);
    }
}

/// The version from which a resumed cell goes on, if it was ever synced.
fn resumable(board: &Board) -> Option<ResourceVersion> {
    let report = board.report();
    report.synced_at.and(report.version)
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").field(&self.0.read().len()).finish()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("cells", &self.cells.len()).finish_non_exhaustive()
    }
}
