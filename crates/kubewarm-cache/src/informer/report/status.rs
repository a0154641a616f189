//! The status of one informer. The informer's task records it, and reports and profile statuses
//! show it.

use super::{
    latency_window::LatencyWindow,
    own_requests::{OwnRequests, VerbResults},
    pending_proofs::PendingProofs,
};
use crate::informer::{
    FirstSync, FirstSyncMethod, InformerFault, InformerPhase, InformerReport, RelistReason,
    UndecodableObject, Verb, task::task_state::TaskState,
};
use jiff::Timestamp;
use kubewarm_api::model::{ObjectKey, RequestFault, ResourceVersion};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum number of undecodable objects that a report names, so that reports stay small. All
/// further objects share one entry without a name. The metric
/// `kubewarm_upstream_decode_errors_total` counts all of them.
const MAX_NAMED: usize = 16;

/// The status of one informer, which the informer's task writes. Freshness checks also record in it
/// when the store was last confirmed to contain every earlier change.
#[derive(Debug)]
pub(crate) struct InformerStatus {
    /// Start of the warm-up (the time until the first list is complete), on the monotonic clock and
    /// on the wall clock. The warm-up starts when the informer is created or its store is purged.
    /// It restarts if access returns before the first list completes.
    warmup_started: (Instant, Timestamp),
    step: TaskState,
    /// The report without the values that [`InformerStatus::detailed`] adds. Only methods of
    /// `InformerStatus` change the fields from which they derive [`InformerPhase`].
    pub(crate) report: InformerReport,
    required_relist: Option<RelistReason>,
    /// Value of `PermissionRecord::refusals` when kubewarm requested the last complete list. If
    /// `refusals` is higher now, the API server has rejected the identity since, so the store stays
    /// blocked until a relist.
    listed_in: u64,
    list: VerbResults,
    watch: VerbResults,
    /// The undecodable objects in the report when the last attempt to list began. When the list
    /// completes, they leave the report, because the list shows the current state of each object.
    earlier_undecodable: Arc<[UndecodableObject]>,
    /// Whether the store is a copy of another replica's store that kubewarm has not compared with
    /// the API server yet.
    is_unchecked_copy: bool,
    pending: PendingProofs,
    lists: LatencyWindow,
    events: LatencyWindow,
}

impl InformerStatus {
    pub(crate) fn new() -> Self {
        let now = Timestamp::now();
        Self {
            warmup_started: (Instant::now(), now),
            step: TaskState::Queued,
            report: InformerReport::queued(now),
            required_relist: None,
            listed_in: 0,
            list: VerbResults::default(),
            watch: VerbResults::default(),
            earlier_undecodable: Arc::default(),
            is_unchecked_copy: false,
            pending: PendingProofs::default(),
            lists: LatencyWindow::default(),
            events: LatencyWindow::default(),
        }
    }

    pub(crate) fn detailed(&self, report: InformerReport) -> InformerReport {
        let now = Instant::now();
        InformerReport {
            list_latency: self.lists.quantiles(now),
            event_latency: self.events.quantiles(now),
            ..report
        }
    }

    /// Returns a snapshot of the informer's state without latencies. An open watch is `Silent` if
    /// the store was last confirmed longer ago than [`InformerReport::kept_bound`] permits.
    pub(crate) fn get_summary(&self, max_staleness: Duration) -> InformerReport {
        let mut report = self.report.clone();
        let bound = report.kept_bound(max_staleness, Instant::now());
        report.phase = self.phase();
        if report.phase == InformerPhase::Watching
            && report.current_at.is_some_and(|current| current.elapsed() >= bound)
        {
            report.phase = InformerPhase::Silent;
            let silent = report.current_time.and_then(|current| current.checked_add(bound).ok());
            report.since = silent.unwrap_or(report.since);
        }
        report
    }

