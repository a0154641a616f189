//! Decides which statuses are written when: pure, so that a storm can be simulated.

use super::difference::Difference;
use crate::{api::CacheProfileStatus, model::ProfileRef};
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Between writes of one profile, unless a condition flips.
const INTERVAL: Duration = Duration::from_secs(10);
/// Between writes of one profile whose conditions flip: a flapping one must not take all the turns.
const FLIP_INTERVAL: Duration = Duration::from_secs(1);
/// Between writes of one profile for nothing but numbers of objects.
const OBJECTS_INTERVAL: Duration = Duration::from_mins(1);
/// Writes of the process in any second.
const PER_SECOND: usize = 10;
/// Writes under way: more only pile up in front of a server that is slow already.
const IN_FLIGHT: usize = 40;
/// Of these, of one namespace: a webhook that makes its writes slow must not hold up the others'.
const NAMESPACE_IN_FLIGHT: usize = IN_FLIGHT / 4;
/// After a failure, doubled up to the second.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
/// After a 404: the profile is gone and will be forgotten, or its CRD is being replaced.
const GONE: Duration = Duration::from_mins(5);

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Which profile.
    pub profile: ProfileRef,
    /// Its `metadata.uid`: one of the same name with another UID has a status of its own.
    pub uid: Arc<str>,
    /// What to write.
    pub status: Arc<CacheProfileStatus>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The API server has it.
    Written,
    /// 404, or the profile of that name is another one by now.
    Gone,
    /// Anything else; tried again with backoff.
    Failed,
}

/// What was written and what is to be written, of every profile that exists.
///
/// Bounded by [`retain`](Self::retain): profiles that vanished are forgotten.
#[derive(Debug, Default)]
pub struct Pacer {
    profiles: HashMap<ProfileRef, Entry>,
    /// When the last [`PER_SECOND`] writes began.
    recent: VecDeque<Instant>,
    /// The number of the last write of each namespace that has profiles.
    turns: HashMap<Arc<str>, u64>,
    written: u64,
}

/// Who of a namespace is due, the next one last.
type Queue<'a> = Vec<(&'a ProfileRef, &'a mut Entry)>;

