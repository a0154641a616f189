//! Tests events and lists that arrive late, twice, or from a state that an etcd restore reverted.

use crate::{
    engine::{fed, informer, quick, run},
    reply::{Reply, bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::{FaultReason, ListStrategy, Uid};
use kubewarm_cache::informer::{InformerTiming, RelistReason};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

fn two(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5)])),
        _ => quiet(asked),
    }
}

#[tokio::test]
async fn replayed_events_change_no_object() {
    let pods = informer("pods");
    let (feed, script) = fed(two);
    let (server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("MODIFIED", object("a", 1, 10)));
    feed.line(event("MODIFIED", object("a", 1, 4)));
    feed.line(event("DELETED", object("a", 1, 6)));
    feed.line(event("DELETED", object("gone", 8, 6)));
    feed.line(event("MODIFIED", object("a", 1, 10)));
    // This event arrives late, but no newer event of `b` came before. So it changes `b`.
    feed.line(event("MODIFIED", object("b", 2, 9)));
    feed.line(bookmark(12));
    engine.until(&pods.key, |report| report.bookmark_time.is_some()).await;
    assert_eq!(engine.shown(&pods.key), ["a@10", "b@9"]);
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1));
}

#[tokio::test]
async fn a_deleted_object_does_not_come_back() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 1) => {
            Reply::json(list(20, &[object("a", 1, 3)])).after(Duration::from_millis(50))
        }
        _ => two(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("DELETED", object("b", 2, 13)));
    engine.until_shown(&pods.key, &["a@3"]).await;
    feed.line(event("MODIFIED", object("b", 2, 9)));
    let report = engine
        .until_all(&pods.key, |report, shown| {
            assert_eq!(shown, ["a@3"]);
            report.last_relist.is_some()
        })
        .await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::Disordered);
    assert_eq!(server.count(Kind::List), 2);
}

#[tokio::test]
async fn versions_that_went_back_purge_and_relist() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match (asked.kind, asked.nth) {
        (Kind::Newest, _) => Reply::json(list(4, &[])),
        (Kind::List, 1) => {
            Reply::json(list(4, &[object("a", 1, 3)])).after(Duration::from_millis(50))
        }
        _ => two(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    engine.until_watching(&pods.key).await;
    feed.cut();
    let purged = engine.until_shown(&pods.key, &[]).await;
    assert!(purged.warmed.is_none(), "no read may be served");
    engine.until_shown(&pods.key, &["a@3"]).await;
    engine
        .until(&pods.key, |report| {
            report.last_relist.is_some_and(|relist| relist.reason == RelistReason::Rollback)
        })
        .await;
    assert_eq!(engine.count(|metrics| metrics.resource_version_rollbacks.get()), 1);
    assert_eq!(server.of(Kind::List)[1].query("resourceVersion"), "");
}

#[tokio::test]
async fn a_relist_keeps_its_reason_after_failures() {
    let widgets = informer("widgets.example.com");
    let timing = InformerTiming { immediate_end: Duration::ZERO, ..quick() };
    let (server, engine) = run(timing, &[&widgets], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => Reply::lines([""; 0]),
        (Kind::List, 1 | 2) => Reply::refused(504, "Timeout"),
        (Kind::List, 3) => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => two(asked),
    })
    .await;
    let report = engine.until(&widgets.key, |report| report.last_relist.is_some()).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::Redefined);
    assert_eq!((server.count(Kind::List), server.count(Kind::Newest)), (4, 0));
    assert_eq!(engine.count(|metrics| metrics.resource_version_rollbacks.get()), 0);
}

#[tokio::test]
async fn an_older_bookmark_reopens_the_watch_after_a_pause() {
    let pods = informer("pods");
    let timing = InformerTiming { immediate_end: Duration::from_millis(400), ..quick() };
    let (server, engine) = run(timing, &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0..3) => Reply::held(bookmark(6) + "\n"),
        _ => two(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::Watch) == 4).await;
    let watches = server.of(Kind::Watch);
    assert!(watches[3].at - watches[0].at >= Duration::from_millis(1_100));
    assert_eq!((server.count(Kind::List), engine.shown(&pods.key).len()), (1, 2));
}

