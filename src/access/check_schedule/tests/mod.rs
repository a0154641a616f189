mod priority;
mod request_rates;

use super::*;
use crate::access::{PATIENCE, PermissionState, rules::VERBS};
use k8s_openapi::api::authorization::v1::ResourceRule;
use kubewarm_api::model::{
    FieldSelector, GroupResource, Identity, InformerScope, LabelSelector, ManagedFieldsPolicy,
    Projection, Resource, SecretData,
};

fn identity(at: usize) -> Identity {
    let namespace: Arc<str> = format!("team-{at}").into();
    Identity::ServiceAccount { namespace, name: "reader".into() }
}

fn key(identity: Identity, resource: &str, namespace: &str) -> InformerKey {
    InformerKey {
        resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        extent: InformerScope::Namespace(namespace.into()),
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        projection: Projection::Metadata(ManagedFieldsPolicy::Drop),
        secret_data: SecretData::Deny,
        identity,
        declared_in: None,
    }
}

fn wanted(key: InformerKey) -> (InformerKey, CheckSettings) {
    let payer = match &key.identity {
        Identity::Operator => "kubewarm-system".into(),
        Identity::ServiceAccount { namespace, .. } => Arc::clone(namespace),
    };
    (key, CheckSettings { namespace_check: NamespaceCheck::Known, payer })
}

/// A cluster that permits `list` and `watch` of these kinds, and records every request with its
/// time.
struct Cluster {
    kinds: Vec<String>,
    completeness: RulesCompleteness,
    /// The error of each rules review, if it fails.
    silent: Option<FaultReason>,
    /// Identities whose requests all fail with HTTP 429.
    throttled: Vec<Identity>,
    asked: Vec<(Instant, CheckJob)>,
}

impl Cluster {
    fn allowing(kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        Self {
            kinds,
            completeness: RulesCompleteness::Complete,
            silent: None,
            throttled: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn answer(
        &self,
        book: &CheckSchedule,
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
            // HTTP 429 is no statement about permissions.
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
                if let Some(reason) = self.silent {
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
                let refused = if allows(key) { Vec::new() } else { book.in_question(key) };
                Ok(CheckResult::Access(AccessSignal::Reviewed { sent: now, refused }))
            }
        }
    }

    /// Advances the clock by `lasting`, and answers each check at once.
    async fn run(&mut self, book: &mut CheckSchedule, lasting: Duration) {
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            let now = Instant::now();
            for (job, _) in book.begin(now) {
                let found = self.answer(book, &job, now);
                self.asked.push((now, job.clone()));
                book.found(&job, now, found, now, Timestamp::UNIX_EPOCH);
            }
            look(book, now);
            let least = now + Duration::from_millis(200);
            let most = until.min(now + Duration::from_secs(1));
            let next = book.next().map_or(most, |at| at.max(least).min(most));
            tokio::time::advance(next - now).await;
        }
    }

