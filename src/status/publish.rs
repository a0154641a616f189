//! Writes statuses and sends Events: the loop.

use super::{
    cell::Clock,
    events::Notice,
    round::Reporter,
    sink::{ApiServer, Outcome, Write},
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

/// How often all profiles are looked at, at the most.
const ROUND: Duration = Duration::from_secs(1);
/// The share of a core that looking may take: after a round comes a rest of 50 times its length.
const REST: u32 = 50;
/// How often more of the last round's writes begin: it is seldom that all of them may at once.
const TURN: Duration = Duration::from_millis(100);
/// For one request to the API server.
const REQUEST: Duration = Duration::from_secs(10);
/// Events under way, and of these of one namespace. What comes on top is dropped: nothing depends on it.
const NOTICES: usize = 50;
const NAMESPACE_NOTICES: usize = NOTICES / 4;

/// The status of each profile, as this replica would write it.
pub(crate) type ComputedStatuses = HashMap<ProfileRef, Arc<CacheProfileStatus>>;

/// Computes and writes statuses and sends Events until `stop`.
///
/// `round` calls [`Reporter::round`] with every profile that exists now. `count` counts each write.
/// The task sends a request only while `leads` is true, and checks
/// that before each request: the process may have been stopped for a while at any point.
///
/// What is under way when leadership is found lost is aborted; the new leader writes what differs.
/// Cancel safe.
pub(crate) async fn run(
    mut round: impl FnMut(&mut Reporter, bool, Clock) -> Vec<Notice>,
    count: impl Fn(MetricOutcome),
    sink: ApiServer,
    leads: impl Fn() -> bool + Send + Sync + 'static,
    process_start: Instant,
    stop: CancellationToken,
) {
    let leads = Arc::new(leads);
    let (mut writes, mut notices) = (JoinSet::new(), JoinSet::new());
    let notice_permits = KeyedSemaphore::new(NOTICES, NAMESPACE_NOTICES);
    let mut reporter = Reporter::default();
    let mut turns = interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looked_as, mut look_at) = (None, Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(ended) = writes.join_next() => {
                if let Ok((write, outcome)) = ended {
                    count(if outcome == Outcome::Written { MetricOutcome::Success } else { MetricOutcome::Error });
                    reporter.done(&write, outcome, Instant::now());
                }
                continue;
            }
            Some(_) = notices.join_next() => continue,
            _ = turns.tick() => {}
        }
        let is_leader = leads();
        if !is_leader {
            writes.abort_all();
            notices.abort_all();
        }
        let clock = Clock { wall: Timestamp::now(), mono: Instant::now(), process_start };
        // A gain or loss of the lease counts at once: what was aborted is forgotten before anything else is begun.
        let mut told = Vec::new();
        if look_at <= clock.mono || looked_as != Some(is_leader) {
            told = round(&mut reporter, is_leader, clock);
            looked_as = Some(is_leader);
            look_at = clock.mono + clock.mono.elapsed().saturating_mul(1 + REST).max(ROUND);
        }
        for (write, permit) in reporter.due(Instant::now()) {
            writes.spawn(publish(sink.clone(), Arc::clone(&leads), write, permit));
        }
        for notice in told {
            if let Some(permit) = notice_permits.try_acquire(&notice.profile.namespace) {
                notices.spawn(tell(sink.clone(), Arc::clone(&leads), notice, clock.wall, permit));
            }
        }
    }
}

async fn publish(
    sink: ApiServer,
    leads: Arc<impl Fn() -> bool>,
    write: Write,
    _permit: KeyedPermit,
) -> (Write, Outcome) {
    if !leads() {
        return (write, Outcome::Failed);
    }
    let outcome = timeout(REQUEST, sink.publish(&write)).await;
    (write, outcome.unwrap_or(Outcome::Failed))
}

async fn tell(
    sink: ApiServer,
    leads: Arc<impl Fn() -> bool>,
    notice: Notice,
    at: Timestamp,
    _permit: KeyedPermit,
) {
    if leads() {
        let _late = timeout(REQUEST, sink.tell(&notice, at)).await;
    }
}
