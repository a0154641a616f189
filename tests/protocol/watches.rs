//! Tests of watches that end and break.

use crate::{
    engine::{informer, informer_in, quick, run},
    reply::{Feed, Reply, bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::FaultReason;
use kubewarm_cache::informer::{InformerTiming, RelistReason, UpstreamWatchEnd};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

/// Lists `a@3` and `b@5`, at version 7.
fn two(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5)])),
        _ => quiet(asked),
    }
}

#[tokio::test]
async fn gone_as_a_status_and_as_an_event_each_cost_one_relist() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, 1) => Reply::json(list(20, &[object("a", 1, 3)])),
        (Kind::List, 2..) => Reply::json(list(30, &[object("a", 9, 28)])),
        (Kind::Watch, 0) => Reply::refused(410, "Expired"),
        (Kind::Watch, 1) => Reply::lines([event("ERROR", status(410, "Expired"))]),
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@28"]).await;
    let relist = engine.until_watching(&pods.key).await.last_relist.unwrap();
    assert_eq!(
        (relist.reason, relist.replaced, relist.deleted_objects),
        (RelistReason::Gone, 1, 0)
    );
    let gone = engine
        .count(|metrics| metrics.upstream_relists.with_label_values(&[RelistReason::Gone]).get());
    let replaced = engine.count(|metrics| metrics.upstream_relist_replaced_objects.get());
    assert_eq!(
        (gone, replaced, engine.count(|metrics| metrics.upstream_relist_deleted_objects.get())),
        (2, 1, 1)
    );
    assert_eq!((engine.relists(), server.count(Kind::List)), (2, 3));
    let is_consistent = |list: &ReceivedQuery| list.query("resourceVersion").is_empty();
    assert!(server.of(Kind::List).iter().all(is_consistent));
    assert_eq!(server.of(Kind::Watch)[2].query("resourceVersion"), "30");
}

#[tokio::test]
async fn repeated_error_events_lengthen_the_backoff() {
    let pods = informer("pods");
    let (_server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::Watch => Reply::lines([event("ERROR", status(500, "InternalError"))]),
        _ => two(asked),
    })
    .await;
    let failing = |attempts| {
        engine.until(&pods.key, move |report| {
            report.fault.as_ref().is_some_and(|fault| fault.attempts >= attempts)
        })
    };
    assert_eq!(failing(4).await.fault.unwrap().reason, FaultReason::ServerError);
}

#[tokio::test]
async fn a_watch_that_repeatedly_closes_at_once_ends_in_a_relist() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0..5) => Reply::lines([""; 0]),
        _ => two(asked),
    })
    .await;
    let report = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::ClosedAtOnce);
    engine.until_watching(&pods.key).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (6, 2));
    assert_eq!(engine.failures(), 5, "each failure delays the next request");
    let lasted = server.of(Kind::Watch)[5].at - server.of(Kind::Watch)[4].at;
    assert!(lasted >= quick().backoff * 12, "the fifth wait: {lasted:?}");
}

#[tokio::test]
async fn a_broken_watch_resumes_after_one_rollback_check_for_all_informers_of_the_kind() {
    let feeds: Arc<Mutex<Vec<Feed>>> = Arc::default();
    let informers: Vec<_> = (0..8).map(|n| informer_in("pods", &format!("ns{n}"))).collect();
    let spread = InformerTiming { reconnect_jitter: Duration::from_secs(1), ..quick() };
    let noted = Arc::clone(&feeds);
    let all: Vec<_> = informers.iter().collect();
    let (server, engine) = run(spread, &all, move |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => {
            let (feed, watch) = Reply::fed();
            feed.line(event("MODIFIED", object("a", 1, 9)));
            noted.lock().push(feed);
            watch
        }
        _ => two(asked),
    })
    .await;
    for informer in &informers {
        engine.until_shown(&informer.key, &["a@9", "b@5"]).await;
    }
    feeds.lock().iter().for_each(Feed::cut);
    for informer in &informers {
        engine.until(&informer.key, |_| server.count(Kind::Watch) == 16).await;
    }
    assert!(server.of(Kind::Watch)[8..].iter().all(|again| again.query("resourceVersion") == "9"));
    // The informers share one rollback check. Two are possible: the first informer can send its
    // check before the last watch breaks.
    assert!((1..=2).contains(&server.count(Kind::Newest)), "{}", server.count(Kind::Newest));
    assert_eq!((server.count(Kind::List), engine.relists()), (8, 0));
    let broken = engine.count(|metrics| {
        metrics.upstream_watch_ends.with_label_values(&[UpstreamWatchEnd::Broken]).get()
    });
    assert_eq!(broken, 8);
}

#[tokio::test]
async fn a_watch_cut_in_the_middle_of_a_character_leaves_nothing_behind() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => {
            let (feed, watch) = Reply::fed();
            feed.line(event("MODIFIED", object("a", 1, 8)));
            feed.raw(
                b"{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"b\",\"x\":\"\xc3",
            );
            feed.cut();
            watch
        }
        // The response ends normally in the middle of an event, as if a proxy had truncated it.
        (Kind::Watch, 1) => Reply::json(&event("MODIFIED", object("b", 2, 9))[..60]),
        (Kind::Watch, 2) => {
            let (feed, watch) = Reply::fed();
            feed.line(event("MODIFIED", object("b", 2, 9)));
            std::mem::forget(feed);
            watch
        }
        _ => two(asked),
    })
    .await;
    let report = engine.until_shown(&pods.key, &["a@8", "b@9"]).await;
    assert!(report.undecodable.is_empty());
    let versions: Vec<_> = server
        .of(Kind::Watch)
        .iter()
        .map(|asked| asked.query("resourceVersion").to_owned())
        .collect();
    assert_eq!(versions, ["7", "8", "8"]);
    assert_eq!(server.count(Kind::List), 1);
}

