//! Versions of consistent lists that a store has not reached yet.
//!
//! A consistent list that kubewarm sent at time `t` has a version `v`, and contains every change
//! before `t`. So every change before `t` has a version of at most `v`. A store contains all of
//! them once its own version is at least `v`, whenever that happens. ADR 28 has the whole argument.

use kubewarm_api::model::ResourceVersion;
use std::collections::VecDeque;
use tokio::time::Instant;

/// Maximum number of lists whose versions the store has not reached. An informer sends about one
/// list a minute, and a bookmark arrives about once a minute. So more than two lists wait only
/// while the watch lags.
const MAX_PENDING: usize = 4;

/// The consistent lists whose versions the store has not reached, in the order in which kubewarm
/// sent them.
#[derive(Debug, Default)]
pub(crate) struct PendingProofs(VecDeque<PendingProof>);

#[derive(Debug)]
struct PendingProof {
    requested_at: Instant,
    newest: ResourceVersion,
}

impl PendingProofs {
    /// Adds the version `newest` of a consistent list that kubewarm sent at `requested_at`. If too
    /// many lists wait, replaces the newest waiting one, because the store reaches the oldest one
    /// first.
    pub(crate) fn add(&mut self, requested_at: Instant, newest: ResourceVersion) {
        if self.0.back().is_some_and(|last| last.requested_at >= requested_at) {
            return;
        }
        if self.0.len() >= MAX_PENDING {
            self.0.pop_back();
        }
        self.0.push_back(PendingProof { requested_at, newest });
    }

    /// Removes the lists whose versions a store at `version` has reached. Returns when kubewarm
    /// sent the last one of them: the store contains every change before that time.
    pub(crate) fn reach(&mut self, version: &ResourceVersion) -> Option<Instant> {
        let last = self.0.iter().rposition(|pending| *version >= pending.newest)?;
        self.0.drain(..=last).next_back().map(|pending| pending.requested_at)
    }

    /// Removes the lists that kubewarm sent until `at`, when the store is known to contain every
    /// change before `at`. These lists could prove only that the store contains earlier changes.
    pub(crate) fn forget_until(&mut self, at: Instant) {
        self.0.retain(|pending| pending.requested_at > at);
    }

    /// When kubewarm sent the first list whose version the store has not reached. Some time later,
    /// a probe must bring the store to this version. `None` without such a list.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.0.front().map(|pending| pending.requested_at)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: u64, origin: Instant) -> Instant {
        origin + Duration::from_secs(second)
    }

    #[test]
    fn a_version_proves_the_time_of_the_last_list_that_it_reaches() {
        let (mut pending, t) = (PendingProofs::default(), Instant::now());
        for (second, newest) in [(1, 50), (2, 50), (3, 60)] {
            pending.add(at(second, t), ResourceVersion::from(newest));
        }
        assert_eq!(pending.reach(&ResourceVersion::from(49)), None);
        assert_eq!(pending.reach(&ResourceVersion::from(55)), Some(at(2, t)));
        assert_eq!(pending.since(), Some(at(3, t)));
        assert_eq!(pending.reach(&ResourceVersion::from(60)), Some(at(3, t)));
        assert_eq!(pending.since(), None);
    }

    #[test]
    fn the_oldest_answers_wait_on_when_there_are_too_many() {
        let (mut pending, t) = (PendingProofs::default(), Instant::now());
        for second in 1..=100 {
            pending.add(at(second, t), ResourceVersion::from(second));
        }
        assert_eq!(pending.0.len(), MAX_PENDING);
        assert_eq!(pending.reach(&ResourceVersion::from(1)), Some(at(1, t)));
        assert_eq!(pending.reach(&ResourceVersion::from(100)), Some(at(100, t)));
    }

    #[test]
    fn versions_without_an_order_prove_only_themselves() {
        let (mut pending, t) = (PendingProofs::default(), Instant::now());
        let version = |text| ResourceVersion::parse(text).unwrap();
        pending.add(at(1, t), version("x7"));
        pending.add(at(2, t), version("x9"));
        assert_eq!(pending.reach(&version("x8")), None);
        assert_eq!(pending.reach(&version("x9")), Some(at(2, t)));
        assert_eq!(pending.since(), None);
    }
}
