//! One informer, as everybody sees it: what it is told, what it says, and what it holds.

use super::{
    CellReport, Changes, Phase, RelistReason, gate::Gate, list_watch::ListWatch, state::Step,
    status::Status,
};
use crate::store::Reader;
use jiff::Timestamp;
use kubewarm_api::model::{
    CellKey, CellSpec, Delta, DeltaSink, Fault, Mode, OnAccessLost, Outcome, Reason, Tuning, Verb,
};
use parking_lot::{Mutex, MutexGuard};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// One informer. The controller and the verifier of access write `control`. The informer's task writes the status
/// and the store.
pub(super) struct Informer {
    pub(super) key: CellKey,
    /// Its requests, or why none is built for it.
    pub(super) list_watch: Result<ListWatch, Fault>,
    pub(super) control: watch::Sender<Control>,
    status: Mutex<Status>,
    pub(super) sink: Mutex<Box<dyn DeltaSink>>,
    pub(super) reader: Reader,
    /// Somebody waits for a proof that only a second watch can bring: has the watch probed, now or once it is
    /// open.
    pub(super) probe: Notify,
    /// Ends the task for good.
    pub(super) stop: CancellationToken,
    changes: Changes,
}

/// The orders for an informer. Its task ends and begins again whenever `ends` is raised. It is a counter, so a task
/// that looks late still sees that something changed.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// What the informer's profiles ask of it. Written by the controller.
    pub(super) spec: CellSpec,
    /// Whether the informer watches. Written by the controller.
    pub(super) mode: Mode,
    /// When the mode changed.
    since: Timestamp,
    /// Whether the informer may read and be read. Written by the verifier of access.
    pub(super) gate: Gate,
    /// How often its task was to end: to pause, to list again, or because access was lost.
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
    /// Whether the informer knows of no loss of access.
    pub is_open: bool,
}

impl Informer {
    /// Paused, and with nothing in its store. `client` acts as its identity.
    pub(super) fn new(
        spec: &CellSpec,
        client: &Arc<kube::Client>,
        sink: Box<dyn DeltaSink>,
        reader: Reader,
        changes: Changes,
    ) -> Self {
        let control = Control {
            spec: spec.clone(),
            mode: Mode::Paused,
            since: Timestamp::now(),
            gate: Gate::default(),
            ends: 0,
            relist: None,
        };
        Self {
            key: spec.key.clone(),
            list_watch: ListWatch::new(client, &spec.key),
            control: watch::Sender::new(control),
            status: Mutex::new(Status::new()),
            sink: Mutex::new(sink),
            reader,
            probe: Notify::new(),
            stop: CancellationToken::new(),
            changes,
        }
    }

