//! Decides when an informer requests a proof from the API server that its store is current.
//!
//! A proof has two parts: the version of a consistent list, and an event or bookmark that brings
//! the store to this version. kube-apiserver sends a bookmark about each minute. So a list shortly
//! before each bookmark keeps a store proven for less than 2 minutes, without a second watch. A
//! profile with a shorter `maxStalenessSeconds` needs a probe (a second, short watch), whose
//! bookmark arrives after 1 to 3 s.

use crate::informer::{InformerTiming, report::KEPT_BY_BOOKMARKS};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum age of another informer's consistent list that an informer uses instead of its own.
/// Informers of one resource start together, for example in many namespaces, so one list is then
/// enough for all of them.
const SHARED_FOR: Duration = Duration::from_secs(10);

/// Maximum exponent of the pause after probes that proved nothing. The longest pause is 128 times
/// `InformerTiming::probe_pause`, about 10 minutes, so that a probe still notices when the cause
/// has gone.
const MAX_DOUBLINGS: u32 = 7;

/// Time before the end of a watch at which the informer sends a consistent list at the latest.
/// kube-apiserver sends a bookmark 2 s before the end, which can prove only an earlier list. A list
/// takes at most a few seconds.
const BEFORE_END: Duration = Duration::from_secs(7);

/// When an informer sends consistent lists and probes, which together prove that its store is
/// current. Each watch has its own schedule.
#[derive(Debug)]
pub(crate) struct ProofSchedule {
    /// When the last bookmark arrived, or the watch opened.
    bookmark_at: Instant,
    /// When the API server ends the watch.
    ends_at: Instant,
    /// When kubewarm sent the consistent list that this informer last used. The list can be shared:
    /// then another informer requested it.
    asked_at: Option<Instant>,
    /// After a failed request, the informer sends no list and no probe before this time.
    not_before: Instant,
    /// After a probe that proved nothing, the informer sends no probe before this time.
    no_probe_before: Instant,
    /// Number of consecutive probes that proved nothing.
    vain_probes: u32,
}

/// How current the store is, and how current the schedule must keep it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProofNeed {
    /// The store contains every change before this time.
    pub(crate) current_at: Instant,
    /// The age at which the store is stale.
    pub(crate) bound: Duration,
    /// When kubewarm sent the first consistent list whose version the store has not reached. `None`
    /// if the store has reached the versions of all lists.
    pub(crate) pending_since: Option<Instant>,
}

impl ProofSchedule {
    /// The schedule of a watch that opened at `opened` and lasts for `lasts`.
    pub(crate) fn new(opened: Instant, lasts: Duration) -> Self {
        Self {
            bookmark_at: opened,
            ends_at: opened + lasts,
            asked_at: None,
            not_before: opened,
            no_probe_before: opened,
            vain_probes: 0,
        }
    }

    /// When to send the next consistent list, whose version proves the store current once the store
    /// reaches it.
    pub(crate) fn list_at(&self, need: &ProofNeed, timing: &InformerTiming) -> Instant {
        let due = if need.bound < KEPT_BY_BOOKMARKS {
            // Half of the bound is left for the probe, which takes up to 3 s after the list. So
            // with the lowest `maxStalenessSeconds`, 10 s, a store is proven again when it is about
            // 8 s old.
            self.asked_at.map_or(need.current_at, |at| at.max(need.current_at)) + need.bound / 2
        } else {
            let before_bookmark = self.bookmark_at + timing.list_after_bookmark;
            // Do not wait longer than three quarters of the bound: after a slow list, or if each
            // watch ends early, no bookmark arrives in time.
            let due = before_bookmark.min(need.current_at + need.bound / 4 * 3);
            let due = self.asked_at.map_or(due, |at| due.max(at + timing.list_interval));
            // The bookmark at the end of the watch can arrive earlier than the regular one, so send
            // a list before it.
            let before_end = self.ends_at - BEFORE_END;
            let is_asked =
                self.asked_at.is_some_and(|at| at + timing.list_interval / 4 > before_end);
            if is_asked { due } else { due.min(before_end) }
        };
        due.max(self.not_before)
    }

    /// From which time on another informer's consistent list can serve as this informer's next one.
    /// Each list must be newer than the last one. Otherwise, `list_at` would return the same time
    /// again.
    pub(crate) fn shared_since(&self, need: &ProofNeed, now: Instant) -> Instant {
        let shared = SHARED_FOR.min(need.bound / 8);
        let since = now.checked_sub(shared).unwrap_or(now).max(need.current_at);
        self.asked_at.map_or(since, |at| since.max(at))
    }

    /// When to open the next probe (a second, short watch). `None` if the store has reached the
    /// versions of all lists: a probe only brings the store to a list's version, and proves nothing
    /// alone.
    pub(crate) fn probe_at(&self, need: &ProofNeed, timing: &InformerTiming) -> Option<Instant> {
        let event_due = need.pending_since? + timing.list_grace;
        let due = if need.bound < KEPT_BY_BOOKMARKS {
            event_due
        } else {
            event_due.max(need.current_at + need.bound.saturating_sub(timing.probe_margin))
        };
        Some(due.max(self.not_before).max(self.no_probe_before))
    }

    pub(crate) fn record_list(&mut self, requested_at: Instant) {
        self.asked_at = Some(requested_at);
    }

    /// Records a bookmark of the informer's own watch.
    pub(crate) fn record_bookmark(&mut self, now: Instant) {
        self.bookmark_at = now;
    }

