//! One look at all profiles: what is to be written, and when, and what is to be told. Pure.

use super::{
    Excesses, adopt,
    cell::{CellView, Clock},
    compute,
    difference::pause,
    events::{Notice, Notices},
    publish::ComputedStatuses,
    sink::{Outcome, Write},
};
use crate::forecast::Forecast;
use kubewarm_api::{
    model::{CellKey, Declared, ProfileRef},
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, WorkQueue};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Writes under way: more only pile up in front of a server that is slow already.
const UNDER_WAY: usize = 40;
/// Of these, of one namespace: a webhook that makes its writes slow must not hold up the others'.
const NAMESPACE_UNDER_WAY: usize = 4;
/// After a failure, doubled up to the second.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
/// After a 404. Either the profile is gone and will be forgotten, or its CRD is being replaced.
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

/// Remembers what was computed, written and told. Bounded by the profiles that exist.
#[derive(Debug)]
pub struct Reporter {
    profiles: HashMap<ProfileRef, Reported>,
    /// What is to be written. Only a leader has anything in it.
    queue: WorkQueue<ProfileRef>,
    under_way: KeyedSemaphore<Arc<str>>,
}

#[derive(Debug)]
struct Reported {
    uid: Arc<str>,
    /// What was computed last.
    status: Arc<CacheProfileStatus>,
    /// What this replica has done since it leads; `None` on a follower.
    record: Option<LeaderRecord>,
}

/// What a leader has done with the status of a profile.
#[derive(Debug)]
struct LeaderRecord {
    /// What the API server has, as far as this replica knows.
    written: Option<Arc<CacheProfileStatus>>,
    last_write: Option<Instant>,
    /// Since when it may be written.
    since: Instant,
    notices: Notices,
}

impl Default for Reporter {
    fn default() -> Self {
        let [first, longest] = BACKOFF;
        Self {
            profiles: HashMap::new(),
            queue: WorkQueue::new(first, longest),
            under_way: KeyedSemaphore::new(UNDER_WAY, NAMESPACE_UNDER_WAY),
        }
    }
}

impl Reporter {
    /// Computes the status of every profile; a leader also decides what to write, of which
    /// [`due`](Self::due) says when, and what to tell now.
    ///
    /// `profiles` is everything there is: what is not in it is forgotten. `leads` means that this
    /// replica holds the lease. A follower computes too, so that it knows how long its own warm-up
    /// took. A new leader takes over the transition times that the cluster has, and writes what
    /// differs. It reads the status in the cluster only then, because a reflector lags behind our own
    /// writes.
    pub fn round(
        &mut self,
        profiles: &[Observed],
        cells: &dyn Fn(&CellKey) -> CellView,
        leads: bool,
        clock: Clock,
    ) -> Vec<Notice> {
        let mut old = std::mem::take(&mut self.profiles);
        let mut notices = Vec::new();
        for observed in profiles {
            let Observed { declared, in_cluster, .. } = observed;
            let Declared { profile, uid, .. } = &**declared;
            let own = old.remove(profile).filter(|own| own.uid == *uid);
            if own.is_none() {
                // One of the same name with another UID has a status of its own.
                self.queue.remove(profile);
            }
            let (own, record) = own.map_or((None, None), |own| (Some(own.status), own.record));
            let takes_over = leads && record.is_none();
            let previous = match (own, in_cluster) {
                (Some(own), Some(foreign)) if takes_over => {
                    Some(Arc::new(with_conditions_of(&own, foreign)))
                }
                (Some(own), _) => Some(own),
                (None, Some(foreign)) => Some(Arc::new(adopt((**foreign).clone()))),
                (None, None) => None,
            };
            let status = Arc::new(compute(observed, previous.as_deref(), clock, cells));
            let mut record = record.filter(|_| leads);
            if leads {
                let record = record.get_or_insert_with(|| LeaderRecord {
                    written: in_cluster.clone(),
                    last_write: None,
                    since: clock.mono,
                    notices: Notices::default(),
                });
                let was = if takes_over { in_cluster.as_ref() } else { previous.as_ref() };
                let was = was.map(|status| &**status);
                notices.extend(record.notices.plan(profile, uid, was, &status, clock.mono));
            }
            let reported = Reported { uid: Arc::clone(uid), status, record };
            self.profiles.insert(profile.clone(), reported);
            self.schedule(profile);
        }
        let profiles = &self.profiles;
        self.queue.retain(|profile| {
            profiles.get(profile).is_some_and(|reported| reported.record.is_some())
        });
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
            reported.record.as_mut()?.last_write = Some(now);
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
        if let Some(record) = reported.record.as_mut().filter(|_| outcome == Outcome::Written) {
            record.written = Some(Arc::clone(&write.status));
        }
        self.schedule(&write.profile);
    }

    /// Has the status written, if it differs from what was written last.
    fn schedule(&mut self, profile: &ProfileRef) {
        let Some(Reported { status, record: Some(record), .. }) = self.profiles.get(profile) else {
            return;
        };
        let LeaderRecord { written, last_write, since, .. } = record;
        match pause(written.as_deref(), status) {
            None => self.queue.withdraw(profile),
            Some(pause) => {
                let at = last_write.map_or(*since, |at| at + pause);
                self.queue.add_at(profile.clone(), at);
            }
        }
    }

    /// The statuses computed last, on any replica.
    #[must_use]
    pub fn statuses(&self) -> ComputedStatuses {
        let all = self.profiles.iter();
        all.map(|(profile, own)| (profile.clone(), Arc::clone(&own.status))).collect()
    }
}

/// `own`, with the conditions that `foreign` has: what changed was seen there first.
fn with_conditions_of(
    own: &CacheProfileStatus,
    foreign: &CacheProfileStatus,
) -> CacheProfileStatus {
    let mut own = CacheProfileStatus { conditions: foreign.conditions.clone(), ..own.clone() };
    for target in &mut own.targets {
        if let Some(old) = foreign.targets.iter().find(|old| old.name == target.name) {
            target.conditions.clone_from(&old.conditions);
        }
    }
    own
}
