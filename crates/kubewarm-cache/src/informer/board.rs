//! Where a cell's task writes down how it stands, and everyone else reads it.

use super::{
    CellFault, CellReport, LatencyWindow, RelistReason, Strategy, Undecodable, Verb, Warmed,
    decode::Rejected,
    state::{Signal, State},
};
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Fault, ResourceVersion};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

/// Most undecodable objects that are named; the counter counts them all.
const MAX_NAMED: usize = 16;

/// Tells the controller that some cell changed phase, or that the namespaces did.
#[derive(Clone, Debug)]
pub struct Changes(Arc<watch::Sender<u64>>);

impl Default for Changes {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Changes {
    /// A receiver that is woken by every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Wakes every receiver.
    pub fn notify(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Whether an event is one that was delivered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsReplay {
    Yes,
    No,
}

/// The report of one cell, under its lock. Written by the cell's task, a few fields at a time; proofs to
/// readers may move its currency on.
#[derive(Debug)]
pub(super) struct Board {
    inner: Mutex<Inner>,
    /// Somebody waits for a proof that only a second watch can bring.
    probe: Notify,
    changes: Changes,
}

#[derive(Debug)]
struct Inner {
    /// When the warm-up began: the declaration, or the purge of what was held before.
    cold_since: (Instant, Timestamp),
    state: State,
    report: CellReport,
    /// Why a list is needed that has not been completed.
    owed: Option<RelistReason>,
    /// The epoch of the gate in which the last complete list was sent.
    epoch: u64,
    /// What the cell's own requests came to.
    list: Answers,
    watch: Answers,
    undecodable: Vec<Undecodable>,
    lists: LatencyWindow,
    events: LatencyWindow,
    reads: LatencyWindow,
}

/// What the cell's own requests of one verb came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// When the last one that was answered was sent.
    pub(super) allowed_at: Option<Instant>,
    /// Since when it is refused: until this very verb is allowed, whatever else is wrong meanwhile.
    pub(super) refused: Option<(Timestamp, Instant)>,
}

impl Board {
    pub(super) fn new(changes: Changes) -> Self {
        let now = Timestamp::now();
        Self {
            inner: Mutex::new(Inner {
                cold_since: (Instant::now(), now),
                state: State::QUEUED,
                report: CellReport::queued(now),
                owed: None,
                epoch: 0,
                list: Answers::default(),
                watch: Answers::default(),
                undecodable: Vec::new(),
                lists: LatencyWindow::default(),
                events: LatencyWindow::default(),
                reads: LatencyWindow::default(),
            }),
            probe: Notify::new(),
            changes,
        }
    }

    /// A snapshot, with the latencies of the last five minutes.
    pub(super) fn report(&self) -> CellReport {
        let inner = self.inner.lock();
        let now = Instant::now();
        CellReport {
            undecodable: inner.undecodable.iter().cloned().collect(),
            list_latency: inner.lists.quantiles(now),
            event_latency: inner.events.quantiles(now),
            read_latency: inner.reads.quantiles(now),
            ..inner.report.clone()
        }
    }

    /// The same without latencies and undecodable objects, which cost more: for every read.
    pub(super) fn glance(&self) -> CellReport {
        self.inner.lock().report.clone()
    }

    /// The epoch of what is held, if that is complete.
    pub(super) fn listed_in(&self) -> Option<u64> {
        let inner = self.inner.lock();
        inner.state.synced.then_some(inner.epoch)
    }

    /// What the cell's own lists and watches came to.
    pub(super) fn answers(&self) -> [Answers; 2] {
        let inner = self.inner.lock();
        [inner.list, inner.watch]
    }

    /// A request of this verb, which was sent `at`, has been answered.
    pub(super) fn allowed(&self, verb: Verb, at: Instant) {
        *self.inner.lock().answers(verb) = Answers { allowed_at: Some(at), refused: None };
    }

    /// One of this verb has been answered that says nothing of when.
    pub(super) fn refused_no_more(&self, verb: Verb) {
        self.inner.lock().answers(verb).refused = None;
    }