#[tokio::test]
async fn another_uid_is_another_object_in_a_watch_too() {
    let pods = informer("pods");
    let (feed, script) = fed(two);
    let (_server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("ADDED", object("a", 9, 10)));
    engine.until_shown(&pods.key, &["a@10", "b@5"]).await;
    let uid = Uid::parse("00000000-0000-0000-0000-000000000009");
    assert_eq!(engine.objects(&pods.key)[0].uid, uid);
}

#[tokio::test]
async fn gaps_are_counted_over_all_attempts_of_a_relist() {
    let pods = informer("pods");
    let (_server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => Reply::lines([event("ERROR", status(410, "Gone"))]),
        // The relist brings the new `a`, then the connection breaks.
        (Kind::List, 1) => Reply::cut(list(20, &[object("a", 9, 15)]).trim_end_matches("]}")),
        (Kind::List, 2) => Reply::json(list(20, &[object("a", 9, 15)])),
        _ => two(asked),
    })
    .await;
    let report = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    let relist = report.last_relist.unwrap();
    assert_eq!((relist.replaced, relist.deleted_objects), (1, 1));
}

#[tokio::test]
async fn versions_that_are_not_numbers_are_compared_for_equality_only() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List => Reply::json(list("x-9", &[object("a", 1, "x-8")])),
        _ => quiet(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("MODIFIED", object("a", 1, "x-1")));
    engine.until_shown(&pods.key, &["a@x-1"]).await;
    feed.cut();
    engine.until(&pods.key, |_| server.count(Kind::Watch) == 2).await;
    assert_eq!(server.of(Kind::Watch)[1].query("resourceVersion"), "x-1");
    assert_eq!((server.count(Kind::Newest), server.count(Kind::List)), (0, 1));
}

/// Reads objects while events arrive. No object may ever go back to an older version.
#[tokio::test]
async fn everything_arrives_in_the_order_of_an_object() {
    let pods = informer("pods");
    let (feed, script) = fed(two);
    let (_server, engine) = run(quick(), &[&pods], script).await;
    let highest = Arc::new(Mutex::new(0));
    for version in 10..200 {
        feed.line(event("MODIFIED", object("a", 1, version)));
        feed.line(event("MODIFIED", object("a", 1, version - 2)));
    }
    engine
        .until_all(&pods.key, |_, shown| {
            let version: u64 = shown.first().map_or(0, |a| a[2..].parse().unwrap());
            let mut highest = highest.lock();
            assert!(version >= *highest || version == 0);
            *highest = version;
            version == 199
        })
        .await;
}

#[tokio::test]
async fn a_list_replaces_objects_that_a_restore_reverted() {
    let pods = informer("pods");
    // Before the etcd restore, `a` was at version 6. After the restore, `a` is at version 2 again,
    // but the server's version has already passed the store's version and reached 20.
    let (_server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 6), object("b", 2, 5)])),
        (Kind::Watch, 0) => Reply::refused(410, "Expired"),
        (Kind::List, 1) => Reply::json(list(20, &[object("a", 1, 2), object("b", 9, 4)])),
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@2", "b@4"]).await;
}

#[tokio::test]
async fn a_continue_token_that_repeats_ends_the_list() {
    let mut pods = informer("pods");
    pods.settings.lists.strategy = ListStrategy::PagedList;
    let page = r#"{"metadata":{"resourceVersion":"7","continue":"t"},"items":[]}"#;
    let (server, engine) = run(quick(), &[&pods], move |asked| match asked.kind {
        Kind::First | Kind::Next => Reply::json(page.to_owned()),
        _ => two(asked),
    })
    .await;
    let report = engine.until(&pods.key, |report| report.fault.is_some()).await;
    assert_eq!(report.fault.unwrap().reason, FaultReason::Malformed);
    assert!(server.count(Kind::Next) <= 2, "one for each first page");
}
