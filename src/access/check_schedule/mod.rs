//! The state of all checked informers, and the schedule of their checks. It performs no I/O.

mod namespace_checks;
#[cfg(test)]
mod tests;

pub(super) use self::namespace_checks::is_permanent;
use self::namespace_checks::{InformerCheck, NamespaceChecks};
use super::{
    access_state::{AccessSignal, GateChange},
    excess::ExcessPermissions,
    permission_state::InformerAccess,
    rules::{RulesScope, spot},
};
use jiff::Timestamp;
use kubewarm_api::model::{
    FaultReason, InformerKey, NamespaceCheck, RequestFault, RulesCompleteness, Verb,
};
use kubewarm_cache::informer::ListWatchAccess;
use kubewarm_client::{KeyedPermit, KeyedSemaphore, NamespaceBuckets, ReviewedRules, WorkQueue};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Period of the access checks of an informer whose last check decided.
const CALM: Duration = Duration::from_mins(5);
/// Period if the namespace does not exist. No review shows that it exists again.
const ABSENT: Duration = Duration::from_mins(1);
/// Delay after an access check without a result.
const RETRY: Duration = Duration::from_secs(20);
/// How long a declared informer may take to start. Its first list and watch are its first access
/// check; without a running informer, a separate check runs after this delay.
const NO_INFORMER: Duration = Duration::from_secs(1);
/// How long a new informer's first list and watch can replace its first access check. A list takes
/// longer if it is large or waits for a list slot.
const INFORMER: Duration = Duration::from_secs(10);

/// Period of rules reviews, and of access reviews for informers whose rules are incomplete.
const REVIEW: Duration = Duration::from_secs(20);
/// An informer's checks are late if none was answered for a review period plus this time.
const LATE: Duration = Duration::from_secs(10);

/// Maximum number of checks in progress, which protects a slow API server.
///
/// The process has no rate limit for checks. With such a limit, more accounts would delay the
/// detection of lost access.
const UNDER_WAY: usize = 64;
/// Maximum number of checks in progress for one namespace, so that a slow webhook of one tenant
/// delays no other tenant.
const NAMESPACE_UNDER_WAY: usize = UNDER_WAY / 8;

/// How to check one informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// Whether a refusal can mean that the informer's namespace was deleted.
    pub namespace_check: NamespaceCheck,
    /// A namespace whose profiles declare the informer. Its rate limit is charged for the requests.
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
    /// A list and a watch with the informer's identity.
    #[strum_discriminants(strum(serialize = "request"))]
    #[strum_discriminants(doc = "A list and a watch with the informer's identity.")]
    Trial(InformerKey),
    /// A `SelfSubjectRulesReview` for one identity and namespace.
    #[strum_discriminants(doc = "A `SelfSubjectRulesReview` for one identity and namespace.")]
    RulesReview(RulesScope),
    /// A `SelfSubjectAccessReview` for one verb of an informer.
    #[strum_discriminants(doc = "A `SelfSubjectAccessReview` for one verb of an informer.")]
    AccessReview(InformerKey),
}

/// Result of a check.
#[derive(Debug)]
pub(super) enum CheckResult {
    /// Result for one informer.
    Access(AccessSignal),
    /// Result for one identity and namespace.
    Rules(ReviewedRules),
}

/// State and schedule of all checks. Its size is bounded by the number of checked informers.
#[derive(Debug)]
pub(super) struct CheckSchedule {
    places: BTreeMap<RulesScope, NamespaceChecks>,
    queue: WorkQueue<CheckJob>,
    /// Rate limits per namespace, shared with all other requests for that namespace.
    buckets: NamespaceBuckets,
    under_way: KeyedSemaphore<Arc<str>>,
    /// Returns a random number in `0.0..1.0`, which spreads the checks.
    spread: fn() -> f64,
}

impl CheckSchedule {
    pub(super) fn new(buckets: NamespaceBuckets, spread: fn() -> f64) -> Self {
        Self {
            places: BTreeMap::new(),
            queue: WorkQueue::new(RETRY, CALM),
            buckets,
            under_way: KeyedSemaphore::new(UNDER_WAY, NAMESPACE_UNDER_WAY),
            spread,
        }
    }

