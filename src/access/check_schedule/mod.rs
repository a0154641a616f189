//! The permission states of all checked informers, and the schedule of their access checks, access
//! reviews and rules reviews. This module performs no I/O.

mod namespace_checks;
#[cfg(test)]
mod tests;

pub(super) use self::namespace_checks::is_permanent;
use self::namespace_checks::{InformerCheck, NamespaceChecks};
use super::{
    access_state::{AccessSignal, GateChange},
    excess::ExcessPermissions,
    permission_state::InformerAccess,
    rules::{RulesReviewKey, rules_scope},
};
use jiff::Timestamp;
use kubewarm_api::model::{
    FaultReason, InformerKey, NamespaceCheckPolicy, RequestFault, RulesCompleteness, Verb,
};
use kubewarm_cache::informer::ListWatchAccess;
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
/// profile is in mode `Plan`.
const NO_INFORMER: Duration = Duration::from_secs(1);
/// Maximum delay of an informer's first access check while the first list and watch are in
/// progress. If both succeed, the informer needs no access check yet.
const INFORMER: Duration = Duration::from_secs(10);

/// Period of rules reviews (`SelfSubjectRulesReview`). If the API server returns incomplete rules,
/// kubewarm also sends an access review for each informer, with the same period.
const REVIEW: Duration = Duration::from_secs(20);
/// An informer's access checks and reviews are late if the API server has answered none for about
/// `REVIEW` plus this duration.
const LATE: Duration = Duration::from_secs(10);

/// Maximum number of access checks and reviews in progress. The limit protects a slow API server.
///
/// Only namespaces have rate limits for access checks and reviews. With a rate limit for the whole
/// process, additional ServiceAccounts would delay the detection of lost access.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum number of access checks and reviews in progress for one namespace. Slow responses to one
/// namespace's access checks therefore do not delay other namespaces.
const NAMESPACE_MAX_IN_FLIGHT: usize = MAX_IN_FLIGHT / 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// Whether kubewarm reads the namespace after a 403, because the 403 can mean that the
    /// namespace does not exist.
    pub namespace_check: NamespaceCheckPolicy,
    /// Namespace of one of the profiles that declare the informer. The informer's access checks and
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
    queue: WorkQueue<CheckJob>,
    buckets: NamespaceBuckets,
    in_flight: KeyedSemaphore<Arc<str>>,
    /// Returns a random number in `0.0..1.0`, from which the schedule computes the delay of each
    /// check.
    random: fn() -> f64,
}

impl CheckSchedule {
    pub(super) fn new(buckets: NamespaceBuckets, random: fn() -> f64) -> Self {
        Self {
            scopes: BTreeMap::new(),
            queue: WorkQueue::new(RETRY, DECIDED),
            buckets,
            in_flight: KeyedSemaphore::new(MAX_IN_FLIGHT, NAMESPACE_MAX_IN_FLIGHT),
            random,
        }
    }

