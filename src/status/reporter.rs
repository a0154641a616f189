//! Computes all statuses, and decides which of them to write, when, and which Events to send. It
//! performs no I/O.

use super::{
    ExcessByNamespace, adopt, compute,
    events::{EventHistory, ProfileEvent},
    informer::{ClockReading, InformerView},
    publish::StatusesByProfile,
    status_writer::{StatusWrite, StatusWriteOutcome},
    write_delay::write_delay,
};
use crate::forecast::ProfileForecast;
use kubewarm_api::{
    model::{DeclaredProfile, InformerKey, ProfileRef},
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, WorkQueue};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum number of writes in flight. More of them would only queue in a slow API server.
const MAX_IN_FLIGHT: usize = 40;
/// Maximum number of writes in flight for one namespace, so that a slow webhook there does not
/// delay others.
const NAMESPACE_MAX_IN_FLIGHT: usize = 4;
/// Delay after the first failed write, and the maximum delay. The delay doubles with each failure.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
/// Delay after a 404. The profile was deleted and will be removed here, or its CRD is being
/// replaced.
const NOT_FOUND_DELAY: Duration = Duration::from_mins(5);

/// Everything that the status of one profile is computed from.
#[derive(Clone, Debug)]
pub struct ObservedProfile {
    pub declared: Arc<DeclaredProfile>,
    pub access: Option<Arc<AccessStatus>>,
    /// Permissions that its identity has and does not need; `None` if they are unknown or must not
    /// be shown.
    pub excess: Option<ExcessByNamespace>,
    /// Cost estimate of a planned profile, once it exists.
    pub plan: Option<Arc<ProfileForecast>>,
    /// The status in the reflector's copy of the profile.
    pub in_cluster: Option<Arc<CacheProfileStatus>>,
}

impl ObservedProfile {
    #[must_use]
    pub fn new(declared: Arc<DeclaredProfile>) -> Self {
        Self { declared, access: None, excess: None, plan: None, in_cluster: None }
    }
}

/// The computed and written statuses and the sent Events of every existing profile.
#[derive(Debug)]
pub struct StatusReporter {
    profiles: HashMap<ProfileRef, ReportedStatus>,
    /// The profiles to write. Empty on a follower.
    queue: WorkQueue<ProfileRef>,
    in_flight: KeyedSemaphore<Arc<str>>,
}

#[derive(Debug)]
struct ReportedStatus {
    uid: Arc<str>,
    /// The status computed last.
    status: Arc<CacheProfileStatus>,
    /// What this replica wrote and sent since it became the leader; `None` on a follower.
    record: Option<StatusWriteRecord>,
}

#[derive(Debug)]
struct StatusWriteRecord {
    /// The status in the API server, as of this replica's last read or write.
    written: Option<Arc<CacheProfileStatus>>,
    last_write: Option<Instant>,
    /// When this replica became the leader, or the profile was first seen. Earliest time of the
    /// first write.
    since: Instant,
    events: EventHistory,
}

impl Default for StatusReporter {
    fn default() -> Self {
        let [first, longest] = BACKOFF;
        Self {
            profiles: HashMap::new(),
            queue: WorkQueue::new(first, longest),
            in_flight: KeyedSemaphore::new(MAX_IN_FLIGHT, NAMESPACE_MAX_IN_FLIGHT),
        }
    }
}

