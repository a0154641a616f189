//! Tests of the order of access checks, and of the blocking and unblocking of informers.

use super::*;
use kubewarm_cache::informer::VerbResults;

const STARTING: OwnRequests = OwnRequests {
    list: VerbResults { allowed_at: None, refused_at: None },
    watch: VerbResults { allowed_at: None, refused_at: None },
    has_failed: false,
    is_synced: false,
};

/// Whether the access check of the only informer starts within `seconds`, if the results of
/// the informer's own list and watch are always `own`.
fn tries(own: Option<OwnRequests>, seconds: u64) -> bool {
    let (mut schedule, now) =
        (CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0), Instant::now());
    let informer = wanted(key(Identity::Operator, "pods", "shop"));
    schedule.set_informers(&[informer].into(), &[], now);
    for second in 0..=seconds {
        let now = now + Duration::from_secs(second);
        advance(&mut schedule, own.as_ref(), now);
    }
    let begun = schedule.start_due(now + Duration::from_secs(seconds));
    begun.iter().any(|(job, _)| matches!(job, CheckJob::AccessCheck(_)))
}

#[tokio::test(start_paused = true)]
async fn the_informers_first_list_and_watch_are_its_first_access_check() {
    let sent = Some(Instant::now());
    let allowed = VerbResults { allowed_at: sent, refused_at: None };
    let synced = OwnRequests { watch: allowed, is_synced: true, ..STARTING };
    let both = OwnRequests { list: allowed, ..synced };
    assert!(!tries(Some(both), 140), "checks of informers that started together are spread");
    assert!(tries(Some(both), 150));
    assert!(!tries(Some(STARTING), 9));
    assert!(tries(Some(STARTING), 10), "the access check does not wait longer for a slow list");
    // Without a running informer, for instance in mode `Plan`, the access check runs after a
    // second.
    assert!(!tries(None, 0) && tries(None, 1));
    // A streaming list uses the verb `watch` and does not confirm `list`, so the access check runs
    // at once.
    assert!(tries(Some(synced), 0));
    let refused = VerbResults { allowed_at: None, refused_at: sent };
    assert!(tries(Some(OwnRequests { list: refused, ..STARTING }), 0));
    assert!(tries(Some(OwnRequests { has_failed: true, ..both }), 0), "it is no longer allowed");
}

#[tokio::test(start_paused = true)]
async fn each_visit_returns_the_decision_of_the_last_access_check() {
    let (mut schedule, now) =
        (CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0), Instant::now());
    let informer = key(Identity::Operator, "pods", "shop");
    assert!(schedule.visit(&informer, None, now, Timestamp::UNIX_EPOCH).is_none(), "not declared");
    schedule.set_informers(&[wanted(informer.clone())].into(), &[], now);
    let mut decision = |cluster: &FakeCluster, seconds: u64| {
        let at = now + Duration::from_secs(seconds);
        let job = CheckJob::AccessCheck(informer.clone());
        let result = cluster.answer(&schedule, &job, at);
        schedule.record_result(&job, at, result, at, Timestamp::UNIX_EPOCH);
        let own = OwnRequests { has_failed: true, ..STARTING };
        let decided = schedule.visit(&informer, Some(&own), at, Timestamp::UNIX_EPOCH).unwrap();
        (decided.state.is_blocking(), decided.confirmed_at)
    };
    let (nothing, pods) = (FakeCluster::allowing(&[]), FakeCluster::allowing(&["pods"]));
    assert_eq!(decision(&nothing, 0), (true, None));
    let confirmed_at = Some(now + Duration::from_secs(2));
    assert_eq!(decision(&pods, 2), (false, confirmed_at));
    assert_eq!(decision(&nothing, 3), (false, confirmed_at), "one rejection is not enough");
    assert_eq!(decision(&nothing, 6), (true, confirmed_at));
}

