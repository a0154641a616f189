//! Tests of watches that send no events: when an informer counts as fresh, and which requests it
//! sends to find out.

use crate::{
    engine::{Engine, fed, informer, quick, run},
    reply::{Reply, bookmark, event, large_list, list, object, quiet},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::{FaultReason, InformerScope, InformerSpec};
use kubewarm_cache::informer::{InformerPhase, InformerReport, UpstreamWatchEnd};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

fn one(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

/// Pods whose store is stale after one second.
fn short_staleness() -> InformerSpec {
    let mut pods = informer("pods");
    pods.settings.max_staleness = Duration::from_secs(1);
    pods
}

/// Runs the informer of `pods`, whose store a client has read.
async fn run_read(
    pods: &InformerSpec,
    script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, Engine) {
    run_all_read(std::slice::from_ref(pods), script).await
}

/// Runs informers until each has an open watch. Then a client reads all their stores.
async fn run_all_read(
    all: &[InformerSpec],
    script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, Engine) {
    let (server, engine) = run(quick(), &all.iter().collect::<Vec<_>>(), script).await;
    for informer in all {
        engine.until_watching(&informer.key).await;
    }
    for informer in all {
        let _report = engine.reports.get_summary_for_read(&informer.key);
    }
    (server, engine)
}

#[tokio::test]
async fn a_list_and_the_bookmark_of_a_probe_prove_a_quiet_store() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match asked.kind {
        Kind::Newest => Reply::json(list(50 + asked.nth, &[])),
        Kind::Probe => Reply::held(bookmark(50 + asked.nth) + "\n"),
        _ => one(asked),
    })
    .await;
    let listed = engine.reports.get(&pods.key).unwrap().current_at;
    let report = engine.until(&pods.key, |report| report.current_at > listed).await;
    let asked_at = server.of(Kind::Newest)[0].at;
    assert!(report.current_at.unwrap() <= asked_at, "the proof is of the time of the list");
    engine
        .until(&pods.key, |report| {
            report.version.as_ref().is_some_and(|version| version.as_u64() >= Some(51))
        })
        .await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (1, 1));
    assert_eq!(server.of(Kind::Probe)[1].query("resourceVersion"), "50");
}

#[tokio::test]
async fn events_and_bookmarks_prove_nothing_until_they_reach_the_version_of_a_list() {
    let pods = short_staleness();
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::Newest => Reply::json(list(60, &[])),
        _ => one(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    let listed = engine.until_watching(&pods.key).await.current_at;
    // Neither the event nor the bookmark confirms the store: the API server sent them at an unknown
    // time, so they can be late.
    feed.line(event("MODIFIED", object("a", 1, 9)));
    feed.line(bookmark(50));
    let reached = |number| {
        move |report: &InformerReport| {
            report.version.as_ref().is_some_and(|version| version.as_u64() == Some(number))
        }
    };
    assert_eq!(engine.until(&pods.key, reached(50)).await.current_at, listed);
    let _report = engine.reports.get_summary_for_read(&pods.key);
    engine.until(&pods.key, |_| server.count(Kind::Newest) >= 1).await;
    feed.line(bookmark(59));
    assert_eq!(engine.until(&pods.key, reached(59)).await.current_at, listed);
    feed.line(event("MODIFIED", object("a", 1, 60)));
    let report = engine.until(&pods.key, |report| report.current_at > listed).await;
    assert!(report.current_at.unwrap() <= server.of(Kind::Newest).last().unwrap().at);
}

#[tokio::test]
async fn bookmarks_of_an_api_server_without_etcd_prove_nothing() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match asked.kind {
        Kind::Newest => Reply::refused(500, "InternalError"),
        Kind::Probe | Kind::Watch => Reply::held(bookmark(7) + "\n"),
        _ => one(asked),
    })
    .await;
    let listed = engine.reports.get(&pods.key).unwrap().current_at;
    let report = engine.until(&pods.key, |report| report.phase == InformerPhase::Silent).await;
    assert_eq!(report.current_at, listed);
    assert!(server.count(Kind::Newest) >= 1);
    assert_eq!(server.count(Kind::Watch), 1);
}

#[tokio::test]
async fn informers_of_one_kind_share_a_list_for_a_proof() {
    let all = many_namespaces();
    let (server, engine) = run_all_read(&all, |asked| match asked.kind {
        Kind::Newest => Reply::json(list(7, &[])),
        _ => one(asked),
    })
    .await;
    let before = Instant::now();
    for pods in &all {
        engine.until(&pods.key, |report| report.current_at > Some(before)).await;
    }
    let lists = server.count(Kind::Newest);
    assert!(lists < all.len(), "{lists} lists");
}