    fn count(&self, of: impl Fn(&CheckJob) -> bool) -> usize {
        self.asked.iter().filter(|(_, job)| of(job)).count()
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

/// Processes the passage of time. No informer runs.
fn look(book: &mut CheckSchedule, now: Instant) {
    assert!(book.look(|_| None, PATIENCE, now, Timestamp::UNIX_EPOCH).is_empty());
}

/// Counts the informers whose state matches `so`.
fn standing(book: &CheckSchedule, so: impl Fn(&PermissionState) -> bool) -> usize {
    keys(book).filter(|key| so(&book.access(key, Instant::now()).unwrap().standing)).count()
}

fn keys(book: &CheckSchedule) -> impl Iterator<Item = &InformerKey> {
    book.places.values().flat_map(|place| place.informers.keys())
}

fn is_refused(standing: &PermissionState) -> bool {
    matches!(standing, PermissionState::Refused(_))
}

fn is_unverified(standing: &PermissionState) -> bool {
    matches!(standing, PermissionState::Unverified { .. })
}

fn is_granted(standing: &PermissionState) -> bool {
    matches!(standing, PermissionState::Granted { .. })
}

fn thirty_informers() -> BTreeMap<InformerKey, CheckSettings> {
    let namespaces = (0..30).map(|n| format!("n{n}"));
    namespaces.map(|name| wanted(key(Identity::Operator, "pods", &name))).collect()
}

#[tokio::test(start_paused = true)]
async fn with_incomplete_rules_each_informer_gets_its_own_access_review() {
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 0.0), Cluster::allowing(&["pods"]));
    cluster.completeness = RulesCompleteness::Incomplete;
    let informers = (0..4).map(|n| wanted(key(Identity::Operator, &format!("kind{n}"), "shop")));
    book.want(informers.collect(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(cluster.rules(), 1);
    assert!((44..=52).contains(&cluster.reviews()), "{}", cluster.reviews());
    assert_eq!(cluster.access_checks(), 4, "the reviews agree");
}

#[tokio::test(start_paused = true)]
async fn without_an_answered_rules_review_each_informer_gets_its_own_access_review() {
    for (silent, lost_within) in [(FaultReason::TooLarge, 50), (FaultReason::ServerError, 70)] {
        let (mut book, mut cluster) =
            (CheckSchedule::new(NamespaceBuckets::default(), || 0.0), Cluster::allowing(&["pods"]));
        book.want(thirty_informers(), &[], Instant::now());
        cluster.run(&mut book, Duration::from_secs(30)).await;
        assert_eq!(cluster.reviews(), 0);
        cluster.silent = Some(silent);
        cluster.kinds.clear();
        cluster.run(&mut book, Duration::from_secs(lost_within)).await;
        assert_eq!(standing(&book, is_refused), 30, "{silent}");
        // Rules reviews continue with the same period, and replace access reviews once one is
        // answered.
        cluster.silent = None;
        cluster.run(&mut book, Duration::from_mins(1)).await;
        cluster.asked.clear();
        cluster.run(&mut book, Duration::from_mins(1)).await;
        assert_eq!(cluster.reviews(), 0, "{silent}");
    }
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 0.0), Cluster::allowing(&[]));
    cluster.silent = Some(FaultReason::TokenRequestDenied);
    book.want(thirty_informers(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(2)).await;
    assert_eq!(cluster.reviews(), 0, "without a token");
}

/// The time to detect lost access does not depend on the number of accounts.
#[tokio::test(start_paused = true)]
async fn a_thousand_accounts_detect_lost_access_within_thirty_seconds() {
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 1.0), Cluster::allowing(&["pods"]));
    let informers = (0..1_000).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(informers.collect(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(1)).await;
    cluster.kinds.clear();
    cluster.run(&mut book, Duration::from_secs(30)).await;
    assert_eq!(standing(&book, is_refused), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_new_grant_is_detected_within_25_seconds() {
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 1.0), Cluster::allowing(&[]));
    book.want(thirty_informers(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(1)).await;
    cluster.kinds = vec!["pods".to_owned()];
    assert_eq!(standing(&book, is_refused), 30);
    cluster.run(&mut book, Duration::from_secs(25)).await;
    assert_eq!(standing(&book, is_granted), 30);
}

#[tokio::test(start_paused = true)]
async fn excess_is_what_no_profile_of_the_identity_needs() {
    let (mut book, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), || 0.0),
        Cluster::allowing(&["pods", "secrets", "cacheprofiles", "nodes"]),
    );
    let pods = wanted(key(Identity::Operator, "pods", "shop"));
    let theirs = wanted(key(identity(0), "secrets", "shop"));
    let own = InformerKey {
        extent: InformerScope::AllNamespaces,
        ..key(Identity::Operator, "nodes", "")
    };
    let unchecked = vec![own];
    let more = wanted(key(Identity::Operator, "cacheprofiles", "shop"));
    book.want([pods.clone(), theirs, more].into(), &unchecked, Instant::now());
    cluster.run(&mut book, Duration::from_secs(5)).await;
    let spot: RulesScope = (Identity::Operator, Some("shop".into()));
    let kinds = |book: &CheckSchedule| {
        let excess = book.excess(&spot).unwrap();
        excess.rules.iter().flat_map(|rule| rule.resources.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&book), ["secrets"], "needs of another identity do not count");
    book.want([pods.clone()].into(), &unchecked, Instant::now());
    assert_eq!(kinds(&book), ["cacheprofiles", "secrets"], "no profile needs it");
    let known = book.excess(&spot).unwrap();
    book.want([pods, wanted(key(identity(1), "pods", "shop"))].into(), &unchecked, Instant::now());
    assert!(Arc::ptr_eq(&known, &book.excess(&spot).unwrap()), "not computed again");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_account_becomes_unverified_and_other_accounts_do_not() {
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 0.5), Cluster::allowing(&["pods"]));
    let informers = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(informers.collect(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(30)).await;
    assert_eq!(standing(&book, is_granted), 4);

    cluster.throttled = vec![identity(0)];
    cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(standing(&book, is_granted), 4);
    let mine = key(identity(0), "pods", "shop");
    let access = |book: &CheckSchedule| book.access(&mine, Instant::now()).unwrap();
    assert!(access(&book).failed.is_some());
    cluster.run(&mut book, Duration::from_mins(7)).await;
    assert_eq!((standing(&book, is_granted), standing(&book, is_unverified)), (3, 1));
    assert!(is_unverified(&access(&book).standing));

    cluster.throttled.clear();
    cluster.run(&mut book, Duration::from_secs(25)).await;
    assert!(is_granted(&access(&book).standing));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_blocks_no_informer_and_the_first_check_after_a_long_one_unblocks_it() {
    let (mut book, mut cluster) =
        (CheckSchedule::new(NamespaceBuckets::default(), || 0.5), Cluster::allowing(&["pods"]));
    let informers = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(informers.collect(), &[], Instant::now());
    cluster.run(&mut book, Duration::from_mins(5)).await;
    cluster.throttled = (0..4).map(identity).collect();
    cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(standing(&book, is_granted), 4);
    cluster.throttled.clear();
    cluster.run(&mut book, Duration::from_mins(5)).await;
    assert_eq!(standing(&book, is_granted), 4);
    cluster.throttled = (0..4).map(identity).collect();
    cluster.run(&mut book, Duration::from_mins(30)).await;
    assert_eq!(standing(&book, is_unverified), 4);
    cluster.throttled.clear();
    cluster.run(&mut book, Duration::from_secs(25)).await;
    assert_eq!(standing(&book, is_granted), 4);
}
