mod priority;
mod request_rates;

use super::*;
use crate::access::{MAX_ACCESS_AGE, rules::VERBS};
use k8s_openapi::api::authorization::v1::ResourceRule;
use kubewarm_api::model::{
    FieldSelector, GroupResource, Identity, InformerScope, LabelSelector, ManagedFieldsPolicy,
    Projection, Resource, SecretDataPolicy,
};
use kubewarm_cache::informer::PermissionState;

fn identity(at: usize) -> Identity {
    let namespace: Arc<str> = format!("team-{at}").into();
    Identity::ServiceAccount { namespace, name: "reader".into() }
}

fn key(identity: Identity, resource: &str, namespace: &str) -> InformerKey {
    InformerKey {
        resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        scope: InformerScope::Namespace(namespace.into()),
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        projection: Projection::Metadata(ManagedFieldsPolicy::Drop),
        secret_data: SecretDataPolicy::Deny,
        identity,
        declared_in: None,
    }
}

fn wanted(key: InformerKey) -> (InformerKey, CheckSettings) {
    let payer = match &key.identity {
        Identity::Operator => "kubewarm-system".into(),
        Identity::ServiceAccount { namespace, .. } => Arc::clone(namespace),
    };
    (key, CheckSettings { namespace_check: NamespaceCheckPolicy::Skip, payer })
}

/// A fake cluster that permits `list` and `watch` of `kinds`, and records every request with its
/// time.
struct FakeCluster {
    kinds: Vec<String>,
    completeness: RulesCompleteness,
    /// The error of every rules review; `None` if rules reviews succeed.
    rules_fault: Option<FaultReason>,
    /// Identities whose requests all fail with HTTP 429.
    throttled: Vec<Identity>,
    requests: Vec<(Instant, CheckJob)>,
}

