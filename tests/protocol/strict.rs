//! Tests of how long a read waits until its store is proven to be as new as the read needs.

use crate::{
    engine::fed,
    read_engine::{ReadEngine, ReadSetup},
    reply::{Reply, bookmark, event, large_list, list, object, quiet},
    server::Kind,
};
use kubewarm_api::model::{ObjectKey, ReadConsistency};
use kubewarm_wire::encode_continue_token;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PODS: &str = "/api/v1/pods";
/// Half of the longest wait of a read.
const EARLY: Duration = Duration::from_millis(2_500);

fn strict(forwards: bool) -> ReadSetup {
    ReadSetup { forwards, consistency: ReadConsistency::Strict, ..ReadSetup::default() }
}

#[tokio::test]
async fn a_strict_read_without_a_proof_is_forwarded_and_the_proof_goes_on() {
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        // The store lacks an event.
        Kind::First => Reply::json(list(50, &[object("a", 1, 9)])),
        _ => quiet(asked),
    });
    let world = ReadEngine::start_with(strict(true), script).await;
    world.engine.until_watching(&world.key).await;
    let began = Instant::now();
    let failure = world.read(PODS).await.unwrap_err();
    assert!(failure.code() == 504 && failure.is_specific_to_cache(), "{failure:?}");
    assert!(began.elapsed() < EARLY, "{:?}", began.elapsed());
    let before = world.engine.reports.get(&world.key).unwrap().current_at;
    feed.line(event("MODIFIED", object("a", 1, 9)));
    world.engine.until(&world.key, |report| report.current_at > before).await;
    assert_eq!(world.read(PODS).await.unwrap(), ["a"]);
}

#[tokio::test]
async fn without_forwarding_a_strict_read_waits_for_a_late_bookmark() {
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        Kind::First => Reply::json(list(50, &[object("a", 1, 3), object("b", 2, 9)])),
        _ => quiet(asked),
    });
    let world = ReadEngine::start_with(strict(false), script).await;
    world.engine.until_watching(&world.key).await;
    let speak = async {
        // Longer than the bookmark of an API server takes.
        sleep(Duration::from_millis(3_500)).await;
        feed.line(event("ADDED", object("b", 2, 9)));
        feed.line(bookmark(50));
    };
    let (answer, ()) = tokio::join!(world.read(PODS), speak);
    assert_eq!(answer.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_large_store_of_a_kind_without_bookmarks_is_refused_without_a_wait() {
    let world = ReadEngine::start_with(strict(false), |asked| match asked.kind {
        Kind::List => Reply::json(large_list(7)),
        Kind::Newest => Reply::json(list(50, &[])),
        Kind::Probe => Reply::json(""),
        _ => quiet(asked),
    })
    .await;
    world.engine.until_watching(&world.key).await;
    // The first check finds out that no bookmarks come.
    assert_eq!(world.read(PODS).await.unwrap_err().code(), 504);
    let began = Instant::now();
    assert_eq!(world.read(PODS).await.unwrap_err().code(), 504);
    assert!(began.elapsed() < EARLY, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_later_page_of_a_newer_list_is_forwarded_or_waits_for_its_version() {
    let last = ObjectKey { namespace: "ns".into(), name: "a".into() };
    let token = encode_continue_token(Some(&60.into()), &last, None).unwrap();
    for forwards in [true, false] {
        let setup = ReadSetup { forwards, ..ReadSetup::default() };
        let world = ReadEngine::start_with(setup, |asked| match asked.kind {
            Kind::List => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 4)])),
            Kind::Probe => Reply::lines([bookmark(60)]).after(Duration::from_millis(500)),
            _ => quiet(asked),
        })
        .await;
        world.engine.until_watching(&world.key).await;
        match world.read(&format!("{PODS}?limit=1&continue={token}")).await {
            Err(failure) => assert!(forwards && failure.is_specific_to_cache(), "{failure:?}"),
            Ok(names) => assert_eq!((forwards, names), (false, vec!["b".to_owned()])),
        }
    }
}

#[tokio::test]
async fn after_a_forwarded_read_one_check_precedes_the_callers_next_reads() {
    let setup = ReadSetup { forwards: true, ..ReadSetup::default() };
    let world = ReadEngine::start_with(setup, |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        Kind::First => Reply::json(list(50, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    world.engine.until_watching(&world.key).await;
    assert_eq!(world.read(PODS).await.unwrap(), ["a"]);
    let failure = world.read(&format!("{PODS}?resourceVersion=50")).await.unwrap_err();
    assert!(failure.is_specific_to_cache(), "{failure:?}");
    assert_eq!(world.server.count(Kind::First), 0);
    for _ in 0..3 {
        assert_eq!(world.read(PODS).await.unwrap(), ["a"]);
    }
    assert_eq!(world.server.count(Kind::First), 1);
}

#[tokio::test]
async fn a_version_of_another_kind_is_forwarded_or_waits_for_the_bookmark_of_a_probe() {
    for forwards in [true, false] {
        let setup = ReadSetup { forwards, ..ReadSetup::default() };
        let world = ReadEngine::start_with(setup, |asked| match asked.kind {
            Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
            Kind::Probe => Reply::lines([bookmark(60)]).after(Duration::from_millis(500)),
            _ => quiet(asked),
        })
        .await;
        world.engine.until_watching(&world.key).await;
        let newer = format!("{PODS}?resourceVersion=50");
        match world.read(&newer).await {
            Err(failure) => assert!(forwards && failure.is_specific_to_cache(), "{failure:?}"),
            Ok(names) => assert_eq!((forwards, names), (false, vec!["a".to_owned()])),
        }
        // The probe goes on, and the next read needs no wait.
        world.engine.until(&world.key, |report| report.version >= Some(60.into())).await;
        assert_eq!(world.read(&newer).await.unwrap(), ["a"]);
        assert_eq!(world.server.count(Kind::Probe), 1);
    }
}
