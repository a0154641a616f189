//! Opens an informer's watch, reads it until it ends, and decides what the informer does next.

use super::{
    TaskAction, TaskFailure,
    backoff::RetryBackoff,
    consistency_check::ConsistencySchedule,
    proof_schedule::{ProofNeed, ProofSchedule},
    session::InformerSession,
    task_state::TaskState,
    watch_stream::{WatchMetricsGuard, WatchStream, WatchStreamEnd, is_early, random_timeout},
};
use crate::informer::{RelistReason, Verb, shared_informer::InformerControl};
use futures::{
    StreamExt as _,
    future::{Fuse, FusedFuture as _},
};
use kubewarm_api::model::{Delta, FaultReason, ObjectEncoding, RequestFault, ResourceVersion};
use kubewarm_client::is_builtin_group;
use kubewarm_wire::MediaType;
use std::time::Duration;
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep, sleep_until},
};

/// Maximum number of consecutive watches that end at once; the informer then relists. Some API
/// servers close a watch from an expired version without a 410 (kubernetes#104171), and only a list
/// brings a newer version.
const CLOSED_AT_ONCE: u32 = 5;

/// One open watch.
pub(crate) struct WatchRun<'a> {
    pub(super) session: &'a mut InformerSession,
    pub(super) control: &'a mut Receiver<InformerControl>,
    pub(super) backoff: &'a mut RetryBackoff,
    pub(super) history: &'a mut WatchHistory,
    pub(super) checks: &'a mut ConsistencySchedule,
    /// When the last list completed.
    pub(super) listed_at: Option<Instant>,
    pub(super) opened_at: Instant,
    /// Number of events whose version was newer than the store's version. A probe compares this
    /// number before and after, to detect whether the watch still delivers events.
    pub(super) new_events: u64,
    pub(super) has_reported_silence: bool,
    /// The store's version after the last probe that raised it. The informer's own watch can send a
    /// bookmark with a lower version afterwards, which shows no etcd restore.
    pub(super) probed: Option<ResourceVersion>,
    /// When the informer requests the next proof that the store is current.
    pub(super) proofs: ProofSchedule,
}

/// State that all watches of one run of the informer's task share.
#[derive(Default)]
pub(crate) struct WatchHistory {
    /// Number of consecutive watches that ended within `InformerTiming::immediate_end` without an
    /// event.
    closed_at_once: u32,
    /// Number of consecutive watches that lasted less than `InformerTiming::stable_after`, 10 s in
    /// production.
    short_watches: u32,
}

impl InformerSession {
    /// Opens a watch from the version of the store. `listed_at` is when the last list completed.
    pub(crate) async fn watch(
        &self,
        listed_at: Option<Instant>,
    ) -> Result<TaskAction, TaskFailure> {
        let Some(from) = self.version() else {
            return Ok(TaskAction::List(None));
        };
        if self.can_leave_fallback().await {
            return Ok(TaskAction::List(Some(RelistReason::Decode)));
        }
        let timing = &self.shared.timing;
        let timeout = random_timeout(timing);
        let is_json = self.decoder.encoding == ObjectEncoding::Json;
        let sent = Instant::now();
        let opened =
            self.list_watch.open(timing.watch_headers, |endpoint| endpoint.watch(&from, timeout));
        match opened.await {
            Ok(body) if (body.media_type == MediaType::Json) == is_json => {
                self.informer.record_success(Verb::Watch, sent);
                Ok(TaskAction::Follow(Box::new(WatchStream::new(body, timeout))))
            }
            Ok(_) => {
                let message = "the API server answered the watch in another encoding than the list";
                let fault = RequestFault::new(FaultReason::Malformed, message);
                self.relist(listed_at, RelistReason::Decode, fault)
            }
            Err(fault) if fault.reason() == FaultReason::Gone => {
                let code = fault.code();
                let next = self.relist(listed_at, RelistReason::Gone, fault)?;
                self.metrics.count_request_error(Verb::Watch, code);
                Ok(next)
            }
            Err(fault) => {
                let is_broken =
                    matches!(fault.reason(), FaultReason::Unreachable | FaultReason::ServerError);
                let then = if is_broken {
                    TaskAction::Verify { since: Instant::now() }
                } else {
                    TaskAction::Watch
                };
                Err(TaskFailure { fault, verb: Verb::Watch, then })
            }
        }
    }

