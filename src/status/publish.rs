//! Writes statuses and sends Events: the loop.

use super::{
    cell::{CellView, Clock},
    events::Notice,
    round::{Observed, Reporter, Role},
    sink::{ApiServer, Outcome, Write},
};
use jiff::Timestamp;
use kubewarm_api::{
    model::{CellKey, ProfileRef},
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

/// What a cell says of itself; `None` if it does not run.
pub(crate) type CellLookup = Box<dyn Fn(&CellKey) -> Option<CellView> + Send>;

/// The status of each profile, as this replica would write it.
pub(crate) type ComputedStatuses = HashMap<ProfileRef, Arc<CacheProfileStatus>>;

/// What statuses are computed from, and who hears of them.
pub(crate) struct Profiles {
    /// Every profile that exists now.
    pub(crate) observed: Box<dyn Fn() -> Vec<Observed> + Send>,
    /// What a cell says of itself; `None` if it does not run.
    pub(crate) cell: CellLookup,
    /// Takes the statuses just computed: what this replica would write, whether it leads or not.
    pub(crate) computed: Box<dyn Fn(ComputedStatuses) + Send>,
    /// Hears how each write ended.
    pub(crate) ended: Box<dyn Fn(Outcome) + Send>,
}

/// Computes, writes and tells until `stop`; nothing is sent unless `leads` says that this replica
/// holds the lease, which is asked before each request: the process may have been stopped for a
/// while at any point.
///
/// What is under way when leadership is found lost is aborted; the new leader writes what differs.
/// Cancel safe.
pub(crate) async fn run(
    profiles: Profiles,
    sink: ApiServer,
    leads: impl Fn() -> bool + Send + Sync + 'static,
    process_start: Instant,
    stop: CancellationToken,
) {
    let mut sender = StatusSender::new(sink, Arc::new(leads));
    let mut reporter = Reporter::default();
    let mut turns = interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looked_as, mut look_at) = (None, Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(ended) = sender.writes.join_next() => {
                if let Ok((write, outcome)) = ended {
                    (profiles.ended)(outcome);
                    reporter.done(&write, outcome, Instant::now());
                }
                continue;
            }
            Some(_) = sender.notices.join_next() => continue,
            _ = turns.tick() => {}
        }
        let role = if (sender.leads)() { Role::Leader } else { Role::Follower };
        if role == Role::Follower {
            sender.abort();
        }
        let clock = Clock { wall: Timestamp::now(), mono: Instant::now(), process_start };
        // Another role is taken at once: what was aborted is forgotten before anything else is begun.
        let mut told = Vec::new();
        if look_at <= clock.mono || looked_as != Some(role) {
            let observed = (profiles.observed)();
            told = reporter.round(&observed, &profiles.cell, role, clock);
            let status_of = |found: &Observed| {
                let profile = &found.declared.profile;
                Some((profile.clone(), Arc::clone(reporter.status(profile)?)))
            };
            (profiles.computed)(observed.iter().filter_map(status_of).collect());
            looked_as = Some(role);
            look_at = clock.mono + clock.mono.elapsed().saturating_mul(1 + REST).max(ROUND);
        }
        for (write, permit) in reporter.due(Instant::now()) {
            sender.write(write, permit);
        }
        for notice in told {
            sender.tell(notice, clock.wall);
        }
    }
}

/// What is under way to the API server.
struct StatusSender<L> {
    sink: ApiServer,
    leads: Arc<L>,
    writes: JoinSet<(Write, Outcome)>,
    notices: JoinSet<()>,
    permits: KeyedSemaphore<Arc<str>>,
}

impl<L: Fn() -> bool + Send + Sync + 'static> StatusSender<L> {
    fn new(sink: ApiServer, leads: Arc<L>) -> Self {
        let permits = KeyedSemaphore::new(NOTICES, NAMESPACE_NOTICES);
        Self { sink, leads, writes: JoinSet::new(), notices: JoinSet::new(), permits }
    }

    fn write(&mut self, write: Write, permit: KeyedPermit) {
        let (sink, leads) = (self.sink.clone(), Arc::clone(&self.leads));
        self.writes.spawn(async move {
            let _permit = permit;
            if !leads() {
                return (write, Outcome::Failed);
            }
            let outcome = timeout(REQUEST, sink.publish(&write)).await;
            (write, outcome.unwrap_or(Outcome::Failed))
        });
    }

    fn tell(&mut self, notice: Notice, at: Timestamp) {
        let Some(permit) = self.permits.try_acquire(&notice.profile.namespace) else { return };
        let (sink, leads) = (self.sink.clone(), Arc::clone(&self.leads));
        self.notices.spawn(async move {
            let _permit = permit;
            if leads() {
                let _late = timeout(REQUEST, sink.tell(&notice, at)).await;
            }
        });
    }

    fn abort(&mut self) {
        self.writes.abort_all();
        self.notices.abort_all();
    }
}
