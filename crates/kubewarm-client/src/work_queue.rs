//! Which keys are to be worked on and when, as client-go's work queue has it: pure, held by whoever works.

use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Keys that wait, each at most once however often it is added. A key that is worked on is not begun
/// again before that is done.
///
/// Bounded by the keys that are added and not removed.
#[derive(Debug)]
pub struct WorkQueue<K> {
    keys: BTreeMap<K, Work>,
    /// After a first failure; doubled from failure to failure up to the second.
    backoff: [Duration; 2],
}

#[derive(Debug, Default)]
struct Work {
    due: Option<Instant>,
    /// Whatever is added meanwhile, the key waits for this.
    not_before: Option<Instant>,
    failures: u32,
    is_under_way: bool,
}

impl<K: Clone + Ord> WorkQueue<K> {
    /// An empty queue. A key that fails is worked on again after `first`, then after twice as long, up to
    /// `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { keys: BTreeMap::new(), backoff: [first, longest] }
    }

    /// Makes `key` due at `at`, instead of when it was due before. One that has failed waits for the end of its
    /// pause all the same.
    pub fn add_at(&mut self, key: K, at: Instant) {
        self.keys.entry(key).or_default().due = Some(at);
    }

    /// Makes `key` due at `at`, unless it is due earlier.
    pub fn hasten(&mut self, key: K, at: Instant) {
        let work = self.keys.entry(key).or_default();
        work.due = Some(work.due.map_or(at, |due| due.min(at)));
    }

    /// When the next key is due; in the past for one that was not let in.
    ///
    /// # Cost
    ///
    /// Looks at every key.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let waiting = self.keys.values().filter(|work| !work.is_under_way);
        waiting.filter_map(|work| Some(work.due?.max(work.not_before.unwrap_or(work.due?)))).min()
    }

    /// Makes `key` not due, until it is added again.
    pub fn withdraw(&mut self, key: &K) {
        if let Some(work) = self.keys.get_mut(key) {
            work.due = None;
        }
    }

    /// Begins with every key that is due and that `admit` lets in, those first that have been due for longest.
    /// The work on each must be ended by [`done`](Self::done) or [`failed`](Self::failed).
    ///
    /// # Cost
    ///
    /// Looks at every key.
    pub fn take<P>(&mut self, now: Instant, admit: impl FnMut(&K) -> Option<P>) -> Vec<(K, P)> {
        self.take_by(now, |_| (), admit)
    }

    /// The same, by `class` first: what is of a lower one goes before all that is of a higher one.
    pub fn take_by<P, C: Ord>(
        &mut self,
        now: Instant,
        class: impl Fn(&K) -> C,
        mut admit: impl FnMut(&K) -> Option<P>,
    ) -> Vec<(K, P)> {
        let due_since = |work: &Work| {
            let waits = work.is_under_way || work.not_before.is_some_and(|at| at > now);
            work.due.filter(|due| !waits && *due <= now)
        };
        let keys = self.keys.iter_mut();
        let due = keys.filter_map(|(key, work)| {
            let since = due_since(work)?;
            Some(((class(key), since), key, work))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let taken = due.into_iter().filter_map(|(_, key, work)| {
            let permit = admit(key)?;
            (work.is_under_way, work.due) = (true, None);
            Some((key.clone(), permit))
        });
        taken.collect()
    }

    /// The work on `key` succeeded. Whether it was under way.
    pub fn done(&mut self, key: &K) -> bool {
        self.end(key, |work| (work.failures, work.not_before) = (0, None))
    }

    /// The work on `key` failed: it is due again after a pause. Whether it was under way.
    pub fn failed(&mut self, key: &K, now: Instant) -> bool {
        let [first, longest] = self.backoff;
        self.end(key, |work| {
            let pause = first.saturating_mul(2_u32.saturating_pow(work.failures)).min(longest);
            work.failures = work.failures.saturating_add(1);
            work.not_before = Some(now + pause);
            work.due = work.due.or(Some(now));
        })
    }

    /// The work on `key` is over. Whatever is added, the key waits for `until`. Whether it was under way.
    pub fn done_until(&mut self, key: &K, until: Instant) -> bool {
        self.end(key, |work| work.not_before = Some(until))
    }

    fn end(&mut self, key: &K, end: impl FnOnce(&mut Work)) -> bool {
        let Some(work) = self.keys.get_mut(key).filter(|work| work.is_under_way) else {
            return false;
        };
        work.is_under_way = false;
        end(work);
        true
    }

    /// Forgets `key`, even if it is worked on.
    pub fn remove(&mut self, key: &K) {
        self.keys.remove(key);
    }

    /// Forgets every key that `exists` denies, even one that is worked on.
    pub fn retain(&mut self, exists: impl Fn(&K) -> bool) {
        self.keys.retain(|key, _| exists(key));
    }

    /// Forgets every key.
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
        queue.take(now, |_| Some(())).into_iter().map(|(key, ())| key).collect()
    }

    #[test]
    fn a_key_is_taken_once_when_it_is_due_and_the_longest_due_first() {
        let (mut queue, now) = queue();
        queue.add_at("late", now + SECOND);
        queue.add_at("b", now);
        queue.add_at("b", now);
        queue.add_at("a", now + SECOND);
        assert_eq!(taken(&mut queue, now), ["b"]);
        queue.withdraw(&"late");
        queue.add_at("late", now + 2 * SECOND);
        assert_eq!(taken(&mut queue, now + 3 * SECOND), ["a", "late"]);
        assert!(taken(&mut queue, now + 9 * SECOND).is_empty());
    }

    #[test]
    fn a_lower_class_goes_first_and_hastening_puts_nothing_off() {
        let (mut queue, now) = queue();
        queue.add_at("b", now);
        queue.hasten("a", now + 2 * SECOND);
        queue.hasten("a", now + SECOND);
        queue.hasten("a", now + 2 * SECOND);
        assert_eq!(queue.next(), Some(now));
        let later = now + SECOND;
        let taken = queue.take_by(later, |key| *key == "b", |_| Some(()));
        assert_eq!(taken, [("a", ()), ("b", ())]);
        assert_eq!(queue.next(), None, "both are worked on");
    }

    #[test]
    fn what_is_added_while_it_is_worked_on_is_taken_when_that_is_done() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        assert_eq!(taken(&mut queue, now), ["a"]);
        queue.add_at("a", now);
        assert!(taken(&mut queue, now).is_empty());
        assert!(queue.done(&"a"));
        assert!(!queue.done(&"a"), "once");
        assert_eq!(taken(&mut queue, now), ["a"]);
    }

    #[test]
    fn who_is_not_let_in_stays_due() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        assert!(queue.take(now, |_| None::<()>).is_empty());
        assert_eq!(taken(&mut queue, now), ["a"]);
    }

    #[test]
    fn a_key_that_fails_waits_for_longer_each_time_whatever_is_added() {
        let (mut queue, start) = queue();
        let mut began = Vec::new();
        for second in 0..200 {
            let now = start + SECOND * second;
            queue.add_at("a", now);
            for key in taken(&mut queue, now) {
                began.push(second);
                queue.failed(&key, now);
            }
        }
        assert_eq!(began, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }

    #[test]
    fn a_key_that_failed_is_due_again_by_itself_until_it_is_withdrawn() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        let _begun = taken(&mut queue, now);
        queue.failed(&"a", now);
        assert_eq!(taken(&mut queue, now + SECOND), ["a"]);
        queue.failed(&"a", now);
        queue.withdraw(&"a");
        assert!(taken(&mut queue, now + Duration::from_hours(1)).is_empty());
    }

    #[test]
    fn what_is_removed_is_not_under_way_any_more() {
        let (mut queue, now) = queue();
        queue.add_at("a", now);
        let _begun = taken(&mut queue, now);
        queue.retain(|_| false);
        assert!(!queue.done(&"a"));
        queue.add_at("a", now);
        assert_eq!(taken(&mut queue, now), ["a"]);
    }
}
