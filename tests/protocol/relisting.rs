//! Tests of reads during a relist, while the store mixes objects of two lists.

use crate::{
    engine::informer,
    read_engine::{ReadEngine, ReadSetup, large_object_permits, request},
    reply::{Reply, event, list, object, quiet, status},
    server::Kind,
};
use futures::future::FutureExt as _;
use kubewarm_api::model::{InformerScope, InformerSpec, ProfileMode, ReadConsistency};
use kubewarm_cache::informer::{InformerPhase, InformerReport};
use kubewarm_serve::reads::WatchFeed;
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

const COLLECTION: &str = "/api/v1/namespaces/ns/pods";
/// Long enough for a read that does not wait.
const SHORT: Duration = Duration::from_millis(50);

/// Starts an informer with the objects `a@3`, `b@5` and `gone@6`, whose watch ends with 410. The
/// relist sends `a@18`. The other half, with the new object `c@19`, follows after
/// `other_half.notify_one()`. An informer of the namespace `ns`, if `setup` has one, stays at
/// version 5. Returns when the store contains `a@18`.
async fn mixed(other_half: &Arc<Notify>, setup: ReadSetup) -> ReadEngine {
    let released = Arc::clone(other_half);
    let is_paused = setup.mode == ProfileMode::Paused;
    let has_watched = AtomicBool::new(false);
    let mut world = ReadEngine::start_with(setup, move |asked| match (asked.kind, asked.nth) {
        (Kind::List, _) if asked.path == COLLECTION => Reply::json(list(5, &[object("a", 1, 3)])),
        (Kind::List, 0) => {
            Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5), object("gone", 4, 6)]))
        }
        (Kind::Watch, _)
            if asked.path != COLLECTION && !has_watched.swap(true, Ordering::Relaxed) =>
        {
            Reply::lines([event("ERROR", status(410, "Expired"))])
        }
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
    if is_paused {
        world.engine.start(&all_pods());
    }
    let is_relisting =
        |report: &InformerReport| report.phase == InformerPhase::Relisting && report.listed == 1;
    world.engine.until(&world.key, is_relisting).await;
    assert_eq!(world.engine.shown(&world.key), ["a@18", "b@5", "gone@6"]);
    world
}

fn all_pods() -> InformerSpec {
    let mut pods = informer("pods");
    pods.key.scope = InformerScope::AllNamespaces;
    pods
}

#[tokio::test]
async fn a_read_waits_for_the_end_of_a_relist_and_never_mixes_two_lists() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half, ReadSetup::default()).await;
    for query in [
        "",
        "?resourceVersion=0",
        "?resourceVersion=7",
        "?limit=1",
        "?labelSelector=x",
        "/a",
        "/b",
        "/c",
        "/gone",
    ] {
        let path = format!("{COLLECTION}{query}");
        let waits = timeout(SHORT, world.read(&path)).await;
        assert!(waits.is_err(), "{path}: {waits:?}");
    }
    let (of_list, of_get) = (COLLECTION.to_owned(), format!("{COLLECTION}/gone"));
    let mut waiting_list = world.read_json(&of_list).boxed_local();
    let mut waiting_get = world.read_json(&of_get).boxed_local();
    assert!(timeout(SHORT, &mut waiting_list).await.is_err());
    assert!(timeout(SHORT, &mut waiting_get).await.is_err());
    other_half.notify_one();
    let after = waiting_list.await.unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], "20");
    let names = after["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(waiting_get.await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn a_watch_sends_the_initial_objects_of_one_list() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half, ReadSetup::default()).await;
    let request = request(&format!("{COLLECTION}?watch=1&resourceVersion=0"));
    let (watching, permits) = (request.watch.clone().unwrap(), large_object_permits());
    let mut begins =
        world.reads.watch(&request, &watching, None, &"caller", &permits).boxed_local();
    assert!(timeout(SHORT, &mut begins).await.is_err());
    other_half.notify_one();
    let mut feed: WatchFeed = begins.await.unwrap();
    let lines = feed.next().await.unwrap().lines;
    let lines = String::from_utf8(lines.to_vec()).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains("\"c\"") && !lines.contains("\"gone\""), "{lines}");
}

#[tokio::test]
async fn a_relist_that_lasts_longer_than_a_cold_read_may_wait_is_refused_openly() {
    let other_half = Arc::new(Notify::new());
    let world = mixed(&other_half, ReadSetup::default()).await;
    let failure = world.read(COLLECTION).await.unwrap_err();
    assert_eq!((failure.code(), failure.is_specific_to_cache()), (429, false), "{failure:?}");
}

#[tokio::test]
async fn a_strict_read_and_one_with_a_version_are_forwarded_during_a_relist() {
    for (consistency, query) in
        [(ReadConsistency::Strict, ""), (ReadConsistency::Bounded, "?resourceVersion=7")]
    {
        let other_half = Arc::new(Notify::new());
        let setup = ReadSetup { forwards: true, consistency, ..ReadSetup::default() };
        let world = mixed(&other_half, setup).await;
        let failure = world.read(&format!("{COLLECTION}{query}")).await.unwrap_err();
        assert_eq!((failure.code(), failure.is_specific_to_cache()), (429, true), "{failure:?}");
    }
}

#[tokio::test]
async fn a_read_of_a_profile_that_was_paused_during_a_relist_fails_at_once() {
    let other_half = Arc::new(Notify::new());
    let setup = ReadSetup { mode: ProfileMode::Paused, ..ReadSetup::default() };
    let mut world = mixed(&other_half, setup).await;
    world.engine.pause(&all_pods());
    world.engine.until(&world.key, |report| report.phase == InformerPhase::Paused).await;
    let failure = timeout(SHORT, world.read(COLLECTION)).await.unwrap().unwrap_err();
    assert_eq!(failure.code(), 503, "{failure:?}");
    assert!(failure.message().contains("was paused"), "{failure:?}");
}

#[tokio::test]
async fn an_older_store_does_not_answer_for_a_store_that_relists() {
    let other_half = Arc::new(Notify::new());
    let setup = ReadSetup { more: vec![("ns", informer("pods"))], ..ReadSetup::default() };
    let world = mixed(&other_half, setup).await;
    let exact = format!("{COLLECTION}?resourceVersion=5&resourceVersionMatch=Exact");
    assert_eq!(world.read(&exact).await.unwrap(), ["a"]);
    let any = format!("{COLLECTION}?resourceVersion=0");
    let mut waits = world.read_json(&any).boxed_local();
    assert!(timeout(SHORT, &mut waits).await.is_err());
    other_half.notify_one();
    assert_eq!(waits.await.unwrap()["metadata"]["resourceVersion"], "20");
}
