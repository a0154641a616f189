//! Tests of freshness checks.

use crate::{
    engine::{Engine, fed, informer, quick, run},
    reply::{Reply, bookmark, event, large_list, list, list_with, object, quiet},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use futures::future::join_all;
use kubewarm_api::model::{FaultReason, InformerSpec, ProfileMode, ResourceVersion};
use kubewarm_cache::informer::{FreshnessCheckResult, FreshnessChecker, RegistryLimits};
use kubewarm_client::NamespaceBuckets;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Lists one object, which has version 3, at version 7.
fn one(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

async fn prove(
    freshness_checker: &FreshnessChecker,
    pods: &InformerSpec,
) -> Result<FreshnessCheckResult, FaultReason> {
    let freshness_check = freshness_checker.check(&pods.key, &"ns".into(), Instant::now()).await;
    freshness_check.map_err(|fault| fault.reason())
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::from(number)
}

fn freshness_checker(engine: &Engine) -> FreshnessChecker {
    engine.freshness_checker()
}

#[tokio::test]
async fn a_quiet_store_is_fresh_if_it_matches_a_consistent_read() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        // The object is unchanged, but changes of other resources have raised the list's version.
        Kind::First => Reply::json(list(50, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    let before = engine.until_watching(&pods.key).await.current_at;
    let asked_at = Instant::now();
    let freshness_check = prove(&freshness_checker(&engine), &pods).await.unwrap();
    assert!(freshness_check.at >= asked_at);
    let report = engine.reports.get(&pods.key).unwrap();
    assert!(report.current_at > before && report.current_at == Some(freshness_check.at));
    assert_eq!(report.version, Some(version(7)), "the store's version stays");
    let covers = |number| freshness_check.is_valid_for(&version(number));
    // The check confirms only version 7 and versions from 50 on. In between, another object could
    // have been created and deleted.
    assert_eq!([6, 7, 8, 49, 50, 51].map(covers), [false, true, false, false, true, true]);
    let first = &server.of(Kind::First)[0];
    assert_eq!((first.query("limit"), first.query("resourceVersion")), ("1000", ""));
    assert_eq!(server.count(Kind::Probe), 0);
}

#[tokio::test]
async fn a_freshness_check_waits_for_pending_events_and_fails_if_none_arrive() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::First if asked.nth == 0 => Reply::json(list(50, &[object("a", 1, 9)])),
        Kind::First => Reply::json(list(60, &[])),
        _ => one(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    engine.until_watching(&pods.key).await;
    let freshness_checker = freshness_checker(&engine);
    let speak = async {
        sleep(Duration::from_millis(50)).await;
        feed.line(event("MODIFIED", object("a", 1, 9)));
    };
    let (freshness_check, ()) = tokio::join!(prove(&freshness_checker, &pods), speak);
    assert!(freshness_check.unwrap().is_valid_for(&version(9)));
    assert_eq!(engine.shown(&pods.key), ["a@9"]);
    // The watch does not send a deletion, so no event brings the store to the list's version.
    let began = Instant::now();
    assert_eq!(prove(&freshness_checker, &pods).await, Err(FaultReason::TimedOut));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(server.count(Kind::Probe) >= 1, "a probe checks the informer");
}

#[tokio::test]
async fn waiting_reads_share_one_freshness_check_sent_after_they_arrived() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::First => {
            Reply::json(list(50, &[object("a", 1, 3)])).after(Duration::from_millis(300))
        }
        _ => one(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    let freshness_checker = freshness_checker(&engine);
    let crowd = async {
        // The request of the first check is in progress. It shows nothing to readers that arrive
        // later, because changes can have happened in between.
        while server.count(Kind::First) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let came = Instant::now();
        let all = join_all((0..100).map(|_| prove(&freshness_checker, &pods))).await;
        assert!(all.into_iter().all(|freshness_check| freshness_check.unwrap().at > came));
    };
    let (first, ()) = tokio::join!(prove(&freshness_checker, &pods), crowd);
    first.unwrap();
    assert_eq!(server.count(Kind::First), 2);
}

#[tokio::test]
async fn a_large_store_is_confirmed_by_a_second_watch() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::List => Reply::json(large_list(7)),
        Kind::Newest => Reply::json(list_with(50, r#","continue":"c""#, &[object("a0000", 0, 3)])),
        Kind::Probe => Reply::held(bookmark(55) + "\n"),
        _ => one(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    let freshness_check = prove(&freshness_checker(&engine), &pods).await.unwrap();
    assert_eq!(
        [7, 54, 55].map(|number| freshness_check.is_valid_for(&version(number))),
        [false, true, true]
    );
    assert_eq!((server.count(Kind::First), server.count(Kind::Probe)), (0, 1));
}

#[tokio::test]
async fn a_freshness_check_fails_for_older_versions_and_removed_informers() {
    let pods = informer("pods");
    let (server, mut engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::First => Reply::json(list(5, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    let freshness_checker = freshness_checker(&engine);
    assert_eq!(prove(&freshness_checker, &pods).await, Err(FaultReason::TimedOut));
    assert_eq!(
        prove(&freshness_checker, &informer("widgets.example.com")).await,
        Err(FaultReason::Unverified)
    );
    engine.pause(&pods);
    assert!(engine.running_informers()[&pods.key] == ProfileMode::Paused);
    let asked = server.count(Kind::First);
    assert_eq!(prove(&freshness_checker, &pods).await, Err(FaultReason::Unverified));
    assert_eq!(server.count(Kind::First), asked, "no request is sent for an unknown informer");
}

#[tokio::test]
async fn freshness_checks_use_the_bucket_of_the_profiles_namespace() {
    let pods = informer("pods");
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::First => Reply::json(list(50, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    let buckets = NamespaceBuckets::default();
    let bounds = RegistryLimits { lists: 8, namespace_quota: 100, buckets: buckets.clone() };
    let mut engine = Engine::with(&server, quick(), bounds);
    engine.start(&pods);
    engine.until_watching(&pods.key).await;
    let freshness_checker = engine.freshness_checker();
    buckets.charge(&"ns".into(), 400, Instant::now());
    assert_eq!(prove(&freshness_checker, &pods).await, Err(FaultReason::Throttled));
    assert_eq!(server.count(Kind::First), 0);
    let other = freshness_checker.check(&pods.key, &"other".into(), Instant::now()).await;
    assert!(other.is_ok());
}
