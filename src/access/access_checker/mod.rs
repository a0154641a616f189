//! The task that checks continuously whether each declared informer's identity may still list and
//! watch.

#[cfg(test)]
mod tests;

use super::{
    access_state::{AccessSignal, GateChange},
    check_schedule::{
        AccessCheckKind, CheckJob, CheckResult, CheckSchedule, CheckSettings, is_permanent,
    },
    permission_state::{InformerAccess, PermissionState},
    reports::AccessReports,
    rules::attributes,
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use kube::Client;
use kubewarm_api::model::{FaultReason, Identity, InformerKey, MetricOutcome, RequestFault, Verb};
use kubewarm_cache::informer::{AccessCheckResult, ChangeNotifier, InformerReports};
use kubewarm_client::{ClientProvider, KeyedPermit, NamespaceBuckets, is_allowed, review_rules};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Namespace that kubewarm puts into a `SelfSubjectRulesReview` of cluster-wide permissions. No
/// namespace can have this name, so the API server returns only permissions from
/// `ClusterRoleBindings`.
const NOWHERE: &str = ":cluster:";
/// Delay from a notification about a changed report of an informer to the update of the access
/// check schedule. One update then covers all reports that change within the delay.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Minimum delay before the next attempt to start a due access check or review that a rate or
/// concurrency limit delayed.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between two updates of the schedule of access checks while no informer's report
/// changes.
const UPDATE: Duration = Duration::from_secs(1);
/// Pause after an update of the access check schedule, and after a start of due checks. The pause
/// is this multiple of the time that the update or start took. The access checker therefore uses at
/// most about 5 % of a core.
const REST: u32 = 20;

pub struct CheckerDependencies {
    /// Rate limits of requests to the API server, one limit per namespace. Access checks, reviews
    /// and the informers' own requests count against the same limits.
    pub buckets: NamespaceBuckets,
    /// Clients that authenticate as the informers' identities.
    pub clients: Arc<dyn ClientProvider>,
    /// Returns the informers to check. Returns `None` before kubewarm has listed the profiles, or
    /// if the informers have not changed since the last call.
    pub informers: Box<dyn FnMut() -> Option<BTreeMap<InformerKey, CheckSettings>> + Send>,
    /// The informers that watch CacheProfile objects. The checker does not check these informers,
    /// and never reports the permissions that they need as excess permissions.
    pub own: Arc<[InformerKey]>,
    /// The informers' reports about their own requests. The checker also blocks and unblocks
    /// informers through this handle.
    pub reports: InformerReports,
    /// Notifies the checker when a report changes.
    pub changes: ChangeNotifier,
    /// Time from the last confirmed access until the checker blocks the informer:
    /// [`super::MAX_ACCESS_AGE`], except in tests.
    pub max_access_age: Duration,
    pub count_check: Box<dyn Fn(AccessCheckKind, MetricOutcome) + Send>,
}

pub struct AccessChecker {
    dependencies: CheckerDependencies,
    reports: AccessReports,
    /// One client for each identity that the checker checks. This map keeps each client and its
    /// token for the next access check. Without this map, kubewarm would drop the client of an
    /// identity that no running informer uses.
    clients: BTreeMap<Identity, Arc<Client>>,
    jobs: JoinSet<(CheckJob, Instant, Result<CheckResult, RequestFault>, KeyedPermit)>,
    update_time: Duration,
}

impl AccessChecker {
    #[must_use]
    pub fn new(dependencies: CheckerDependencies) -> Self {
        let schedule = CheckSchedule::new(dependencies.buckets.clone(), fastrand::f64);
        let reports = AccessReports::new(schedule);
        let (clients, jobs) = (BTreeMap::new(), JoinSet::new());
        Self { dependencies, reports, clients, jobs, update_time: Duration::ZERO }
    }

    #[must_use]
    pub fn reports(&self) -> AccessReports {
        self.reports.clone()
    }

    /// Runs until `stop` is cancelled, and then aborts the checks in progress.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.dependencies.changes.subscribe();
        let (mut update_at, mut start_at) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if update_at <= now {
                self.update_schedule();
                update_at = Instant::now() + (self.update_time * REST).max(UPDATE);
            }
            if start_at <= now {
                let began = Instant::now();
                self.start_due_checks();
                start_at = Instant::now() + began.elapsed() * REST;
            }
            let next = self.reports.schedule.read().next_due().unwrap_or(update_at);
            // Without `PAUSE` this loop would be busy while a rate or concurrency limit prevents
            // the start of due checks.
            let wake = next.max(now + PAUSE).max(start_at).min(update_at);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = self.jobs.join_next() => {
                    if let Ok((job, sent, found, _permit)) = ended {
                        self.record_result(&job, sent, found);
                    }
                }
                Ok(()) = changes.changed() => {
                    update_at = update_at.min(Instant::now() + DEBOUNCE.max(self.update_time * REST));
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Updates the schedule of access checks from the declared informers and their reports, and
    /// blocks or unblocks informers accordingly.
    ///
    /// If an informer starts after the API server has rejected its access check, the next update
    /// blocks the informer.
    fn update_schedule(&mut self) {
        let began = Instant::now();
        let wanted = (self.dependencies.informers)();
        if let Some(wanted) = &wanted {
            let identities: BTreeSet<_> = wanted.keys().map(|key| &key.identity).collect();
            self.clients.retain(|identity, _| identities.contains(identity));
            for identity in identities {
                let client = || self.dependencies.clients.client_for(identity);
                self.clients.entry(identity.clone()).or_insert_with(client);
            }
        }
        let mut schedule = self.reports.schedule.write();
        if let Some(wanted) = wanted {
            schedule.set_informers(wanted, &self.dependencies.own, began);
        }
        let reports = &self.dependencies.reports;
        let own = |key: &InformerKey| reports.get_list_watch_access(key);
        let changes =
            schedule.update(own, self.dependencies.max_access_age, began, Timestamp::now());
        drop(schedule);
        for (key, change) in changes {
            self.change_gate(&key, change);
        }
        self.update_time = began.elapsed();
    }

    fn start_due_checks(&mut self) {
        let mut schedule = self.reports.schedule.write();
        let begun = schedule.start_due(Instant::now());
        for (job, permit) in begun {
            let sent = Instant::now();
            let check = self.new_check(job.clone(), sent, &schedule);
            self.jobs.spawn(async move {
                let found = AssertUnwindSafe(check).catch_unwind().await;
                let found = found.unwrap_or_else(|_panic| {
                    Err(RequestFault::new(FaultReason::Internal, "a check panicked; see the log"))
                });
                (job, sent, found, permit)
            });
        }
    }

    /// Returns the future that sends the requests of `job`, with the identity that `job` contains.
    fn new_check(
        &self,
        job: CheckJob,
        sent: Instant,
        schedule: &CheckSchedule,
    ) -> BoxFuture<'static, Result<CheckResult, RequestFault>> {
        let (CheckJob::AccessCheck(InformerKey { identity, .. })
        | CheckJob::AccessReview(InformerKey { identity, .. })
        | CheckJob::RulesReview((identity, _))) = &job;
        let client = self.clients.get(identity).cloned();
        let client = client.unwrap_or_else(|| self.dependencies.clients.client_for(identity));
        match job {
            CheckJob::AccessCheck(key) => {
                let check = schedule.namespace_check(&key);
                async move {
                    Ok(CheckResult::Access(
                        AccessCheckResult::run(&client, &key, check).await.into(),
                    ))
                }
                .boxed()
            }
            CheckJob::RulesReview((_, here)) => async move {
                let here = here.as_deref().unwrap_or(NOWHERE);
                review_rules(&client, here).await.map(CheckResult::Rules)
            }
            .boxed(),
            CheckJob::AccessReview(key) => {
                let verbs = schedule.verbs_to_review(&key);
                async move {
                    let verb = verbs.first().copied().unwrap_or(Verb::Watch);
                    let input = match is_allowed(&client, attributes(&key, verb)).await {
                        Ok(true) => AccessSignal::Reviewed { sent, refused: Vec::new() },
                        Ok(false) => AccessSignal::Reviewed { sent, refused: verbs },
                        // This error means that the API server does not support or permit access
                        // reviews. The error is no sign of lost access.
                        Err(fault) if is_permanent(fault.reason()) => {
                            AccessSignal::Answered { sent }
                        }
                        Err(fault) => AccessSignal::Undecided { sent, fault },
                    };
                    Ok(CheckResult::Access(input))
                }
                .boxed()
            }
        }
    }

    /// Records the result of an access check or review. After an access check, this function also
    /// blocks or unblocks the informer.
    fn record_result(
        &mut self,
        job: &CheckJob,
        sent: Instant,
        found: Result<CheckResult, RequestFault>,
    ) {
        (self.dependencies.count_check)(AccessCheckKind::from(job), outcome(&found));
        let key = match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => Some(key),
            CheckJob::RulesReview(_) => None,
        };
        let access = || self.reports.get(key?);
        let before = access();
        self.reports.schedule.write().record_result(
            job,
            sent,
            found,
            Instant::now(),
            Timestamp::now(),
        );
        if let (Some(key), Some(before), Some(after)) = (key, before, access()) {
            log(key, &before, &after);
        }
        let is_access_check = matches!(job, CheckJob::AccessCheck(_));
        let key = key.filter(|_| is_access_check);
        let change =
            key.and_then(|key| Some((key, self.reports.schedule.read().gate_change(key)?)));
        if let Some((key, change)) = change {
            self.change_gate(key, change);
        }
    }

    /// Blocks or unblocks an informer.
    ///
    /// `unblock` also applies to an informer that is not blocked but whose last list or watch the
    /// API server rejected. The informer then retries at once.
    fn change_gate(&self, key: &InformerKey, change: GateChange) {
        let reports = &self.dependencies.reports;
        match (change, reports.get_list_watch_access(key)) {
            (Err((verb, fault)), _) => reports.block(key, verb, &fault),
            (Ok(()), Some(own)) if !own.is_open || own.refused_since.is_some() => {
                reports.unblock(key);
            }
            (Ok(()), _) => {}
        }
    }
}