    /// Replaces the set of checked informers. `unchecked` informers are not checked, but the
    /// permissions they need are no excess.
    pub(super) fn want(
        &mut self,
        wanted: BTreeMap<InformerKey, CheckSettings>,
        unchecked: &[InformerKey],
        now: Instant,
    ) {
        for place in self.places.values_mut() {
            place.informers.retain(|key, _| wanted.contains_key(key));
        }
        for (key, wanted) in wanted {
            let spot = spot(&key);
            let place = self.places.entry(spot.clone()).or_insert_with(|| {
                self.queue.add_at(CheckJob::RulesReview(spot), now);
                NamespaceChecks::default()
            });
            if let Some(informer) = place.informers.get_mut(&key) {
                informer.wanted = wanted;
                continue;
            }
            if place.completeness() == Some(RulesCompleteness::Incomplete) {
                self.queue.add_at(CheckJob::AccessReview(key.clone()), now);
            }
            self.queue.add_at(CheckJob::Trial(key.clone()), now + INFORMER);
            place.informers.insert(key, InformerCheck::new(wanted, now));
        }
        self.places.retain(|_, place| !place.informers.is_empty());
        let places = &self.places;
        self.queue.retain(|job| match job {
            CheckJob::Trial(key) | CheckJob::AccessReview(key) => {
                informer_in(places, key).is_some()
            }
            CheckJob::RulesReview(spot) => places.contains_key(spot),
        });
        let mut needed = BTreeMap::<_, BTreeSet<_>>::new();
        for key in self.places.values().flat_map(|place| place.informers.keys()).chain(unchecked) {
            needed.entry(spot(key)).or_default().insert(key.resource.group_resource().clone());
        }
        for (spot, place) in &mut self.places {
            // A resource that is needed cluster-wide is needed in each namespace.
            let across = (spot.0.clone(), None);
            let all = [spot, &across].into_iter().filter_map(|spot| needed.get(spot)).flatten();
            let all = all.cloned().collect();
            if place.needed != all {
                place.needed = all;
                place.compare();
            }
        }
    }

    /// Returns the checks that start now. The caller must report the result of each to
    /// [`CheckSchedule::found`].
    ///
    /// Order: urgent access checks, then informers that have access, then informers that never had
    /// access. A planned profile can have thousands of the last kind.
    ///
    /// # Cost
    ///
    /// Visits every checked informer.
    pub(super) fn begin(&mut self, now: Instant) -> Vec<(CheckJob, KeyedPermit)> {
        let places = &self.places;
        let class = |job: &CheckJob| match job {
            CheckJob::Trial(key) | CheckJob::AccessReview(key) => {
                informer_in(places, key).map(|informer| {
                    (
                        !(informer.is_urgent && matches!(job, CheckJob::Trial(_))),
                        !informer.access.is_held(),
                    )
                })
            }
            CheckJob::RulesReview(spot) => places.get(spot).map(|place| (true, !place.is_held())),
        };
        let mut full = BTreeSet::new();
        let begun = self.queue.start_due_by(now, class, |job| {
            let (informer, cost) = match job {
                CheckJob::Trial(key) => (informer_in(places, key)?, 2),
                CheckJob::AccessReview(key) => (informer_in(places, key)?, 1),
                CheckJob::RulesReview(spot) => (places.get(spot)?.informers.values().next()?, 1),
            };
            let payer = &informer.wanted.payer;
            if full.contains(payer) {
                return None;
            }
            let permit = self.under_way.try_acquire(payer);
            let permit = permit.filter(|_| self.buckets.try_take(payer, cost, now).is_ok());
            if permit.is_none() {
                // A payer without capacity starts nothing more, so that cheap checks do not starve
                // an expensive one.
                full.insert(Arc::clone(payer));
            }
            permit
        });
        for (job, _) in &begun {
            if let CheckJob::Trial(key) = job
                && let Some(informer) = self.informer(key)
            {
                (informer.is_urgent, informer.waits_since) = (false, None);
            }
        }
        begun
    }

    /// Whether a refusal can mean that the informer's namespace was deleted.
    pub(super) fn namespace_check(&self, key: &InformerKey) -> NamespaceCheck {
        informer_in(&self.places, key)
            .map_or(NamespaceCheck::Known, |informer| informer.wanted.namespace_check)
    }

    /// Returns the verbs that an access review of the informer is about. Never empty.
    pub(super) fn in_question(&self, key: &InformerKey) -> Vec<Verb> {
        informer_in(&self.places, key)
            .map_or_else(|| vec![Verb::Watch], |informer| informer.access.in_question())
    }