#[derive(Debug)]
struct Entry {
    uid: Arc<str>,
    /// What the API server has, as far as is known.
    known: Option<Arc<CacheProfileStatus>>,
    wanted: Arc<CacheProfileStatus>,
    difference: Difference,
    /// Since when the wanted status differs from the known one.
    waiting_since: Instant,
    last_write: Option<Instant>,
    in_flight: Option<Arc<CacheProfileStatus>>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Pacer {
    /// Takes note of what a profile's status should be.
    ///
    /// `in_cluster` is what the API server had when this profile, by UID, was first seen; later it
    /// is not looked at, because a reflector lags behind our own writes.
    pub fn offer(
        &mut self,
        profile: &ProfileRef,
        uid: &Arc<str>,
        in_cluster: Option<&CacheProfileStatus>,
        wanted: Arc<CacheProfileStatus>,
        now: Instant,
    ) {
        let fresh = self.profiles.get(profile).is_none_or(|entry| entry.uid != *uid);
        if fresh {
            let known = in_cluster.cloned().map(Arc::new);
            let entry = Entry {
                uid: Arc::clone(uid),
                difference: Difference::between(known.as_deref(), &wanted),
                known,
                wanted,
                waiting_since: now,
                last_write: None,
                in_flight: None,
                failures: 0,
                not_before: None,
            };
            self.profiles.insert(profile.clone(), entry);
        } else if let Some(entry) = self.profiles.get_mut(profile) {
            entry.want(wanted, now);
        }
    }

    /// Forgets every profile that `exists` denies.
    pub fn retain(&mut self, exists: impl Fn(&ProfileRef) -> bool) {
        self.profiles.retain(|profile, _| exists(profile));
        let namespaces: HashSet<_> = self.profiles.keys().map(|found| &found.namespace).collect();
        self.turns.retain(|namespace, _| namespaces.contains(namespace));
    }

    /// Forgets everything: what a new leader finds in the cluster is what counts then.
    pub fn clear(&mut self) {
        self.profiles.clear();
        self.turns.clear();
    }

    /// The writes that may begin at `now`; each must be answered by [`done`](Self::done).
    ///
    /// Namespaces take turns, so that where four or more have something to write none gets more
    /// than a quarter. Within one, conditions that flipped go first, then whoever waits longest.
    ///
    /// # Cost
    ///
    /// Looks at every profile.
    pub fn due(&mut self, now: Instant) -> Vec<Write> {
        let second_ago = now.checked_sub(Duration::from_secs(1));
        while self.recent.front().is_some_and(|began| second_ago.is_some_and(|ago| *began <= ago)) {
            self.recent.pop_front();
        }
        let mut in_flight = HashMap::<&Arc<str>, usize>::new();
        let mut queues = HashMap::<&Arc<str>, Queue<'_>>::new();
        for (profile, entry) in &mut self.profiles {
            if entry.in_flight.is_some() {
                *in_flight.entry(&profile.namespace).or_default() += 1;
            } else if entry.is_due(now) {
                queues.entry(&profile.namespace).or_default().push((profile, entry));
            }
        }
        let under_way = in_flight.values().sum();
        let mut room =
            PER_SECOND.saturating_sub(self.recent.len()).min(IN_FLIGHT.saturating_sub(under_way));
        let mut waiting: Vec<_> = queues.into_iter().collect();
        for (_, queue) in &mut waiting {
            queue.sort_by_key(|(_, entry)| Reverse(entry.urgency()));
        }
        waiting.sort_by_cached_key(|(namespace, queue)| {
            let next = queue.last().map(|(_, entry)| entry.urgency());
            (self.turns.get(*namespace).copied(), next, Arc::clone(namespace))
        });
        let mut waiting = VecDeque::from(waiting);
        let mut writes = Vec::new();
        while room > 0
            && let Some((namespace, mut queue)) = waiting.pop_front()
        {
            let under_way = in_flight.entry(namespace).or_default();
            if *under_way >= NAMESPACE_IN_FLIGHT {
                continue;
            }
            let Some((profile, entry)) = queue.pop() else { continue };
            *under_way += 1;
            room -= 1;
            self.written += 1;
            self.turns.insert(Arc::clone(namespace), self.written);
            self.recent.push_back(now);
            writes.push(entry.begin(profile, now));
            waiting.push_back((namespace, queue));
        }
        writes
    }

    /// Takes note of how a write ended. One of a profile that is gone meanwhile is ignored.
    pub fn done(&mut self, profile: &ProfileRef, uid: &str, outcome: Outcome, now: Instant) {
        let Some(entry) = self.profiles.get_mut(profile).filter(|entry| &*entry.uid == uid) else {
            return;
        };
        let Some(written) = entry.in_flight.take() else { return };
        match outcome {
            Outcome::Written => {
                entry.failures = 0;
                entry.not_before = None;
                entry.known = Some(written);
                entry.difference = Difference::between(entry.known.as_deref(), &entry.wanted);
                entry.waiting_since = now;
            }
            Outcome::Failed => {
                let [first, longest] = BACKOFF;
                let delay = first.saturating_mul(2_u32.saturating_pow(entry.failures)).min(longest);
                entry.failures = entry.failures.saturating_add(1);
                entry.not_before = Some(now + delay);
            }
            Outcome::Gone => entry.not_before = Some(now + GONE),
        }
    }

    /// Profiles that are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.profiles.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }
}

impl Entry {
    fn want(&mut self, wanted: Arc<CacheProfileStatus>, now: Instant) {
        let difference = Difference::between(self.known.as_deref(), &wanted);
        if self.difference == Difference::Quiet {
            self.waiting_since = now;
        }
        self.difference = difference;
        self.wanted = wanted;
    }

    /// Less is sooner: conditions that flipped, then whoever waits longest.
    fn urgency(&self) -> (Reverse<bool>, Instant) {
        (Reverse(self.difference == Difference::Flip), self.waiting_since)
    }

    fn begin(&mut self, profile: &ProfileRef, now: Instant) -> Write {
        self.last_write = Some(now);
        self.in_flight = Some(Arc::clone(&self.wanted));
        Write {
            profile: profile.clone(),
            uid: Arc::clone(&self.uid),
            status: Arc::clone(&self.wanted),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let interval = match self.difference {
            Difference::Quiet => return false,
            Difference::Objects => OBJECTS_INTERVAL,
            Difference::Detail => INTERVAL,
            Difference::Flip => FLIP_INTERVAL,
        };
        self.in_flight.is_none()
            && self.not_before.is_none_or(|at| at <= now)
            && self.last_write.is_none_or(|at| now.saturating_duration_since(at) >= interval)
    }
}
