//! The task that checks continuously whether each declared informer's identity may still list and
//! watch.

#[cfg(test)]
mod tests;

use super::{
    access_state::AccessSignal,
    check_schedule::{
        AccessCheckKind, AccessChecks, CheckJob, CheckResult, CheckSchedule, is_permanent,
    },
    informer_access::InformerAccess,
    reports::AccessStates,
    rules::attributes,
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use kube::Client;
use kubewarm_api::model::{FaultReason, Identity, InformerKey, MetricOutcome, RequestFault, Verb};
use kubewarm_cache::informer::{AccessCheckResult, InformerHandles, PermissionState};
use kubewarm_client::{ClientProvider, KeyedPermit, NamespaceBuckets, is_allowed, review_rules};
use std::{
    collections::{BTreeMap, BTreeSet},
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
/// Delay between a new result of an informer's own requests and the visit of the informer, which
/// updates its permission state. The checker visits all informers with results from this delay
/// together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Minimum delay before the next attempt to start a due access check, access review or rules
/// review. Without it, the checker would retry without pause while a rate or concurrency limit
/// delays the request.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval at which the checker compares its informers with the informers that the profiles
/// declare.
const UPDATE: Duration = Duration::from_secs(1);
/// Pause after a start of due checks, as a multiple of the time that the start took. Starts of
/// checks therefore use at most about 5 % of a core.
const REST: u32 = 20;

pub struct CheckerDependencies {
    /// Rate limits of requests to the API server, one limit per namespace. Access checks, access
    /// reviews, rules reviews and the informers' own requests count against the same limits.
    pub buckets: NamespaceBuckets,
    /// Clients that authenticate as the informers' identities.
    pub clients: Arc<dyn ClientProvider>,
    /// Returns the informers to check. Returns the same `Arc` until the profiles declare other
    /// informers, because the checker detects a change by the pointer. Returns `None` before
    /// kubewarm has listed the profiles; the checker then keeps its informers.
    pub informers: Box<dyn Fn() -> Option<Arc<AccessChecks>> + Send>,
    /// The informers that watch CacheProfile objects. The checker does not check these informers,
    /// because clients do not read their stores. It never reports the permissions that they need as
    /// excess permissions.
    pub profile_informers: Arc<[InformerKey]>,
    /// The results of the informers' own requests. The checker publishes its decisions through this
    /// handle.
    pub reports: InformerHandles,
    /// Time from the last confirmed access until the checker blocks the informer:
    /// [`super::MAX_ACCESS_AGE`], except in tests.
    pub max_access_age: Duration,
    pub count_check: Box<dyn Fn(AccessCheckKind, MetricOutcome) + Send>,
}

pub struct AccessChecker {
    dependencies: CheckerDependencies,
    reports: AccessStates,
    /// One client for each identity that the checker checks. Without this map, kubewarm would drop
    /// the client of an identity that no running informer uses, and each access check would request
    /// a new token.
    clients: BTreeMap<Identity, Arc<Client>>,
    /// The informers of the last schedule update. The checker replaces the informers in the
    /// schedule only if the declared informers are another `Arc`.
    checked: Option<Arc<AccessChecks>>,
    jobs: JoinSet<(CheckJob, Instant, Result<CheckResult, RequestFault>, KeyedPermit)>,
}

impl AccessChecker {
    pub fn new(dependencies: CheckerDependencies) -> Self {
        let buckets = dependencies.buckets.clone();
        let schedule = CheckSchedule::new(buckets, dependencies.max_access_age, fastrand::f64);
        let reports = AccessStates::new(schedule);
        let (clients, jobs) = (BTreeMap::new(), JoinSet::new());
        Self { dependencies, reports, clients, checked: None, jobs }
    }

    pub fn reports(&self) -> AccessStates {
        self.reports.clone()
    }

    /// Runs until `stop` is cancelled, and then aborts the access checks and reviews in progress.
    pub async fn run(mut self, stop: CancellationToken) {
        let results = self.dependencies.reports.clone();
        let (mut update_at, mut start_at) = (Instant::now(), Instant::now());
        let mut collect_at = None;
        loop {
            let now = Instant::now();
            if update_at <= now {
                self.update_informers();
                update_at = now + UPDATE;
            }
            if collect_at.take_if(|at| *at <= now).is_some() {
                self.visit_changed();
            }
            self.visit_due();
            if start_at <= now {
                let began = Instant::now();
                self.start_due_checks();
                start_at = Instant::now() + began.elapsed() * REST;
            }
            let (next_start, next_visit) = {
                let schedule = self.reports.schedule.read();
                (schedule.next_due().unwrap_or(update_at), schedule.next_visit())
            };
            // `PAUSE` prevents a busy loop: while a rate or concurrency limit delays due checks,
            // `next_start` is not in the future.
            let wake = next_start.max(now + PAUSE).max(start_at);
            let others = [next_visit, collect_at].into_iter().flatten();
            let wake = others.fold(wake.min(update_at), Instant::min);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = self.jobs.join_next() => {
                    if let Ok((job, sent, result, _permit)) = ended {
                        self.record_result(&job, sent, result);
                    }
                }
                () = results.new_results() => {
                    collect_at.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Takes over the informers that the profiles declare, if they changed.
    fn update_informers(&mut self) {
        let is_new =
            |wanted: &Arc<_>| !self.checked.as_ref().is_some_and(|old| Arc::ptr_eq(old, wanted));
        let Some(wanted) = (self.dependencies.informers)().filter(is_new) else { return };
        let identities: BTreeSet<_> = wanted.keys().map(|key| &key.identity).collect();
        self.clients.retain(|identity, _| identities.contains(identity));
        for identity in identities {
            let client = || self.dependencies.clients.client_for(identity);
            self.clients.entry(identity.clone()).or_insert_with(client);
        }
        let unchecked = &self.dependencies.profile_informers;
        self.reports.schedule.write().set_informers(&wanted, unchecked, Instant::now());
        self.checked = Some(wanted);
    }

    /// Visits new informers, and informers whose own requests have new results. A new informer
    /// needs a visit, because the API server can have rejected an access check before the informer
    /// started. The visit then blocks the informer.
    fn visit_changed(&self) {
        for key in self.dependencies.reports.take_new_results() {
            self.visit(&key);
        }
    }

    fn visit_due(&self) {
        let due = self.reports.schedule.write().due_visits(Instant::now());
        for key in &due {
            self.visit(key);
        }
    }

    /// Updates one informer's permission state, and publishes it to the informer.
    fn visit(&self, key: &InformerKey) {
        let handles = &self.dependencies.reports;
        let own = handles.own_requests(key);
        let mut schedule = self.reports.schedule.write();
        let permission = schedule.visit(key, own.as_ref(), Instant::now(), Timestamp::now());
        drop(schedule);
        if let Some(permission) = permission {
            handles.set_permission(key, &permission);
        }
    }

    fn start_due_checks(&mut self) {
        let mut schedule = self.reports.schedule.write();
        let begun = schedule.start_due(Instant::now());
        for (job, permit) in begun {
            let sent = Instant::now();
            let check = self.new_check(job.clone(), sent, &schedule);
            self.jobs.spawn(async move {
                let result = AssertUnwindSafe(check).catch_unwind().await;
                let result = result.unwrap_or_else(|_panic| {
                    Err(RequestFault::new(FaultReason::Internal, "a check panicked; see the log"))
                });
                (job, sent, result, permit)
            });
        }
    }

    /// Returns the future that sends the requests of `job`: an access check, an access review or a
    /// rules review. The requests use the identity that `job` contains.
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
                        // The error means that the API server does not support or permit access
                        // reviews. So it shows nothing about the identity's access to the
                        // informer's resource.
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

    /// Records the result of an access check, an access review or a rules review, and publishes the
    /// informer's permission.
    fn record_result(
        &mut self,
        job: &CheckJob,
        sent: Instant,
        result: Result<CheckResult, RequestFault>,
    ) {
        (self.dependencies.count_check)(AccessCheckKind::from(job), outcome(&result));
        let key = match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => Some(key),
            CheckJob::RulesReview(_) => None,
        };
        let access = || self.reports.get(key?);
        let before = access();
        self.reports.schedule.write().record_result(
            job,
            sent,
            result,
            Instant::now(),
            Timestamp::now(),
        );
        if let (Some(key), Some(before), Some(after)) = (key, before, access()) {
            log(key, &before, &after);
        }
        if let Some(key) = key {
            self.visit(key);
        }
    }
}

fn outcome(result: &Result<CheckResult, RequestFault>) -> MetricOutcome {
    match result {
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
        && let Some(is_allowed) = after.overruled
    {
        tracing::warn!(informer = %key, allowed = is_allowed, "a review contradicts the real request, which decides");
    }
}
