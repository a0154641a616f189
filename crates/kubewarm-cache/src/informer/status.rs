//! What an informer's task writes down of itself, and everyone else reads.

use super::{
    CellFault, CellReport, Phase, RelistReason, ListMethod, Undecodable, Verb, Warmed,
    latency::LatencyWindow, state::Step,
};
use jiff::Timestamp;
use kubewarm_api::model::{Fault, ResourceVersion};
use std::time::Duration;
use tokio::time::Instant;

/// Most undecodable objects that are named; the counter counts them all.
const MAX_NAMED: usize = 16;

/// The status of one informer, as its task has it. Proofs to readers may move its currency on.
#[derive(Debug)]
pub(super) struct Status {
    /// When the warm-up began: the declaration, or the purge of what was held before.
    cold_since: (Instant, Timestamp),
    step: Step,
    /// Without what [`Status::detailed`] adds. What a phase follows from is changed by functions of this type alone.
    pub(super) report: CellReport,
    /// Why a list is needed that has not been completed.
    owed: Option<RelistReason>,
    /// The epoch of the gate in which the last complete list was sent.
    epoch: u64,
    /// What the informer's own requests came to.
    pub(super) list: Answers,
    pub(super) watch: Answers,
    undecodable: Vec<Undecodable>,
    lists: LatencyWindow,
    events: LatencyWindow,
    reads: LatencyWindow,
}

/// What the informer's own requests of one verb came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// When the last one that was answered was sent.
    pub(super) allowed_at: Option<Instant>,
    /// Since when it is refused: until this very verb is allowed, whatever else is wrong meanwhile.
    pub(super) refused: Option<(Timestamp, Instant)>,
}

impl Status {
    pub(super) fn new() -> Self {
        let now = Timestamp::now();
        Self {
            cold_since: (Instant::now(), now),
            step: Step::Queued,
            report: CellReport::queued(now),
            owed: None,
            epoch: 0,
            list: Answers::default(),
            watch: Answers::default(),
            undecodable: Vec::new(),
            lists: LatencyWindow::default(),
            events: LatencyWindow::default(),
            reads: LatencyWindow::default(),
        }
    }

    /// A snapshot with undecodable objects, and with the latencies of the last five minutes.
    pub(super) fn detailed(&self, report: CellReport) -> CellReport {
        let now = Instant::now();
        CellReport {
            undecodable: self.undecodable.iter().cloned().collect(),
            list_latency: self.lists.quantiles(now),
            event_latency: self.events.quantiles(now),
            read_latency: self.reads.quantiles(now),
            ..report
        }
    }

    /// A snapshot without latencies and undecodable objects. The watch is silent if the store was last proved current
    /// longer ago than `bound`.
    pub(super) fn glance(&self, bound: Duration) -> CellReport {
        let mut report = self.report.clone();
        report.phase = self.phase();
        if report.phase == Phase::Watching
            && report.current_at.is_some_and(|current| current.elapsed() >= bound)
        {
            report.phase = Phase::Silent;
            let silent = report.current_time.and_then(|current| current.checked_add(bound).ok());
            report.since = silent.unwrap_or(report.since);
        }
        report
    }

    /// What the task does, told apart by whether there was a list before.
    fn phase(&self) -> Phase {
        match (self.step, self.is_synced()) {
            (Step::Queued, false) => Phase::Queued,
            (Step::Queued, true) if self.owed.is_none() => Phase::Reconnecting,
            (Step::Listing, false) => Phase::Listing,
            (Step::Queued | Step::Listing, true) => Phase::Relisting,
            (Step::Watching, _) => Phase::Watching,
            (Step::Backoff, _) => Phase::Failing,
        }
    }

    /// Changes what the phase follows from.
    fn alter(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.phase();
        change(self);
        if self.phase() != before {
            self.report.since = Timestamp::now();
        }
    }

    pub(super) fn step(&self) -> Step {
        self.step
    }

    /// Whether a complete list is held.
    pub(super) fn is_synced(&self) -> bool {
        self.report.synced_at.is_some()
    }

    /// The task goes on to `next`. `false` if it cannot: then nothing changes.
    pub(super) fn enter(&mut self, next: Step) -> bool {
        let is_legal = self.step.may_lead_to(next, self.is_synced());
        if is_legal {
            self.alter(|status| status.step = next);
        }
        is_legal
    }