fn outcome(found: &Result<CheckResult, RequestFault>) -> MetricOutcome {
    match found {
        Ok(CheckResult::Rules(_) | CheckResult::Access(AccessSignal::Allowed { .. })) => {
            MetricOutcome::Success
        }
        Ok(CheckResult::Access(AccessSignal::Reviewed { refused, .. })) if refused.is_empty() => {
            MetricOutcome::Success
        }
        Ok(CheckResult::Access(AccessSignal::Reviewed { .. } | AccessSignal::Refused { .. })) => {
            MetricOutcome::Rejected
        }
        Ok(CheckResult::Access(_)) | Err(_) => MetricOutcome::Error,
    }
}

fn log(key: &InformerKey, before: &InformerAccess, after: &InformerAccess) {
    use PermissionState::{Granted, Refused};
    match (&before.state, &after.state) {
        (Granted { .. }, Granted { .. }) | (Refused(_), Refused(_)) => {}
        (_, Granted { .. }) => tracing::info!(informer = %key, "access verified"),
        (_, Refused(refused)) => {
            let (verbs, message) = (&refused.verbs, &refused.message);
            tracing::warn!(informer = %key, ?verbs, reason = %refused.reason, %message, "access refused");
        }
        _ => {}
    }
    if before.overruled != after.overruled
        && let Some(allowed) = after.overruled
    {
        tracing::warn!(informer = %key, allowed, "a review contradicts the real request, which decides");
    }
}

impl fmt::Debug for CheckerDependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckerDependencies")
            .field("reports", &self.reports)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AccessChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessChecker").field("in_flight", &self.jobs.len()).finish_non_exhaustive()
    }
}