/// Pods of 20 namespaces, whose stores are stale after one second.
fn many_namespaces() -> Vec<InformerSpec> {
    let informer = |number| {
        let mut pods = short_staleness();
        pods.key.scope = InformerScope::Namespace(format!("ns{number}").into());
        pods
    };
    (0..20).map(informer).collect()
}

#[tokio::test]
async fn an_overloaded_server_does_not_get_a_list_of_each_informer() {
    let all = many_namespaces();
    let (server, engine) = run_all_read(&all, |asked| match asked.kind {
        Kind::Newest => Reply::refused(503, "Overloaded").after(Duration::from_secs(1)),
        _ => one(asked),
    })
    .await;
    for pods in &all {
        engine.until(&pods.key, |report| report.fault.is_some()).await;
    }
    let lists = server.count(Kind::Newest);
    assert!(lists < all.len(), "{lists} lists");
}

#[tokio::test]
async fn only_a_list_of_its_own_namespace_ends_a_refusal() {
    let all: Vec<_> = many_namespaces().into_iter().take(2).collect();
    let (server, engine) = run_all_read(&all, |asked| match asked.kind {
        Kind::Newest if asked.path.contains("/ns0/") => Reply::refused(403, "Forbidden"),
        Kind::Newest => Reply::json(list(7, &[])),
        _ => one(asked),
    })
    .await;
    let is_refused = |report: &InformerReport| {
        report.fault.as_ref().is_some_and(|fault| fault.reason == FaultReason::Forbidden)
    };
    engine.until(&all[0].key, is_refused).await;
    let refused = server.count(Kind::Newest);
    let mut confirmed = engine.reports.get(&all[1].key).unwrap().current_at;
    for _ in 0..4 {
        let after = confirmed;
        confirmed = engine.until(&all[1].key, |report| report.current_at > after).await.current_at;
        let report = engine.reports.get(&all[0].key).unwrap();
        assert!(is_refused(&report), "{report:?}");
    }
    assert!(server.count(Kind::Newest) > refused);
}

