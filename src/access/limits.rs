//! The bound on checks under way, and whose turn it is. Pure.

use kubewarm_client::Buckets;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use tokio::time::Instant;

/// Checks under way: a server that is slow already is not asked more. There is no rate for the process:
/// with one, a lost right would be noticed the later the more accounts there are.
const UNDER_WAY: usize = 64;
/// Of these, of one namespace, so that a slow webhook of one tenant holds up nobody else.
const NAMESPACE_UNDER_WAY: usize = UNDER_WAY / 8;

/// Lets checks begin. Bounded by the namespaces that have cells.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Which bound the requests of one namespace, these among others.
    buckets: Buckets,
    under_way: BTreeMap<Arc<str>, usize>,
    /// The number of the last check of each namespace.
    turns: BTreeMap<Arc<str>, u64>,
    number: u64,
}

/// What goes before what, of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Of what was readable, and may not be any more; and trials for which something has called.
    Held,
    /// Of what never was: a profile that is only planned has thousands of them for nothing.
    Sought,
}

/// Every so many checks the one that waits longest begins, whatever its class.
const FAIR: u64 = 4;

/// A check that is due.
#[derive(Debug)]
pub(super) struct Candidate<T> {
    /// The namespace that it is for.
    pub(super) payer: Arc<str>,
    /// Which of its namespace's checks it stands among.
    pub(super) class: Class,
    /// Less is sooner.
    pub(super) urgency: Instant,
    /// Requests that it takes.
    pub(super) cost: usize,
    pub(super) what: T,
}

impl Pace {
    /// Draws on these buckets.
    pub(super) fn new(buckets: Buckets) -> Self {
        Self { buckets, ..Self::default() }
    }

    /// Of `due`, those that may begin now: namespaces take turns, and within one the most urgent of what
    /// is held comes first, every fourth time of all. Each must be answered by [`Pace::done`].
    pub(super) fn admit<T>(&mut self, due: Vec<Candidate<T>>, now: Instant) -> Vec<Candidate<T>> {
        let mut queues = BTreeMap::<Arc<str>, Vec<Candidate<T>>>::new();
        for candidate in due {
            queues.entry(Arc::clone(&candidate.payer)).or_default().push(candidate);
        }
        let mut waiting: Vec<_> = queues.into_iter().collect();
        waiting.sort_by_key(|(payer, _)| self.turns.get(payer).copied());
        for (_, queue) in &mut waiting {
            queue.sort_by_key(|candidate| Reverse((candidate.class, candidate.urgency)));
        }
        let mut waiting = VecDeque::from(waiting);
        let mut admitted = Vec::new();
        while let Some((payer, mut queue)) = waiting.pop_front() {
            let own = self.under_way.get(&payer).copied().unwrap_or(0);
            if own >= NAMESPACE_UNDER_WAY {
                continue;
            }
            let Some(next) = self.next(&mut queue) else { continue };
            // What does not fit waits, instead of letting the cheaper ones pass for ever.
            let all: usize = self.under_way.values().sum();
            if all >= UNDER_WAY {
                break;
            }
            if self.buckets.draw(&payer, next.cost, now).is_err() {
                continue;
            }
            self.number += 1;
            self.turns.insert(Arc::clone(&payer), self.number);
            *self.under_way.entry(Arc::clone(&payer)).or_default() += 1;
            admitted.push(next);
            waiting.push_back((payer, queue));
        }
        admitted
    }

    /// Takes the next of one namespace's, the first of which stands last.
    fn next<T>(&self, queue: &mut Vec<Candidate<T>>) -> Option<Candidate<T>> {
        if !self.number.is_multiple_of(FAIR) {
            return queue.pop();
        }
        let first = queue.iter().enumerate().min_by_key(|(_, candidate)| candidate.urgency)?.0;
        Some(queue.remove(first))
    }

    /// A check of `payer` has ended; it took `extra` requests more than it was admitted with.
    pub(super) fn done(&mut self, payer: &Arc<str>, extra: usize, now: Instant) {
        self.buckets.charge(payer, extra, now);
        if let Some(count) = self.under_way.get_mut(payer) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(payer);
            }
        }
    }

    /// Forgets the turns of namespaces that `exists` denies.
    pub(super) fn retain(&mut self, exists: impl Fn(&Arc<str>) -> bool) {
        self.turns.retain(|payer, _| exists(payer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn due(payer: &str, count: usize, now: Instant) -> Vec<Candidate<String>> {
        let one = |at: usize| Candidate {
            payer: payer.into(),
            class: Class::Held,
            urgency: now + Duration::from_millis(at as u64),
            cost: 1,
            what: format!("{payer}{at}"),
        };
        (0..count).map(one).collect()
    }

    fn names(admitted: &[Candidate<String>]) -> Vec<&str> {
        admitted.iter().map(|candidate| &*candidate.what).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_take_turns_and_the_most_urgent_comes_first() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut all = due("a", 3, now);
        all.reverse();
        all.extend(due("b", 2, now));
        let admitted = pace.admit(all, now);
        assert_eq!(names(&admitted), ["a0", "b0", "a1", "b1", "a2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_goes_before_a_backlog_of_what_is_not() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let junk = due("a", 50, now).into_iter();
        let junk = junk.map(|candidate| Candidate { class: Class::Sought, ..candidate });
        let held = due("a", 4, now + Duration::from_mins(1));
        let admitted = pace.admit(junk.chain(held).collect(), now);
        let classes: Vec<_> = admitted.iter().map(|candidate| candidate.class).collect();
        let (held, sought) = (Class::Held, Class::Sought);
        assert_eq!(classes, [sought, held, held, held, sought, held, sought, sought]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_bucket_is_empty_waits_and_holds_up_nobody_else() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        buckets.charge(&"a".into(), 38, now);
        let mut pace = Pace::new(buckets.clone());
        let mut all = due("a", 4, now);
        all.extend(due("b", 2, now));
        assert_eq!(names(&pace.admit(all, now)), ["a0", "b0", "a1", "b1"]);
        assert!(buckets.draw(&"b".into(), 39, now).is_err(), "what begins is drawn");
        // One that took more than it began with is charged for it.
        pace.done(&"b".into(), 10, now);
        assert!(buckets.draw(&"b".into(), 29, now).is_err());
        assert!(buckets.draw(&"b".into(), 28, now).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_checks_hang_holds_up_nobody_else() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.admit(due("a", 20, now), now).len(), NAMESPACE_UNDER_WAY);
        tokio::time::advance(Duration::from_secs(1)).await;
        let now = Instant::now();
        let mut all = due("a", 20, now);
        all.extend(due("b", 1, now));
        assert_eq!(names(&pace.admit(all, now)), ["b0"]);
    }
}
