//! The permission states of all checked informers, and the schedule of their access checks, access
//! reviews and rules reviews. This module performs no I/O.

mod namespace_checks;
#[cfg(test)]
mod tests;

pub(super) use self::namespace_checks::is_permanent;
use self::namespace_checks::{InformerCheck, NamespaceChecks};
use super::{
    access_state::AccessSignal,
    excess::ExcessPermissions,
    informer_access::InformerAccess,
    rules::{RulesReviewKey, rules_scope},
};
use jiff::Timestamp;
use kubewarm_api::model::{
    FaultReason, InformerKey, NamespaceCheckPolicy, RequestFault, RulesCompleteness, Verb,
};
use kubewarm_cache::informer::{InformerPermission, OwnRequests};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, NamespaceBuckets, ReviewedRules, WorkQueue};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Delay between an access check that the API server permitted or rejected, and the informer's next
/// access check.
const DECIDED: Duration = Duration::from_mins(5);
/// Delay between two access checks while the informer's namespace does not exist. Only an access
/// check detects that a user has created the namespace; access reviews and rules reviews do not.
const ABSENT: Duration = Duration::from_mins(1);
/// Delay between an access check without a result and the next access check.
const RETRY: Duration = Duration::from_secs(20);
/// Delay of an informer's first access check if the informer does not run, for instance because its
/// profile is in mode `Plan`. Within this delay, an informer that is about to start can start.
const NO_INFORMER: Duration = Duration::from_secs(1);
/// Maximum delay of an informer's first access check while the first list and watch are in
/// progress. If both succeed, the informer needs no access check yet.
const INFORMER: Duration = Duration::from_secs(10);

/// Period of rules reviews (`SelfSubjectRulesReview`). If the API server returns incomplete rules,
/// kubewarm also sends an access review for each informer, with the same period.
const REVIEW: Duration = Duration::from_secs(20);
/// The status reports an informer's access checks and reviews as late if the API server has
/// answered none of them for about `REVIEW` plus this duration.
const LATE: Duration = Duration::from_secs(10);

/// Maximum number of access checks, access reviews and rules reviews in progress. The limit
/// protects a slow API server.
///
/// A rate limit exists only for each namespace. With a rate limit for the whole process, additional
/// ServiceAccounts would delay the detection of lost access.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of access checks, access reviews and rules reviews in progress for one namespace.
/// Slow responses to one namespace's access checks therefore do not delay other namespaces.
const NAMESPACE_MAX_IN_FLIGHT: usize = MAX_IN_FLIGHT / 8;

/// The informers whose access kubewarm checks, with the settings of their access checks.
pub type AccessChecks = BTreeMap<InformerKey, CheckSettings>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// Whether kubewarm reads the namespace after a 403, because the 403 can mean that the
    /// namespace does not exist.
    pub namespace_check: NamespaceCheckPolicy,
    /// Namespace of the profiles that declare the informer. The informer's access checks and access
    /// reviews count against this namespace's rate limit.
    pub payer: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(AccessCheckKind),
    vis(pub),
    doc = "Kind of a check, as a metric label.",
    derive(Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray),
    strum(serialize_all = "snake_case")
)]
pub(super) enum CheckJob {
    #[strum_discriminants(strum(serialize = "request"))]
    #[strum_discriminants(doc = "A list and a watch with the informer's identity.")]
    AccessCheck(InformerKey),
    #[strum_discriminants(doc = "A `SelfSubjectRulesReview` for one identity and namespace.")]
    RulesReview(RulesReviewKey),
    #[strum_discriminants(doc = "A `SelfSubjectAccessReview` for one verb of an informer.")]
    AccessReview(InformerKey),
}

#[derive(Debug)]
pub(super) enum CheckResult {
    Access(AccessSignal),
    Rules(ReviewedRules),
}

#[derive(Debug)]
pub(super) struct CheckSchedule {
    scopes: BTreeMap<RulesReviewKey, NamespaceChecks>,
    queues: CheckQueues,
    /// Maximum age of the last confirmed access: [`super::MAX_ACCESS_AGE`], except in tests.
    max_access_age: Duration,
    buckets: NamespaceBuckets,
    in_flight: KeyedSemaphore<Arc<str>>,
    /// Returns a random number in `0.0..1.0`. The schedule varies delays by this number, so that
    /// access checks and reviews that started together drift apart.
    random: fn() -> f64,
}