    /// The warm-up begins now: what came before is no part of it.
    pub(super) fn begin_warming(&self) {
        self.inner.lock().cold_since = (Instant::now(), Timestamp::now());
    }

    /// The last proof of currency.
    pub(super) fn current_at(&self) -> Option<Instant> {
        self.inner.lock().report.current_at
    }

    pub(super) fn has_fault(&self) -> bool {
        self.inner.lock().report.fault.is_some()
    }

    pub(super) fn state(&self) -> State {
        self.inner.lock().state
    }

    /// Moves the state machine. A signal that cannot occur is a bug: it is logged, and nothing moves.
    pub(super) fn signal(&self, key: &CellKey, signal: Signal) {
        let mut inner = self.inner.lock();
        match inner.state.on(signal) {
            Ok(next) => {
                if next.phase != inner.state.phase {
                    tracing::debug!(cell = %key, from = ?inner.state.phase, to = ?next.phase, "phase");
                    inner.report.since = Timestamp::now();
                }
                inner.report.phase = next.phase;
                if inner.state.synced && !next.synced {
                    inner.cold_since = (Instant::now(), Timestamp::now());
                }
                if !next.synced {
                    inner.report.synced_at = None;
                    inner.report.warmed = None;
                    inner.report.version = None;
                    inner.report.current_at = None;
                    inner.owed = None;
                }
                inner.state = next;
            }
            Err(error) => tracing::error!(cell = %key, %error, "illegal transition"),
        }
        drop(inner);
        self.changes.notify();
    }

    /// A complete list has been applied: returns the warm-up if it was the first since the cell had
    /// nothing. The list was sent `asked_at`, in this epoch of the gate: the table is current as of then.
    pub(super) fn listed(
        &self,
        key: &CellKey,
        version: &ResourceVersion,
        strategy: Strategy,
        (asked_at, epoch): (Instant, u64),
    ) -> Option<Warmed> {
        let warmed = {
            let mut inner = self.inner.lock();
            inner.owed = None;
            inner.epoch = epoch;
            let (cold_at, cold_time) = inner.cold_since;
            let report = &mut inner.report;
            report.synced_at = Some(Timestamp::now());
            report.version = Some(version.clone());
            report.expected = None;
            let first = report.warmed.is_none();
            report.warmed.get_or_insert_with(|| Warmed {
                started: cold_time,
                synced: Timestamp::now(),
                took: cold_at.elapsed(),
                strategy,
            });
            report.warmed.filter(|_| first)
        };
        self.current(asked_at);
        self.signal(key, Signal::Listed);
        warmed
    }

    /// A list is needed for this reason; until one is complete, no watch helps.
    pub(super) fn owe(&self, why: RelistReason) {
        self.inner.lock().owed = Some(why);
    }

    /// Why a list is still needed.
    pub(super) fn owed(&self) -> Option<RelistReason> {
        self.inner.lock().owed
    }

    /// The table is proven current as of `at`.
    pub(super) fn current(&self, at: Instant) {
        let mut inner = self.inner.lock();
        if inner.report.current_at.is_none_or(|known| known < at) {
            let now = Timestamp::now();
            inner.report.current_at = Some(at);
            inner.report.current_time = now.checked_sub(at.elapsed()).ok().or(Some(now));
        }
    }

    /// Has the watch probed, now or once it is open.
    pub(super) fn want_probe(&self) {
        self.probe.notify_one();
    }

    /// Ready when somebody wants the watch probed. Cancel safe.
    pub(super) async fn probe_is_wanted(&self) {
        self.probe.notified().await;
    }

    /// Changes fields that move nothing.
    pub(super) fn note(&self, change: impl FnOnce(&mut CellReport)) {
        change(&mut self.inner.lock().report);
    }

    pub(super) fn list_took(&self, took: Duration) {
        self.inner.lock().lists.record(Instant::now(), took);
    }

    pub(super) fn read_took(&self, took: Duration) {
        self.inner.lock().reads.record(Instant::now(), took);
    }

