//! Tests of objects that cannot be decoded, and of the other objects in the same responses.

use crate::{
    engine::{fed, informer, quick, run},
    reply::{Reply, bookmark, event, list, object, quiet},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::ListStrategy;
use kubewarm_cache::informer::{DecodeStage, InformerPhase, InformerReport, RelistReason};
use std::sync::Arc;
use tokio::sync::Notify;

/// An object whose labels are not strings.
pub(crate) fn bad(name: &str, version: u32) -> String {
    object(name, 1, version).replacen("\"name\"", "\"labels\":{\"a\":7},\"name\"", 1)
}

fn named(report: &InformerReport) -> Vec<&str> {
    report.undecodable.iter().map(|what| &*what.object).collect()
}

fn two(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5)])),
        _ => quiet(asked),
    }
}

#[tokio::test]
async fn an_undecodable_object_is_named_and_the_others_are_stored() {
    let (mut whole, mut streamed) = (informer("pods"), informer("services"));
    whole.settings.lists.strategy = ListStrategy::List;
    streamed.settings.lists.strategy = ListStrategy::WatchList;
    let (_server, engine) = run(quick(), &[&whole, &streamed], |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), bad("b", 4), object("c", 3, 5)])),
        Kind::Stream => {
            let lines = [object("a", 1, 3), bad("b", 4), object("c", 3, 5)]
                .map(|object| event("ADDED", object) + "\n");
            Reply::held(lines.concat() + &crate::reply::end_bookmark(7) + "\n")
        }
        _ => quiet(asked),
    })
    .await;
    for informer in [&whole, &streamed] {
        let report = engine.until_watching(&informer.key).await;
        assert_eq!(named(&report), ["ns/b"]);
        assert_eq!(engine.shown(&informer.key), ["a@3", "c@5"]);
    }
    let counted = |stage: DecodeStage| {
        engine.count(|metrics| metrics.upstream_decode_errors.with_label_values(&[stage]).get())
    };
    assert_eq!((counted(DecodeStage::ListItem), counted(DecodeStage::WatchObject)), (1, 1));
}

#[tokio::test]
async fn an_object_whose_update_cannot_be_decoded_is_removed() {
    let pods = informer("pods");
    let (feed, script) = fed(two);
    let (server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("MODIFIED", bad("a", 9)));
    let report = engine.until_shown(&pods.key, &["b@5"]).await;
    engine.until(&pods.key, |report| named(report) == ["ns/a"]).await;
    assert_eq!(report.last_relist, None);
    // The replayed event has an older version of `a` that kubewarm cannot decode. It must not
    // affect the current object.
    feed.line(event("MODIFIED", object("a", 1, 12)));
    feed.line(event("MODIFIED", bad("a", 9)));
    feed.line(bookmark(13));
    let report = engine.until(&pods.key, |report| report.bookmark_time.is_some()).await;
    assert_eq!(engine.shown(&pods.key), ["a@12", "b@5"]);
    assert_eq!(named(&report), [""; 0], "a decodable version removes the object from the report");
    assert_eq!(server.count(Kind::List), 1);
}

#[tokio::test]
async fn an_object_that_a_list_could_not_decode_is_reported_until_its_next_event() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), bad("b", 5)])),
        _ => quiet(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    engine.until(&pods.key, |report| named(report) == ["ns/b"]).await;
    feed.line(event("MODIFIED", object("b", 2, 12)));
    engine.until_shown(&pods.key, &["a@3", "b@12"]).await;
    engine.until(&pods.key, |report| named(report).is_empty()).await;
    assert_eq!(server.count(Kind::List), 1);
}

#[tokio::test]
async fn a_deletion_needs_no_more_than_a_name() {
    let pods = informer("pods");
    let (_server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        Kind::Watch => Reply::held(event("DELETED", bad("a", 9)) + "\n"),
        _ => two(asked),
    })
    .await;
    let report = engine.until_shown(&pods.key, &["b@5"]).await;
    assert_eq!((named(&report).len(), report.last_relist), (0, None));
}