/// The queues of the schedule: the due requests, and the due visits.
#[derive(Debug)]
pub(super) struct CheckQueues {
    jobs: WorkQueue<CheckJob>,
    /// The informers to visit because time passes: confirmed access expires, or the wait for an
    /// informer's own first list and watch ends. A visit updates the informer's permission state.
    visits: WorkQueue<InformerKey>,
}

impl CheckSchedule {
    pub(super) fn new(
        buckets: NamespaceBuckets,
        max_access_age: Duration,
        random: fn() -> f64,
    ) -> Self {
        Self {
            scopes: BTreeMap::new(),
            queues: CheckQueues {
                jobs: WorkQueue::new(RETRY, DECIDED),
                visits: WorkQueue::new(RETRY, DECIDED),
            },
            max_access_age,
            buckets,
            in_flight: KeyedSemaphore::new(MAX_IN_FLIGHT, NAMESPACE_MAX_IN_FLIGHT),
            random,
        }
    }

    /// Replaces the set of checked informers. Informers in `unchecked` get no access checks, but
    /// the permissions that they need do not count as excess permissions.
    pub(super) fn set_informers(
        &mut self,
        wanted: &AccessChecks,
        unchecked: &[InformerKey],
        now: Instant,
    ) {
        for scope in self.scopes.values_mut() {
            scope.informers.retain(|key, _| wanted.contains_key(key));
        }
        for (key, wanted) in wanted {
            let rules_scope = rules_scope(key);
            let scope = self.scopes.entry(rules_scope.clone()).or_insert_with(|| {
                self.queues.jobs.add_at(CheckJob::RulesReview(rules_scope), now);
                NamespaceChecks::default()
            });
            if let Some(informer) = scope.informers.get_mut(key) {
                informer.settings.clone_from(wanted);
                continue;
            }
            if scope.completeness() == Some(RulesCompleteness::Incomplete) {
                self.queues.jobs.add_at(CheckJob::AccessReview(key.clone()), now);
            }
            self.queues.jobs.add_at(CheckJob::AccessCheck(key.clone()), now + INFORMER);
            self.queues.visits.add_at(key.clone(), now);
            let informer = InformerCheck::new(wanted.clone(), self.max_access_age, now);
            scope.informers.insert(key.clone(), informer);
        }
        self.scopes.retain(|_, scope| !scope.informers.is_empty());
        let scopes = &self.scopes;
        self.queues.jobs.retain(|job| match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => {
                find_informer(scopes, key).is_some()
            }
            CheckJob::RulesReview(rules_scope) => scopes.contains_key(rules_scope),
        });
        self.queues.visits.retain(|key| find_informer(scopes, key).is_some());
        let mut needed = BTreeMap::<_, BTreeSet<_>>::new();
        for key in self.scopes.values().flat_map(|scope| scope.informers.keys()).chain(unchecked) {
            let resource = key.resource.group_resource().clone();
            needed.entry(rules_scope(key)).or_default().insert(resource);
        }
        for (rules_scope, scope) in &mut self.scopes {
            // A cluster-wide informer needs permissions for its resource in each namespace. A
            // permission for this resource in one namespace is therefore no excess.
            let across = (rules_scope.0.clone(), None);
            let both = [rules_scope, &across].into_iter();
            let all = both.filter_map(|key| needed.get(key)).flatten().cloned().collect();
            if scope.needed != all {
                scope.needed = all;
                scope.update_excess();
            }
        }
    }

    /// Returns the access checks, access reviews and rules reviews that start now, each with a
    /// permit of the semaphore `in_flight`. The caller must hold the permit until it reports the
    /// result to [`CheckSchedule::record_result`].
    ///
    /// Urgent access checks start first. Access checks and reviews of informers without access
    /// start last, because a profile in mode `Plan` can declare thousands of such informers.
    ///
    /// # Cost
    ///
    /// Visits every checked informer.
    pub(super) fn start_due(&mut self, now: Instant) -> Vec<(CheckJob, KeyedPermit)> {
        let scopes = &self.scopes;
        let class = |job: &CheckJob| match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => find_informer(scopes, key)
                .map(|informer| {
                    (
                        !(informer.is_urgent && matches!(job, CheckJob::AccessCheck(_))),
                        !informer.access.has_access(),
                    )
                }),
            CheckJob::RulesReview(rules_scope) => {
                scopes.get(rules_scope).map(|scope| (true, !scope.has_access()))
            }
        };
        let mut full = BTreeSet::new();
        let begun = self.queues.jobs.start_due_by(now, class, |job| {
            let (informer, cost) = match job {
                CheckJob::AccessCheck(key) => (find_informer(scopes, key)?, 2),
                CheckJob::AccessReview(key) => (find_informer(scopes, key)?, 1),
                CheckJob::RulesReview(rules_scope) => {
                    (scopes.get(rules_scope)?.informers.values().next()?, 1)
                }
            };
            let payer = &informer.settings.payer;
            if full.contains(payer) {
                return None;
            }
            let permit = self.in_flight.try_acquire(payer);
            let permit = permit.filter(|_| self.buckets.try_take(payer, cost, now).is_ok());
            if permit.is_none() {
                // No further access check or review of this namespace starts in this call.
                // Otherwise access reviews (one request each) could permanently delay an access
                // check (two requests).
                full.insert(Arc::clone(payer));
            }
            permit
        });
        for (job, _) in &begun {
            if let CheckJob::AccessCheck(key) = job
                && let Some(informer) = self.informer_mut(key)
            {
                (informer.is_urgent, informer.waiting_since) = (false, None);
            }
        }
        begun
    }

    pub(super) fn namespace_check(&self, key: &InformerKey) -> NamespaceCheckPolicy {
        find_informer(&self.scopes, key)
            .map_or(NamespaceCheckPolicy::Skip, |informer| informer.settings.namespace_check)
    }

    /// Returns the verbs that a negative access review of the informer denies. For an informer that
    /// is no longer checked, returns `watch`, so that the result is never empty.
    pub(super) fn verbs_to_review(&self, key: &InformerKey) -> Vec<Verb> {
        find_informer(&self.scopes, key)
            .map_or_else(|| vec![Verb::Watch], |informer| informer.access.verbs_to_review())
    }

    /// Time at which [`CheckSchedule::start_due`] must run again; `None` if no access check or
    /// review is scheduled.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queues.jobs.next_due()
    }

    /// Time at which [`CheckSchedule::due_visits`] returns the next informer; `None` if no visit is
    /// scheduled.
    pub(super) fn next_visit(&self) -> Option<Instant> {
        self.queues.visits.next_due()
    }

    /// Records the result of `job` (an access check, access review or rules review), and schedules
    /// the next run of `job`. `sent` is the time at which `job` started.
    pub(super) fn record_result(
        &mut self,
        job: &CheckJob,
        sent: Instant,
        result: Result<CheckResult, RequestFault>,
        now: Instant,
        wall: Timestamp,
    ) {
        self.queues.jobs.finish(job);
        let (key, input) = match (job, result) {
            (CheckJob::RulesReview(rules_scope), Ok(CheckResult::Rules(rules))) => {
                return self.record_rules(rules_scope, sent, Ok(rules), now, wall);
            }
            (CheckJob::RulesReview(rules_scope), Err(fault)) => {
                return self.record_rules(rules_scope, sent, Err(fault), now, wall);
            }
            (
                CheckJob::AccessCheck(key) | CheckJob::AccessReview(key),
                Ok(CheckResult::Access(input)),
            ) => (key, input),
            (CheckJob::AccessCheck(key) | CheckJob::AccessReview(key), Err(fault)) => {
                (key, AccessSignal::Undecided { sent, fault })
            }
            (_, Ok(_)) => {
                return tracing::error!(?job, "the answer is to another check: this is a bug");
            }
        };
        let Some(scope) = self.scopes.get_mut(&rules_scope(key)) else { return };
        let is_reviewed = scope.completeness() == Some(RulesCompleteness::Incomplete);
        let Some(informer) = scope.informers.get_mut(key) else { return };
        let is_access_check = matches!(job, CheckJob::AccessCheck(_));
        let CheckSettings { namespace_check, payer } = &informer.settings;
        let period = match (job, &input) {
            (CheckJob::AccessCheck(_), AccessSignal::Refused { fault, .. }) => {
                if *namespace_check == NamespaceCheckPolicy::Require {
                    // After a 403, the access check sends a third request, which reads the
                    // namespace. The rate limit must count this request.
                    self.buckets.charge(payer, 1, now);
                }
                if fault.reason() == FaultReason::NamespaceNotFound { ABSENT } else { DECIDED }
            }
            (CheckJob::AccessCheck(_), AccessSignal::Undecided { .. }) => RETRY,
            (CheckJob::AccessCheck(_), _) => DECIDED,
            (CheckJob::RulesReview(_) | CheckJob::AccessReview(_), _) => REVIEW,
        };
        if is_reviewed || is_access_check {
            self.queues.jobs.make_due_by(job.clone(), now + jittered(period, (self.random)()));
        }
        informer.apply_signal(input, key, &mut self.queues, now, wall);
    }

    /// Returns the informers whose confirmed access can have expired, or whose first access check
    /// can be due.
    pub(super) fn due_visits(&mut self, now: Instant) -> Vec<InformerKey> {
        let due = self.queues.visits.start_due(now, |_| Some(()));
        for (key, ()) in &due {
            self.queues.visits.finish(key);
        }
        due.into_iter().map(|(key, ())| key).collect()
    }

    /// Updates an informer's permission state from the results of its own requests (`own`, `None`
    /// if the informer does not run) and from the passed time. Returns the decision to publish.
    pub(super) fn visit(
        &mut self,
        key: &InformerKey,
        own: Option<&OwnRequests>,
        now: Instant,
        wall: Timestamp,
    ) -> Option<InformerPermission> {
        let scope = self.scopes.get_mut(&rules_scope(key))?;
        let informer = scope.informers.get_mut(key)?;
        let queues = &mut self.queues;
        if let Some(own) = own {
            let refused_at = own.refused_at();
            let is_news = std::mem::replace(&mut informer.refused_at, refused_at) != refused_at;
            if is_news && refused_at.is_some() {
                let suspected = AccessSignal::Suspected { sent: now };
                informer.apply_signal(suspected, key, queues, now, wall);
            }
            if let Some(sent) = own.verified_at() {
                informer.apply_signal(AccessSignal::Verified { sent }, key, queues, now, wall);
            }
        }
        if let Some(since) = informer.waiting_since.filter(|_| !informer.is_urgent) {
            let (allowed_at, wait_until) = match own {
                Some(own) => (own.allowed_at(), own.is_starting().then_some(since + INFORMER)),
                None => (None, Some(since + NO_INFORMER)),
            };
            if let Some(sent) = allowed_at.filter(|sent| *sent + DECIDED > now) {
                informer.waiting_since = None;
                informer.apply_signal(AccessSignal::Allowed { sent }, key, queues, now, wall);
                // The random delay spreads the access checks of informers that synced
                // simultaneously.
                let pause = DECIDED.mul_f64(f64::midpoint(1.0, (self.random)()));
                queues.jobs.add_at(CheckJob::AccessCheck(key.clone()), now + pause);
            } else if let Some(until) = wait_until.filter(|until| *until > now) {
                queues.visits.make_due_by(key.clone(), until);
            } else {
                informer.waiting_since = None;
                queues.jobs.make_due_by(CheckJob::AccessCheck(key.clone()), now);
            }
        }
        informer.apply_signal(AccessSignal::Tick, key, queues, now, wall);
        Some(informer.access.permission())
    }

    pub(super) fn informer_access(
        &self,
        key: &InformerKey,
        now: Instant,
    ) -> Option<InformerAccess> {
        let informer = find_informer(&self.scopes, key)?;
        Some(informer.access.report(jittered(REVIEW, 1.0) + LATE, now))
    }

    pub(super) fn excess(&self, rules_scope: &RulesReviewKey) -> Option<Arc<ExcessPermissions>> {
        self.scopes.get(rules_scope)?.excess.clone()
    }

    fn informer_mut(&mut self, key: &InformerKey) -> Option<&mut InformerCheck> {
        self.scopes.get_mut(&rules_scope(key))?.informers.get_mut(key)
    }
}

fn find_informer<'a>(
    scopes: &'a BTreeMap<RulesReviewKey, NamespaceChecks>,
    key: &InformerKey,
) -> Option<&'a InformerCheck> {
    scopes.get(&rules_scope(key))?.informers.get(key)
}

/// Lengthens `period` by up to 10 %, so that access checks and reviews that started together drift
/// apart.
fn jittered(period: Duration, random: f64) -> Duration {
    period.mul_f64(1.0 + random / 10.0)
}