    /// An event was processed: its version and freshness move with it, in one locking. A replay has
    /// no version to move to, and proves nothing.
    pub(super) fn event(
        &self,
        version: Option<&ResourceVersion>,
        is_replay: IsReplay,
        lag: Duration,
    ) {
        let (now, time) = (Instant::now(), Timestamp::now());
        let mut inner = self.inner.lock();
        inner.events.record(now, lag);
        let report = &mut inner.report;
        if is_replay == IsReplay::No {
            report.current_at = Some(now);
            report.current_time = Some(time);
        }
        report.event_time = Some(time);
        if let Some(version) = version {
            report.version = Some(version.clone());
        }
    }

    /// Records a fault and when it will be tried again, and moves to [`Phase::Failing`].
    pub(super) fn failed(
        &self,
        key: &CellKey,
        verb: Verb,
        fault: &Fault,
        attempts: u32,
        delay: Duration,
    ) {
        self.fault(verb, fault, attempts, delay);
        self.signal(key, Signal::Failed);
    }

    /// Records a fault that does not move the phase, such as that of a probe.
    pub(super) fn fault(&self, verb: Verb, fault: &Fault, attempts: u32, delay: Duration) {
        let now = Timestamp::now();
        if fault.reason().refuses_identity() {
            self.inner.lock().answers(verb).refused.get_or_insert_with(|| (now, Instant::now()));
        }
        self.note(|report| {
            let since = report.fault.as_ref().map_or(now, |old| old.since);
            report.fault = Some(CellFault {
                reason: fault.reason(),
                verb,
                message: fault.message().into(),
                at: now,
                since,
                attempts,
                next_retry: now.checked_add(delay).ok(),
            });
        });
    }

    /// Names an object that could not be decoded, as long as there is room for names.
    pub(super) fn undecodable(&self, rejected: &Rejected) {
        let object = match &rejected.name {
            Some((namespace, name)) if namespace.is_empty() => name.as_str().into(),
            Some((namespace, name)) => format!("{namespace}/{name}").into(),
            None => "?".into(),
        };
        let problem = rejected.problem.as_str().into();
        let mut inner = self.inner.lock();
        let named: &mut Vec<Undecodable> = &mut inner.undecodable;
        let object: Arc<str> = object;
        named.retain(|known| known.object != object);
        if named.len() >= MAX_NAMED {
            return;
        }
        named.push(Undecodable { object, problem, at: Timestamp::now() });
        drop(inner);
        self.changes.notify();
    }

    /// Whether any object is named that could not be decoded.
    pub(super) fn has_undecodable(&self) -> bool {
        !self.inner.lock().undecodable.is_empty()
    }

    /// Takes an object off the list of those that could not be decoded: it could be now, or is gone.
    pub(super) fn decodable(&self, namespace: &str, name: &str) {
        let mut inner = self.inner.lock();
        if inner.undecodable.is_empty() {
            return;
        }
        inner.undecodable.retain(|known| match known.object.split_once('/') {
            Some(parts) => parts != (namespace, name),
            None => !namespace.is_empty() || &*known.object != name,
        });
    }

    /// A new list is about to say which objects cannot be decoded.
    pub(super) fn forget_undecodable(&self) {
        self.inner.lock().undecodable.clear();
    }
}

impl Inner {
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

    #[test]
    fn a_refusal_counts_until_that_verb_is_allowed_whatever_else_is_wrong_meanwhile() {
        let board = Board::new(Changes::default());
        let since = || board.answers()[1].refused;
        let fail = |verb, reason| {
            board.fault(verb, &Fault::new(reason, "no"), 1, Duration::ZERO);
        };
        fail(Verb::Watch, Reason::Throttled);
        assert_eq!(since(), None);
        fail(Verb::Watch, Reason::Forbidden);
        let refused = since();
        assert!(refused.is_some());
        fail(Verb::Watch, Reason::Throttled);
        // An event of the watch that is still open shows nothing.
        board.note(|report| report.fault = None);
        board.allowed(Verb::List, Instant::now());
        fail(Verb::Watch, Reason::Unauthorized);
        assert_eq!(since(), refused);
        board.allowed(Verb::Watch, Instant::now());
        assert_eq!(since(), None);
    }
}