#[tokio::test]
async fn a_deletion_without_a_name_ends_in_a_relist() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => {
            Reply::held(event("DELETED", r#"{"metadata":{"resourceVersion":"9"}}"#) + "\n")
        }
        (Kind::List, 1) => Reply::json(list(9, &[object("b", 2, 5)])),
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["b@5"]).await;
    let report = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::Decode);
    assert_eq!(server.count(Kind::List), 2);
}

/// The undecodable states of `a` and `b` arrive late, after a newer event of another object. Only
/// the state that is newer than the stored one counts.
#[tokio::test]
async fn a_late_undecodable_state_replaces_an_older_state_only() {
    let pods = informer("pods");
    let (feed, script) = fed(two);
    let (server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("ADDED", object("c", 3, 20)));
    feed.line(event("MODIFIED", bad("b", 2)));
    feed.line(event("MODIFIED", bad("a", 15)));
    engine.until_shown(&pods.key, &["b@5", "c@20"]).await;
    feed.line(bookmark(21));
    let report = engine.until(&pods.key, |report| report.bookmark_time.is_some()).await;
    assert_eq!(named(&report), ["ns/a"]);
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1));
}

#[tokio::test]
async fn a_late_deletion_does_not_end_the_report_of_an_undecodable_object() {
    let pods = informer("pods");
    let (feed, script) = fed(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 1) => Reply::json(list(21, &[bad("a", 20), object("b", 2, 5)])),
        _ => two(asked),
    });
    let (_server, engine) = run(quick(), &[&pods], script).await;
    feed.line(event("ADDED", bad("a", 20)));
    feed.line(event("DELETED", object("a", 1, 15)));
    let report = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::Disordered);
    assert_eq!(named(&report), ["ns/a"]);
}

#[tokio::test]
async fn an_undecodable_object_stays_reported_until_a_relist_without_it_is_complete() {
    let pods = informer("pods");
    let observed = Arc::new(Notify::new());
    let released = Arc::clone(&observed);
    let (feed, script) = fed(move |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3), bad("b", 4)])),
        (Kind::List, _) => {
            let released = Arc::clone(&released);
            let wait = async move { released.notified().await };
            Reply::in_two(String::new(), wait, list(9, &[object("a", 1, 3)]))
        }
        _ => quiet(asked),
    });
    let (_server, engine) = run(quick(), &[&pods], script).await;
    engine.until_watching(&pods.key).await;
    feed.line(event("DELETED", r#"{"metadata":{"resourceVersion":"9"}}"#));
    let is_relisting = |report: &InformerReport| report.phase == InformerPhase::Relisting;
    assert_eq!(named(&engine.until(&pods.key, is_relisting).await), ["ns/b"]);
    observed.notify_one();
    let report = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    assert_eq!(named(&report), [""; 0]);
}

/// The API server accepts and sends this JSON, but `serde_json` cannot parse it as a whole.
#[tokio::test]
async fn an_object_is_stored_if_its_metadata_can_be_read() {
    let deep = "[".repeat(9_000) + &"]".repeat(9_000);
    let items = [(1, deep.as_str()), (2, r#""\ud800""#), (3, "1e999"), (4, r#"{"\udfff":[{}]}"#)];
    let items = items.map(|(uid, value)| {
        object(&format!("o{uid}"), uid, 3).replace("\"at\":\"3\"", &format!("\"at\":{value}"))
    });
    let expected: Vec<_> = items.iter().map(|item| item.as_bytes().to_vec()).collect();
    let (mut whole, mut streamed) = (informer("pods"), informer("services"));
    whole.settings.lists.strategy = ListStrategy::List;
    streamed.settings.lists.strategy = ListStrategy::WatchList;
    let (_server, engine) = run(quick(), &[&whole, &streamed], move |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &items)),
        Kind::Stream => {
            let lines = items.clone().map(|object| event("ADDED", object) + "\n");
            Reply::held(lines.concat() + &crate::reply::end_bookmark(7) + "\n")
        }
        _ => quiet(asked),
    })
    .await;
    for informer in [&whole, &streamed] {
        let report = engine.until_watching(&informer.key).await;
        assert_eq!(named(&report), [""; 0]);
        let stored = engine.objects(&informer.key).into_iter();
        assert_eq!(stored.map(|object| object.bytes.to_vec()).collect::<Vec<_>>(), expected);
    }
}
