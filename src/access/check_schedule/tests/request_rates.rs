//! Tests of the number of requests that access checks and reviews send, and of the limits that
//! delay access checks and reviews.

use super::*;

#[tokio::test(start_paused = true)]
async fn thirty_informers_take_three_requests_each_and_few_after_that() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
        FakeCluster::allowing(&["pods"]),
    );
    schedule.set_informers(&thirty_informers(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_secs(15)).await;
    assert_eq!((cluster.access_checks(), cluster.rules(), cluster.reviews()), (30, 30, 0));
    cluster.requests.clear();
    cluster.run(&mut schedule, Duration::from_mins(10)).await;
    assert!(cluster.access_checks() <= 2 * 30, "{}", cluster.access_checks());
    assert!(cluster.rules() <= 10 * 3 * 30, "{}", cluster.rules());
    assert_eq!(cluster.reviews(), 0);
}

/// Returns the shortest time between two elements of `times` whose positions differ by `apart`.
fn tightest(times: &[Instant], apart: usize) -> Duration {
    let gaps = times.iter().zip(&times[apart..]).map(|(first, last)| *last - *first);
    gaps.min().unwrap_or(Duration::MAX)
}

#[tokio::test(start_paused = true)]
async fn an_hour_takes_one_check_per_informer_in_five_minutes_and_three_rules_reviews_a_minute() {
    let hour = Duration::from_hours(1);
    for spread in [(|| 0.0) as fn() -> f64, || 0.5, || 0.99] {
        let (mut schedule, mut cluster) = (
            CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, spread),
            FakeCluster::allowing(&["pods", "secrets"]),
        );
        let scopes = (0..5).flat_map(|at| [(at, "shop"), (at, "bank")]);
        let kinds = ["configmaps", "pods", "secrets"];
        let informers = scopes.flat_map(|(at, namespace)| {
            kinds.map(|kind| wanted(key(identity(at), kind, namespace)))
        });
        schedule.set_informers(&informers.collect(), &[], Instant::now());
        cluster.run(&mut schedule, hour).await;
        let (mut access_checks, mut rules) = (BTreeMap::new(), BTreeMap::new());
        for (at, job) in &cluster.requests {
            match job {
                CheckJob::AccessCheck(key) => {
                    access_checks.entry(key).or_insert_with(Vec::new).push(*at);
                }
                CheckJob::RulesReview(rules_scope) => {
                    rules.entry(rules_scope).or_insert_with(Vec::new).push(*at);
                }
                CheckJob::AccessReview(_) => panic!("{job:?}"),
            }
        }
        assert_eq!(
            (access_checks.len(), rules.len()),
            (30, 10),
            "refused informers are checked too"
        );
        for (key, access_checks) in access_checks {
            assert!(tightest(&access_checks, 1) >= Duration::from_mins(5), "{key}");
            assert!(
                (11..=12).contains(&access_checks.len()),
                "{key}: {} in an hour",
                access_checks.len()
            );
        }
        for (rules_scope, rules) in rules {
            assert!(tightest(&rules, 3) >= Duration::from_mins(1), "{rules_scope:?}");
            assert!((160..=180).contains(&rules.len()), "{rules_scope:?}: {}", rules.len());
        }
    }
}

/// The test has 300 profiles with two informers each. Three profiles use each ServiceAccount.
#[tokio::test(start_paused = true)]
async fn a_hundred_accounts_of_three_hundred_profiles_are_checked_in_time() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.5),
        FakeCluster::allowing(&["pods"]),
    );
    let informers = (0..100).flat_map(|at| {
        let namespace = format!("team-{at}");
        ["a", "b", "c", "d", "e", "pods"].map(|kind| wanted(key(identity(at), kind, &namespace)))
    });
    schedule.set_informers(&informers.collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(3)).await;
    let decided = count_in_state(&schedule, |state| *state != PermissionState::Verifying);
    assert_eq!(decided, 600, "every informer is decided within three minutes");
    cluster.requests.clear();
    cluster.run(&mut schedule, Duration::from_mins(10)).await;
    let requests = cluster.rules() + 2 * cluster.access_checks();
    // Each minute kubewarm can send 100 rules reviews three times. Every five minutes it can send
    // 600 access checks with two requests each.
    assert!(requests <= 10 * (100 * 3 + 600 * 2 / 5), "{requests}");
    let access = |key: &InformerKey| schedule.informer_access(key, Instant::now()).unwrap();
    assert!(keys(&schedule).map(access).all(|access| !access.is_late && access.failed.is_none()));
}

#[tokio::test(start_paused = true)]
async fn checks_beyond_the_namespaces_rate_limit_are_reported_as_late() {
    let (mut schedule, mut cluster) = (
        CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0),
        FakeCluster::allowing(&["pods"]),
    );
    let one = || wanted(key(identity(1_000), "pods", "team-1000"));
    let informers = (0..900).map(|at| wanted(key(identity(0), "pods", &format!("n{at}"))));
    schedule.set_informers(&informers.chain([one()]).collect(), &[], Instant::now());
    cluster.run(&mut schedule, Duration::from_mins(5)).await;
    let late = |key: &InformerKey| schedule.informer_access(key, Instant::now()).unwrap().is_late;
    assert!(keys(&schedule).filter(|key| late(key)).count() > 100);
    assert!(!late(&one().0), "checks of another namespace are not delayed");
}
