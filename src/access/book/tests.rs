use super::*;
use crate::access::{PATIENCE, Punctuality, Standing};
use k8s_openapi::api::authorization::v1::ResourceRule;
use kubewarm_api::model::{
    Extent, FieldSelector, GroupResource, LabelSelector, ManagedFields, Projection, Reason,
    Resource, SensitiveData,
};
use kubewarm_cache::informer::Answer;

fn identity(at: usize) -> Identity {
    let namespace: Arc<str> = format!("team-{at}").into();
    Identity::ServiceAccount { namespace, name: "reader".into() }
}

fn key(identity: Identity, resource: &str, namespace: &str) -> CellKey {
    CellKey {
        resource: Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        extent: Extent::Namespace(namespace.into()),
        labels: LabelSelector::default(),
        fields: FieldSelector::default(),
        projection: Projection::MetadataOnly(ManagedFields::Drop),
        sensitive_data: SensitiveData::Deny,
        identity,
        declared_in: None,
    }
}

fn wanted(key: CellKey) -> Wanted {
    let payer = match &key.identity {
        Identity::Operator => "kubewarm-system".into(),
        Identity::ServiceAccount { namespace, .. } => Arc::clone(namespace),
    };
    Wanted { key, namespace_check: NamespaceCheck::Known, payer }
}

/// A cluster that allows `list` and `watch` of these kinds, and notes when it was asked what.
struct Cluster {
    kinds: Vec<String>,
    completeness: Completeness,
    /// Why it does not answer reviews of rules.
    silent: Option<Reason>,
    /// Whom it answers nothing but 429.
    throttled: Vec<Identity>,
    asked: Vec<(Instant, Job)>,
}

impl Cluster {
    fn allowing(kinds: &[&str]) -> Self {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        Self {
            kinds,
            completeness: Completeness::Complete,
            silent: None,
            throttled: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn answer(&self, job: &Job, now: Instant) -> Found {
        let allows = |key: &CellKey| self.kinds.iter().any(|kind| kind == key.resource.resource());
        let by = match job {
            Job::Trial(key, _) | Job::Review(key, _) => &key.identity,
            Job::Rules((identity, _)) => identity,
        };
        if self.throttled.contains(by) {
            return throttled(job, now);
        }
        match job {
            Job::Trial(key, _) => {
                let forbidden = || Fault::new(Reason::Forbidden, "no");
                let answer =
                    if allows(key) { Answer::Allowed } else { Answer::Refused(forbidden()) };
                let (list, watch) = (answer.clone(), answer);
                Found::Trial(Trial { sent: now, requests: 2, list, watch })
            }
            Job::Rules(_) => {
                if let Some(reason) = self.silent {
                    return Found::Rules(Err(Fault::new(reason, "no rules")));
                }
                let rule = ResourceRule {
                    api_groups: Some(vec![String::new()]),
                    resources: Some(self.kinds.clone()),
                    resource_names: None,
                    verbs: ["list", "watch"].map(str::to_owned).into(),
                };
                let completeness = self.completeness;
                Found::Rules(Ok(ReviewedRules { rules: vec![rule], completeness }))
            }
            Job::Review(key, _) => Found::Review(Ok(allows(key))),
        }
    }

    /// Lets this much time pass, and answers everything at once.
    async fn run(&mut self, book: &mut Book, lasting: Duration) -> Vec<(CellKey, Word)> {
        let (until, mut told) = (Instant::now() + lasting, Vec::new());
        while Instant::now() < until {
            let now = Instant::now();
            for job in book.due(now) {
                let found = self.answer(&job, now);
                self.asked.push((now, job.clone()));
                told.extend(book.found(job, now, found, now, Timestamp::UNIX_EPOCH));
            }
            told.extend(book.lapse(PATIENCE, now));
            let least = now + Duration::from_millis(25);
            let next = book.next(now).map_or(until, |at| at.max(least).min(until));
            tokio::time::advance(next - now).await;
        }
        told
    }

    fn count(&self, of: impl Fn(&Job) -> bool) -> usize {
        self.asked.iter().filter(|(_, job)| of(job)).count()
    }

    fn trials(&self) -> usize {
        self.count(|job| matches!(job, Job::Trial(..)))
    }

    fn rules(&self) -> usize {
        self.count(|job| matches!(job, Job::Rules(_)))
    }

    fn reviews(&self) -> usize {
        self.count(|job| matches!(job, Job::Review(..)))
    }
}

/// Nothing that has to do with permissions.
fn throttled(job: &Job, now: Instant) -> Found {
    let fault = || Fault::new(Reason::Throttled, "too many requests");
    match job {
        Job::Trial(..) => {
            let (list, watch) = (Answer::Undecided(fault()), Answer::Undecided(fault()));
            Found::Trial(Trial { sent: now, requests: 1, list, watch })
        }
        Job::Rules(_) => Found::Rules(Err(fault())),
        Job::Review(..) => Found::Review(Err(fault())),
    }
}

fn thirty_cells() -> Vec<Wanted> {
    let namespaces = (0..30).map(|n| format!("n{n}"));
    namespaces.map(|name| wanted(key(Identity::Operator, "pods", &name))).collect()
}

#[tokio::test(start_paused = true)]
async fn thirty_cells_take_three_requests_each_and_little_from_then_on() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.0), Cluster::allowing(&["pods"]));
    book.want(thirty_cells(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_secs(15)).await;
    assert_eq!((cluster.trials(), cluster.rules(), cluster.reviews()), (30, 30, 0));
    cluster.asked.clear();
    cluster.run(&mut book, Duration::from_mins(10)).await;
    assert!(cluster.trials() <= 2 * 30, "{}", cluster.trials());
    assert!(cluster.rules() <= 10 * 3 * 30, "{}", cluster.rules());
    assert_eq!(cluster.reviews(), 0);
}

