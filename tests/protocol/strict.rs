//! Tests how long a read waits until a freshness check shows that its store is as new as the read
//! needs, or contains a forwarded write.

use crate::{
    engine::{fed, informer},
    read_engine::{ReadEngine, ReadSetup},
    reply::{Reply, bookmark, event, large_list, list, object, quiet},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::{GroupResource, ObjectKey, ProfileMode, ReadConsistency};
use kubewarm_wire::{StatusError, WriteTarget, encode_continue_token};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PODS: &str = "/api/v1/pods";
/// Less than the longest wait of a read, which is 6 s. A read that ends within this time has not
/// waited for a proof.
const EARLY: Duration = Duration::from_secs(5);
/// How often a test repeats a read that a busy machine can delay.
const TRIES: usize = 50;

fn strict(forwards: bool) -> ReadSetup {
    ReadSetup { forwards, consistency: ReadConsistency::Strict, ..ReadSetup::default() }
}

/// Reads until a store answers. On a busy machine, a check can take more than the 25 ms after which
/// kubewarm forwards a read.
async fn until_answered(world: &ReadEngine) -> Result<Vec<String>, StatusError> {
    let mut answer = world.read(PODS).await;
    for _ in 1..TRIES {
        if !answer.as_ref().is_err_and(StatusError::is_specific_to_cache) {
            break;
        }
        answer = world.read(PODS).await;
    }
    answer
}

/// A large store of a kind for which the API server sends no bookmarks, although the newest version
/// is 50. Its informer watches.
async fn large_kind_without_bookmarks(setup: ReadSetup) -> ReadEngine {
    let world = ReadEngine::start_with(setup, |asked| match asked.kind {
        Kind::List => Reply::json(large_list(7)),
        Kind::Newest => Reply::json(list(50, &[])),
        Kind::Probe => Reply::json(""),
        _ => quiet(asked),
    })
    .await;
    world.engine.until_watching(&world.key).await;
    world
}

#[tokio::test]
async fn a_strict_read_without_a_proof_is_forwarded_and_the_proof_goes_on() {
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        // The list contains a change of `a` that the store lacks, because the watch has not sent
        // the event.
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
    assert_eq!(until_answered(&world).await.unwrap(), ["a"]);
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
        // The watch is silent for longer than an API server needs to send a bookmark.
        sleep(Duration::from_millis(3_500)).await;
        feed.line(event("ADDED", object("b", 2, 9)));
        feed.line(bookmark(50));
    };
    let (answer, ()) = tokio::join!(world.read(PODS), speak);
    assert_eq!(answer.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_large_store_of_a_kind_without_bookmarks_is_refused_without_a_wait() {
    let world = large_kind_without_bookmarks(strict(false)).await;
    // The first freshness check finds out that the API server sends no bookmarks for this kind. The
    // second read then needs no wait.
    assert_eq!(world.read(PODS).await.unwrap_err().code(), 504);
    let probes = world.server.count(Kind::Probe);
    assert_eq!(world.read(PODS).await.unwrap_err().code(), 504);
    assert_eq!(world.server.count(Kind::Probe), probes);
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
async fn a_bounded_read_of_an_unproven_store_is_forwarded_or_waits_for_a_check() {
    // Many times as long as the check, so that its result is not stale on a busy machine either.
    let max_staleness = Duration::from_secs(2);
    for forwards in [true, false] {
        let setup =
            ReadSetup { forwards, max_staleness: Some(max_staleness), ..ReadSetup::default() };
        let world = ReadEngine::start_with(setup, |asked| match asked.kind {
            Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
            Kind::First => {
                Reply::json(list(50, &[object("a", 1, 3)])).after(Duration::from_millis(100))
            }
            _ => quiet(asked),
        })
        .await;
        let listed = world.engine.until_watching(&world.key).await.current_at;
        sleep(max_staleness).await;
        match world.read(PODS).await {
            Err(failure) => assert!(forwards && failure.is_specific_to_cache(), "{failure:?}"),
            Ok(names) => assert_eq!((forwards, names), (false, vec!["a".to_owned()])),
        }
        // The check of the first read continues after the read ended.
        world.engine.until(&world.key, |report| report.current_at > listed).await;
        assert_eq!(world.server.count(Kind::First), 1);
    }
}

#[tokio::test]
async fn a_bounded_read_of_a_kind_without_bookmarks_is_forwarded() {
    let setup = ReadSetup { forwards: true, ..ReadSetup::default() };
    let world = large_kind_without_bookmarks(setup).await;
    let failure = world.read(&format!("{PODS}?resourceVersion=50")).await.unwrap_err();
    assert!(failure.is_specific_to_cache(), "{failure:?}");
    world.engine.until(&world.key, |report| report.lacks_bookmarks).await;
    // The API server answered the first read, possibly with a newer version than the store's. So
    // the next read needs a proof, and only an event could bring it.
    let failure = world.read(PODS).await.unwrap_err();
    assert!(failure.code() == 504 && failure.is_specific_to_cache(), "{failure:?}");
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
        // The probe of the first read continues after the read ended. When it has brought the
        // version, the next read needs no wait.
        world.engine.until(&world.key, |report| report.version >= Some(60.into())).await;
        assert_eq!(world.read(&newer).await.unwrap(), ["a"]);
        assert_eq!(world.server.count(Kind::Probe), 1);
    }
}

/// Records a forwarded write that returned `version`.
fn write(world: &ReadEngine, version: u64) {
    let resource = GroupResource::new("", "pods").unwrap();
    let written = WriteTarget { resource, namespace: Some("ns".into()) };
    world.reads.record_write(written, &version.into());
}

/// A script that lists the pod `a` at version 7. `check` scripts freshness checks.
fn with_checks(
    check: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static {
    move |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        Kind::First => check(asked),
        _ => quiet(asked),
    }
}

fn failed(_: &ReceivedQuery) -> Reply {
    Reply::refused(500, "InternalError")
}

#[tokio::test]
async fn a_failed_check_does_not_end_the_wait_for_a_writes_event() {
    let (feed, script) = fed(with_checks(failed));
    let world = ReadEngine::start(script).await;
    world.engine.until_watching(&world.key).await;
    write(&world, 60);
    let speak = async {
        while world.server.count(Kind::First) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(Duration::from_millis(200)).await;
        feed.line(event("ADDED", object("b", 2, 60)));
    };
    let (answer, ()) = tokio::join!(world.read(PODS), speak);
    assert_eq!(answer.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_writes_event_ends_the_wait_during_a_check() {
    let slow = |asked: &ReceivedQuery| failed(asked).after(EARLY * 2);
    let (feed, script) = fed(with_checks(slow));
    let world = ReadEngine::start(script).await;
    world.engine.until_watching(&world.key).await;
    write(&world, 60);
    let began = Instant::now();
    let speak = async {
        while world.server.count(Kind::First) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        feed.line(event("ADDED", object("b", 2, 60)));
    };
    let (answer, ()) = tokio::join!(world.read(PODS), speak);
    assert_eq!(answer.unwrap(), ["a", "b"]);
    assert!(began.elapsed() < EARLY, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_read_that_waits_for_a_write_repeats_a_failed_check() {
    // The object is as before the write, because an etcd restore has undone the write.
    let world = ReadEngine::start(with_checks(|asked| match asked.nth {
        0 => failed(asked),
        _ => Reply::json(list(50, &[object("a", 1, 3)])),
    }))
    .await;
    world.engine.until_watching(&world.key).await;
    write(&world, 60);
    assert_eq!(world.read(PODS).await.unwrap(), ["a"]);
    assert_eq!(world.server.count(Kind::First), 2);
}

#[tokio::test]
async fn after_six_seconds_the_error_names_the_version_of_the_write() {
    let world = ReadEngine::start(with_checks(failed)).await;
    world.engine.until_watching(&world.key).await;
    write(&world, 60);
    let began = Instant::now();
    let failure = world.read(PODS).await.unwrap_err();
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!((failure.code(), failure.is_specific_to_cache()), (504, false), "{failure:?}");
    let message = failure.message();
    assert!(message.contains("version 60 of a forwarded write"), "{message}");
    assert!(!message.contains("of its profile"), "{message}");
    // The read repeats a failed check after a second, not at once.
    assert!(world.server.count(Kind::First) <= 6, "{}", world.server.count(Kind::First));
}

#[tokio::test]
async fn another_reads_check_ends_the_wait_for_a_write() {
    let script = with_checks(|_| Reply::json(list(50, &[object("a", 1, 3)])));
    let world = ReadEngine::start(script).await;
    world.engine.until_watching(&world.key).await;
    let freshness_checker = world.engine.freshness_checker();
    // Without another read's check, the read makes its own check after 250 ms.
    let own_check = Duration::from_millis(250);
    for version in (60..).take(TRIES) {
        write(&world, version);
        let began = Instant::now();
        let check = async {
            sleep(Duration::from_millis(20)).await;
            freshness_checker.check(&world.key, &"home".into(), Instant::now()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(world.read(PODS), check);
        assert_eq!(answer.unwrap(), ["a"]);
        // A busy machine can delay a single read.
        if began.elapsed() < own_check {
            return;
        }
    }
    panic!("each of {TRIES} reads waited {own_check:?}");
}

#[tokio::test]
async fn a_read_of_a_profile_that_was_paused_before_its_first_list_fails_at_once() {
    let setup = ReadSetup { mode: ProfileMode::Paused, ..ReadSetup::default() };
    let mut world = ReadEngine::start_with(setup, |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    let began = Instant::now();
    let failure = world.read(PODS).await.unwrap_err();
    assert!(began.elapsed() < EARLY, "{:?}", began.elapsed());
    assert_eq!((failure.code(), failure.retry_after()), (503, None), "{failure}");
    assert!(failure.message().contains("spec.mode to Active"), "{failure}");
    // The profile was resumed and paused again, so it serves its objects.
    let mut pods = informer("pods");
    pods.key = world.key.clone();
    world.engine.start(&pods);
    world.engine.until_watching(&world.key).await;
    world.engine.pause(&pods);
    assert_eq!(world.read(PODS).await.unwrap(), ["a"]);
}
