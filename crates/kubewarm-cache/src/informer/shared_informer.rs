//! The state of one informer that several tasks share: its orders (pause, relist), its status and
//! its store.

use super::{
    ChangeNotifier, InformerPhase, InformerReport, RelistReason,
    report::{access_gate::AccessGate, status::InformerStatus},
    requests::list_watch_client::ListWatchClient,
    task::task_state::TaskState,
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

/// One informer. The controller and the access checker write orders to `control`: pause, relist, or
/// stop sending requests. The informer's task writes the status and the store.
///
/// To avoid a deadlock, code that needs `control` and the status borrows `control` before it locks
/// the status.
pub(super) struct SharedInformer {
    pub(super) key: InformerKey,
    /// Sends the informer's requests to the API server, or holds the reason why kubewarm rejects
    /// the informer's `key`.
    pub(super) list_watch: Result<ListWatchClient, RequestFault>,
    pub(super) control: watch::Sender<InformerControl>,
    status: Mutex<InformerStatus>,
    pub(super) sink: Mutex<Box<dyn DeltaSink>>,
    pub(super) reader: StoreReader,
    /// A freshness check uses this signal to make the informer's task send a probe (a second, short
    /// watch). The signal stays pending until the informer's watch is open.
    pub(super) probe: Notify,
    /// Ends the informer's task permanently. A change of `control` ends only the task's current
    /// run.
    pub(super) stop: CancellationToken,
    changes: ChangeNotifier,
}

/// The orders for an informer's task: pause, relist, or stop sending requests. The controller and
/// the access checker write them.
///
/// When the counter `ends` changes, the task's current run ends and the next run begins. A counter
/// also shows the task a change that happened before the task began to wait.
#[derive(Clone, Debug)]
pub(super) struct InformerControl {
    /// The controller writes this field.
    pub(super) spec: InformerSpec,
    /// The controller writes this field.
    pub(super) mode: ProfileMode,
    /// When `mode` last changed.
    since: Timestamp,
    pub(super) gate: AccessGate,
    /// Number of pauses, relists and losses of access so far. Each of them ends the current run of
    /// the informer's task.
    pub(super) ends: u64,
    /// The latest order to relist: the value of `ends` right after the order, and the relist's
    /// reason.
    pub(super) relist: Option<(u64, RelistReason)>,
}

/// The results of an informer's own list and watch requests. The access checker uses them as
/// evidence of access, in addition to access checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWatchAccess {
    /// When the API server began to reject the informer's lists or watches with 401 or 403,
    /// whichever is earlier. `None` if the API server rejects neither verb.
    pub refused_since: Option<Timestamp>,
    /// When the informer sent its latest successful list or watch. A later loss of access does not
    /// clear this time. `None` until a list or a watch has succeeded.
    pub verified_at: Option<Instant>,
    /// When the informer sent its last successful list or its last successful watch, whichever is
    /// earlier. `None` until both have succeeded since the last loss of access.
    pub allowed_at: Option<Instant>,
    /// Whether the informer is still on its first list or first watch, and no request has failed.
    pub is_starting: bool,
    /// Whether the access checker permits the informer to send requests and serve reads at present.
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
            list_watch: ListWatchClient::new(client, &spec.key),
            control: watch::Sender::new(control),
            status: Mutex::new(InformerStatus::new()),
            sink: Mutex::new(sink),
            reader,
            probe: Notify::new(),
            stop: CancellationToken::new(),
            changes,
        }
    }

    /// Locks the informer's status. The caller must release the lock before any `await`.
    pub(super) fn status(&self) -> MutexGuard<'_, InformerStatus> {
        self.status.lock()
    }

    pub(super) fn mode(&self) -> ProfileMode {
        self.control.borrow().mode
    }

    pub(super) fn resume(&self, spec: &InformerSpec) {
        self.control.send_modify(|control| {
            control.spec.clone_from(spec);
            (control.mode, control.since) = (ProfileMode::Active, Timestamp::now());
        });
        self.changes.notify();
    }

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

    /// Replaces the informer's settings without ending its watch. Only a change of the settings
    /// wakes the informer's task.
    pub(super) fn retune(&self, spec: &InformerSpec) {
        self.control.send_if_modified(|control| {
            let is_new = control.spec.settings != spec.settings;
            control.spec.clone_from(spec);
            is_new
        });
    }

    /// Orders the informer's task to relist, if the informer is active and synced and no relist is
    /// pending. Clients can read the store during the relist.
    pub(super) fn relist(&self, why: RelistReason) {
        let can_relist = {
            let status = self.status();
            // Keep a pending relist instead of replacing its reason. With some reasons, the relist
            // must store every object again, also unchanged objects.
            status.is_synced() && status.required_relist().is_none()
        };
        if self.mode() == ProfileMode::Active && can_relist {
            self.control.send_modify(|control| {
                control.ends += 1;
                control.relist = Some((control.ends, why));
            });
        }
    }

    /// Returns a snapshot of the informer's state, with the store's size, the undecodable objects
    /// and the latencies of the last five minutes.
    pub(super) fn report(&self) -> InformerReport {
        let report = InformerReport { usage: self.reader.usage(), ..self.get_summary() };
        self.status().detailed(report)
    }

    /// Returns a snapshot without the store's size and latencies, which are expensive to collect. This snapshot is cheap enough for every client request.
    ///
    /// The phase comes from the task's status. `Blocked` takes precedence over the task's phase,
    /// and `Paused` takes precedence over `Blocked`.
    pub(super) fn get_summary(&self) -> InformerReport {
        let control = self.control.borrow();
        let (mut report, listed_in) = {
            let status = self.status();
            (status.get_summary(control.spec.settings.max_staleness), status.listed_in())
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

    /// Records a loss of access to `verb`. From now on, clients cannot read the store unless a
    /// profile sets `onAccessLost: ServeStale`. The informer's task then ends its run, and
    /// [`SharedInformer::purge_outdated`] decides whether the store is purged.
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

    pub(super) fn unblock(&self) {
        self.control.send_modify(|control| control.gate.open());
        self.changes.notify();
    }

    /// Reads a value of the informer's current settings. The closure `of` runs while `control` is
    /// locked.
    pub(super) fn settings<T>(&self, of: impl FnOnce(&InformerSettings) -> T) -> T {
        of(&self.control.borrow().spec.settings)
    }

    fn serves_stale(&self) -> bool {
        self.settings(|settings| settings.on_access_lost) == AccessLossPolicy::ServeStale
    }

    /// Changes the state of the informer's task to `step`. A transition that
    /// [`TaskState::can_lead_to`] excludes is a bug: kubewarm logs it and keeps the old state.
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

    /// Records a failed list or watch. `attempts` is the number of consecutive failures, and
    /// `delay` is the time until the next attempt.
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

    /// Purges the store if the API server has rejected the informer's identity since kubewarm
    /// requested the store's list. A profile with `onAccessLost: ServeStale` prevents this purge.
    /// An incomplete first list is also purged while access is lost.
    ///
    /// Only `supervise`, which runs the informer's task in a loop, calls this method. It calls the
    /// method between two runs.
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

    pub(super) fn purge(&self) {
        self.apply(Delta::Purge);
        self.status().reset();
        self.changes.notify();
    }
}