/// The least time between one of these and the one that is `apart` later.
fn tightest(times: &[Instant], apart: usize) -> Duration {
    let gaps = times.iter().zip(&times[apart..]).map(|(first, last)| *last - *first);
    gaps.min().unwrap_or(Duration::MAX)
}

#[tokio::test(start_paused = true)]
async fn an_hour_takes_an_operation_a_cell_in_five_minutes_and_three_reviews_a_minute_of_a_place() {
    let hour = Duration::from_hours(1);
    for spread in [(|| 0.0) as fn() -> f64, || 0.5, || 0.99] {
        let (mut book, mut cluster) =
            (Book::new(Buckets::default(), spread), Cluster::allowing(&["pods", "secrets"]));
        let places = (0..5).flat_map(|at| [(at, "shop"), (at, "bank")]);
        let kinds = ["configmaps", "pods", "secrets"];
        let cells = places.flat_map(|(at, namespace)| {
            kinds.map(|kind| wanted(key(identity(at), kind, namespace)))
        });
        book.want(cells.collect(), Vec::new(), Instant::now());
        cluster.run(&mut book, hour).await;
        let (mut trials, mut rules) = (BTreeMap::new(), BTreeMap::new());
        for (at, job) in &cluster.asked {
            match job {
                Job::Trial(key, _) => trials.entry(key).or_insert_with(Vec::new).push(*at),
                Job::Rules(spot) => rules.entry(spot).or_insert_with(Vec::new).push(*at),
                Job::Review(..) => panic!("{job:?}"),
            }
        }
        assert_eq!((trials.len(), rules.len()), (30, 10), "of what is refused, too");
        for (key, trials) in trials {
            assert!(tightest(&trials, 1) >= Duration::from_mins(5), "{key}");
            assert!((11..=12).contains(&trials.len()), "{key}: {} in an hour", trials.len());
        }
        for (spot, rules) in rules {
            assert!(tightest(&rules, 3) >= Duration::from_mins(1), "{spot:?}");
            assert!((160..=180).contains(&rules.len()), "{spot:?}: {}", rules.len());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_rules_are_incomplete_each_cell_is_reviewed_by_itself() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.0), Cluster::allowing(&["pods"]));
    cluster.completeness = Completeness::Incomplete;
    let cells = (0..4).map(|n| wanted(key(Identity::Operator, &format!("kind{n}"), "shop")));
    book.want(cells.collect(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(cluster.rules(), 1);
    assert!((44..=52).contains(&cluster.reviews()), "{}", cluster.reviews());
    let watches = cluster.count(|job| matches!(job, Job::Review(_, Verb::Watch)));
    assert_eq!(watches, cluster.reviews() / 2, "the verbs take turns");
    assert_eq!(cluster.trials(), 4, "the reviews agree");
}

#[tokio::test(start_paused = true)]
async fn where_rules_are_not_answered_each_cell_is_reviewed_by_itself() {
    for (silent, lost_within) in [(Reason::TooLarge, 70), (Reason::ServerError, 90)] {
        let (mut book, mut cluster) =
            (Book::new(Buckets::default(), || 0.0), Cluster::allowing(&["pods"]));
        book.want(thirty_cells(), Vec::new(), Instant::now());
        cluster.run(&mut book, Duration::from_secs(30)).await;
        assert_eq!(cluster.reviews(), 0);
        cluster.silent = Some(silent);
        cluster.kinds.clear();
        let told = cluster.run(&mut book, Duration::from_secs(lost_within)).await;
        let lost = told.iter().filter(|(_, word)| matches!(word, Word::Lost(..))).count();
        assert_eq!(lost, 30, "{silent}");
        // Rules are asked for as before, and trusted again as soon as they are answered.
        cluster.silent = None;
        cluster.run(&mut book, Duration::from_mins(1)).await;
        cluster.asked.clear();
        cluster.run(&mut book, Duration::from_mins(1)).await;
        assert_eq!(cluster.reviews(), 0, "{silent}");
    }
    let (mut book, mut cluster) = (Book::new(Buckets::default(), || 0.0), Cluster::allowing(&[]));
    cluster.silent = Some(Reason::TokenRequestDenied);
    book.want(thirty_cells(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(2)).await;
    assert_eq!(cluster.reviews(), 0, "without a token");
}

/// 300 profiles of two cells each, with an account for every three profiles.
#[tokio::test(start_paused = true)]
async fn a_hundred_accounts_of_three_hundred_profiles_are_checked_in_time() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.5), Cluster::allowing(&["pods"]));
    let cells = (0..100).flat_map(|at| {
        let namespace = format!("team-{at}");
        ["a", "b", "c", "d", "e", "pods"].map(|kind| wanted(key(identity(at), kind, &namespace)))
    });
    book.want(cells.collect(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(3)).await;
    let standing = |key: &CellKey| book.access(key, Instant::now()).unwrap().standing;
    let decided = book.cells.keys().filter(|key| standing(key) != Standing::Verifying).count();
    assert_eq!(decided, 600, "everything is decided in time");
    cluster.asked.clear();
    cluster.run(&mut book, Duration::from_mins(10)).await;
    let requests = cluster.rules() + 2 * cluster.trials();
    // 100 places three times a minute, and 600 cells every five minutes.
    assert!(requests <= 10 * (100 * 3 + 600 * 2 / 5), "{requests}");
    let on_time = |key: &CellKey| book.access(key, Instant::now()).unwrap().punctuality;
    assert!(book.cells.keys().all(|key| on_time(key) == Punctuality::OnTime));
}

/// How long it takes until a loss is noticed does not depend on the number of accounts.
#[tokio::test(start_paused = true)]
async fn a_thousand_accounts_notice_a_loss_within_thirty_seconds() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 1.0), Cluster::allowing(&["pods"]));
    let cells = (0..1_000).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(cells.collect(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(1)).await;
    cluster.kinds.clear();
    let told = cluster.run(&mut book, Duration::from_secs(30)).await;
    let lost = told.iter().filter(|(_, word)| matches!(word, Word::Lost(..))).count();
    assert_eq!(lost, 1_000);
}

