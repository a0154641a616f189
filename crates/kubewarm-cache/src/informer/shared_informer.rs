//! The state of one informer that several tasks share: its orders (pause, relist), its status and
//! its store.

use super::{
    ChangeNotifier, FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport,
    RelistReason,
    report::{
        access_counter::{AccessCounter, StatusGuard},
        latency_window::LatencyWindow,
        new_results::NewResults,
        own_requests::OwnRequests,
        permission_record::PermissionRecord,
        permission_state::InformerPermission,
        status::InformerStatus,
    },
    requests::list_watch_client::ListWatchClient,
    task::task_state::TaskState,
};
use crate::store::StoreReader;
use jiff::Timestamp;
use kubewarm_api::model::{
    AccessLossPolicy, Delta, DeltaOutcome, DeltaSink, FaultReason, InformerKey, InformerSettings,
    InformerSpec, ProfileMode, RequestFault, ResourceVersion, Verb,
};
use kubewarm_wire::peer_store_path;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// One informer. The controller and the access checker write orders to `control`: pause, relist, or
/// stop sending requests. The informer's task writes the status and the store.
///
/// Code that needs `control` and the status borrows `control` before it locks the status. With one
/// order for both locks, no deadlock is possible.
pub(super) struct SharedInformer {
    pub(super) key: InformerKey,
    /// The path at which a replica serves this informer's store to other replicas.
    pub(super) peer_path: Box<str>,
    /// Sends the informer's requests to the API server, or holds the reason why kubewarm rejects
    /// the informer's `key`.
    pub(super) list_watch: Result<ListWatchClient, RequestFault>,
    pub(super) control: watch::Sender<InformerControl>,
    status: Mutex<InformerStatus>,
    pub(super) access_counter: AccessCounter,
    /// Latencies of clients' reads. They have a lock of their own, so that a read does not wait for
    /// an event.
    read_latencies: Mutex<LatencyWindow>,
    pub(super) sink: Mutex<Box<dyn DeltaSink>>,
    pub(super) reader: StoreReader,
    /// A freshness check uses this signal to make the informer's task send a probe (a second, short
    /// watch). The signal stays pending until the informer's watch is open, because only then the
    /// task sends probes.
    pub(super) probe: Notify,
    /// Ends the informer's task permanently. A change of `control` ends only the task's current
    /// run.
    pub(super) stop: CancellationToken,
    changes: ChangeNotifier,
    new_results: Arc<NewResults>,
}

