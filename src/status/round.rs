//! One look at all profiles: what is to be written, and when, and what is to be told. Pure.

use super::{
    Excesses, Inputs, adopt,
    cell::{CellView, Clock},
    compute,
    difference::pause,
    events::{Notice, Notices},
    sink::{Outcome, Write},
};
use crate::forecast::Forecast;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::{
    model::{CellKey, Declared, ProfileRef},
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, WorkQueue};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Writes under way: more only pile up in front of a server that is slow already.
const UNDER_WAY: usize = 40;
/// Of these, of one namespace: a webhook that makes its writes slow must not hold up the others'.
const NAMESPACE_UNDER_WAY: usize = 4;
/// After a failure, doubled up to the second.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
/// After a 404: the profile is gone and will be forgotten, or its CRD is being replaced.
const GONE: Duration = Duration::from_mins(5);

/// A profile as the controller sees it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What it comes to.
    pub declared: Arc<Declared>,
    /// The permissions it needs.
    pub access: Option<Arc<AccessStatus>>,
    /// Those that its subject has beyond that; `None` where they are not to be shown, or not known.
    pub excess: Option<Excesses>,
    /// What it would cost, if it is only planned and somebody has found out.
    pub plan: Option<Arc<Forecast>>,
    /// Its status in the cluster, as far as the reflector has it.
    pub in_cluster: Option<Arc<CacheProfileStatus>>,
}

impl Observed {
    /// A profile of which no more is known than what it comes to.
    #[must_use]
    pub fn new(declared: Arc<Declared>) -> Self {
        Self { declared, access: None, excess: None, plan: None, in_cluster: None }
    }
}

/// Whether this replica writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It holds the lease.
    Leader,
    /// Another does.
    Follower,
}

/// Remembers what was computed, written and told. Bounded by the profiles that exist.
#[derive(Debug)]
pub struct Reporter {
    profiles: HashMap<ProfileRef, Reported>,
    /// What is to be written. Only a leader has anything in it.
    queue: WorkQueue<ProfileRef>,
    under_way: KeyedSemaphore<Arc<str>>,
    notices: Notices,
    led: bool,
}

#[derive(Debug)]
struct Reported {
    uid: Arc<str>,
    /// What was computed last.
    status: Arc<CacheProfileStatus>,
    /// What the API server has, as far as a leader knows.
    written: Option<Arc<CacheProfileStatus>>,
    last_write: Option<Instant>,
    /// Since when it may be written.
    since: Instant,
}

impl Default for Reporter {
    fn default() -> Self {
        let [first, longest] = BACKOFF;
        Self {
            profiles: HashMap::new(),
            queue: WorkQueue::new(first, longest),
            under_way: KeyedSemaphore::new(UNDER_WAY, NAMESPACE_UNDER_WAY),
            notices: Notices::default(),
            led: false,
        }
    }
}

impl Reporter {
    /// Computes the status of every profile; a leader also decides what to write, of which
    /// [`due`](Self::due) says when, and what to tell now.
    ///
    /// `profiles` is everything there is: what is not in it is forgotten. A follower computes too,
    /// so that it knows how long its own warm-up took. A new leader takes over the transition times
    /// that the cluster has, and writes what differs. Later the status in the cluster is not looked
    /// at, because a reflector lags behind our own writes.
    pub fn round(
        &mut self,
        profiles: &[Observed],
        cells: &dyn Fn(&CellKey) -> Option<CellView>,
        role: Role,
        clock: Clock,
    ) -> Vec<Notice> {
        let exist: HashSet<_> = profiles.iter().map(|found| &found.declared.profile).collect();
        self.profiles.retain(|profile, _| exist.contains(profile));
        self.queue.retain(|profile| exist.contains(profile));
        self.notices.retain(|profile| exist.contains(profile));
        let leads = role == Role::Leader;
        let takes_over = leads && !self.led;
        if !leads {
            self.queue.clear();
        }
        self.led = leads;

        let mut notices = Vec::new();
        for observed in profiles {
            let Observed { declared, in_cluster, .. } = observed;
            let Declared { profile, uid, .. } = &**declared;
            let own = self.profiles.remove(profile).filter(|own| own.uid == *uid);
            let previous = match (&own, in_cluster) {
                (Some(own), Some(foreign)) if takes_over => {
                    Some(Arc::new(with_times_of(&own.status, foreign)))
                }
                (Some(own), _) => Some(Arc::clone(&own.status)),
                (None, Some(foreign)) => Some(Arc::new(adopt((**foreign).clone()))),
                (None, None) => None,
            };
            let inputs = Inputs { observed, previous: previous.as_deref(), clock };
            let status = Arc::new(compute(&inputs, cells));
            if leads {
                let was = if takes_over { in_cluster.as_ref() } else { previous.as_ref() };
                let was = was.map(|status| &**status);
                notices.extend(self.notices.plan(profile, uid, was, &status, clock.mono));
            }
            if own.is_none() {
                // One of the same name with another UID has a status of its own.
                self.queue.remove(profile);
            }
            let reported = match own.filter(|_| !takes_over) {
                Some(own) => Reported { status, ..own },
                None => Reported {
                    uid: Arc::clone(uid),
                    status,
                    written: in_cluster.clone(),
                    last_write: None,
                    since: clock.mono,
                },
            };
            self.profiles.insert(profile.clone(), reported);
            if leads {
                self.schedule(profile);
            }
        }
        notices
    }