#[tokio::test(start_paused = true)]
async fn more_than_a_namespace_may_ask_for_is_late_and_says_so() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.0), Cluster::allowing(&["pods"]));
    let one = || wanted(key(identity(1_000), "pods", "team-1000"));
    let cells = (0..900).map(|at| wanted(key(identity(0), "pods", &format!("n{at}"))));
    book.want(cells.chain([one()]).collect(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(5)).await;
    let late =
        |key: &CellKey| book.access(key, Instant::now()).unwrap().punctuality == Punctuality::Late;
    assert!(book.cells.keys().filter(|key| late(key)).count() > 100);
    assert!(!late(&one().key), "another namespace's turn comes in time");
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_found_out_within_one_period() {
    let (mut book, mut cluster) = (Book::new(Buckets::default(), || 1.0), Cluster::allowing(&[]));
    book.want(thirty_cells(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(1)).await;
    cluster.kinds = vec!["pods".to_owned()];
    let told = cluster.run(&mut book, Duration::from_secs(25)).await;
    let returned = told.iter().filter(|(_, word)| *word == Word::Returned).count();
    assert_eq!(returned, 30);
}

#[tokio::test(start_paused = true)]
async fn excess_is_beyond_what_all_profiles_of_the_identity_need() {
    let (mut book, mut cluster) = (
        Book::new(Buckets::default(), || 0.0),
        Cluster::allowing(&["pods", "secrets", "cacheprofiles", "nodes"]),
    );
    let pods = wanted(key(Identity::Operator, "pods", "shop"));
    let theirs = wanted(key(identity(0), "secrets", "shop"));
    let own = CellKey { extent: Extent::AllNamespaces, ..key(Identity::Operator, "nodes", "") };
    let unchecked = vec![own];
    let more = wanted(key(Identity::Operator, "cacheprofiles", "shop"));
    book.want(vec![pods.clone(), theirs, more], unchecked.clone(), Instant::now());
    cluster.run(&mut book, Duration::from_secs(5)).await;
    let spot: Spot = (Identity::Operator, Some("shop".into()));
    let kinds = |book: &Book| {
        let excess = book.excess(&spot).unwrap();
        excess.rules.iter().flat_map(|rule| rule.resources.clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&book), ["secrets"], "that others need it is their affair");
    book.want(vec![pods.clone()], unchecked.clone(), Instant::now());
    assert_eq!(kinds(&book), ["cacheprofiles", "secrets"], "as soon as nobody needs it");
    let known = book.excess(&spot).unwrap();
    book.want(vec![pods, wanted(key(identity(1), "pods", "shop"))], unchecked, Instant::now());
    assert!(Arc::ptr_eq(&known, &book.excess(&spot).unwrap()), "others cost it nothing");
}

#[tokio::test(start_paused = true)]
async fn a_cell_that_is_not_wanted_any_more_is_forgotten() {
    let (mut book, now) = (Book::new(Buckets::default(), || 0.0), Instant::now());
    book.want(thirty_cells(), Vec::new(), now);
    let jobs = book.due(now);
    book.want(Vec::new(), Vec::new(), now);
    let cluster = Cluster::allowing(&["pods"]);
    for job in jobs {
        let found = cluster.answer(&job, now);
        assert!(book.found(job, now, found, now, Timestamp::UNIX_EPOCH).is_empty());
    }
    assert!(book.cells.is_empty() && book.spots.is_empty() && book.under_way.is_empty());
    assert_eq!(book.next(now), None);
}

/// What became of the cells of one identity each.
fn lost(told: &[(CellKey, Word)]) -> Vec<&Identity> {
    let is_lost =
        |word: &Word| matches!(word, Word::Lost(_, fault) if fault.reason() == Reason::Unverified);
    told.iter().filter(|(_, word)| is_lost(word)).map(|(key, _)| &key.identity).collect()
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_answered_no_more_is_lost_though_others_are() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.5), Cluster::allowing(&["pods"]));
    let cells = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(cells.collect(), Vec::new(), Instant::now());
    let told = cluster.run(&mut book, Duration::from_mins(30)).await;
    assert_eq!(lost(&told).len(), 0);

    cluster.throttled = vec![identity(0)];
    let told = cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(lost(&told).len(), 0);
    let mine = key(identity(0), "pods", "shop");
    let access = |book: &Book| book.access(&mine, Instant::now()).unwrap();
    assert!(matches!(access(&book).punctuality, Punctuality::Unanswered(_)));
    let told = cluster.run(&mut book, Duration::from_mins(7)).await;
    assert_eq!(lost(&told), [&identity(0)]);
    assert!(matches!(access(&book).standing, Standing::Unverified(_)));

    cluster.throttled.clear();
    let told = cluster.run(&mut book, Duration::from_secs(25)).await;
    assert!(told.contains(&(mine.clone(), Word::Returned)), "{told:?}");
    assert!(matches!(access(&book).standing, Standing::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_closes_no_gate_and_the_first_check_after_a_long_one_opens_it() {
    let (mut book, mut cluster) =
        (Book::new(Buckets::default(), || 0.5), Cluster::allowing(&["pods"]));
    let cells = (0..4).map(|at| wanted(key(identity(at), "pods", "shop")));
    book.want(cells.collect(), Vec::new(), Instant::now());
    cluster.run(&mut book, Duration::from_mins(5)).await;
    cluster.throttled = (0..4).map(identity).collect();
    let told = cluster.run(&mut book, Duration::from_mins(4)).await;
    assert_eq!(lost(&told).len(), 0);
    cluster.throttled.clear();
    let told = cluster.run(&mut book, Duration::from_mins(5)).await;
    assert_eq!((lost(&told).len(), told.len()), (0, 0), "nobody is told anything");
    cluster.throttled = (0..4).map(identity).collect();
    let told = cluster.run(&mut book, Duration::from_mins(30)).await;
    assert_eq!(lost(&told).len(), 4, "once each");
    cluster.throttled.clear();
    let told = cluster.run(&mut book, Duration::from_secs(25)).await;
    assert_eq!(told.iter().filter(|(_, word)| *word == Word::Returned).count(), 4);
}
