//! A work queue with due times and backoff, as in client-go. The queue has no task, timer or lock:
//! its owner polls it.

use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// A queue of keys with due times. If a caller adds a key twice, the key is due only once. The work
/// on a key does not start again before the previous work on this key has ended.
///
/// The queue has no size limit: it contains each added key until the caller removes it.
#[derive(Debug)]
pub struct WorkQueue<K> {
    keys: BTreeMap<K, WorkItem>,
    /// The pause after the first failure, and the longest pause. Each failure doubles the pause.
    backoff: [Duration; 2],
}

#[derive(Debug, Default)]
struct WorkItem {
    due: Option<Instant>,
    /// The earliest start of the next work on the key, even if a caller adds the key with an
    /// earlier due time.
    not_before: Option<Instant>,
    failures: u32,
    is_under_way: bool,
}

impl<K: Clone + Ord> WorkQueue<K> {
    /// Creates an empty queue. After a failure, the work on a key starts again after the pause
    /// `first`. Each further failure doubles the pause, up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { keys: BTreeMap::new(), backoff: [first, longest] }
    }

    /// Makes `key` due at `at`, which replaces its previous due time.
    ///
    /// A key whose work failed still waits for the end of its backoff pause.
    pub fn add_at(&mut self, key: K, at: Instant) {
        self.keys.entry(key).or_default().due = Some(at);
    }

    /// Makes `key` due at `at`, unless it is due earlier.
    ///
    /// A key whose work failed still waits for the end of its backoff pause.
    pub fn make_due_by(&mut self, key: K, at: Instant) {
        let work = self.keys.entry(key).or_default();
        work.due = Some(work.due.map_or(at, |due| due.min(at)));
    }

    /// Returns the time at which the next key is due. The time is in the past if
    /// [`start_due`](Self::start_due) left a due key that `admit` rejected.
    ///
    /// # Cost
    ///
    /// Visits every key.
    pub fn next_due(&self) -> Option<Instant> {
        let waiting = self.keys.values().filter(|work| !work.is_under_way);
        waiting.filter_map(|work| Some(work.due?.max(work.not_before.unwrap_or(work.due?)))).min()
    }

    /// Clears the due time of `key`. The work on `key` then starts only after a caller adds the key
    /// again.
    pub fn cancel(&mut self, key: &K) {
        if let Some(work) = self.keys.get_mut(key) {
            work.due = None;
        }
    }

    /// Marks every due key that `admit` accepts as in progress. Returns these keys and the results
    /// of `admit`, starting with the key that has been due for the longest time.
    ///
    /// The caller must end the work on each key with [`finish`](Self::finish),
    /// [`finish_failed`](Self::finish_failed) or [`finish_until`](Self::finish_until).
    ///
    /// # Cost
    ///
    /// Visits every key.
    pub fn start_due<P>(
        &mut self,
        now: Instant,
        admit: impl FnMut(&K) -> Option<P>,
    ) -> Vec<(K, P)> {
        self.start_due_by(now, |_| (), admit)
    }

    /// Starts work as [`start_due`](Self::start_due) does, but returns keys with a lower value of
    /// `class` before keys with a higher value.
    pub fn start_due_by<P, C: Ord>(
        &mut self,
        now: Instant,
        class: impl Fn(&K) -> C,
        mut admit: impl FnMut(&K) -> Option<P>,
    ) -> Vec<(K, P)> {
        let due_since = |work: &WorkItem| {
            let is_waiting = work.is_under_way || work.not_before.is_some_and(|at| at > now);
            work.due.filter(|due| !is_waiting && *due <= now)
        };
        let keys = self.keys.iter_mut();
        let due = keys.filter_map(|(key, work)| {
            let since = due_since(work)?;
            Some(((class(key), since), key, work))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        let taken = due.into_iter().filter_map(|(_, key, work)| {
            let permit = admit(key)?;
            (work.is_under_way, work.due) = (true, None);
            Some((key.clone(), permit))
        });
        taken.collect()
    }

    /// Ends the work on `key` and resets its number of failures. Returns whether the key was in
    /// progress.
    pub fn finish(&mut self, key: &K) -> bool {
        self.end(key, |work| (work.failures, work.not_before) = (0, None))
    }

    /// Ends the work on `key` as a failure: the key is due again after a backoff pause. Returns
    /// whether the key was in progress.
    pub fn finish_failed(&mut self, key: &K, now: Instant) -> bool {
        let [first, longest] = self.backoff;
        self.end(key, |work| {
            let pause = first.saturating_mul(2_u32.saturating_pow(work.failures)).min(longest);
            work.failures = work.failures.saturating_add(1);
            work.not_before = Some(now + pause);
            work.due = work.due.or(Some(now));
        })
    }

    /// Ends the work on `key`, which does not start again before `until`. Returns whether the key
    /// was in progress.
    pub fn finish_until(&mut self, key: &K, until: Instant) -> bool {
        self.end(key, |work| work.not_before = Some(until))
    }

    fn end(&mut self, key: &K, end: impl FnOnce(&mut WorkItem)) -> bool {
        let Some(work) = self.keys.get_mut(key).filter(|work| work.is_under_way) else {
            return false;
        };
        work.is_under_way = false;
        end(work);
        true
    }

    /// Removes `key`, even if it is in progress.
    pub fn remove(&mut self, key: &K) {
        self.keys.remove(key);
    }

    /// Removes every key for which `exists` returns `false`, even if the key is in progress.
    pub fn retain(&mut self, exists: impl Fn(&K) -> bool) {
        self.keys.retain(|key, _| exists(key));
    }

    /// Removes every key, even if it is in progress.
    pub fn clear(&mut self) {
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> (WorkQueue<&'static str>, Instant) {
        (WorkQueue::new(SECOND, Duration::from_mins(1)), Instant::now())
    }

    fn taken(queue: &mut WorkQueue<&'static str>, now: Instant) -> Vec<&'static str> {
        queue.start_due(now, |_| Some(())).into_iter().map(|(key, ())| key).collect()
    }

    #[test]
    fn a_due_key_starts_once_and_the_longest_due_key_starts_first() {
        let (mut queue, now) = queue();
        queue.add_at("late", now + SECOND);
        queue.add_at("b", now);
        queue.add_at("b", now);
        queue.add_at("a", now + SECOND);
        assert_eq!(taken(&mut queue, now), ["b"]);
        queue.cancel(&"late");
        queue.add_at("late", now + 2 * SECOND);
        assert_eq!(taken(&mut queue, now + 3 * SECOND), ["a", "late"]);
        assert!(taken(&mut queue, now + 9 * SECOND).is_empty());
    }

    #[test]
    fn a_lower_class_starts_first_and_make_due_by_never_delays_a_key() {
        let (mut queue, now) = queue();
        queue.add_at("b", now);
        queue.make_due_by("a", now + 2 * SECOND);
        queue.make_due_by("a", now + SECOND);
        queue.make_due_by("a", now + 2 * SECOND);
        assert_eq!(queue.next_due(), Some(now));
        let later = now + SECOND;
        let taken = queue.start_due_by(later, |key| *key == "b", |_| Some(()));
        assert_eq!(taken, [("a", ()), ("b", ())]);
        assert_eq!(queue.next_due(), None, "both keys are in progress");
    }

    #[test]
    fn a_key_that_is_added_during_its_work_starts_when_the_work_ends() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        assert_eq!(taken(&mut queue, now), ["a"]);
        queue.add_at("a", now);
        assert!(taken(&mut queue, now).is_empty());
        assert!(queue.finish(&"a"));
        assert!(!queue.finish(&"a"), "the work ended twice");
        assert_eq!(taken(&mut queue, now), ["a"]);
    }

    #[test]
    fn a_key_that_is_not_admitted_stays_due() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        assert!(queue.start_due(now, |_| None::<()>).is_empty());
        assert_eq!(taken(&mut queue, now), ["a"]);
    }

    #[test]
    fn each_failure_doubles_the_pause_even_if_the_key_is_added_again() {
        let (mut queue, start) = queue();
        let mut began = Vec::new();
        for second in 0..200 {
            let now = start + SECOND * second;
            queue.add_at("a", now);
            for key in taken(&mut queue, now) {
                began.push(second);
                queue.finish_failed(&key, now);
            }
        }
        assert_eq!(began, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }

    #[test]
    fn a_failed_key_is_due_again_unless_it_is_withdrawn() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        let _started = taken(&mut queue, now);
        queue.finish_failed(&"a", now);
        assert_eq!(taken(&mut queue, now + SECOND), ["a"]);
        queue.finish_failed(&"a", now);
        queue.cancel(&"a");
        assert!(taken(&mut queue, now + Duration::from_hours(1)).is_empty());
    }

    #[test]
    fn a_removed_key_is_not_in_progress() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        let _started = taken(&mut queue, now);
        queue.retain(|_| false);
        assert!(!queue.finish(&"a"));
        queue.add_at("a", now);
        assert_eq!(taken(&mut queue, now), ["a"]);
    }
}