impl FakeCluster {
    fn allowing(kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        Self {
            kinds,
            completeness: RulesCompleteness::Complete,
            rules_fault: None,
            throttled: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn answer(
        &self,
        schedule: &CheckSchedule,
        job: &CheckJob,
        now: Instant,
    ) -> Result<CheckResult, RequestFault> {
        let allows =
            |key: &InformerKey| self.kinds.iter().any(|kind| kind == key.resource.resource());
        let by = match job {
            CheckJob::AccessCheck(key) | CheckJob::AccessReview(key) => &key.identity,
            CheckJob::RulesReview((identity, _)) => identity,
        };
        if self.throttled.contains(by) {
            // A 429 does not show whether RBAC permits the request.
            return Err(RequestFault::new(FaultReason::Throttled, "too many requests"));
        }
        match job {
            CheckJob::AccessCheck(key) => {
                let fault = RequestFault::new(FaultReason::Forbidden, "no");
                let (sent, verbs) = (now, VERBS.to_vec());
                Ok(CheckResult::Access(if allows(key) {
                    AccessSignal::Allowed { sent }
                } else {
                    AccessSignal::Refused { sent, verbs, fault }
                }))
            }
            CheckJob::RulesReview(_) => {
                if let Some(reason) = self.rules_fault {
                    return Err(RequestFault::new(reason, "no rules"));
                }
                let rule = ResourceRule {
                    api_groups: Some(vec![String::new()]),
                    resources: Some(self.kinds.clone()),
                    resource_names: None,
                    verbs: ["list", "watch"].map(str::to_owned).into(),
                };
                let completeness = self.completeness;
                Ok(CheckResult::Rules(ReviewedRules { rules: vec![rule], completeness }))
            }
            CheckJob::AccessReview(key) => {
                let refused = if allows(key) { Vec::new() } else { schedule.verbs_to_review(key) };
                Ok(CheckResult::Access(AccessSignal::Reviewed { sent: now, refused }))
            }
        }
    }

    /// Runs the due access checks and reviews for the duration `lasting`, and answers each of them
    /// at once.
    async fn run(&mut self, schedule: &mut CheckSchedule, lasting: Duration) {
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            let now = Instant::now();
            for (job, _) in schedule.start_due(now) {
                let result = self.answer(schedule, &job, now);
                self.requests.push((now, job.clone()));
                schedule.record_result(&job, now, result, now, Timestamp::UNIX_EPOCH);
            }
            advance(schedule, None, now);
            let least = now + Duration::from_millis(200);
            let most = until.min(now + Duration::from_secs(1));
            let next = schedule.next_due().map_or(most, |at| at.max(least).min(most));
            tokio::time::advance(next - now).await;
        }
    }

    fn count(&self, is_counted: impl Fn(&CheckJob) -> bool) -> usize {
        self.requests.iter().filter(|(_, job)| is_counted(job)).count()
    }

    fn access_checks(&self) -> usize {
        self.count(|job| matches!(job, CheckJob::AccessCheck(_)))
    }

    fn rules(&self) -> usize {
        self.count(|job| matches!(job, CheckJob::RulesReview(_)))
    }

    fn reviews(&self) -> usize {
        self.count(|job| matches!(job, CheckJob::AccessReview(_)))
    }
}

/// Visits the informers that are due at `now`. `own` contains the results of their own requests;
/// with `None`, the informers do not run.
fn advance(schedule: &mut CheckSchedule, own: Option<&OwnRequests>, now: Instant) {
    for key in schedule.due_visits(now) {
        schedule.visit(&key, own, now, Timestamp::UNIX_EPOCH);
    }
}

fn count_in_state(
    schedule: &CheckSchedule,
    is_counted: impl Fn(&PermissionState) -> bool,
) -> usize {
    keys(schedule)
        .filter(|key| is_counted(&schedule.informer_access(key, Instant::now()).unwrap().state))
        .count()
}

fn keys(schedule: &CheckSchedule) -> impl Iterator<Item = &InformerKey> {
    schedule.scopes.values().flat_map(|scope| scope.informers.keys())
}

fn is_refused(state: &PermissionState) -> bool {
    matches!(state, PermissionState::Refused(_))
}

fn is_unverified(state: &PermissionState) -> bool {
    matches!(state, PermissionState::Unverified { .. })
}

fn is_granted(state: &PermissionState) -> bool {
    matches!(state, PermissionState::Granted { .. })
}

fn thirty_informers() -> BTreeMap<InformerKey, CheckSettings> {
    let namespaces = (0..30).map(|n| format!("n{n}"));
    namespaces.map(|name| wanted(key(Identity::Operator, "pods", &name))).collect()
}

#[tokio::test(start_paused = true)]
async fn with_incomplete_rules_each_informer_gets_its_own_access_review() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
        FakeCluster::allowing(&["pods"]),
    );
    cluster.completeness = RulesCompleteness::Incomplete;
    let informers = (0..4).map(|n| wanted(key(Identity::Operator, &format!("kind{n}"), "shop")));
    schedule.set_informers(&informers.collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(4)).await;
    assert_eq!(cluster.rules(), 1);
    assert!((44..=52).contains(&cluster.reviews()), "{}", cluster.reviews());
    assert_eq!(cluster.access_checks(), 4, "reviews that agree trigger no access checks");
}

#[tokio::test(start_paused = true)]
async fn without_an_answered_rules_review_each_informer_gets_its_own_access_review() {
    for (rules_fault, lost_within) in [(FaultReason::TooLarge, 50), (FaultReason::ServerError, 70)]
    {
        let (mut schedule, mut cluster) = (
            CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
            FakeCluster::allowing(&["pods"]),
        );
        schedule.set_informers(&thirty_informers(), &[], Instant::now());
        cluster.run(&mut schedule, Duration::from_secs(30)).await;
        assert_eq!(cluster.reviews(), 0);
        cluster.rules_fault = Some(rules_fault);
        cluster.kinds.clear();
        cluster.run(&mut schedule, Duration::from_secs(lost_within)).await;
        assert_eq!(count_in_state(&schedule, is_refused), 30, "{rules_fault}");
        // While kubewarm sends access reviews, it also sends rules reviews with an unchanged
        // period. The first successful rules review ends the access reviews.
        cluster.rules_fault = None;
        cluster.run(&mut schedule, Duration::from_mins(1)).await;
        cluster.requests.clear();
        cluster.run(&mut schedule, Duration::from_mins(1)).await;
        assert_eq!(cluster.reviews(), 0, "{rules_fault}");
    }
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
        FakeCluster::allowing(&[]),
    );
    cluster.rules_fault = Some(FaultReason::TokenRequestDenied);
    schedule.set_informers(&thirty_informers(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(2)).await;
    assert_eq!(cluster.reviews(), 0, "no reviews are sent without a token");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_accounts_detect_lost_access_within_thirty_seconds() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 1.0),
        FakeCluster::allowing(&["pods"]),
    );
    let informers = (0..1_000).map(|at| wanted(key(identity(at), "pods", "shop")));
    schedule.set_informers(&informers.collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(1)).await;
    cluster.kinds.clear();
    cluster.run(&mut schedule, Duration::from_secs(30)).await;
    assert_eq!(count_in_state(&schedule, is_refused), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_new_grant_is_detected_within_25_seconds() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 1.0),
        FakeCluster::allowing(&[]),
    );
    schedule.set_informers(&thirty_informers(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(1)).await;
    cluster.kinds = vec!["pods".to_owned()];
    assert_eq!(count_in_state(&schedule, is_refused), 30);
    cluster.run(&mut schedule, Duration::from_secs(25)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 30);
}