    /// Records a probe after which the store is proven (`is_proven`), or not. A probe proves
    /// nothing for kinds without bookmarks, which the API server does not serve from its watch
    /// cache, and at an API server that lags behind. So the pause before the next probe doubles
    /// each time.
    pub(crate) fn record_probe(&mut self, is_proven: bool, now: Instant, timing: &InformerTiming) {
        if is_proven {
            self.vain_probes = 0;
            return;
        }
        self.no_probe_before =
            now + timing.probe_pause * 2_u32.pow(self.vain_probes.min(MAX_DOUBLINGS));
        self.vain_probes = self.vain_probes.saturating_add(1);
    }

    /// Records that a list or a probe failed. The informer sends neither before `retry_at`.
    pub(crate) fn record_failure(&mut self, retry_at: Instant) {
        self.not_before = retry_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(current_at: Instant, bound: u64, pending_since: Option<Instant>) -> ProofNeed {
        ProofNeed { current_at, bound: Duration::from_secs(bound), pending_since }
    }

    #[test]
    fn a_list_is_due_before_the_bound_also_where_no_watch_lasts_until_a_bookmark() {
        let timing = InformerTiming::default();
        let listed = Instant::now();
        // In this scenario, each watch lasts only 20 s, so no bookmark arrives. This watch is the
        // last one so far.
        let opened = listed + Duration::from_secs(100);
        let mut schedule = ProofSchedule::new(opened, Duration::from_hours(2));
        assert_eq!(schedule.list_at(&need(listed, 120, None), &timing), opened);
        schedule.record_list(opened);
        let next = schedule.list_at(&need(listed, 120, Some(opened)), &timing);
        assert_eq!(next, opened + timing.list_interval);
    }

    #[test]
    fn one_list_a_minute_keeps_a_store_below_two_minutes() {
        let timing = InformerTiming::default();
        let opened = Instant::now();
        let mut schedule = ProofSchedule::new(opened, Duration::from_hours(2));
        let (mut current_at, mut lists) = (opened, 0);
        for minute in 1..=60 {
            let bookmark_at = opened + Duration::from_mins(minute);
            let mut asked = None;
            while schedule.list_at(&need(current_at, 120, asked), &timing) < bookmark_at {
                let at = schedule.list_at(&need(current_at, 120, asked), &timing);
                schedule.record_list(at);
                asked = Some(at);
                lists += 1;
            }
            assert!(bookmark_at - current_at < Duration::from_secs(100));
            if let Some(probe_at) = schedule.probe_at(&need(current_at, 120, asked), &timing) {
                assert!(probe_at > bookmark_at, "a probe in minute {minute}");
            }
            current_at = asked.unwrap();
            schedule.record_bookmark(bookmark_at);
        }
        assert_eq!(lists, 60);
    }

    #[test]
    fn a_short_bound_needs_a_list_and_a_probe_in_each_half() {
        let timing = InformerTiming::default();
        let t = Instant::now();
        let mut schedule = ProofSchedule::new(t, Duration::from_hours(2));
        let at = schedule.list_at(&need(t, 10, None), &timing);
        assert_eq!(at - t, Duration::from_secs(5));
        assert_eq!(schedule.probe_at(&need(t, 10, None), &timing), None);
        schedule.record_list(at);
        assert_eq!(
            schedule.probe_at(&need(t, 10, Some(at)), &timing),
            Some(at + timing.list_grace)
        );
        assert_eq!(schedule.list_at(&need(at, 10, None), &timing) - at, Duration::from_secs(5));
    }

    #[test]
    fn probes_that_prove_nothing_become_rare() {
        let timing = InformerTiming::default();
        let mut now = Instant::now();
        let mut schedule = ProofSchedule::new(now, Duration::from_hours(2));
        let end = now + Duration::from_hours(1);
        let mut probes = 0;
        let old = need(now, 10, Some(now));
        while now < end {
            now = schedule.probe_at(&old, &timing).unwrap();
            schedule.record_probe(false, now, &timing);
            probes += 1;
        }
        assert!(probes <= 16, "{probes}");
    }

    #[test]
    fn each_list_for_a_proof_is_newer_than_the_last_one() {
        let timing = InformerTiming::default();
        let t = Instant::now();
        for bound in [1, 10, 60, 120] {
            let mut schedule = ProofSchedule::new(t, Duration::from_mins(5));
            for _ in 0..100 {
                let now = schedule.list_at(&need(t, bound, None), &timing);
                let since = schedule.shared_since(&need(t, bound, None), now);
                schedule.record_list(since + Duration::from_nanos(1));
                let next = schedule.list_at(&need(t, bound, None), &timing);
                assert!(next > now, "{bound}");
            }
        }
    }

    #[test]
    fn a_list_precedes_the_bookmark_at_the_end_of_a_watch() {
        let timing = InformerTiming::default();
        let t = Instant::now();
        let mut schedule = ProofSchedule::new(t, Duration::from_secs(330));
        let bookmark_at = t + Duration::from_mins(5);
        schedule.record_list(bookmark_at - Duration::from_secs(20));
        schedule.record_bookmark(bookmark_at);
        let at = schedule.list_at(&need(t, 120, None), &timing);
        assert_eq!(at, t + Duration::from_secs(323));
        schedule.record_list(at);
        assert!(schedule.list_at(&need(at, 120, None), &timing) > t + Duration::from_secs(330));
    }
}
