//! Writes statuses and sends Events in a loop.

use super::{
    event_recorder::EventRecorder,
    events::ProfileEvent,
    informer::ClockReading,
    reporter::StatusReporter,
    status_writer::{StatusWrite, StatusWriteOutcome, StatusWriter},
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{MetricOutcome, ProfileRef},
    v1alpha1::CacheProfileStatus,
};
use kubewarm_client::{KeyedPermit, KeyedSemaphore};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Minimum interval between two computations of all statuses. One computation covers all changes
/// within the interval.
const ROUND: Duration = Duration::from_secs(1);
/// Pause after a computation of all statuses, as a multiple of the computation's duration. The
/// computations therefore use at most about 2% of a core.
const REST: u32 = 50;
/// Interval at which the loop starts the status writes that are due.
const TICK: Duration = Duration::from_millis(100);
/// Timeout of one status write or Event.
const REQUEST: Duration = Duration::from_secs(10);
/// Maximum number of Events whose requests are in flight. kubewarm drops further Events, because
/// Events only inform people, and the status contains the same facts.
const EVENTS: usize = 50;
/// Maximum number of Events for one namespace whose requests are in flight.
const NAMESPACE_EVENTS: usize = EVENTS / 4;

/// The last status that this replica computed for each profile, even if it was not written to the
/// API server.
pub(crate) type StatusesByProfile = HashMap<ProfileRef, Arc<CacheProfileStatus>>;

/// Computes and writes statuses and sends Events until `stop` is cancelled.
///
/// `update` must call [`StatusReporter::update`] with every existing profile. `count` receives the
/// outcome of each status write.
///
/// This function sends requests only while `is_leader` returns true. It calls `is_leader` before
/// each request, because the process can have been suspended since the last call. When this replica
/// loses the lease, the function aborts requests in flight. The new leader then writes the statuses
/// that differ.
///
/// This function is cancel safe.
pub(crate) async fn run(
    mut update: impl FnMut(&mut StatusReporter, bool, ClockReading) -> Vec<ProfileEvent>,
    count: impl Fn(MetricOutcome),
    statuses: StatusWriter,
    recorder: EventRecorder,
    is_leader: impl Fn() -> bool + Send + Sync + 'static,
    process_start: Instant,
    stop: CancellationToken,
) {
    let is_leader = Arc::new(is_leader);
    let (mut writes, mut sends) = (JoinSet::new(), JoinSet::new());
    let event_permits = KeyedSemaphore::new(EVENTS, NAMESPACE_EVENTS);
    let mut reporter = StatusReporter::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last_role, mut update_at) = (None, Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(ended) = writes.join_next() => {
                if let Ok((write, outcome)) = ended {
                    count(if outcome == StatusWriteOutcome::Written { MetricOutcome::Success } else { MetricOutcome::Error });
                    reporter.record_result(&write, outcome, Instant::now());
                }
                continue;
            }
            Some(_) = sends.join_next() => continue,
            _ = ticks.tick() => {}
        }
        let has_lease = is_leader();
        if !has_lease {
            writes.abort_all();
            sends.abort_all();
        }
        let clock = ClockReading { wall: Timestamp::now(), mono: Instant::now(), process_start };
        // After a change of leadership, `update` runs at once, and removes aborted writes from the
        // queue before the loop starts other writes.
        let mut events = Vec::new();
        if update_at <= clock.mono || last_role != Some(has_lease) {
            events = update(&mut reporter, has_lease, clock);
            last_role = Some(has_lease);
            update_at = clock.mono + clock.mono.elapsed().saturating_mul(1 + REST).max(ROUND);
        }
        for (write, permit) in reporter.start_due_writes(Instant::now()) {
            writes.spawn(write_status(statuses.clone(), Arc::clone(&is_leader), write, permit));
        }
        for event in events {
            if let Some(permit) = event_permits.try_acquire(&event.profile.namespace) {
                sends.spawn(send_event(
                    recorder.clone(),
                    Arc::clone(&is_leader),
                    event,
                    clock.wall,
                    permit,
                ));
            }
        }
    }
}

async fn write_status(
    statuses: StatusWriter,
    is_leader: Arc<impl Fn() -> bool>,
    write: StatusWrite,
    _permit: KeyedPermit,
) -> (StatusWrite, StatusWriteOutcome) {
    if !is_leader() {
        return (write, StatusWriteOutcome::Failed);
    }
    let outcome = timeout(REQUEST, statuses.write(&write)).await;
    (write, outcome.unwrap_or(StatusWriteOutcome::Failed))
}

async fn send_event(
    recorder: EventRecorder,
    is_leader: Arc<impl Fn() -> bool>,
    event: ProfileEvent,
    at: Timestamp,
    _permit: KeyedPermit,
) {
    if is_leader() {
        let _late = timeout(REQUEST, recorder.send(&event, at)).await;
    }
}