    fn phase(&self) -> InformerPhase {
        match (self.step, self.is_synced()) {
            (TaskState::Queued, false) => InformerPhase::Queued,
            (TaskState::Queued, true) if self.required_relist.is_none() => {
                InformerPhase::Reconnecting
            }
            (TaskState::Listing, false) => InformerPhase::Listing,
            (TaskState::Queued | TaskState::Listing, true) => InformerPhase::Relisting,
            (TaskState::Watching, _) => InformerPhase::Watching,
            (TaskState::Backoff, _) => InformerPhase::Failing,
        }
    }

    /// Runs `change` on the fields from which `phase` derives the informer's phase. If the phase
    /// changes, sets `report.since` to now.
    fn alter(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.phase();
        change(self);
        if self.phase() != before {
            self.report.since = Timestamp::now();
        }
    }

    pub(crate) fn step(&self) -> TaskState {
        self.step
    }

    /// Whether the store holds a complete list.
    pub(crate) fn is_synced(&self) -> bool {
        self.report.synced_at.is_some()
    }

    /// Changes the state of the informer's task to `next` and returns `true`. If the transition is
    /// illegal, returns `false` and keeps the state.
    pub(crate) fn enter(&mut self, next: TaskState) -> bool {
        let is_legal = self.step.can_lead_to(next, self.is_synced());
        if is_legal {
            self.alter(|status| status.step = next);
        }
        is_legal
    }

    /// Resets the status after the store was purged, because the store has no complete list any
    /// more.
    pub(crate) fn reset(&mut self) {
        self.report.undecodable = Arc::default();
        self.alter(|status| {
            let was_synced = status.is_synced();
            (status.step, status.required_relist) = (TaskState::Queued, None);
            let report = &mut status.report;
            (report.synced_at, report.warmed) = (None, None);
            report.current_at = None;
            status.pending.clear();
            if was_synced {
                status.restart_warmup();
            }
        });
    }

    /// Sets the start of the warm-up to now, so that the time until now does not count as warm-up.
    pub(crate) fn restart_warmup(&mut self) {
        self.warmup_started = (Instant::now(), Timestamp::now());
    }

    /// Number of times that the API server had rejected the informer's identity when kubewarm
    /// requested the store's complete list. `None` without a complete list.
    pub(crate) fn listed_in(&self) -> Option<u64> {
        self.is_synced().then_some(self.listed_in)
    }

    pub(crate) fn own_requests(&self) -> OwnRequests {
        let (has_failed, is_synced) = (self.report.fault.is_some(), self.is_synced());
        OwnRequests { list: self.list, watch: self.watch, has_failed, is_synced }
    }

    /// Records that a request of this verb succeeded. `at` is when the request was sent.
    pub(crate) fn record_success(&mut self, verb: Verb, at: Instant) {
        *self.results_of(verb) = VerbResults { allowed_at: Some(at), refused_at: None };
    }

    /// Records that the API server no longer rejects this verb. Used after a probe or a consistent
    /// list, which does not change `allowed_at`: only the lists and watches that fill the store
    /// count there.
    pub(crate) fn clear_refusal(&mut self, verb: Verb) {
        self.results_of(verb).refused_at = None;
    }

    /// Records a complete list. If the list is the first since the store was created or purged,
    /// returns the start, end and duration of the warm-up.
    ///
    /// kubewarm requested the list at `requested_at`, when `PermissionRecord::refusals` was
    /// `listed_in`. The store contains every change made before `requested_at`.
    pub(crate) fn record_list(
        &mut self,
        version: &ResourceVersion,
        strategy: FirstSyncMethod,
        requested_at: Instant,
        listed_in: u64,
    ) -> Option<FirstSync> {
        let synced = Timestamp::now();
        self.alter(|status| {
            (status.step, status.required_relist) = (TaskState::Queued, None);
            status.report.synced_at = Some(synced);
        });
        self.listed_in = listed_in;
        self.is_unchecked_copy = strategy == FirstSyncMethod::Peer;
        self.forget_earlier_undecodable();
        self.confirm(requested_at);
        let (cold_at, started) = self.warmup_started;
        self.reach(version);
        let report = &mut self.report;
        report.expected = None;
        let is_first = report.warmed.is_none();
        report.warmed.get_or_insert_with(|| FirstSync {
            started,
            synced,
            took: cold_at.elapsed(),
            strategy,
        });
        report.warmed.filter(|_| is_first)
    }