#[tokio::test]
async fn a_probe_that_proves_a_list_is_followed_by_another_although_a_newer_list_waits() {
    let pods = short_staleness();
    let lists = Arc::new(AtomicU32::new(0));
    let (server, engine) = run_read(&pods, move |asked| match asked.kind {
        Kind::Newest => {
            let number = lists.fetch_add(1, Ordering::Relaxed) + 1;
            Reply::json(list(50 + number, &[]))
        }
        Kind::Probe => {
            let newest = 50 + lists.load(Ordering::Relaxed);
            // The informer sends the next list after half a second. So this response, which proves
            // the previous list, arrives when a newer list already waits.
            Reply::held(bookmark(newest) + "\n").after(Duration::from_millis(700))
        }
        _ => one(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::Probe) >= 10).await;
    let probes = server.of(Kind::Probe);
    let pause = probes[9].at - probes[8].at;
    assert!(pause < Duration::from_secs(6), "{pause:?}: the pause has doubled");
}

#[tokio::test]
async fn a_store_without_readers_needs_no_request() {
    let pods = short_staleness();
    let (server, engine) = run(quick(), &[&pods], one).await;
    engine.until_watching(&pods.key).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((server.count(Kind::Newest), server.count(Kind::Probe)), (0, 0));
    let report = engine.reports.get(&pods.key).unwrap();
    assert_eq!(report.phase, InformerPhase::Watching, "fresh for 2 minutes");
}

#[tokio::test]
async fn a_watch_that_misses_an_event_of_the_probe_is_reopened() {
    let pods = short_staleness();
    let change = || event("MODIFIED", object("a", 1, 9)) + "\n";
    let (server, engine) = run_read(&pods, move |asked| match (asked.kind, asked.nth) {
        (Kind::Probe, 0) | (Kind::Watch, 1) => Reply::held(change()),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@9"]).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
    let idle = engine.count(|metrics| {
        metrics.upstream_watch_ends.with_label_values(&[UpstreamWatchEnd::Idle]).get()
    });
    assert_eq!(idle, 1);
}

#[tokio::test]
async fn a_missed_event_is_found_where_versions_have_no_order() {
    let pods = short_staleness();
    let change = || event("MODIFIED", object("a", 1, "x9")) + "\n";
    let (server, engine) = run_read(&pods, move |asked| match (asked.kind, asked.nth) {
        (Kind::List, _) => Reply::json(list("x7", &[object("a", 1, "x3")])),
        (Kind::Probe, _) | (Kind::Watch, 1) => Reply::held(change()),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@x9"]).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
}

#[tokio::test]
async fn without_bookmarks_probes_of_a_large_store_become_rare_and_the_watch_stays() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match asked.kind {
        Kind::List => Reply::json(large_list(7)),
        Kind::Newest => Reply::json(list(50, &[])),
        Kind::Probe => Reply::json(""),
        _ => one(asked),
    })
    .await;
    let listed = engine.reports.get(&pods.key).unwrap().current_at;
    let report = engine.until(&pods.key, |_| server.count(Kind::Probe) >= 4).await;
    assert_eq!(report.current_at, listed, "no request has confirmed the store since");
    assert!(report.lacks_bookmarks);
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1));
    let probes = server.of(Kind::Probe);
    assert!(probes[3].at - probes[2].at >= Duration::from_millis(400), "100 ms, doubled twice");
}

#[tokio::test]
async fn without_bookmarks_a_small_store_is_compared_with_lists() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match asked.kind {
        Kind::Newest => Reply::json(list(50 + asked.nth, &[])),
        Kind::First => Reply::json(list(50 + asked.nth, &[object("a", 1, 3)])),
        Kind::Probe => Reply::json(""),
        _ => one(asked),
    })
    .await;
    for _ in 0..3 {
        let proven = engine.reports.get(&pods.key).unwrap().current_at;
        engine.until(&pods.key, |report| report.current_at > proven).await;
    }
    assert_eq!(server.count(Kind::Probe), 1, "the first probe shows that no bookmarks come");
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1));
    let version = engine.reports.get(&pods.key).unwrap().version.unwrap().as_u64();
    assert!(
        version >= Some(50),
        "{version:?}: a list that is equal brings the store to its version"
    );
    let counted = ["list", "watch"].map(|verb| {
        engine.count(|metrics| metrics.upstream_freshness_requests.with_label_values(&[verb]).get())
    });
    assert!(
        counted[0] >= 6 && counted[1] == 1,
        "{counted:?}: a list and a comparison for each proof"
    );
}

#[tokio::test]
async fn without_bookmarks_a_watch_that_misses_an_event_is_reopened() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match (asked.kind, asked.nth) {
        (Kind::Newest, _) => Reply::json(list(50, &[])),
        (Kind::First, _) => Reply::json(list(50, &[object("a", 1, 9)])),
        (Kind::Probe, _) => Reply::json(""),
        (Kind::Watch, 1) => Reply::held(event("MODIFIED", object("a", 1, 9)) + "\n"),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@9"]).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
}

#[tokio::test]
async fn a_bookmark_ends_the_comparisons() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match (asked.kind, asked.nth) {
        (Kind::Newest, _) => Reply::json(list(50, &[])),
        (Kind::First, _) => Reply::refused(500, "InternalError"),
        (Kind::Probe, 0) => Reply::json(""),
        (Kind::Watch, 0) => Reply::held(bookmark(60) + "\n").after(Duration::from_secs(3)),
        _ => one(asked),
    })
    .await;
    engine.until(&pods.key, |report| report.lacks_bookmarks).await;
    let report = engine.until(&pods.key, |report| !report.lacks_bookmarks).await;
    assert_eq!(report.version.unwrap().as_u64(), Some(60));
    assert!(server.count(Kind::First) > 0, "a comparison was tried");
}

#[tokio::test]
async fn a_refused_probe_is_reported_and_does_not_end_the_watch() {
    let pods = short_staleness();
    let (server, engine) = run_read(&pods, |asked| match (asked.kind, asked.nth) {
        (Kind::Newest, _) => Reply::json(list(50, &[])),
        (Kind::Probe, 0..3) => Reply::refused(500, "InternalError"),
        (Kind::Probe, _) => Reply::held(bookmark(50) + "\n"),
        _ => one(asked),
    })
    .await;
    engine.until(&pods.key, |report| report.fault.as_ref().is_some_and(|f| f.attempts == 3)).await;
    let report = engine.until(&pods.key, |report| report.fault.is_none()).await;
    assert_eq!(report.version.unwrap().as_u64(), Some(50));
    assert_eq!(server.count(Kind::Watch), 1);
}
