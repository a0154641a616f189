//! One informer: the orders that it receives, its status and its store.

use super::{
    ChangeNotifier, InformerPhase, InformerReport, RelistReason, access_gate::AccessGate,
    list_watch::ListWatch, status::InformerStatus, task_state::TaskState,
};
use crate::store::StoreReader;
use jiff::Timestamp;
use kubewarm_api::model::{
    AccessLossPolicy, Delta, DeltaOutcome, DeltaSink, FaultReason, InformerKey, InformerSettings,
    InformerSpec, ProfileMode, RequestFault, Verb,
};
use parking_lot::{Mutex, MutexGuard};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// One informer. The controller and the access verifier write `control`. The informer's task writes
/// the status and the store.
///
/// Code that needs both borrows `control` before it locks the status.
pub(super) struct SharedInformer {
    pub(super) key: InformerKey,
    /// The requests to the API server, or the reason why kubewarm sends none for this key.
    pub(super) list_watch: Result<ListWatch, RequestFault>,
    pub(super) control: watch::Sender<InformerControl>,
    status: Mutex<InformerStatus>,
    pub(super) sink: Mutex<Box<dyn DeltaSink>>,
    pub(super) reader: StoreReader,
    /// Requests a probe from the watch, on behalf of a freshness check. The request stays pending
    /// until a watch is open.
    pub(super) probe: Notify,
    /// Ends the task permanently. A change of `control` only ends its current run.
    pub(super) stop: CancellationToken,
    changes: ChangeNotifier,
}

/// The orders for an informer's task.
///
/// When `ends` changes, the current run of the task ends and the next run begins. `ends` is a
/// counter, so the task also detects a change that happened before it waits.
#[derive(Clone, Debug)]
pub(super) struct InformerControl {
    /// Written by the controller.
    pub(super) spec: InformerSpec,
    /// Written by the controller.
    pub(super) mode: ProfileMode,
    /// When `mode` last changed.
    since: Timestamp,
    /// Whether the informer has access. Written by the access verifier.
    pub(super) gate: AccessGate,
    /// Number of orders so far that ended a run: pauses, relists and losses of access.
    pub(super) ends: u64,
    /// The latest ordered relist: the value of `ends` after the order, and the reason.
    pub(super) relist: Option<(u64, RelistReason)>,
}

/// The results of an informer's own list and watch requests. The access verifier uses them as
/// evidence of access, in addition to access checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWatchAccess {
    /// Start of the current refusal; the earlier one if both verbs are refused. `None` while
    /// neither is.
    pub refused_since: Option<Timestamp>,
    /// When the latest successful request was sent. `None` before the first success.
    pub verified_at: Option<Instant>,
    /// When the last successful list or the last successful watch was sent, whichever is earlier.
    /// `None` until both have succeeded after the last loss of access.
    pub allowed_at: Option<Instant>,
    /// Whether the first list and watch are queued or under way, and nothing has failed so far.
    pub is_starting: bool,
    /// Whether the access verifier permits requests and reads at present.
    pub is_open: bool,
}

impl SharedInformer {
    /// Creates a paused informer with an empty store. `client` must send requests with the
    /// informer's identity.
    pub(super) fn new(
        spec: &InformerSpec,
        client: &Arc<kube::Client>,
        sink: Box<dyn DeltaSink>,
        reader: StoreReader,
        changes: ChangeNotifier,
    ) -> Self {
        let control = InformerControl {
            spec: spec.clone(),
            mode: ProfileMode::Paused,
            since: Timestamp::now(),
            gate: AccessGate::default(),
            ends: 0,
            relist: None,
        };
        Self {
            key: spec.key.clone(),
            list_watch: ListWatch::new(client, &spec.key),
            control: watch::Sender::new(control),
            status: Mutex::new(InformerStatus::new()),
            sink: Mutex::new(sink),
            reader,
            probe: Notify::new(),
            stop: CancellationToken::new(),
            changes,
        }
    }