    /// Whether the informer reads its kind in JSON because an object could not be read in protobuf.
    pub(crate) fn must_read_json(&self) -> bool {
        self.report.json_fallback.is_some()
    }

    /// Whether the store is a copy that no consistency check has compared with the API server.
    pub(crate) fn is_unchecked_copy(&self) -> bool {
        self.is_unchecked_copy
    }

    /// Records that a consistency check found the store equal to the API server's objects.
    pub(crate) fn record_equal(&mut self) {
        self.is_unchecked_copy = false;
    }

    pub(crate) fn require_relist(&mut self, why: RelistReason) {
        self.alter(|status| status.required_relist = Some(why));
    }

    pub(crate) fn required_relist(&self) -> Option<RelistReason> {
        self.required_relist
    }

    /// Records that the store contains every change made before `at`.
    pub(crate) fn confirm(&mut self, at: Instant) {
        if self.report.current_at.is_none_or(|known| known < at) {
            let now = Timestamp::now();
            self.report.current_at = Some(at);
            self.report.current_time = now.checked_sub(at.elapsed()).ok().or(Some(now));
            self.pending.forget_until(at);
        }
    }

    pub(crate) fn record_list_duration(&mut self, took: Duration) {
        self.lists.record(Instant::now(), took);
    }

    /// Records that a client wants to read the store. Returns whether the read is the first one for
    /// 10 minutes: [`InformerReport::kept_bound`] can then return a lower age than before.
    pub(crate) fn record_demand(&mut self) -> bool {
        let now = Instant::now();
        let was_read = self.report.is_read_recently(now);
        self.report.read_at = Some(now);
        !was_read
    }

    /// Records that a consistent list, which kubewarm sent at `requested_at`, has the version
    /// `newest`, while the store has the version `reached`. The list proves that the store is
    /// current as of `requested_at` now, or later when the store reaches the version.
    pub(crate) fn record_newest(
        &mut self,
        requested_at: Instant,
        newest: ResourceVersion,
        reached: Option<&ResourceVersion>,
    ) {
        if reached.is_some_and(|reached| *reached >= newest) {
            self.confirm(requested_at);
        } else {
            self.pending.add(requested_at, newest);
        }
    }

    /// When kubewarm sent the first consistent list whose version the store has not reached.
    pub(crate) fn pending_since(&self) -> Option<Instant> {
        self.pending.since()
    }

    /// Records that the store contains every change up to `version`. That alone does not show that
    /// nothing newer exists, because an event or bookmark can arrive late. Only a consistent list
    /// whose version the store has reached shows it.
    pub(crate) fn reach(&mut self, version: &ResourceVersion) {
        if let Some(requested_at) = self.pending.reach(version) {
            self.confirm(requested_at);
        }
    }

    /// Records an event, `lag` after its arrival. `version` is the version to which the event has
    /// brought the store; `None` if the store's version did not change.
    pub(crate) fn record_event(&mut self, version: Option<&ResourceVersion>, lag: Duration) {
        self.events.record(Instant::now(), lag);
        self.report.event_time = Some(Timestamp::now());
        if let Some(version) = version {
            self.reach(version);
        }
    }

    /// Records a failed list, watch or probe (a second, short watch), and the time of the next
    /// attempt. The informer's phase does not change, because a probe can also fail while the
    /// informer's own watch is open.
    pub(crate) fn record_fault(
        &mut self,
        verb: Verb,
        fault: &RequestFault,
        attempts: u32,
        delay: Duration,
    ) {
        let now = Timestamp::now();
        if fault.reason().is_access_denied() {
            self.results_of(verb).refused_at.get_or_insert_with(Instant::now);
        }
        let since = self.report.fault.as_ref().map_or(now, |old| old.since);
        self.report.fault = Some(InformerFault {
            reason: fault.reason(),
            verb,
            message: fault.message().into(),
            at: now,
            since,
            attempts,
            next_retry: now.checked_add(delay).ok(),
        });
    }