    /// What the task has written down, under its lock.
    pub(super) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock()
    }

    pub(super) fn mode(&self) -> Mode {
        self.control.borrow().mode
    }

    /// Has it watch as `spec` says.
    pub(super) fn resume(&self, spec: &CellSpec) {
        self.control.send_modify(|control| {
            control.spec.clone_from(spec);
            (control.mode, control.since) = (Mode::Active, Timestamp::now());
        });
        self.changes.notify();
    }

    /// Has it pause. What it holds stays.
    pub(super) fn pause(&self) {
        self.control.send_if_modified(|control| {
            let was_active = control.mode == Mode::Active;
            if was_active {
                (control.mode, control.since) = (Mode::Paused, Timestamp::now());
                control.ends += 1;
            }
            was_active
        });
        self.changes.notify();
    }

    /// Changes how it runs, without interrupting it.
    pub(super) fn retune(&self, spec: &CellSpec) {
        self.control.send_if_modified(|control| {
            let is_news = control.spec.tuning != spec.tuning;
            control.spec.clone_from(spec);
            is_news
        });
    }

    /// Has it list again, for this reason, if it is synced and no list is owed. What it holds is served on.
    pub(super) fn relist(&self, why: RelistReason) {
        let can_relist = {
            let status = self.status();
            // One that is owed already does as well, and may have a reason that asks for more.
            status.is_synced() && status.owed().is_none()
        };
        if self.mode() == Mode::Active && can_relist {
            self.control.send_modify(|control| {
                control.ends += 1;
                control.relist = Some((control.ends, why));
            });
        }
    }

    /// A snapshot, with what the store holds and the latencies of the last five minutes.
    pub(super) fn report(&self) -> CellReport {
        let report = CellReport {
            usage: self.reader.usage(),
            ..self.glance()
        };
        self.status().detailed(report)
    }

    /// The same without usage, latencies and undecodable objects, which cost more: for every read. It is what the task
    /// says, and what its mode and the gate make of it.
    pub(super) fn glance(&self) -> CellReport {
        let control = self.control.borrow();
        let (mut report, listed_in) = {
            let status = self.status();
            (status.glance(control.spec.tuning.max_staleness), status.listed_in())
        };
        report.lost = control.gate.loss(listed_in);
        report.losses = control.gate.losses;
        if let Some(fault) = control.gate.fault() {
            (report.phase, report.since) = (Phase::Fenced, fault.since);
            report.fault = Some(fault.clone());
        }
        if control.mode != Mode::Active {
            (report.phase, report.since) = (Phase::Paused, control.since);
        }
        report
    }

    /// What the informer's own requests say of access.
    pub(super) fn own_access(&self) -> OwnAccess {
        let control = self.control.borrow();
        let gate = &control.gate;
        let status = self.status();
        let answers = [status.list, status.watch];
        let sent = answers.map(|answers| answers.allowed_at);
        let [list, watch] = sent.map(|sent| sent.filter(|sent| gate.is_since_loss(*sent)));
        let refused = answers.into_iter().filter_map(|answers| answers.refused);
        let refused = refused.filter(|(_, at)| gate.is_since_return(*at));
        let has_fault = gate.is_closed() || status.report.fault.is_some();
        OwnAccess {
            refused_since: refused.map(|(since, _)| since).min(),
            verified_at: sent.into_iter().flatten().max(),
            allowed_at: list.zip(watch).map(|(list, watch)| list.min(watch)),
            is_starting: !(has_fault || status.is_synced() && watch.is_some()),
            is_open: !gate.is_closed(),
        }
    }

    /// Closes the gate. Nothing is read from now on; the task ends and drops what it must.
    pub(super) fn lose(&self, verb: Verb, fault: &Fault) {
        let listed_in = self.status().listed_in();
        let mut is_news = false;
        self.control.send_modify(|control| {
            is_news = control.gate.close(verb, fault, listed_in);
            control.ends += u64::from(is_news);
        });
        self.changes.notify();
        if is_news {
            let is_kept = fault.reason() == Reason::Unverified || self.serves_stale();
            tracing::warn!(
                cell = %self.key, ?verb, reason = %fault.reason(), %fault, is_kept, "access lost: fenced"
            );
        }
    }

    /// Opens the gate.
    pub(super) fn regain(&self) {
        self.control.send_modify(|control| control.gate.open());
        self.changes.notify();
    }

    /// What its profiles ask of it now.
    pub(super) fn tuning<T>(&self, of: impl FnOnce(&Tuning) -> T) -> T {
        of(&self.control.borrow().spec.tuning)
    }

    fn serves_stale(&self) -> bool {
        self.tuning(|tuning| tuning.on_access_lost) == OnAccessLost::ServeStale
    }

    /// The task goes on to `step`. One that cannot follow is a bug: it is logged, and nothing moves.
    pub(super) fn enter(&self, step: Step) {
        let mut status = self.status();
        let from = status.step();
        if status.enter(step) {
            tracing::debug!(cell = %self.key, ?from, ?step, "step");
        } else {
            tracing::error!(cell = %self.key, ?from, ?step, "illegal step");
        }
        drop(status);
        self.changes.notify();
    }

    /// Records a failure, and when the next attempt follows.
    pub(super) fn failed(&self, verb: Verb, fault: &Fault, attempts: u32, delay: Duration) {
        self.status().fault(verb, fault, attempts, delay);
        self.enter(Step::Backoff);
    }

    /// Applies a change to the store.
    pub(super) fn apply(&self, delta: Delta<'_>) -> Outcome {
        self.sink.lock().apply(delta)
    }

    /// While no task runs: drops what was lost, unless a profile has it served as stale. Called by whoever
    /// runs the tasks alone.
    pub(super) fn settle(&self, gate: &Gate) {
        self.enter(Step::Queued);
        let listed_in = self.status().listed_in();
        let is_of_before = listed_in.is_some_and(|epoch| epoch != gate.epoch);
        let is_partial = listed_in.is_none() && self.reader.objects() > 0;
        if is_of_before && self.serves_stale() {
            self.status().owe(RelistReason::ForbiddenRecovered);
        } else if is_of_before || is_partial && gate.is_closed() {
            self.empty();
        }
    }

    /// Gives up everything that is held.
    pub(super) fn empty(&self) {
        self.apply(Delta::Purge);
        self.status().purged();
        self.changes.notify();
    }
}