    /// Locks the status. Release the lock before any `await`.
    pub(super) fn status(&self) -> MutexGuard<'_, InformerStatus> {
        self.status.lock()
    }

    pub(super) fn mode(&self) -> ProfileMode {
        self.control.borrow().mode
    }

    /// Starts the informer with `spec`, or resumes it.
    pub(super) fn resume(&self, spec: &InformerSpec) {
        self.control.send_modify(|control| {
            control.spec.clone_from(spec);
            (control.mode, control.since) = (ProfileMode::Active, Timestamp::now());
        });
        self.changes.notify();
    }

    /// Ends the watch. The store keeps its objects.
    pub(super) fn pause(&self) {
        self.control.send_if_modified(|control| {
            let was_active = control.mode == ProfileMode::Active;
            if was_active {
                (control.mode, control.since) = (ProfileMode::Paused, Timestamp::now());
                control.ends += 1;
            }
            was_active
        });
        self.changes.notify();
    }

    /// Replaces the settings. The watch continues; only a change of tuning wakes the task.
    pub(super) fn retune(&self, spec: &InformerSpec) {
        self.control.send_if_modified(|control| {
            let is_new = control.spec.tuning != spec.tuning;
            control.spec.clone_from(spec);
            is_new
        });
    }

    /// Orders a relist if the informer is active and synced and no relist is pending. Readers keep
    /// using the store meanwhile.
    pub(super) fn relist(&self, why: RelistReason) {
        let can_relist = {
            let status = self.status();
            // The pending relist is enough, and its reason can require more, such as storing every
            // object again.
            status.is_synced() && status.required_relist().is_none()
        };
        if self.mode() == ProfileMode::Active && can_relist {
            self.control.send_modify(|control| {
                control.ends += 1;
                control.relist = Some((control.ends, why));
            });
        }
    }

    /// A complete snapshot, including the size of the store and the latencies of the last five
    /// minutes.
    pub(super) fn report(&self) -> InformerReport {
        let report = InformerReport { usage: self.reader.usage(), ..self.get_summary() };
        self.status().detailed(report)
    }

    /// A snapshot without store usage, latencies and undecodable objects, which are expensive. It
    /// is cheap enough for every read.
    ///
    /// The snapshot starts from the task's status. A loss of access replaces its phase, and a
    /// paused mode replaces both.
    pub(super) fn get_summary(&self) -> InformerReport {
        let control = self.control.borrow();
        let (mut report, listed_in) = {
            let status = self.status();
            (status.get_summary(control.spec.tuning.max_staleness), status.listed_in())
        };
        report.lost = control.gate.loss(listed_in);
        report.losses = control.gate.losses;
        if let Some(fault) = control.gate.fault() {
            (report.phase, report.since) = (InformerPhase::Blocked, fault.since);
            report.fault = Some(fault.clone());
        }
        if control.mode != ProfileMode::Active {
            (report.phase, report.since) = (InformerPhase::Paused, control.since);
        }
        report
    }

    /// See `ListWatchAccess`.
    pub(super) fn get_list_watch_access(&self) -> ListWatchAccess {
        let control = self.control.borrow();
        let gate = &control.gate;
        let status = self.status();
        let results = [status.list, status.watch];
        let sent = results.map(|results| results.allowed_at);
        let [list, watch] = sent.map(|sent| sent.filter(|sent| gate.is_since_loss(*sent)));
        let refused = results.into_iter().filter_map(|results| results.refused);
        let refused = refused.filter(|(_, at)| gate.is_since_return(*at));
        let has_fault = gate.is_closed() || status.report.fault.is_some();
        ListWatchAccess {
            refused_since: refused.map(|(since, _)| since).min(),
            verified_at: sent.into_iter().flatten().max(),
            allowed_at: list.zip(watch).map(|(list, watch)| list.min(watch)),
            is_starting: !(has_fault || status.is_synced() && watch.is_some()),
            is_open: !gate.is_closed(),
        }
    }

    /// Records a loss of access. Reads are blocked at once unless a profile sets `ServeStale`. The
    /// task then ends its run and purges the store if it must.
    pub(super) fn block(&self, verb: Verb, fault: &RequestFault) {
        let listed_in = self.status().listed_in();
        let mut is_new = false;
        self.control.send_modify(|control| {
            is_new = control.gate.close(verb, fault, listed_in);
            control.ends += u64::from(is_new);
        });
        self.changes.notify();
        if is_new {
            let is_kept = fault.reason() == FaultReason::Unverified || self.serves_stale();
            tracing::warn!(
                informer = %self.key, ?verb, reason = %fault.reason(), %fault, is_kept, "access lost; blocked"
            );
        }
    }

    /// Records that access has returned, and wakes a task that waits for its next attempt.
    pub(super) fn unblock(&self) {
        self.control.send_modify(|control| control.gate.open());
        self.changes.notify();
    }

    /// Reads one value of the current tuning. The closure runs under the lock of `control`.
    pub(super) fn tuning<T>(&self, of: impl FnOnce(&InformerSettings) -> T) -> T {
        of(&self.control.borrow().spec.tuning)
    }

    fn serves_stale(&self) -> bool {
        self.tuning(|tuning| tuning.on_access_lost) == AccessLossPolicy::ServeStale
    }

    /// Changes the task's step. An illegal step is a bug: it is logged and not applied.
    pub(super) fn enter(&self, step: TaskState) {
        let mut status = self.status();
        let from = status.step();
        if status.enter(step) {
            tracing::debug!(informer = %self.key, ?from, ?step, "step");
        } else {
            tracing::error!(informer = %self.key, ?from, ?step, "illegal step");
        }
        drop(status);
        self.changes.notify();
    }

    /// Records a failed attempt and the delay before the next one.
    pub(super) fn record_failure(
        &self,
        verb: Verb,
        fault: &RequestFault,
        attempts: u32,
        delay: Duration,
    ) {
        self.status().record_fault(verb, fault, attempts, delay);
        self.enter(TaskState::Backoff);
    }

    pub(super) fn apply(&self, delta: Delta<'_>) -> DeltaOutcome {
        self.sink.lock().apply(delta)
    }

    /// Purges the store of objects that were listed before a refusal, unless a profile sets
    /// `ServeStale`. It also purges an incomplete list if access is lost.
    ///
    /// Only `supervise` calls it, and only between two runs of the task.
    pub(super) fn purge_outdated(&self, gate: &AccessGate) {
        self.enter(TaskState::Queued);
        let listed_in = self.status().listed_in();
        let is_outdated = listed_in.is_some_and(|epoch| epoch != gate.epoch);
        let is_partial = listed_in.is_none() && self.reader.objects() > 0;
        if is_outdated && self.serves_stale() {
            self.status().require_relist(RelistReason::ForbiddenRecovered);
        } else if is_outdated || is_partial && gate.is_closed() {
            self.purge();
        }
    }

    /// Purges the store and resets the sync state.
    pub(super) fn purge(&self) {
        self.apply(Delta::Purge);
        self.status().reset();
        self.changes.notify();
    }
}
