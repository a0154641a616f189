//! Computes all statuses, and decides which statuses to write when and which Events to send. This
//! module performs no I/O.

use super::{
    adopt, compute,
    events::{LastEventTimes, ProfileEvent},
    informer::{ClockReading, LiveState},
    publish::StatusesByProfile,
    status_writer::{StatusWrite, StatusWriteOutcome},
    write_delay::write_delay,
};
use crate::forecast::ProfileForecast;
use kubewarm_api::{
    model::{ProfileRef, ResolvedProfile},
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, WorkQueue};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum number of status writes in flight. A slow API server would only queue more writes, and
/// delay other clients.
const MAX_IN_FLIGHT: usize = 40;
/// Maximum number of status writes in flight for one namespace, so that slow writes of one
/// namespace do not delay other namespaces.
const NAMESPACE_MAX_IN_FLIGHT: usize = 4;
/// The first and the maximum delay before kubewarm retries a failed status write. The delay doubles
/// with each failure, so that a failing API server gets few writes.
const BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];
/// Delay before the retry of a status write that the API server answered with 404. If the profile
/// was deleted, the next update cancels the retry. If the CRD is being replaced, the retry writes
/// the status later.
const NOT_FOUND_DELAY: Duration = Duration::from_mins(5);

/// The profile's status in the API server, as kubewarm's own profile informer received it last. It
/// can lag behind the API server.
#[derive(Clone, Default)]
pub struct StoredStatus(Option<Arc<StatusSource>>);

type StatusSource = dyn Fn() -> Option<CacheProfileStatus> + Send + Sync;

impl StoredStatus {
    pub fn new(read: impl Fn() -> Option<CacheProfileStatus> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    fn read(&self) -> Option<Arc<CacheProfileStatus>> {
        self.0.as_ref().and_then(|read| read()).map(Arc::new)
    }
}

impl fmt::Debug for StoredStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredStatus").finish_non_exhaustive()
    }
}

/// The input from which the status of one profile is computed.
#[derive(Clone, Debug)]
pub struct ObservedProfile {
    pub resolved: Arc<ResolvedProfile>,
    pub access: Option<Arc<AccessStatus>>,
    /// Forecast of a profile in mode `Plan`; `None` until the first forecast is complete.
    pub forecast: Option<Arc<ProfileForecast>>,
    pub in_cluster: StoredStatus,
    /// The operator namespace, which messages name in commands.
    pub operator_namespace: Arc<str>,
}

impl ObservedProfile {
    pub fn new(resolved: Arc<ResolvedProfile>, operator_namespace: Arc<str>) -> Self {
        Self {
            resolved,
            access: None,
            forecast: None,
            in_cluster: StoredStatus::default(),
            operator_namespace,
        }
    }
}

/// For every existing profile: the computed status, the written status and the times of sent
/// Events.
#[derive(Debug)]
pub struct StatusReporter {
    profiles: HashMap<ProfileRef, ReportedStatus>,
    /// The profiles whose status must be written. Empty while this replica does not hold the lease.
    queue: WorkQueue<ProfileRef>,
    in_flight: KeyedSemaphore<Arc<str>>,
}

#[derive(Debug)]
struct ReportedStatus {
    uid: Arc<str>,
    status: Arc<CacheProfileStatus>,
    /// The status writes and Events of this replica since it became the leader; `None` while it
    /// does not hold the lease.
    record: Option<StatusWriteRecord>,
}

#[derive(Debug)]
struct StatusWriteRecord {
    /// The status in the API server, as this replica last read or wrote it.
    written: Option<Arc<CacheProfileStatus>>,
    last_write: Option<Instant>,
    /// The time at which this replica became the leader or first saw the profile, whichever is
    /// later. The first status write has no earlier write to wait for, so it is due at this time.
    since: Instant,
    events: LastEventTimes,
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
    /// Computes the status of every profile. A leader also schedules status writes for
    /// [`start_due_writes`](Self::start_due_writes), and returns the Events to send now.
    ///
    /// `profiles` must contain every existing profile; the reporter drops the state of absent
    /// profiles. `is_leader` is true while this replica holds the lease.
    ///
    /// A follower also computes statuses, to measure its own time to warm. A new leader takes the
    /// conditions' transition times from the status in the API server, and writes its own status if
    /// it differs. The leader reads the status in the API server only once, because later reads
    /// would lag behind its own writes.
    pub fn update(
        &mut self,
        profiles: &[ObservedProfile],
        live: LiveState<'_>,
        is_leader: bool,
        clock: ClockReading,
    ) -> Vec<ProfileEvent> {
        let mut old = std::mem::take(&mut self.profiles);
        let mut events = Vec::new();
        for observed in profiles {
            let ObservedProfile { resolved, in_cluster, .. } = observed;
            let ResolvedProfile { profile, uid, .. } = &**resolved;
            let entry = old.remove(profile).filter(|entry| entry.uid == *uid);
            if entry.is_none() {
                // The profile is new, or a user deleted it and created it again under the same
                // name. A write that is queued for the deleted profile is then obsolete.
                self.queue.remove(profile);
            }
            let (old_status, record) =
                entry.map_or((None, None), |entry| (Some(entry.status), entry.record));
            let is_takeover = is_leader && record.is_none();
            let in_cluster =
                if is_takeover || old_status.is_none() { in_cluster.read() } else { None };
            let previous = match (old_status, &in_cluster) {
                (Some(old_status), Some(foreign)) if is_takeover => {
                    Some(Arc::new(with_conditions_of(&old_status, foreign)))
                }
                (Some(old_status), _) => Some(old_status),
                (None, Some(foreign)) => Some(Arc::new(adopt((**foreign).clone()))),
                (None, None) => None,
            };
            let status = Arc::new(compute(observed, previous.as_deref(), clock, live));
            // One of two equal statuses stays in memory, because a status of 128 targets takes
            // about 230 KiB.
            let equal = previous.iter().chain(&in_cluster).find(|old| **old == status);
            let status = equal.map_or(status, Arc::clone);
            let mut record = record.filter(|_| is_leader);
            if is_leader {
                let record = record.get_or_insert_with(|| StatusWriteRecord {
                    written: in_cluster.clone(),
                    last_write: None,
                    since: clock.mono,
                    events: LastEventTimes::default(),
                });
                let was = if is_takeover { in_cluster.as_ref() } else { previous.as_ref() };
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

    /// Returns the status writes that start now; a follower starts none. Each write comes with its
    /// permit of the limit on writes in flight. The caller must hold the permit until it has
    /// reported the result to [`record_result`](Self::record_result).
    ///
    /// # Cost
    ///
    /// Visits every profile in the queue, but compares no statuses.
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

    /// Records the result of a status write. Ignores the result if the profile was deleted during
    /// the write, because a new profile with the same name needs its own status.
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

    /// Queues a status write if the profile's computed status differs from the status written last.
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

    pub fn statuses(&self) -> StatusesByProfile {
        let all = self.profiles.iter();
        all.map(|(profile, entry)| (profile.clone(), Arc::clone(&entry.status))).collect()
    }
}

/// Returns `status` with the conditions of `foreign`, another process's status, so that the result
/// keeps the earlier transition times.
fn with_conditions_of(
    status: &CacheProfileStatus,
    foreign: &CacheProfileStatus,
) -> CacheProfileStatus {
    let mut status =
        CacheProfileStatus { conditions: foreign.conditions.clone(), ..status.clone() };
    for target in &mut status.targets {
        if let Some(old) = foreign.targets.iter().find(|old| old.name == target.name) {
            target.conditions.clone_from(&old.conditions);
        }
    }
    status
}