    /// Makes the informer relist next: at once, or after a backoff if the last list completed less
    /// than `InformerTiming::stable_after` ago. So an informer whose watches fail at once does not
    /// list in a loop.
    fn relist(
        &self,
        listed_at: Option<Instant>,
        why: RelistReason,
        fault: RequestFault,
    ) -> Result<TaskAction, TaskFailure> {
        let then = TaskAction::List(Some(why));
        if listed_at.is_some_and(|at| at.elapsed() < self.shared.timing.stable_after) {
            return Err(TaskFailure { fault, verb: Verb::Watch, then });
        }
        Ok(then)
    }
}

impl WatchRun<'_> {
    pub(crate) async fn follow(
        mut self,
        mut stream: WatchStream,
    ) -> Result<TaskAction, TaskFailure> {
        self.session.informer.enter(TaskState::Watching);
        let open = WatchMetricsGuard::new(&self.session.metrics, stream.opened);
        self.session.informer.apply(Delta::Arrived(stream.last_bytes_at.into_std()));
        let end = self.read(&mut stream).await;
        let lasted = stream.opened.elapsed();
        open.end(end.label(lasted, stream.timeout));
        if self.has_settled() {
            self.backoff.reset();
            self.history.short_watches = 0;
        } else {
            self.history.short_watches = self.history.short_watches.saturating_add(1);
        }
        if stream.events > 0 || self.has_settled() {
            self.history.closed_at_once = 0;
        }
        let next = self.next_action(end, &stream, lasted)?;
        // Limit the rate at which the informer opens watches, because no backoff follows after a
        // watch that ended without a failure.
        if matches!(next, TaskAction::Watch | TaskAction::Verify { .. }) {
            drop(stream);
            sleep(self.min_interval().saturating_sub(lasted)).await;
        }
        Ok(next)
    }

    /// Minimum time from the start of one watch to the start of the next.
    ///
    /// The minimum is `InformerTiming::immediate_end` after a watch without new events.
    ///
    /// After a watch with new events, the minimum starts at 1/16 of
    /// `InformerTiming::immediate_end`. It doubles with each consecutive short watch. An overloaded
    /// API server ends watches that fall behind, and a longer wait would make the next watch fall
    /// behind further.
    fn min_interval(&self) -> Duration {
        let at_once = self.session.shared.timing.immediate_end;
        if self.new_events == 0 {
            at_once
        } else {
            at_once / (16 >> self.history.short_watches.min(4))
        }
    }

    fn next_action(
        &mut self,
        end: WatchStreamEnd,
        stream: &WatchStream,
        lasted: Duration,
    ) -> Result<TaskAction, TaskFailure> {
        let failure = |fault, then| Err(TaskFailure { fault, verb: Verb::Watch, then });
        match end {
            WatchStreamEnd::Clean
                if stream.events == 0 && lasted < self.session.shared.timing.immediate_end =>
            {
                self.history.closed_at_once += 1;
                let then = if self.history.closed_at_once >= CLOSED_AT_ONCE {
                    self.history.closed_at_once = 0;
                    TaskAction::List(Some(RelistReason::ClosedAtOnce))
                } else {
                    TaskAction::Watch
                };
                let message = "the API server ended the watch at once";
                failure(RequestFault::new(FaultReason::ClosedAtOnce, message), then)
            }
            // An edit of the CRD can have ended the watch early. The API server can then return
            // other content for objects with the same resource version, so relist.
            WatchStreamEnd::Clean
                if is_early(lasted, stream.timeout)
                    && !is_builtin_group(self.session.informer.key.resource.group()) =>
            {
                let message = "the API server ended the watch of a custom resource early";
                let fault = RequestFault::new(FaultReason::ClosedAtOnce, message);
                self.session.relist(self.listed_at, RelistReason::Redefined, fault)
            }
            WatchStreamEnd::Clean
                if self.history.short_watches > 1
                    && self.new_events == 0
                    && lasted < self.session.shared.timing.stable_after
                    && is_early(lasted, stream.timeout) =>
            {
                let message = "the API server ended the watch after a moment";
                failure(RequestFault::new(FaultReason::ClosedAtOnce, message), TaskAction::Watch)
            }
            WatchStreamEnd::Clean => {
                self.session.informer.enter(TaskState::Queued);
                Ok(TaskAction::Watch)
            }
            WatchStreamEnd::Broken(fault)
                if self.history.short_watches > 1
                    || stream.events == 0 && self.history.short_watches > 0 =>
            {
                failure(fault, TaskAction::Verify { since: Instant::now() })
            }
            WatchStreamEnd::Broken(fault) => {
                tracing::debug!(informer = %self.session.informer.key, %fault, "the watch broke");
                self.session.informer.enter(TaskState::Queued);
                Ok(TaskAction::Verify { since: Instant::now() })
            }
            WatchStreamEnd::Dead(why) => {
                tracing::info!(informer = %self.session.informer.key, why, "the watch is silent, opening another");
                self.session.informer.enter(TaskState::Queued);
                Ok(TaskAction::Verify { since: Instant::now() })
            }
            WatchStreamEnd::VersionDecreased => {
                self.session.informer.enter(TaskState::Queued);
                Ok(TaskAction::Verify { since: Instant::now() })
            }
            WatchStreamEnd::ErrorEvent(fault) if fault.reason() == FaultReason::Gone => {
                self.session.relist(self.listed_at, RelistReason::Gone, fault)
            }
            WatchStreamEnd::ErrorEvent(fault) => failure(fault, TaskAction::Watch),
            WatchStreamEnd::Undecodable(problem) => {
                let message = format!("the watch sent an event that cannot be decoded: {problem}");
                let then = TaskAction::List(Some(RelistReason::Decode));
                failure(RequestFault::new(FaultReason::Malformed, message), then)
            }
            WatchStreamEnd::NeedsJson(object) => {
                self.session.fall_back_to_json(&object);
                Ok(TaskAction::List(Some(RelistReason::Decode)))
            }
            WatchStreamEnd::OutOfOrder => {
                let message = "the watch sent an event that is older than the ones before it";
                self.session.relist(
                    self.listed_at,
                    RelistReason::Disordered,
                    RequestFault::new(FaultReason::Malformed, message),
                )
            }
            WatchStreamEnd::Inconsistent => {
                let message = "the store differs from the API server";
                self.session.relist(
                    self.listed_at,
                    RelistReason::Inconsistent,
                    RequestFault::new(FaultReason::Malformed, message),
                )
            }
            WatchStreamEnd::NamespaceGone(fault) => {
                failure(fault, TaskAction::List(Some(RelistReason::Recreated)))
            }
        }
    }

    /// Reads the watch until it ends. At the same time, runs consistency checks, namespace lookups,
    /// consistent lists and probes (second, short watches).
    async fn read(&mut self, stream: &mut WatchStream) -> WatchStreamEnd {
        let mut list = Fuse::terminated();
        let mut probe = Fuse::terminated();
        let mut check = Fuse::terminated();
        let mut empty_since = None;
        let mut had_fault = self.session.informer.status().report.fault.is_some();
        loop {
            while !stream.rest.is_empty() {
                if let Some(end) = self.apply_next_event(stream) {
                    return end;
                }
            }
            self.session.notify_excess();
            let timing = &self.session.shared.timing;
            empty_since = (self.session.informer.reader.objects() == 0)
                .then(|| empty_since.unwrap_or_else(Instant::now));
            let namespace_at = empty_since.map(|since| since + timing.namespace_check);
            let need = self.proof_need();
            // A watch without bytes is not dead while consistent reads confirm that the store is
            // current: a kind without bookmarks can have no changes for long.
            let dead_at = stream.last_bytes_at.max(need.current_at) + timing.watch_max_silence;
            let silent_at = need.current_at + need.bound;
            let list_at = self.proofs.list_at(&need, timing);
            let probe_at = self.proofs.probe_at(&need, timing);
            let well_at = stream.opened + timing.immediate_end * 2;
            tokio::select! {
                biased;
                chunk = stream.chunks.next() => match chunk {
                    Some(Ok(chunk)) => {
                        stream.last_bytes_at = Instant::now();
                        self.session.informer.apply(Delta::Arrived(stream.last_bytes_at.into_std()));
                        stream.rest = chunk;
                    }
                    Some(Err(fault)) => return WatchStreamEnd::Broken(fault),
                    None if stream.splitter.is_partial() => {
                        let message = "the watch ended in the middle of an event";
                        return WatchStreamEnd::Broken(RequestFault::new(FaultReason::Malformed, message));
                    }
                    None => return WatchStreamEnd::Clean,
                },
                listed = &mut list => if let Some(end) = self.evaluate_proof_list(listed).await {
                    return end;
                },
                () = sleep_until(list_at), if list.is_terminated() => list = self.list_for_proof(),
                probed = &mut probe => if let Some(end) = self.evaluate_probe(probed) {
                    return end;
                },
                () = sleep_until(probe_at.unwrap_or(dead_at)),
                    if probe_at.is_some() && probe.is_terminated() =>
                {
                    probe = self.probe();
                }
                () = self.consistency_check_due(), if check.is_terminated() => check = self.start_consistency_check(),
                comparison = &mut check => {
                    if let Some(end) = self.finish_consistency_check(comparison) {
                        return end;
                    }
                }
                () = self.session.informer.probe.notified(), if probe.is_terminated() => {
                    probe = self.probe();
                }
                // A watch that fails at once has ended before twice
                // `InformerTiming::immediate_end`. So a watch that is still open works, and clears
                // the last fault even without an event.
                () = sleep_until(well_at), if had_fault => {
                    had_fault = false;
                    self.session.informer.status().report.fault = None;
                    self.session.shared.changes.notify();
                }
                () = sleep_until(silent_at), if !self.has_reported_silence => {
                    self.has_reported_silence = true;
                    self.session.shared.changes.notify();
                }
                () = sleep_until(dead_at) => return WatchStreamEnd::Dead("no bookmark arrived"),
                () = sleep_until(namespace_at.unwrap_or(dead_at)), if namespace_at.is_some() => {
                    // The result of another informer's namespace lookup is recent enough if the
                    // lookup was sent after this store became empty.
                    if let Some(since) = empty_since.take()
                        && let Some(fault) = self.session.absent_namespace(since).await
                    {
                        return WatchStreamEnd::NamespaceGone(fault);
                    }
                }
                // The profile's `maxStalenessSeconds` can have changed, so compute the deadlines
                // again.
                Ok(()) = self.control.changed() => {}
            }
        }
    }

    /// How current the store is, and how current the informer's requests for proofs must keep it.
    pub(crate) fn proof_need(&self) -> ProofNeed {
        let max_staleness = self.session.informer.settings(|settings| settings.max_staleness);
        let (status, now) = (self.session.informer.status(), Instant::now());
        ProofNeed {
            current_at: status.report.current_at.unwrap_or(now),
            bound: status.report.kept_bound(max_staleness, now),
            pending_since: status.pending_since(),
        }
    }

    /// Whether the watch has been open long enough to reset the backoff. A watch that ends before
    /// this time does not reset the backoff, so the backoff grows if watches repeatedly end after a
    /// moment.
    fn has_settled(&self) -> bool {
        self.opened_at.elapsed() >= self.session.shared.timing.stable_after
    }

    /// Clears the informer's fault, because an event, a bookmark or a probe (a second, short watch)
    /// has just shown that the watch works. Clears its silent state (no proof within the time
    /// limit) if the store is proven current again.
    pub(crate) fn record_healthy(&mut self) {
        self.reset_backoff_if_settled();
        self.session.informer.status().report.fault = None;
        self.end_silence();
    }

    pub(crate) fn reset_backoff_if_settled(&mut self) {
        if self.has_settled() {
            self.backoff.reset();
        }
    }

    /// Clears the informer's silent state (no proof within the time limit) if the store is proven
    /// current again.
    pub(crate) fn end_silence(&mut self) {
        if !self.has_reported_silence {
            return;
        }
        let need = self.proof_need();
        if Instant::now() < need.current_at + need.bound {
            self.has_reported_silence = false;
            self.session.shared.changes.notify();
        }
    }
}
