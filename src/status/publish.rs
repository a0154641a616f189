//! Writes statuses and Events: the loop, and the two ports to the API server.

use super::{
    cell::{CellView, Clock},
    events::Notice,
    pacer::{Outcome, Write},
    round::{Observed, Reporter, Role},
};
use crate::{
    api::CacheProfileStatus,
    model::{CellKey, ProfileRef},
};
use jiff::Timestamp;
use std::{future::Future, sync::Arc, time::Duration};
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
/// Events under way; what comes on top is dropped, nothing depends on it. As many as the bucket of
/// the process lets out while a request may last, so that its shares are shares of these too.
const NOTICES_IN_FLIGHT: usize = 50;

/// What the loop looks at.
pub trait Profiles: Send + 'static {
    /// Every profile that exists now.
    fn observed(&self) -> Vec<Observed>;
    /// What a cell says of itself; `None` if it does not run.
    fn cell(&self, key: &CellKey) -> Option<CellView>;
    /// Takes the statuses just computed, in the order of [`Profiles::observed`]: what this replica
    /// would write, whether it leads or not.
    fn computed(&self, statuses: Vec<(ProfileRef, Arc<CacheProfileStatus>)>);
}

/// Where statuses and Events go.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes the status. [`Outcome::Gone`] if it went to a profile with another UID: the API server
    /// cannot be made to refuse that.
    fn publish(&self, write: &Write) -> impl Future<Output = Outcome> + Send;

    /// Tells people. A failure is the sink's own affair.
    fn tell(&self, notice: &Notice, at: Timestamp) -> impl Future<Output = ()> + Send;
}

/// Computes, writes and tells until `stop`; nothing is sent unless `leads` says that this replica
/// holds the lease, which is asked before each request: the process may have been stopped for a
/// while at any point.
///
/// What is under way when leadership is found lost is aborted; the new leader writes what differs.
/// Cancel safe.
pub async fn run<P: Profiles, S: StatusSink>(
    profiles: P,
    sink: Arc<S>,
    leads: impl Fn() -> bool + Send + Sync + 'static,
    process_start: Instant,
    stop: CancellationToken,
) {
    let leads = Arc::new(leads);
    let mut reporter = Reporter::default();
    let mut writes: JoinSet<(Write, Outcome)> = JoinSet::new();
    let mut notices: JoinSet<()> = JoinSet::new();
    let mut turns = interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looked_as, mut look_at) = (None, Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(ended) = writes.join_next() => {
                if let Ok((write, outcome)) = ended {
                    reporter.done(&write, outcome, Instant::now());
                }
                continue;
            }
            Some(_) = notices.join_next() => continue,
            _ = turns.tick() => {}
        }
        let role = if leads() { Role::Leader } else { Role::Follower };
        if role == Role::Follower {
            writes.abort_all();
            notices.abort_all();
        }
        let clock = Clock { wall: Timestamp::now(), mono: Instant::now(), process_start };
        // Another role is taken at once: what was aborted is forgotten before anything else is begun.
        let mut told = Vec::new();
        if look_at <= clock.mono || looked_as != Some(role) {
            let observed = profiles.observed();
            told = reporter.round(&observed, &|key| profiles.cell(key), role, clock);
            let status_of = |found: &Observed| {
                let profile = &found.declared.profile;
                Some((profile.clone(), Arc::clone(reporter.status(profile)?)))
            };
            profiles.computed(observed.iter().filter_map(status_of).collect());
            looked_as = Some(role);
            look_at = clock.mono + clock.mono.elapsed().saturating_mul(1 + REST).max(ROUND);
        }
        for write in reporter.due(Instant::now()) {
            let (sink, leads) = (Arc::clone(&sink), Arc::clone(&leads));
            writes.spawn(async move {
                if !leads() {
                    return (write, Outcome::Failed);
                }
                let outcome = timeout(REQUEST, sink.publish(&write)).await;
                (write, outcome.unwrap_or(Outcome::Failed))
            });
        }
        for notice in told {
            if notices.len() < NOTICES_IN_FLIGHT {
                let (sink, leads) = (Arc::clone(&sink), Arc::clone(&leads));
                notices.spawn(async move {
                    if leads() {
                        let _late = timeout(REQUEST, sink.tell(&notice, clock.wall)).await;
                    }
                });
            }
        }
    }
}