#[tokio::test(start_paused = true)]
async fn excess_is_what_no_profile_of_the_identity_needs() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
        FakeCluster::allowing(&["pods", "secrets", "cacheprofiles", "nodes"]),
    );
    let pods = wanted(key(Identity::Operator, "pods", "shop"));
    let theirs = wanted(key(identity(0), "secrets", "shop"));
    let nodes =
        InformerKey { scope: InformerScope::AllNamespaces, ..key(Identity::Operator, "nodes", "") };
    let unchecked = vec![nodes];
    let more = wanted(key(Identity::Operator, "cacheprofiles", "shop"));
    schedule.set_informers(&[pods.clone(), theirs, more].into(), &unchecked, Instant::now());
    cluster.run(&mut schedule, Duration::from_secs(5)).await;
    let rules_scope: RulesReviewKey = (Identity::Operator, Some("shop".into()));
    let kinds = |schedule: &CheckSchedule| {
        let excess = schedule.excess(&rules_scope).unwrap();
        excess.rules.iter().flat_map(|rule| rule.resources.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&schedule), ["secrets"], "needs of another identity do not count");
    schedule.set_informers(&[pods.clone()].into(), &unchecked, Instant::now());
    assert_eq!(kinds(&schedule), ["cacheprofiles", "secrets"], "no profile needs this resource");
    let known = schedule.excess(&rules_scope).unwrap();
    schedule.set_informers(
        &[pods, wanted(key(identity(1), "pods", "shop"))].into(),
        &unchecked,
        Instant::now(),
    );
    assert!(
        Arc::ptr_eq(&known, &schedule.excess(&rules_scope).unwrap()),
        "the excess is not computed again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_throttled_account_becomes_unverified_and_other_accounts_do_not() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.5),
        FakeCluster::allowing(&["pods"]),
    );
    let informers = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    schedule.set_informers(&informers.collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(30)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 4);

    cluster.throttled = vec![identity(0)];
    cluster.run(&mut schedule, Duration::from_mins(4)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 4);
    let mine = key(identity(0), "pods", "shop");
    let access =
        |schedule: &CheckSchedule| schedule.informer_access(&mine, Instant::now()).unwrap();
    assert!(access(&schedule).failed.is_some());
    cluster.run(&mut schedule, Duration::from_mins(7)).await;
    assert_eq!(
        (count_in_state(&schedule, is_granted), count_in_state(&schedule, is_unverified)),
        (3, 1)
    );
    assert!(is_unverified(&access(&schedule).state));

    cluster.throttled.clear();
    cluster.run(&mut schedule, Duration::from_secs(25)).await;
    assert!(is_granted(&access(&schedule).state));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_blocks_no_informer_and_the_first_check_after_a_long_one_unblocks_it() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.5),
        FakeCluster::allowing(&["pods"]),
    );
    let informers = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    schedule.set_informers(&informers.collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(5)).await;
    cluster.throttled = (0..4).map(identity).collect();
    cluster.run(&mut schedule, Duration::from_mins(4)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 4);
    cluster.throttled.clear();
    cluster.run(&mut schedule, Duration::from_mins(5)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 4);
    cluster.throttled = (0..4).map(identity).collect();
    cluster.run(&mut schedule, Duration::from_mins(30)).await;
    assert_eq!(count_in_state(&schedule, is_unverified), 4);
    cluster.throttled.clear();
    cluster.run(&mut schedule, Duration::from_secs(25)).await;
    assert_eq!(count_in_state(&schedule, is_granted), 4);
}