/// The orders for an informer's task: pause, relist, or stop sending requests. The controller and
/// the access checker write them.
///
/// When the counter `ends` changes, the task's current run ends and the next run begins. `ends` is
/// a counter and not a signal, so that the task also notices a change that happened before the task
/// began to wait.
#[derive(Clone, Debug)]
pub(super) struct InformerControl {
    /// The controller writes this field.
    pub(super) spec: InformerSpec,
    /// The controller writes this field.
    pub(super) mode: ProfileMode,
    /// When `mode` last changed.
    since: Timestamp,
    /// The access checker writes this field.
    pub(super) access: PermissionRecord,
    /// Number of pauses, relists and losses of access so far. Each of them ends the current run of
    /// the informer's task.
    pub(super) ends: u64,
    /// The latest order to relist: the value of `ends` right after the order, and the relist's
    /// reason. `supervise` compares the value with the last executed order, so that it executes
    /// each order once.
    pub(super) relist: Option<(u64, RelistReason)>,
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
        new_results: Arc<NewResults>,
    ) -> Self {
        let control = InformerControl {
            spec: spec.clone(),
            mode: ProfileMode::Paused,
            since: Timestamp::now(),
            access: PermissionRecord::new(),
            ends: 0,
            relist: None,
        };
        Self {
            key: spec.key.clone(),
            peer_path: peer_store_path(&spec.key).into(),
            list_watch: ListWatchClient::new(client, &spec.key),
            control: watch::Sender::new(control),
            status: Mutex::new(InformerStatus::new()),
            access_counter: AccessCounter::default(),
            read_latencies: Mutex::default(),
            sink: Mutex::new(sink),
            reader,
            probe: Notify::new(),
            stop: CancellationToken::new(),
            changes,
            new_results,
        }
    }

    /// Locks the informer's status. The caller must release the lock before any `await`.
    pub(super) fn status(&self) -> StatusGuard<'_> {
        StatusGuard::new(&self.status, &self.access_counter)
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
    /// pending. Clients can read the store until the relist finds a change.
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

    /// Returns a snapshot of the informer's state, with the store's size and version, the
    /// undecodable objects, the indexes without values and the latencies of the last five minutes.
    pub(super) fn report(&self) -> InformerReport {
        let report = InformerReport {
            usage: self.reader.usage(),
            version: self.reader.version(),
            read_latency: self.read_latencies.lock().quantiles(Instant::now()),
            paths_without_values: self.reader.paths_without_values(),
            ..self.get_summary()
        };
        self.status().detailed(report)
    }

    pub(super) fn observe_read(&self, took: Duration) {
        self.read_latencies.lock().record(Instant::now(), took);
    }

    /// Returns a snapshot without the store's size and version and without latencies, which are
    /// expensive to collect. This snapshot is cheap enough for every client request.
    ///
    /// The phase comes from the task's status. `Blocked` takes precedence over the task's phase,
    /// and `Paused` takes precedence over `Blocked`.
    pub(super) fn get_summary(&self) -> InformerReport {
        let control = self.control.borrow();
        let (mut report, listed_in) = {
            let status = self.status();
            (status.get_summary(control.spec.settings.max_staleness), status.listed_in())
        };
        report.lost_at = control.access.lost_at(listed_in);
        report.losses = control.access.losses;
        if let Some(fault) = control.access.fault() {
            (report.phase, report.since) = (InformerPhase::Blocked, fault.since);
            report.fault = Some(fault);
        }
        if control.mode != ProfileMode::Active {
            (report.phase, report.since) = (InformerPhase::Paused, control.since);
        }
        report
    }

    /// Returns the results of the informer's own requests. A blocked informer counts as failed,
    /// because its earlier successes no longer show access.
    pub(super) fn own_requests(&self) -> OwnRequests {
        let is_blocked = self.control.borrow().access.is_blocked();
        let own = self.status().own_requests();
        OwnRequests { has_failed: own.has_failed || is_blocked, ..own }
    }

    /// Publishes the access checker's decision. After a loss of access, clients cannot read the
    /// store unless a profile sets `onAccessLost: ServeStale`. The informer's task then ends its
    /// run, and [`SharedInformer::purge_outdated`] decides whether the store is purged.
    pub(super) fn set_permission(&self, permission: &InformerPermission) {
        let listed_in = self.status().listed_in();
        let (mut is_loss, mut has_block) = (false, false);
        let is_new = self.control.send_if_modified(|control| {
            let is_new = control.access.is_changed_by(permission);
            let was_blocked = control.access.is_blocked();
            is_loss = control.access.update(permission, listed_in, Timestamp::now());
            has_block = was_blocked || control.access.is_blocked();
            control.ends += u64::from(is_loss);
            if is_new {
                self.access_counter.increment();
            }
            is_new
        });
        if is_new && has_block {
            self.changes.notify();
        }
        if is_loss && let Some(fault) = self.control.borrow().access.fault() {
            let InformerFault { verb, reason, message, .. } = fault;
            let is_kept = reason == FaultReason::Unverified || self.serves_stale();
            tracing::warn!(
                informer = %self.key, ?verb, %reason, %message, is_kept, "access lost; blocked"
            );
        }
    }

    /// Reads a value of the informer's current settings. The closure `read` runs while `control` is
    /// locked.
    pub(super) fn settings<T>(&self, read: impl FnOnce(&InformerSettings) -> T) -> T {
        read(&self.control.borrow().spec.settings)
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
        self.record_fault(verb, fault, attempts, delay);
        self.enter(TaskState::Backoff);
    }

    /// Records a failed request as [`SharedInformer::record_failure`] does, but keeps the task's
    /// state: the informer's own watch can be open while a second request fails.
    pub(super) fn record_fault(
        &self,
        verb: Verb,
        fault: &RequestFault,
        attempts: u32,
        delay: Duration,
    ) {
        self.status().record_fault(verb, fault, attempts, delay);
        self.new_results.add(&self.key);
    }

    /// Records a complete list with [`InformerStatus::record_list`], and ends the fault of an
    /// earlier list.
    pub(super) fn record_list(
        &self,
        version: &ResourceVersion,
        strategy: FirstSyncMethod,
        requested_at: Instant,
        listed_in: u64,
    ) -> Option<FirstSync> {
        let first_sync = {
            let mut status = self.status();
            status.report.fault.take_if(|fault| fault.verb == Verb::List);
            status.record_list(version, strategy, requested_at, listed_in)
        };
        self.new_results.add(&self.key);
        self.changes.notify();
        first_sync
    }

    /// Records that the API server permitted a list or watch, which was sent at `sent`.
    pub(super) fn record_success(&self, verb: Verb, sent: Instant) {
        self.status().record_success(verb, sent);
        self.new_results.add(&self.key);
    }

    pub(super) fn apply(&self, delta: Delta<'_>) -> DeltaOutcome {
        self.sink.lock().apply(delta)
    }

    /// Purges the store if the API server has rejected the informer's identity since kubewarm
    /// requested the store's list, because the identity is possibly no longer permitted to read
    /// these objects. With `onAccessLost: ServeStale`, the store keeps the objects until a relist
    /// replaces them. An incomplete first list is also purged while the informer is blocked.
    ///
    /// Only `supervise`, which runs the informer's task in a loop, calls this method. `supervise`
    /// calls it between two runs, when no list or watch writes to the store.
    pub(super) fn purge_outdated(&self, access: &PermissionRecord) {
        self.enter(TaskState::Queued);
        let listed_in = self.status().listed_in();
        let is_outdated = listed_in.is_some_and(|refusals| refusals != access.refusals);
        let is_partial = listed_in.is_none() && self.reader.objects() > 0;
        if is_outdated && self.serves_stale() {
            self.status().require_relist(RelistReason::ForbiddenRecovered);
        } else if is_outdated || is_partial && access.is_blocked() {
            self.purge();
        }
    }

    pub(super) fn purge(&self) {
        self.apply(Delta::Purge);
        self.status().reset();
        self.changes.notify();
    }
}