    /// What was held has been dropped: it no longer exists or cannot be trusted.
    pub(super) fn purged(&mut self) {
        self.forget_undecodable();
        self.alter(|status| {
            let was_synced = status.is_synced();
            (status.step, status.owed) = (Step::Queued, None);
            let report = &mut status.report;
            (report.synced_at, report.warmed) = (None, None);
            (report.version, report.current_at) = (None, None);
            if was_synced {
                status.begin_warming();
            }
        });
    }

    /// The warm-up begins now: what came before is no part of it.
    pub(super) fn begin_warming(&mut self) {
        self.cold_since = (Instant::now(), Timestamp::now());
    }

    /// The epoch of what is held, if that is complete.
    pub(super) fn listed_in(&self) -> Option<u64> {
        self.is_synced().then_some(self.epoch)
    }

    /// The newest version delivered, if a list was ever completed: a watch goes on from it.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.report.version.as_ref()
    }

    /// Whether an event of this version is not newer than what the stream has brought.
    pub(super) fn is_replay(&self, event: Option<&ResourceVersion>) -> bool {
        event.zip(self.version()).is_some_and(|(event, known)| event <= known)
    }

    /// A request of this verb, which was sent `at`, has been answered.
    pub(super) fn allowed(&mut self, verb: Verb, at: Instant) {
        *self.answers(verb) = Answers { allowed_at: Some(at), refused: None };
    }

    /// One of this verb has been answered that says nothing of when.
    pub(super) fn refused_no_more(&mut self, verb: Verb) {
        self.answers(verb).refused = None;
    }

    /// A complete list has been applied: returns the warm-up if it was the first since there was nothing. The
    /// list was sent `asked_at`, in this epoch of the gate: the store is current as of then.
    pub(super) fn listed(
        &mut self,
        version: &ResourceVersion,
        strategy: ListMethod,
        (asked_at, epoch): (Instant, u64),
    ) -> Option<Warmed> {
        let synced = Timestamp::now();
        self.alter(|status| {
            (status.step, status.owed) = (Step::Queued, None);
            status.report.synced_at = Some(synced);
        });
        self.epoch = epoch;
        self.current(asked_at);
        let (cold_at, started) = self.cold_since;
        let report = &mut self.report;
        report.version = Some(version.clone());
        report.expected = None;
        let is_first = report.warmed.is_none();
        report.warmed.get_or_insert_with(|| Warmed {
            started,
            synced,
            took: cold_at.elapsed(),
            strategy,
        });
        report.warmed.filter(|_| is_first)
    }

    /// A list is needed for this reason; until one is complete, no watch helps.
    pub(super) fn owe(&mut self, why: RelistReason) {
        self.alter(|status| status.owed = Some(why));
    }

    /// Why a list is still needed.
    pub(super) fn owed(&self) -> Option<RelistReason> {
        self.owed
    }

    /// The store is proven current as of `at`.
    pub(super) fn current(&mut self, at: Instant) {
        if self.report.current_at.is_none_or(|known| known < at) {
            let now = Timestamp::now();
            self.report.current_at = Some(at);
            self.report.current_time = now.checked_sub(at.elapsed()).ok().or(Some(now));
        }
    }

    pub(super) fn list_took(&mut self, took: Duration) {
        self.lists.record(Instant::now(), took);
    }

    pub(super) fn read_took(&mut self, took: Duration) {
        self.reads.record(Instant::now(), took);
    }

    /// An event of this version was processed. Its version and freshness move with it, unless it is a replay: that
    /// proves nothing. Returns whether there is a new version.
    pub(super) fn event(&mut self, version: Option<ResourceVersion>, lag: Duration) -> bool {
        let (now, time) = (Instant::now(), Timestamp::now());
        self.events.record(now, lag);
        self.report.event_time = Some(time);
        if self.is_replay(version.as_ref()) {
            return false;
        }
        self.report.current_at = Some(now);
        self.report.current_time = Some(time);
        let is_new = version.is_some();
        self.report.version = version.or_else(|| self.report.version.take());
        is_new
    }

    /// Records a fault and when it will be tried again. It moves no phase: also that of a probe.
    pub(super) fn fault(&mut self, verb: Verb, fault: &Fault, attempts: u32, delay: Duration) {
        let now = Timestamp::now();
        if fault.reason().refuses_identity() {
            self.answers(verb).refused.get_or_insert_with(|| (now, Instant::now()));
        }
        let since = self.report.fault.as_ref().map_or(now, |old| old.since);
        self.report.fault = Some(CellFault {
            reason: fault.reason(),
            verb,
            message: fault.message().into(),
            at: now,
            since,
            attempts,
            next_retry: now.checked_add(delay).ok(),
        });
    }

    /// Names an object that could not be decoded, as long as there is room for names.
    pub(super) fn undecodable(&mut self, object: Undecodable) {
        self.undecodable.retain(|known| known.object != object.object);
        if self.undecodable.len() < MAX_NAMED {
            self.undecodable.push(object);
        }
    }

    /// Whether any object is named that could not be decoded.
    pub(super) fn has_undecodable(&self) -> bool {
        !self.undecodable.is_empty()
    }

    /// Takes an object off the list of those that could not be decoded: it could be now, or is gone.
    pub(super) fn decodable(&mut self, namespace: &str, name: &str) {
        self.undecodable.retain(|known| match known.object.split_once('/') {
            Some(parts) => parts != (namespace, name),
            None => !namespace.is_empty() || &*known.object != name,
        });
    }

    /// A new list is about to say which objects cannot be decoded.
    pub(super) fn forget_undecodable(&mut self) {
        self.undecodable.clear();
    }

    fn answers(&mut self, verb: Verb) -> &mut Answers {
        match verb {
            Verb::List => &mut self.list,
            Verb::Watch => &mut self.watch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::Reason;

    const BOUND: Duration = Duration::from_secs(30);

    fn phase(status: &Status) -> Phase {
        status.glance(BOUND).phase
    }

    fn after(status: &mut Status, step: Step) -> Phase {
        assert!(status.enter(step), "{step:?}");
        phase(status)
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_follows_from_what_the_task_does_and_what_it_has() {
        let mut status = Status::new();
        assert_eq!(phase(&status), Phase::Queued);
        assert_eq!(after(&mut status, Step::Listing), Phase::Listing);
        assert_eq!(after(&mut status, Step::Backoff), Phase::Failing);
        assert_eq!(after(&mut status, Step::Listing), Phase::Listing, "not synced");
        let version = ResourceVersion::from(5);
        assert!(status.listed(&version, ListMethod::List, (Instant::now(), 0)).is_some());
        assert_eq!(phase(&status), Phase::Reconnecting);
        assert_eq!(after(&mut status, Step::Watching), Phase::Watching);
        tokio::time::advance(BOUND).await;
        assert_eq!(phase(&status), Phase::Silent);
        status.current(Instant::now());
        assert_eq!(phase(&status), Phase::Watching, "proved current");
        assert_eq!(after(&mut status, Step::Queued), Phase::Reconnecting);
        status.owe(RelistReason::Gone);
        assert_eq!(phase(&status), Phase::Relisting, "it waits for its turn");
        assert_eq!(after(&mut status, Step::Backoff), Phase::Failing);
        assert_eq!(after(&mut status, Step::Listing), Phase::Relisting, "synced through a failure");
        assert!(status.listed(&version, ListMethod::List, (Instant::now(), 0)).is_none());
        assert_eq!(phase(&status), Phase::Reconnecting);
        after(&mut status, Step::Backoff);
        status.purged();
        assert_eq!((phase(&status), status.is_synced()), (Phase::Queued, false));
        assert_eq!(status.version(), None);
    }

    #[test]
    fn a_refusal_counts_until_that_verb_is_allowed_whatever_else_is_wrong_meanwhile() {
        let mut status = Status::new();
        let fail = |status: &mut Status, verb, reason| {
            status.fault(verb, &Fault::new(reason, "no"), 1, Duration::ZERO);
            status.watch.refused
        };
        assert_eq!(fail(&mut status, Verb::Watch, Reason::Throttled), None);
        let refused = fail(&mut status, Verb::Watch, Reason::Forbidden);
        assert!(refused.is_some());
        fail(&mut status, Verb::Watch, Reason::Throttled);
        // An event of the watch that is still open shows nothing.
        status.report.fault = None;
        status.allowed(Verb::List, Instant::now());
        assert_eq!(fail(&mut status, Verb::Watch, Reason::Unauthorized), refused);
        status.allowed(Verb::Watch, Instant::now());
        assert_eq!(status.watch.refused, None);
    }
}