#[tokio::test(start_paused = true)]
async fn urgent_checks_and_informers_with_access_go_before_those_without() {
    let (buckets, now) = (NamespaceBuckets::default(), Instant::now());
    let mut schedule = CheckSchedule::new(buckets.clone(), MAX_ACCESS_AGE, || 0.0);
    let kinds = ["urgent", "granted", "never"].map(|kind| key(Identity::Operator, kind, "shop"));
    schedule.set_informers(&kinds.clone().map(wanted).into(), &[], now);
    let allowed = FakeCluster::allowing(&["urgent", "granted"]);
    for key in &kinds {
        let job = CheckJob::AccessCheck(key.clone());
        let result = allowed.answer(&schedule, &job, now);
        schedule.record_result(&job, now, result, now, Timestamp::UNIX_EPOCH);
    }
    let at = now + DECIDED;
    schedule.queues.jobs.make_due_by(CheckJob::AccessCheck(kinds[2].clone()), now);
    let urgent = CheckJob::AccessCheck(kinds[0].clone());
    schedule.record_result(
        &CheckJob::AccessReview(kinds[0].clone()),
        at,
        Ok(CheckResult::Access(AccessSignal::Reviewed { sent: at, refused: vec![Verb::Watch] })),
        at,
        Timestamp::UNIX_EPOCH,
    );
    let first = |schedule: &mut CheckSchedule| {
        let begun = schedule.start_due(at).into_iter().map(|(job, _)| job);
        begun.filter(|job| matches!(job, CheckJob::AccessCheck(_))).collect::<Vec<_>>()
    };
    let order = first(&mut schedule);
    assert_eq!(
        order,
        [urgent, CheckJob::AccessCheck(kinds[1].clone()), CheckJob::AccessCheck(kinds[2].clone())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_an_empty_bucket_or_hanging_checks_delays_no_other() {
    let (buckets, now) = (NamespaceBuckets::default(), Instant::now());
    buckets.charge(&"team-0".into(), 38, now);
    let mut schedule = CheckSchedule::new(buckets, MAX_ACCESS_AGE, || 0.0);
    let informers = (0..4).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    let other = wanted(key(identity(1), "pods", "shop"));
    schedule.set_informers(&informers.chain([other]).collect(), &[], now);
    let begun = schedule.start_due(now);
    assert_eq!(begun.len(), 3, "two checks of the first namespace and one of the other namespace");
    drop(begun);

    let mut schedule = CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0);
    let informers = (0..20).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    schedule.set_informers(&informers.collect(), &[], now);
    let hanging = schedule.start_due(now);
    assert_eq!(hanging.len(), NAMESPACE_MAX_IN_FLIGHT);
    tokio::time::advance(Duration::from_secs(1)).await;
    let all = (0..20).map(|n| wanted(key(identity(0), "pods", &format!("n{n}"))));
    let other = wanted(key(identity(1), "pods", "shop"));
    schedule.set_informers(&all.chain([other]).collect(), &[], Instant::now());
    assert_eq!(schedule.start_due(Instant::now()).len(), 1);
    drop(hanging);
    assert_eq!(schedule.start_due(Instant::now()).len(), NAMESPACE_MAX_IN_FLIGHT);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_no_profile_declares_is_no_longer_checked() {
    let (mut schedule, now) =
        (CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0), Instant::now());
    schedule.set_informers(&thirty_informers(), &[], now);
    let begun = schedule.start_due(now);
    schedule.set_informers(&BTreeMap::new(), &[], now);
    let cluster = FakeCluster::allowing(&["pods"]);
    for (job, _) in begun {
        let result = cluster.answer(&schedule, &job, now);
        schedule.record_result(&job, now, result, now, Timestamp::UNIX_EPOCH);
    }
    assert!(schedule.scopes.is_empty());
    assert_eq!(schedule.next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_informers_are_all_replaced_is_not_reviewed_again() {
    let (mut schedule, now) =
        (CheckSchedule::new(NamespaceBuckets::default(), MAX_ACCESS_AGE, || 0.0), Instant::now());
    schedule.set_informers(&[wanted(key(Identity::Operator, "pods", "shop"))].into(), &[], now);
    assert_eq!(schedule.start_due(now).len(), 1);
    schedule.set_informers(&[wanted(key(Identity::Operator, "secrets", "shop"))].into(), &[], now);
    assert_eq!(keys(&schedule).count(), 1);
    assert!(schedule.start_due(now).is_empty());
}
