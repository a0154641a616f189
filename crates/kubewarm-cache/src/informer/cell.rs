//! One informer, as everybody sees it: what it is told, what it says, and what it holds.

use super::{
    CellReport, Changes, Phase, Proof, RelistReason, Unproven,
    board::Board,
    gate::{Gate, IsNews},
    lanes::Lane,
    state::Signal,
    task::SharedSink,
};
use jiff::Timestamp;
use kubewarm_api::model::{
    CellKey, CellSpec, Delta, DeltaSink, Fault, Mode, OnAccessLost, Reason, ResourceVersion,
    Tuning, Verb,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// One cell. Each part has one writer: the controller gives orders and tunes, whoever verifies access opens
/// and closes the gate, and the cell's task writes the board and the table.
pub(super) struct Informer {
    pub(super) key: CellKey,
    pub(super) spec: Mutex<CellSpec>,
    pub(super) orders: watch::Sender<Orders>,
    pub(super) tuning: watch::Sender<Tuning>,
    pub(super) gate: watch::Sender<Gate>,
    pub(super) board: Arc<Board>,
    pub(super) sink: SharedSink,
    /// The last proof to readers that the table is current.
    pub(super) proof: Lane<Result<Proof, Unproven>>,
    /// Ends the task for good.
    pub(super) stop: CancellationToken,
    changes: Changes,
}

/// What the controller wants of an informer. Counted, so that no change is missed by who looks late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    /// Whether it watches.
    pub(super) mode: Mode,
    /// When the mode changed.
    since: Timestamp,
    /// How often its task was to end: to pause, or to list again.
    pub(super) ends: u64,
    /// Why it is to list again, and at which of these ends.
    pub(super) relist: Option<(u64, RelistReason)>,
}

/// What a cell's own requests say of its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAccess {
    /// Since when they are refused, if they are.
    pub refused_since: Option<Timestamp>,
    /// When the last of them was sent that was answered; `None` while nothing has been answered.
    pub verified_at: Option<Instant>,
    /// When the earlier of the last list and the last watch was sent, once both were answered.
    pub allowed_at: Option<Instant>,
    /// The first of them are under way, or wait for a turn, and nothing has gone wrong so far.
    pub is_starting: bool,
}

impl Informer {
    /// Paused, and with nothing in its table.
    pub(super) fn new(spec: &CellSpec, table: Box<dyn DeltaSink>, changes: Changes) -> Self {
        let orders = Orders { mode: Mode::Paused, since: Timestamp::now(), ends: 0, relist: None };
        Self {
            key: spec.key.clone(),
            spec: Mutex::new(spec.clone()),
            orders: watch::Sender::new(orders),
            tuning: watch::Sender::new(spec.tuning.clone()),
            gate: watch::Sender::default(),
            board: Arc::new(Board::new(changes.clone())),
            sink: Arc::new(Mutex::new(table)),
            proof: Lane::default(),
            stop: CancellationToken::new(),
            changes,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.orders.borrow().mode
    }

    /// Has it watch, or pause.
    pub(super) fn order(&self, mode: Mode) {
        self.orders.send_if_modified(|orders| {
            if orders.mode == mode {
                return false;
            }
            (orders.mode, orders.since) = (mode, Timestamp::now());
            orders.ends += u64::from(mode != Mode::Active);
            true
        });
        self.changes.notify();
    }

    /// Has it list again, for this reason, if it is synced and no list is owed. What it holds is served on.
    pub(super) fn order_relist(&self, why: RelistReason) {
        // One that is owed already does as well, and may have a reason that asks for more.
        if self.mode() == Mode::Active && self.board.state().synced && self.board.owed().is_none() {
            self.orders.send_modify(|orders| {
                orders.ends += 1;
                orders.relist = Some((orders.ends, why));
            });
        }
    }

    /// A snapshot, with the latencies of the last five minutes.
    pub(super) fn report(&self) -> CellReport {
        self.as_seen(self.board.report())
    }

    /// The same without latencies and undecodable objects, which cost more: for every read.
    pub(super) fn glance(&self) -> CellReport {
        self.as_seen(self.board.glance())
    }

    /// What the task says, and what its mode and the gate make of it.
    fn as_seen(&self, mut report: CellReport) -> CellReport {
        let gate = self.gate.borrow();
        report.lost = gate.loss(self.board.listed_in());
        report.losses = gate.losses;
        if let Some(fault) = gate.fault() {
            (report.phase, report.since) = (Phase::Fenced, fault.since);
            report.fault = Some(fault.clone());
        }
        let orders = self.orders.borrow();
        if orders.mode != Mode::Active {
            (report.phase, report.since) = (Phase::Paused, orders.since);
        }
        report
    }

    /// What the cell's own requests say of access.
    pub(super) fn own_access(&self) -> OwnAccess {
        let gate = self.gate.borrow();
        let answers = self.board.answers();
        let sent = answers.map(|answers| answers.allowed_at);
        let [list, watch] = sent.map(|sent| sent.filter(|sent| gate.is_since_loss(*sent)));
        let refused = answers.into_iter().filter_map(|answers| answers.refused);
        let refused = refused.filter(|(_, at)| gate.is_since_return(*at));
        let has_fault = gate.is_closed() || self.board.has_fault();
        OwnAccess {
            refused_since: refused.map(|(since, _)| since).min(),
            verified_at: sent.into_iter().flatten().max(),
            allowed_at: list.zip(watch).map(|(list, watch)| list.min(watch)),
            is_starting: !(has_fault || self.board.state().synced && watch.is_some()),
        }
    }

    /// Closes the gate. Nothing is read from now on; the task ends and drops what it must.
    pub(super) fn lose(&self, verb: Verb, fault: &Fault) {
        let listed_in = self.board.listed_in();
        let mut is_news = IsNews::No;
        self.gate.send_modify(|gate| is_news = gate.close(verb, fault, listed_in));
        self.changes.notify();
        if is_news == IsNews::Yes {
            let is_kept = fault.reason() == Reason::Unverified || self.serves_stale();
            tracing::warn!(
                cell = %self.key, ?verb, reason = %fault.reason(), %fault, is_kept, "access lost: fenced"
            );
        }
    }

    /// Opens the gate.
    pub(super) fn regain(&self) {
        self.gate.send_modify(Gate::open);
        self.changes.notify();
    }

    fn serves_stale(&self) -> bool {
        self.tuning.borrow().on_access_lost == OnAccessLost::ServeStale
    }

    /// While no task runs: drops what was lost, unless a profile has it served as stale. Called by whoever
    /// runs the tasks alone.
    pub(super) fn settle(&self, gate: &Gate) {
        self.board.signal(&self.key, Signal::Idle);
        let listed_in = self.board.listed_in();
        let is_of_before = listed_in.is_some_and(|epoch| epoch != gate.epoch);
        let is_partial = listed_in.is_none() && self.sink.lock().objects() > 0;
        if is_of_before && self.serves_stale() {
            self.board.owe(RelistReason::ForbiddenRecovered);
        } else if is_of_before || is_partial && gate.is_closed() {
            self.empty();
        }
    }

    /// Gives up everything that is held.
    pub(super) fn empty(&self) {
        self.sink.lock().apply(Delta::Purge);
        self.board.forget_undecodable();
        self.board.signal(&self.key, Signal::Purged);
    }

    /// The version from which a task goes on, if the cell was ever synced.
    pub(super) fn resumable(&self) -> Option<ResourceVersion> {
        let report = self.board.glance();
        report.synced_at.and(report.version)
    }
}