    /// Adds an undecodable object to the report. If the report already names 16 objects, adds it
    /// without its name.
    pub(crate) fn add_undecodable(&mut self, mut object: UndecodableObject) {
        let (mut unnamed, mut named): (Vec<_>, Vec<_>) =
            self.report.undecodable.iter().cloned().partition(UndecodableObject::is_unnamed);
        named.retain(|known| known.object != object.object);
        if object.is_unnamed() || named.len() >= MAX_NAMED {
            object.object = UndecodableObject::UNNAMED.into();
            unnamed = vec![object];
        } else {
            named.push(object);
        }
        named.append(&mut unnamed);
        self.report.undecodable = named.into();
    }

    pub(crate) fn count_undecodable(&self) -> u64 {
        u64::try_from(self.report.undecodable.len()).unwrap_or(u64::MAX)
    }

    pub(crate) fn has_undecodable(&self) -> bool {
        !self.report.undecodable.is_empty()
    }

    /// Returns the object's key if the object can be among the undecodable objects: if the report
    /// contains its name, or an entry without a name. Otherwise returns `None`.
    pub(crate) fn find_undecodable(&self, namespace: &str, name: &str) -> Option<ObjectKey> {
        let may_be = |known: &UndecodableObject| known.is_in(Some(namespace), Some(name));
        self.report
            .undecodable
            .iter()
            .any(may_be)
            .then(|| ObjectKey { namespace: namespace.into(), name: name.into() })
    }

    /// Removes the object `object` from the report, unless the report does not contain its name.
    pub(crate) fn remove_undecodable(&mut self, object: &ObjectKey) {
        let mut all = self.report.undecodable.to_vec();
        all.retain(|known| {
            known.is_unnamed() || !known.is_in(Some(&object.namespace), Some(&object.name))
        });
        self.report.undecodable = all.into();
    }

    /// Records that an attempt to list begins. Undecodable objects of the previous list stay in the
    /// report until the new list is complete, because the store still lacks them.
    pub(crate) fn begin_list(&mut self) {
        self.earlier_undecodable = Arc::clone(&self.report.undecodable);
        (self.report.listed, self.report.expected) = (0, None);
    }

    /// Removes the undecodable objects that the informer received before the last attempt to list.
    /// If the list contained such an object again, the report has a new entry for the object, whose
    /// name is another allocation. So this method compares the names' pointers to find the old
    /// entries. It does not compare times, because the wall clock can go back.
    fn forget_earlier_undecodable(&mut self) {
        let earlier = std::mem::take(&mut self.earlier_undecodable);
        let is_earlier = |known: &UndecodableObject| {
            earlier.iter().any(|entry| Arc::ptr_eq(&entry.object, &known.object))
        };
        let later = self.report.undecodable.iter().filter(|known| !is_earlier(known));
        self.report.undecodable = later.cloned().collect();
    }

