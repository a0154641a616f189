//! One look at all profiles: what is to be written and told. Pure.

use super::{
    Excesses, Inputs, adopt,
    cell::{CellView, Clock},
    compute,
    events::{Notice, Notices},
    pacer::{Outcome, Pacer, Write},
};
use crate::{
    api::{AccessStatus, CacheProfileStatus},
    forecast::Forecast,
    model::{CellKey, Declared, ProfileRef},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use tokio::time::Instant;

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

/// Whether this replica writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It holds the lease.
    Leader,
    /// Another does.
    Follower,
}

/// Remembers what was computed, written and told. Bounded by the profiles that exist.
#[derive(Debug, Default)]
pub struct Reporter {
    computed: HashMap<ProfileRef, Computed>,
    pacer: Pacer,
    notices: Notices,
    led: bool,
}

#[derive(Debug)]
struct Computed {
    uid: Arc<str>,
    status: Arc<CacheProfileStatus>,
}

impl Reporter {
    /// Computes the status of every profile; a leader also decides what to write, of which
    /// [`due`](Self::due) says when, and what to tell now.
    ///
    /// `profiles` is everything there is: what is not in it is forgotten. A follower computes too,
    /// so that it knows how long its own warm-up took. A new leader takes over the transition times
    /// that the cluster has, and writes what differs.
    pub fn round(
        &mut self,
        profiles: &[Observed],
        cells: &dyn Fn(&CellKey) -> Option<CellView>,
        role: Role,
        clock: Clock,
    ) -> Vec<Notice> {
        let exist: HashSet<_> = profiles.iter().map(|found| &found.declared.profile).collect();
        self.computed.retain(|profile, _| exist.contains(profile));
        self.pacer.retain(|profile| exist.contains(profile));
        self.notices.retain(|profile| exist.contains(profile));
        let leads = role == Role::Leader;
        let takes_over = leads && !self.led;
        if !leads && self.led {
            self.pacer.clear();
        }
        self.led = leads;

        let mut notices = Vec::new();
        for Observed { declared, access, excess, plan, in_cluster } in profiles {
            let own = self.computed.get(&declared.profile);
            let own = own.filter(|own| own.uid == declared.uid).map(|own| &own.status);
            let previous = match (own, in_cluster) {
                (Some(own), Some(foreign)) if takes_over => {
                    Some(Arc::new(with_times_of(own, foreign)))
                }
                (Some(own), _) => Some(Arc::clone(own)),
                (None, Some(foreign)) => Some(Arc::new(adopt((**foreign).clone()))),
                (None, None) => None,
            };
            let inputs = Inputs {
                declared,
                access: access.as_deref(),
                excess: excess.as_ref(),
                plan: plan.as_deref(),
                previous: previous.as_deref(),
                clock,
            };
            let status = Arc::new(compute(&inputs, cells));
            if leads {
                let was = if takes_over { in_cluster.as_ref() } else { previous.as_ref() };
                let was = was.map(|status| &**status);
                let told = (&declared.profile, &declared.uid);
                notices.extend(self.notices.plan(told.0, told.1, was, &status, clock.mono));
                self.pacer.offer(
                    &declared.profile,
                    &declared.uid,
                    in_cluster.as_deref(),
                    Arc::clone(&status),
                    clock.mono,
                );
            }
            let computed = Computed { uid: Arc::clone(&declared.uid), status };
            self.computed.insert(declared.profile.clone(), computed);
        }
        notices
    }

    /// What may be written now of what the last look found; nothing on a follower. Each must be
    /// answered by [`done`](Self::done).
    ///
    /// # Cost
    ///
    /// Looks at every profile, and into none.
    pub fn due(&mut self, now: Instant) -> Vec<Write> {
        if self.led { self.pacer.due(now) } else { Vec::new() }
    }

    /// Takes note of how a write ended.
    pub fn done(&mut self, write: &Write, outcome: Outcome, now: Instant) {
        self.pacer.done(&write.profile, &write.uid, outcome, now);
    }

    /// The status computed last, on any replica.
    #[must_use]
    pub fn status(&self, profile: &ProfileRef) -> Option<&Arc<CacheProfileStatus>> {
        self.computed.get(profile).map(|computed| &computed.status)
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