    /// When [`CheckSchedule::begin`] has to run again, or `None` if no check is scheduled.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    /// Records the result of a check. `sent` is the time when the check started.
    pub(super) fn found(
        &mut self,
        job: &CheckJob,
        sent: Instant,
        found: Result<CheckResult, RequestFault>,
        now: Instant,
        wall: Timestamp,
    ) {
        self.queue.finish(job);
        let (key, input) = match (job, found) {
            (CheckJob::RulesReview(spot), Ok(CheckResult::Rules(rules))) => {
                return self.ruled(spot, sent, Ok(rules), now, wall);
            }
            (CheckJob::RulesReview(spot), Err(fault)) => {
                return self.ruled(spot, sent, Err(fault), now, wall);
            }
            (
                CheckJob::Trial(key) | CheckJob::AccessReview(key),
                Ok(CheckResult::Access(input)),
            ) => (key, input),
            (CheckJob::Trial(key) | CheckJob::AccessReview(key), Err(fault)) => {
                (key, AccessSignal::Undecided { sent, fault })
            }
            (_, Ok(_)) => {
                return tracing::error!(?job, "the answer is to another check: this is a bug");
            }
        };
        let Some(place) = self.places.get_mut(&spot(key)) else { return };
        let is_reviewed = place.completeness() == Some(RulesCompleteness::Incomplete);
        let Some(informer) = place.informers.get_mut(key) else { return };
        let is_access_check = matches!(job, CheckJob::Trial(_));
        let CheckSettings { namespace_check, payer } = &informer.wanted;
        let period = match (job, &input) {
            (CheckJob::Trial(_), AccessSignal::Refused { fault, .. }) => {
                if *namespace_check == NamespaceCheck::Ask {
                    // The access check also sent a request for the namespace.
                    self.buckets.charge(payer, 1, now);
                }
                if fault.reason() == FaultReason::NamespaceNotFound { ABSENT } else { CALM }
            }
            (CheckJob::Trial(_), AccessSignal::Undecided { .. }) => RETRY,
            (CheckJob::Trial(_), _) => CALM,
            (CheckJob::RulesReview(_) | CheckJob::AccessReview(_), _) => REVIEW,
        };
        if is_reviewed || is_access_check {
            self.queue.make_due_by(job.clone(), now + jittered(period, (self.spread)()));
        }
        informer.take(input, key, &mut self.queue, now, wall);
    }

    /// Processes the informers' reports and the passage of time. Returns the informers to block or
    /// unblock.
    pub(super) fn look(
        &mut self,
        own: impl Fn(&InformerKey) -> Option<ListWatchAccess>,
        patience: Duration,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<(InformerKey, GateChange)> {
        let mut orders = Vec::new();
        for (key, informer) in self.places.values_mut().flat_map(|place| &mut place.informers) {
            let own = own(key);
            if let Some(own) = &own {
                let is_news = informer.refused_since != own.refused_since;
                informer.refused_since = own.refused_since;
                if is_news && own.refused_since.is_some() {
                    informer.take(
                        AccessSignal::Suspected { sent: now },
                        key,
                        &mut self.queue,
                        now,
                        wall,
                    );
                }
                if let Some(sent) = own.verified_at {
                    informer.take(AccessSignal::Verified { sent }, key, &mut self.queue, now, wall);
                }
            }
            if let Some(since) = informer.waits_since.filter(|_| !informer.is_urgent) {
                let (own, waits) = match &own {
                    Some(own) => (own.allowed_at, own.is_starting),
                    None => (None, now < since + NO_INFORMER),
                };
                if let Some(sent) = own.filter(|sent| *sent + CALM > now) {
                    informer.waits_since = None;
                    informer.take(AccessSignal::Allowed { sent }, key, &mut self.queue, now, wall);
                    // Spreads the checks of informers that synced at the same time.
                    let pause = CALM.mul_f64(f64::midpoint(1.0, (self.spread)()));
                    self.queue.add_at(CheckJob::Trial(key.clone()), now + pause);
                } else if !waits {
                    informer.waits_since = None;
                    self.queue.make_due_by(CheckJob::Trial(key.clone()), now);
                }
            }
            informer.take(AccessSignal::Tick { patience }, key, &mut self.queue, now, wall);
            let order = own.zip(informer.access.order());
            let order = order.filter(|(own, order)| own.is_open != order.is_ok());
            orders.extend(order.map(|(_, order)| (key.clone(), order)));
        }
        orders
    }

    /// Whether the informer must be blocked or unblocked, or `None` if undecided.
    pub(super) fn order(&self, key: &InformerKey) -> Option<GateChange> {
        informer_in(&self.places, key)?.access.order()
    }

    pub(super) fn access(&self, key: &InformerKey, now: Instant) -> Option<InformerAccess> {
        let informer = informer_in(&self.places, key)?;
        Some(informer.access.report(jittered(REVIEW, 1.0) + LATE, now))
    }

    /// Returns the excess permissions in a scope, or `None` until its rules are known.
    pub(super) fn excess(&self, spot: &RulesScope) -> Option<Arc<ExcessPermissions>> {
        self.places.get(spot)?.excess.clone()
    }

    fn informer(&mut self, key: &InformerKey) -> Option<&mut InformerCheck> {
        self.places.get_mut(&spot(key))?.informers.get_mut(key)
    }
}

fn informer_in<'a>(
    places: &'a BTreeMap<RulesScope, NamespaceChecks>,
    key: &InformerKey,
) -> Option<&'a InformerCheck> {
    places.get(&spot(key))?.informers.get(key)
}

/// Lengthens `period` by up to 10%, so that checks that start together spread out.
fn jittered(period: Duration, spread: f64) -> Duration {
    period.mul_f64(1.0 + spread / 10.0)
}
