//! The bounds on checks of access, and which of those that are due begin first.

use kubewarm_client::{Buckets, KeyedPermit, KeyedSemaphore};
use std::{collections::BTreeSet, sync::Arc};
use tokio::time::Instant;

/// Checks under way: a server that is slow already is not asked more. There is no rate for the process:
/// with one, a lost right would be noticed the later the more accounts there are.
const UNDER_WAY: usize = 64;
/// Of these, of one namespace, so that a slow webhook of one tenant holds up nobody else.
const NAMESPACE_UNDER_WAY: usize = UNDER_WAY / 8;

/// Lets checks begin.
#[derive(Debug)]
pub(super) struct CheckLimits {
    /// Which bound the requests of one namespace, these among others.
    buckets: Buckets,
    under_way: KeyedSemaphore<Arc<str>>,
}

/// What goes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Of what was readable, and may not be any more; and trials for which something has called.
    Held,
    /// Of what never was: a profile that is only planned has thousands of them for nothing.
    Sought,
}

/// A check that is due.
#[derive(Debug)]
pub(super) struct Candidate<T> {
    /// The namespace that it is for.
    pub(super) payer: Arc<str>,
    pub(super) class: Class,
    /// Less is sooner.
    pub(super) urgency: Instant,
    /// Requests that it takes.
    pub(super) cost: usize,
    pub(super) what: T,
}

impl CheckLimits {
    /// Draws on these buckets.
    pub(super) fn new(buckets: Buckets) -> Self {
        Self { buckets, under_way: KeyedSemaphore::new(UNDER_WAY, NAMESPACE_UNDER_WAY) }
    }

    /// Of `due`, those that may begin now, each with its permit: the most urgent first, and what is held
    /// before what is not.
    pub(super) fn admit<T>(
        &self,
        mut due: Vec<Candidate<T>>,
        now: Instant,
    ) -> Vec<(Candidate<T>, KeyedPermit)> {
        due.sort_by_key(|candidate| (candidate.class, candidate.urgency));
        let mut full = BTreeSet::new();
        let mut admitted = Vec::new();
        for candidate in due {
            let payer = &candidate.payer;
            if full.contains(payer) {
                continue;
            }
            let permit = self.under_way.try_acquire(payer);
            let permit = permit.filter(|_| self.buckets.draw(payer, candidate.cost, now).is_ok());
            if let Some(permit) = permit {
                admitted.push((candidate, permit));
            } else {
                // What does not fit waits, instead of letting the cheaper ones pass for ever.
                full.insert(Arc::clone(payer));
            }
        }
        admitted
    }

    /// A check of `payer` took `extra` requests more than it was admitted with.
    pub(super) fn charge(&self, payer: &Arc<str>, extra: usize, now: Instant) {
        self.buckets.charge(payer, extra, now);
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

    fn names(admitted: &[(Candidate<String>, KeyedPermit)]) -> Vec<&str> {
        admitted.iter().map(|(candidate, _)| &*candidate.what).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_goes_before_a_backlog_of_what_is_not_and_the_most_urgent_first() {
        let (limits, now) = (CheckLimits::new(Buckets::default()), Instant::now());
        let backlog = due("a", 50, now).into_iter();
        let backlog = backlog.map(|candidate| Candidate { class: Class::Sought, ..candidate });
        let held = due("a", 4, now + Duration::from_mins(1));
        let admitted = limits.admit(backlog.chain(held).collect(), now);
        assert_eq!(names(&admitted), ["a0", "a1", "a2", "a3", "a0", "a1", "a2", "a3"]);
        let classes: Vec<_> = admitted.iter().map(|(candidate, _)| candidate.class).collect();
        assert_eq!(classes, [[Class::Held; 4], [Class::Sought; 4]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_bucket_is_empty_waits_and_holds_up_nobody_else() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        buckets.charge(&"a".into(), 38, now);
        let limits = CheckLimits::new(buckets.clone());
        let mut all = due("a", 4, now);
        all[1].cost = 2;
        all.extend(due("b", 2, now));
        assert_eq!(names(&limits.admit(all, now)), ["a0", "b0", "b1"], "a2 does not pass a1");
        assert!(buckets.draw(&"b".into(), 39, now).is_err(), "what begins is drawn");
        // One that took more than it began with is charged for it.
        limits.charge(&"b".into(), 10, now);
        assert!(buckets.draw(&"b".into(), 29, now).is_err());
        assert!(buckets.draw(&"b".into(), 28, now).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_checks_hang_holds_up_nobody_else() {
        let (limits, now) = (CheckLimits::new(Buckets::default()), Instant::now());
        let hanging = limits.admit(due("a", 20, now), now);
        assert_eq!(hanging.len(), NAMESPACE_UNDER_WAY);
        tokio::time::advance(Duration::from_secs(1)).await;
        let now = Instant::now();
        let mut all = due("a", 20, now);
        all.extend(due("b", 1, now));
        assert_eq!(names(&limits.admit(all, now)), ["b0"]);
        drop(hanging);
        assert_eq!(limits.admit(due("a", 20, now), now).len(), NAMESPACE_UNDER_WAY);
    }
}
