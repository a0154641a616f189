//! Tests of watches that send no events.

use crate::{
    engine::{informer, quick, run},
    reply::{Reply, bookmark, event, list, object, quiet},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::InformerSpec;
use kubewarm_cache::informer::UpstreamWatchEnd;
use std::time::Duration;

fn one(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

/// Pods that are stale after one second.
fn short_staleness() -> InformerSpec {
    let mut pods = informer("pods");
    pods.settings.max_staleness = Duration::from_secs(1);
    pods
}

#[tokio::test]
async fn a_probe_confirms_a_quiet_watch() {
    let pods = short_staleness();
    let (server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::Probe => Reply::held(bookmark(50 + asked.nth) + "\n"),
        _ => one(asked),
    })
    .await;
    let listed = engine.until_watching(&pods.key).await.current_at.unwrap();
    let confirmed = engine.until(&pods.key, |report| {
        report.version.as_ref().is_some_and(|version| version.as_u64() >= Some(51))
    });
    assert!(confirmed.await.current_at.unwrap() > listed);
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (1, 1));
    assert_eq!(server.of(Kind::Probe)[1].query("resourceVersion"), "50");
}

#[tokio::test]
async fn a_watch_that_misses_an_event_of_the_probe_is_reopened() {
    let pods = short_staleness();
    let change = || event("MODIFIED", object("a", 1, 9)) + "\n";
    let (server, engine) = run(quick(), &[&pods], move |asked| match (asked.kind, asked.nth) {
        (Kind::Probe, 0) | (Kind::Watch, 1) => Reply::held(change()),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@9"]).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
    let idle = engine
        .count(|of| of.upstream_watch_ends.with_label_values(&[UpstreamWatchEnd::Idle]).get());
    assert_eq!(idle, 1);
}

#[tokio::test]
async fn a_missed_event_is_found_where_versions_have_no_order() {
    let pods = short_staleness();
    let change = || event("MODIFIED", object("a", 1, "x9")) + "\n";
    let (server, engine) = run(quick(), &[&pods], move |asked| match (asked.kind, asked.nth) {
        (Kind::List, _) => Reply::json(list("x7", &[object("a", 1, "x3")])),
        (Kind::Probe, _) | (Kind::Watch, 1) => Reply::held(change()),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@x9"]).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
}

#[tokio::test]
async fn without_bookmarks_the_watch_is_reopened_without_a_list() {
    let pods = short_staleness();
    let (server, engine) = run(quick(), &[&pods], one).await;
    let listed = engine.until_watching(&pods.key).await.current_at;
    let report = engine.until(&pods.key, |_| server.count(Kind::Watch) >= 2).await;
    assert_eq!(report.current_at, listed, "no request has confirmed the store since");
    assert_eq!((server.count(Kind::List), engine.relists()), (1, 0));
    let probes = server.of(Kind::Probe);
    assert!(probes.len() <= 3, "{}", probes.len());
}

#[tokio::test]
async fn a_refused_probe_is_reported_and_does_not_end_the_watch() {
    let pods = short_staleness();
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
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