    /// The writes that may begin now, of what the last look found; nothing on a follower. Each must be
    /// answered by [`done`](Self::done), and its permit held until then.
    ///
    /// # Cost
    ///
    /// Looks at every profile, and into none.
    pub fn due(&mut self, now: Instant) -> Vec<(Write, KeyedPermit)> {
        let under_way = &self.under_way;
        let taken = self.queue.take(now, |profile| under_way.try_acquire(&profile.namespace));
        let writes = taken.into_iter().filter_map(|(profile, permit)| {
            let reported = self.profiles.get_mut(&profile)?;
            reported.last_write = Some(now);
            let (uid, status) = (Arc::clone(&reported.uid), Arc::clone(&reported.status));
            Some((Write { profile, uid, status }, permit))
        });
        writes.collect()
    }

    /// Takes note of how a write ended. One of a profile that is gone meanwhile is ignored.
    pub fn done(&mut self, write: &Write, outcome: Outcome, now: Instant) {
        let Some(reported) = self.profiles.get_mut(&write.profile) else { return };
        if reported.uid != write.uid {
            return;
        }
        let was_under_way = match outcome {
            Outcome::Written => self.queue.done(&write.profile),
            Outcome::Failed => self.queue.failed(&write.profile, now),
            Outcome::Gone => self.queue.done_until(&write.profile, now + GONE),
        };
        if !was_under_way {
            return;
        }
        if outcome == Outcome::Written {
            reported.written = Some(Arc::clone(&write.status));
        }
        self.schedule(&write.profile);
    }

    /// Has the status written, if it differs from what was written last.
    fn schedule(&mut self, profile: &ProfileRef) {
        let Some(reported) = self.profiles.get(profile) else { return };
        let Reported { status, written, last_write, since, .. } = reported;
        match pause(written.as_deref(), status) {
            None => self.queue.withdraw(profile),
            Some(pause) => {
                let at = last_write.map_or(*since, |at| at + pause);
                self.queue.add_at(profile.clone(), at);
            }
        }
    }

    /// The status computed last, on any replica.
    #[must_use]
    pub fn status(&self, profile: &ProfileRef) -> Option<&Arc<CacheProfileStatus>> {
        self.profiles.get(profile).map(|reported| &reported.status)
    }
}

/// `own`, with the transition times of the conditions that have the same status in `foreign`: the
/// change was seen there first.
fn with_times_of(own: &CacheProfileStatus, foreign: &CacheProfileStatus) -> CacheProfileStatus {
    let mut own = own.clone();
    take_times(&mut own.conditions, &foreign.conditions);
    for target in &mut own.targets {
        if let Some(old) = foreign.targets.iter().find(|old| old.name == target.name) {
            take_times(&mut target.conditions, &old.conditions);
        }
    }
    own
}

fn take_times(own: &mut [Condition], foreign: &[Condition]) {
    for condition in own {
        let same =
            |old: &&Condition| old.type_ == condition.type_ && old.status == condition.status;
        if let Some(old) = foreign.iter().find(same) {
            condition.last_transition_time = old.last_transition_time.clone();
        }
    }
}