#[tokio::test]
async fn a_watch_that_repeatedly_breaks_at_once_lengthens_the_backoff() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::Watch => Reply::cut(""),
        _ => two(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::Watch) >= 5).await;
    let lasted = server.of(Kind::Watch)[4].at - server.of(Kind::Watch)[3].at;
    assert!(lasted >= quick().backoff * 6, "the fourth wait: {lasted:?}");
    assert_eq!(engine.relists(), 0);
}

#[tokio::test]
async fn watches_that_end_early_are_reopened_after_a_pause() {
    let pods = informer("pods");
    let timing = InformerTiming { backoff: Duration::from_millis(400), ..quick() };
    let (server, engine) = run(timing, &[&pods], |asked| match asked.kind {
        Kind::Watch => Reply::lines([bookmark(8 + asked.nth)]),
        _ => two(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::Watch) >= 4).await;
    let watches = server.of(Kind::Watch);
    assert!(watches[3].at - watches[0].at >= Duration::from_millis(1_100));
}

#[tokio::test]
async fn watches_that_deliver_changes_and_end_early_are_reopened_at_once() {
    let pods = informer("pods");
    let timing = InformerTiming { backoff: Duration::from_secs(10), ..quick() };
    let (server, engine) = run(timing, &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0..6) => {
            Reply::lines([event("MODIFIED", object("a", 1, 8 + asked.nth as u64))])
        }
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@13", "b@5"]).await;
    assert_eq!((server.count(Kind::List), engine.failures()), (1, 0));
    let watches = server.of(Kind::Watch);
    assert!(watches[5].at - watches[2].at >= Duration::from_millis(400), "no hot loop");
}

#[tokio::test]
async fn a_custom_resource_watch_that_ends_early_causes_a_relist() {
    let (widgets, deployments) = (informer("widgets.example.com"), informer("deployments.apps"));
    let timing = InformerTiming { immediate_end: Duration::ZERO, ..quick() };
    let script = |asked: &ReceivedQuery| match (asked.kind, asked.nth) {
        (Kind::List, 1..) => {
            let other = object("a", 1, 3).replace(r#""data":{}"#, "").replace(r#"{"at"#, r#"{"to"#);
            Reply::json(list(7, &[other, object("b", 2, 5)]))
        }
        (Kind::Watch, 0) => Reply::lines([""; 0]),
        _ => two(asked),
    };
    let (server, engine) = run(timing, &[&widgets, &deployments], script).await;
    let report = engine.until(&widgets.key, |report| report.last_relist.is_some()).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::Redefined);
    let object = engine.objects(&widgets.key).remove(0);
    assert!(String::from_utf8_lossy(&object.bytes).contains(r#"{"to":"3"}"#), "{object:?}");
    engine.until(&deployments.key, |_| server.count(Kind::Watch) == 4).await;
    assert_eq!((engine.relists(), server.count(Kind::List)), (1, 3));
}

#[tokio::test]
async fn a_relist_without_effect_is_not_repeated_at_once() {
    let widgets = informer("widgets.example.com");
    let timing = InformerTiming { immediate_end: Duration::ZERO, ..quick() };
    let (server, engine) = run(timing, &[&widgets], |asked| match asked.kind {
        Kind::Watch => Reply::lines([""; 0]),
        _ => two(asked),
    })
    .await;
    engine.until(&widgets.key, |_| engine.relists() >= 5).await;
    assert!(engine.failures() >= 4, "each relist without effect delays the next");
    let lasted = server.of(Kind::List)[5].at - server.of(Kind::List)[4].at;
    assert!(lasted >= quick().backoff * 6, "the fourth wait: {lasted:?}");
}

#[tokio::test]
async fn a_paused_informer_resumes_from_its_version() {
    let pods = informer("pods");
    let (server, mut engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => Reply::held(event("MODIFIED", object("a", 1, 9)) + "\n"),
        (Kind::Watch, _) => Reply::held(event("DELETED", object("b", 2, 11)) + "\n"),
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@9", "b@5"]).await;
    engine.pause(&pods);
    assert_eq!(engine.shown(&pods.key), ["a@9", "b@5"], "served while paused");
    engine.start(&pods);
    engine.until_shown(&pods.key, &["a@9"]).await;
    assert_eq!((server.count(Kind::List), server.count(Kind::Newest)), (1, 1));
    assert_eq!(server.of(Kind::Watch)[1].query("resourceVersion"), "9");
}

#[tokio::test]
async fn a_relist_due_at_a_pause_happens_after_the_resume() {
    let pods = informer("pods");
    let (server, mut engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        // This event is older than the list, and the store lacks its object. Only a list can show
        // whether the object still exists, so the informer must relist.
        (Kind::Watch, 0) => Reply::held(event("ADDED", object("c", 3, 6)) + "\n"),
        (Kind::List, 1) => Reply::silent(),
        (Kind::List, 2) => Reply::json(list(9, &[object("a", 1, 3), object("c", 3, 6)])),
        _ => two(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::List) == 2).await;
    engine.pause(&pods);
    engine.start(&pods);
    let report = engine.until_shown(&pods.key, &["a@3", "c@6"]).await;
    assert!(report.warmed.is_some(), "the store is served all the time");
}