    /// Replaces the set of checked informers. Informers in `unchecked` get no access checks, but
    /// the permissions that they need do not count as excess permissions.
    pub(super) fn set_informers(
        &mut self,
        wanted: BTreeMap<InformerKey, CheckSettings>,
        unchecked: &[InformerKey],
        now: Instant,
    ) {
        for scope in self.scopes.values_mut() {
            scope.informers.retain(|key, _| wanted.contains_key(key));
        }
        for (key, wanted) in wanted {
            let rules_scope = rules_scope(&key);
            let scope = self.scopes.entry(rules_scope.clone()).or_insert_with(|| {
                self.queue.add_at(CheckJob::RulesReview(rules_scope), now);
                NamespaceChecks::default()
            });
            if let Some(informer) = scope.informers.get_mut(&key) {
                informer.settings = wanted;
                continue;
            }
            if scope.completeness() == Some(RulesCompleteness::Incomplete) {
                self.queue.add_at(CheckJob::AccessReview(key.clone()), now);
            }
            self.queue.add_at(CheckJob::AccessCheck(key.clone()), now + INFORMER);
            scope.informers.insert(key, InformerCheck::new(wanted, now));
        }
        self.scopes.retain(|_, scope| !scope.informers.is_empty());
        let scopes = &self.scopes;
        self.queue.retain(|job| match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => {
                find_informer(scopes, key).is_some()
            }
            CheckJob::RulesReview(rules_scope) => scopes.contains_key(rules_scope),
        });
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
            let all = both.filter_map(|it| needed.get(it)).flatten().cloned().collect();
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
    /// Urgent access checks start first. Checks of informers without access start last, because a
    /// profile in mode `Plan` can declare thousands of such informers.
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
        let begun = self.queue.start_due_by(now, class, |job| {
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
                // Otherwise reviews (one request each) could permanently delay an access check (two
                // requests).
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

    /// Returns the verbs, at least one, that a negative access review of the informer denies.
    pub(super) fn verbs_to_review(&self, key: &InformerKey) -> Vec<Verb> {
        find_informer(&self.scopes, key)
            .map_or_else(|| vec![Verb::Watch], |informer| informer.access.verbs_to_review())
    }

    /// Time at which [`CheckSchedule::start_due`] must run again; `None` if no check is scheduled.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    /// Records the result `found` of the check `job`, and schedules the next run of `job`. `sent`
    /// is the time at which the check started.
    pub(super) fn record_result(
        &mut self,
        job: &CheckJob,
        sent: Instant,
        found: Result<CheckResult, RequestFault>,
        now: Instant,
        wall: Timestamp,
    ) {
        self.queue.finish(job);
        let (key, input) = match (job, found) {
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
            self.queue.make_due_by(job.clone(), now + jittered(period, (self.random)()));
        }
        informer.apply_signal(input, key, &mut self.queue, now, wall);
    }

    /// Updates the permission states from the informers' reports, which `own` returns, and from the
    /// time that has passed. Returns the informers to block or unblock.
    pub(super) fn update(
        &mut self,
        own: impl Fn(&InformerKey) -> Option<ListWatchAccess>,
        max_access_age: Duration,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<(InformerKey, GateChange)> {
        let mut changes = Vec::new();
        for (key, informer) in self.scopes.values_mut().flat_map(|scope| &mut scope.informers) {
            let own = own(key);
            if let Some(own) = &own {
                let is_news = informer.refused_since != own.refused_since;
                informer.refused_since = own.refused_since;
                if is_news && own.refused_since.is_some() {
                    informer.apply_signal(
                        AccessSignal::Suspected { sent: now },
                        key,
                        &mut self.queue,
                        now,
                        wall,
                    );
                }
                if let Some(sent) = own.verified_at {
                    informer.apply_signal(
                        AccessSignal::Verified { sent },
                        key,
                        &mut self.queue,
                        now,
                        wall,
                    );
                }
            }
            if let Some(since) = informer.waiting_since.filter(|_| !informer.is_urgent) {
                let (own, waits) = match &own {
                    Some(own) => (own.allowed_at, own.is_starting),
                    None => (None, now < since + NO_INFORMER),
                };
                if let Some(sent) = own.filter(|sent| *sent + DECIDED > now) {
                    informer.waiting_since = None;
                    informer.apply_signal(
                        AccessSignal::Allowed { sent },
                        key,
                        &mut self.queue,
                        now,
                        wall,
                    );
                    // The random delay spreads the access checks of informers that synced
                    // simultaneously.
                    let pause = DECIDED.mul_f64(f64::midpoint(1.0, (self.random)()));
                    self.queue.add_at(CheckJob::AccessCheck(key.clone()), now + pause);
                } else if !waits {
                    informer.waiting_since = None;
                    self.queue.make_due_by(CheckJob::AccessCheck(key.clone()), now);
                }
            }
            informer.apply_signal(
                AccessSignal::Tick { max_access_age },
                key,
                &mut self.queue,
                now,
                wall,
            );
            let change = own.zip(informer.access.gate_change());
            let change = change.filter(|(own, change)| own.is_open != change.is_ok());
            changes.extend(change.map(|(_, change)| (key.clone(), change)));
        }
        changes
    }

    pub(super) fn gate_change(&self, key: &InformerKey) -> Option<GateChange> {
        find_informer(&self.scopes, key)?.access.gate_change()
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