    fn results_of(&mut self, verb: Verb) -> &mut VerbResults {
        match verb {
            Verb::List => &mut self.list,
            Verb::Watch => &mut self.watch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::report::{KEPT_BY_BOOKMARKS, READ_RECENTLY};
    use kubewarm_api::model::FaultReason;

    const BOUND: Duration = Duration::from_secs(30);

    fn phase(status: &InformerStatus) -> InformerPhase {
        status.get_summary(BOUND).phase
    }

    fn after(status: &mut InformerStatus, step: TaskState) -> InformerPhase {
        assert!(status.enter(step), "{step:?}");
        phase(status)
    }

    #[tokio::test(start_paused = true)]
    async fn the_phase_follows_from_the_step_and_the_sync_state() {
        let mut status = InformerStatus::new();
        assert!(status.record_demand(), "the first read");
        assert_eq!(phase(&status), InformerPhase::Queued);
        assert_eq!(after(&mut status, TaskState::Listing), InformerPhase::Listing);
        assert_eq!(after(&mut status, TaskState::Backoff), InformerPhase::Failing);
        assert_eq!(after(&mut status, TaskState::Listing), InformerPhase::Listing, "not synced");
        let version = ResourceVersion::from(5);
        assert!(status.record_list(&version, FirstSyncMethod::List, Instant::now(), 0).is_some());
        assert_eq!(phase(&status), InformerPhase::Reconnecting);
        assert_eq!(after(&mut status, TaskState::Watching), InformerPhase::Watching);
        tokio::time::advance(BOUND).await;
        assert_eq!(phase(&status), InformerPhase::Silent);
        status.confirm(Instant::now());
        assert_eq!(phase(&status), InformerPhase::Watching, "confirmed again");
        assert_eq!(after(&mut status, TaskState::Queued), InformerPhase::Reconnecting);
        status.require_relist(RelistReason::Gone);
        assert_eq!(phase(&status), InformerPhase::Relisting, "it waits for a list slot");
        assert_eq!(after(&mut status, TaskState::Backoff), InformerPhase::Failing);
        assert_eq!(
            after(&mut status, TaskState::Listing),
            InformerPhase::Relisting,
            "synced after a failure"
        );
        assert!(status.record_list(&version, FirstSyncMethod::List, Instant::now(), 0).is_none());
        assert_eq!(phase(&status), InformerPhase::Reconnecting);
        after(&mut status, TaskState::Backoff);
        status.reset();
        assert_eq!((phase(&status), status.is_synced()), (InformerPhase::Queued, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_bound_is_kept_for_ten_minutes_after_a_read() {
        let mut status = InformerStatus::new();
        let bound =
            |status: &InformerStatus| status.report.kept_bound(BOUND, Instant::now()).as_secs();
        let (long, second) = (KEPT_BY_BOOKMARKS.as_secs(), Duration::from_secs(1));
        assert_eq!(bound(&status), long, "no client has read the store");
        assert!(status.record_demand(), "the first read");
        tokio::time::advance(READ_RECENTLY.saturating_sub(second)).await;
        assert!(!status.record_demand(), "a read within 10 minutes continues the period");
        tokio::time::advance(READ_RECENTLY.saturating_sub(second)).await;
        assert_eq!(bound(&status), BOUND.as_secs());
        assert!(status.enter(TaskState::Listing));
        status.record_list(&ResourceVersion::from(5), FirstSyncMethod::List, Instant::now(), 0);
        assert_eq!(after(&mut status, TaskState::Watching), InformerPhase::Watching);
        tokio::time::advance(BOUND).await;
        assert_eq!(bound(&status), long, "the last read was 10 minutes ago");
        assert_eq!(phase(&status), InformerPhase::Watching, "older than the short bound");
        // The next read wakes the informer's task, which sends lists and probes for the short bound
        // again.
        assert!(status.record_demand(), "the first read for 10 minutes");
        assert_eq!(bound(&status), BOUND.as_secs());
        assert_eq!(phase(&status), InformerPhase::Silent);
        let higher = KEPT_BY_BOOKMARKS * 2;
        tokio::time::advance(READ_RECENTLY).await;
        assert_eq!(status.report.kept_bound(higher, Instant::now()), higher, "never lowered");
    }

    #[test]
    fn a_refusal_of_a_verb_ends_only_with_a_success_of_that_verb() {
        let mut status = InformerStatus::new();
        let fail = |status: &mut InformerStatus, verb, reason| {
            status.record_fault(verb, &RequestFault::new(reason, "no"), 1, Duration::ZERO);
            status.watch.refused_at
        };
        assert_eq!(fail(&mut status, Verb::Watch, FaultReason::Throttled), None);
        let refused = fail(&mut status, Verb::Watch, FaultReason::Forbidden);
        assert!(refused.is_some());
        fail(&mut status, Verb::Watch, FaultReason::Throttled);
        // An event of the open watch clears the informer's fault. But the API server authorized
        // this watch earlier, so the event is no evidence of access now.
        status.report.fault = None;
        status.record_success(Verb::List, Instant::now());
        assert_eq!(fail(&mut status, Verb::Watch, FaultReason::Unauthorized), refused);
        status.record_success(Verb::Watch, Instant::now());
        assert_eq!(status.watch.refused_at, None);
    }
}
