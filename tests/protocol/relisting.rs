//! Tests of reads during a relist, while the store mixes objects of two lists.

use crate::{
    read_engine::{ReadEngine, large_object_permits, request},
    reply::{Reply, event, list, object, quiet, status},
    server::Kind,
};
use futures::future::FutureExt as _;
use kubewarm_cache::informer::{InformerPhase, InformerReport};
use std::{slice, sync::Arc, time::Duration};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

const COLLECTION: &str = "/api/v1/namespaces/ns/pods";

/// Starts an informer with the objects `a@3`, `b@5` and `gone@6`, whose watch ends with 410. The
/// relist sends `a@18`. The other half, with the new object `c@19`, follows after
/// `other_half.notify_one()`. Returns when the store contains `a@18`.
async fn mixed(other_half: &Arc<Notify>) -> ReadEngine {
    let released = Arc::clone(other_half);
    let world = ReadEngine::start(move |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => {
            Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5), object("gone", 4, 6)]))
        }
        (Kind::Watch, 0) => Reply::lines([event("ERROR", status(410, "Expired"))]),
        (Kind::List, _) => {
            let (first, rest) = (object("a", 1, 18), [object("b", 2, 5), object("c", 3, 19)]);
            let whole = list(20, &[slice::from_ref(&first), &rest].concat());
            let at = whole.find(&first).unwrap() + first.len() + 1;
            let (head, tail) = whole.split_at(at);
            let released = Arc::clone(&released);
            let wait = async move { released.notified().await };
            Reply::in_two(head.to_owned(), wait, tail.to_owned())
        }
        _ => quiet(asked),
    })
    .await;
    let is_relisting =
        |report: &InformerReport| report.phase == InformerPhase::Relisting && report.listed == 1;
    world.engine.until(&world.key, is_relisting).await;
    assert_eq!(world.engine.shown(&world.key), ["a@18", "b@5", "gone@6"]);
    world
}

#[tokio::test]
async fn a_list_waits_for_the_end_of_a_relist_and_never_mixes_two_lists() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half).await;
    for query in ["", "?resourceVersion=0", "?resourceVersion=7", "?limit=1", "?labelSelector=x"] {
        let path = format!("{COLLECTION}{query}");
        let waits = timeout(Duration::from_millis(50), world.read(&path)).await;
        assert!(waits.is_err(), "{path}: {waits:?}");
    }
    let after = world.read_json(COLLECTION);
    let release = async {
        sleep(Duration::from_millis(20)).await;
        other_half.notify_one();
    };
    let (after, ()) = tokio::join!(after, release);
    let after = after.unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], "20");
    let names = after["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_watch_sends_no_initial_objects_of_two_lists() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half).await;
    let request = request(&format!("{COLLECTION}?watch=1&resourceVersion=0"));
    let (watching, permits) = (request.watch.clone().unwrap(), large_object_permits());
    let mut begins =
        world.reads.watch(&request, &watching, None, &"caller", &permits).boxed_local();
    assert!(timeout(Duration::from_millis(50), &mut begins).await.is_err());
    other_half.notify_one();
    begins.await.unwrap();
}

#[tokio::test]
async fn a_get_during_a_relist_returns_only_objects_of_the_stores_version() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half).await;
    let get = |name| format!("{COLLECTION}/{name}");
    for name in ["b", "gone"] {
        assert_eq!(world.read(&get(name)).await.unwrap(), [name]);
    }
    assert_eq!(world.read(&get("c")).await.unwrap_err().code(), 404);
    // `a@18` is newer than the store's version, at which the caller's next read of `b` would be.
    let replaced = get("a");
    let mut waits = world.read_json(&replaced).boxed_local();
    assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
    other_half.notify_one();
    assert_eq!(waits.await.unwrap()["metadata"]["resourceVersion"], "18");
    assert_eq!(world.read(&get("gone")).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn a_relist_that_lasts_longer_than_a_cold_read_may_wait_is_refused_openly() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half).await;
    let failure = world.read(COLLECTION).await.unwrap_err();
    assert_eq!(failure.code(), 429, "{failure:?}");
}