impl StatusReporter {
    /// Computes the status of every profile. A leader also schedules writes for
    /// [`start_due_writes`](Self::start_due_writes), and returns the Events to send now.
    ///
    /// `profiles` must contain every existing profile; the state of all others is dropped. `leads`
    /// is true while this replica holds the lease.
    ///
    /// A follower also computes statuses, to measure its own time to warm. A new leader takes the
    /// transition times from the status in the cluster and writes what differs. It reads that
    /// status only once, because the reflector lags behind this replica's own writes.
    pub fn update(
        &mut self,
        profiles: &[ObservedProfile],
        informers: &dyn Fn(&InformerKey) -> InformerView,
        leads: bool,
        clock: ClockReading,
    ) -> Vec<ProfileEvent> {
        let mut old = std::mem::take(&mut self.profiles);
        let mut events = Vec::new();
        for observed in profiles {
            let ObservedProfile { declared, in_cluster, .. } = observed;
            let DeclaredProfile { profile, uid, .. } = &**declared;
            let own = old.remove(profile).filter(|own| own.uid == *uid);
            if own.is_none() {
                // A profile with the same name and another UID has its own status.
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
            let status = Arc::new(compute(observed, previous.as_deref(), clock, informers));
            let mut record = record.filter(|_| leads);
            if leads {
                let record = record.get_or_insert_with(|| StatusWriteRecord {
                    written: in_cluster.clone(),
                    last_write: None,
                    since: clock.mono,
                    events: EventHistory::default(),
                });
                let was = if takes_over { in_cluster.as_ref() } else { previous.as_ref() };
                let was = was.map(|status| &**status);
                events.extend(record.events.plan(profile, uid, was, &status, clock.mono));
            }
            let reported = ReportedStatus { uid: Arc::clone(uid), status, record };
            self.profiles.insert(profile.clone(), reported);
            self.schedule(profile);
        }
        let profiles = &self.profiles;
        self.queue.retain(|profile| {
            profiles.get(profile).is_some_and(|reported| reported.record.is_some())
        });
        events
    }

    /// Returns the writes that start now; none on a follower. The caller must report each result to
    /// [`record_result`](Self::record_result) and hold its permit until then.
    ///
    /// # Cost
    ///
    /// Visits every queued profile, and compares no status.
    pub fn start_due_writes(&mut self, now: Instant) -> Vec<(StatusWrite, KeyedPermit)> {
        let in_flight = &self.in_flight;
        let taken = self.queue.start_due(now, |profile| in_flight.try_acquire(&profile.namespace));
        let writes = taken.into_iter().filter_map(|(profile, permit)| {
            let reported = self.profiles.get_mut(&profile)?;
            reported.record.as_mut()?.last_write = Some(now);
            let (uid, status) = (Arc::clone(&reported.uid), Arc::clone(&reported.status));
            Some((StatusWrite { profile, uid, status }, permit))
        });
        writes.collect()
    }

    /// Records the result of a write. The result is ignored if the profile has been deleted
    /// meanwhile.
    pub fn record_result(
        &mut self,
        write: &StatusWrite,
        outcome: StatusWriteOutcome,
        now: Instant,
    ) {
        let Some(reported) = self.profiles.get_mut(&write.profile) else { return };
        if reported.uid != write.uid {
            return;
        }
        let was_in_flight = match outcome {
            StatusWriteOutcome::Written => self.queue.finish(&write.profile),
            StatusWriteOutcome::Failed => self.queue.finish_failed(&write.profile, now),
            StatusWriteOutcome::NotFound => {
                self.queue.finish_until(&write.profile, now + NOT_FOUND_DELAY)
            }
        };
        if !was_in_flight {
            return;
        }
        if let Some(record) =
            reported.record.as_mut().filter(|_| outcome == StatusWriteOutcome::Written)
        {
            record.written = Some(Arc::clone(&write.status));
        }
        self.schedule(&write.profile);
    }

    /// Queues a write if the status differs from the one written last.
    fn schedule(&mut self, profile: &ProfileRef) {
        let Some(ReportedStatus { status, record: Some(record), .. }) = self.profiles.get(profile)
        else {
            return;
        };
        let StatusWriteRecord { written, last_write, since, .. } = record;
        match write_delay(written.as_deref(), status) {
            None => self.queue.cancel(profile),
            Some(pause) => {
                let at = last_write.map_or(*since, |at| at + pause);
                self.queue.add_at(profile.clone(), at);
            }
        }
    }

    #[must_use]
    pub fn statuses(&self) -> StatusesByProfile {
        let all = self.profiles.iter();
        all.map(|(profile, own)| (profile.clone(), Arc::clone(&own.status))).collect()
    }
}

/// Returns `own` with the conditions of `foreign`, whose transition times are earlier.
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
