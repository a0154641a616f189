//! Tests of consistency checks, which compare a store with a list of the same version.

use crate::{
    engine::{Engine, fed, informer, quick, run, sum},
    reply::{Reply, bookmark, event, list, list_with, object, quiet, status},
    server::{Kind, ReceivedQuery},
    undecodable::bad,
};
use kubewarm_api::model::{InformerSpec, MetricOutcome};
use kubewarm_cache::informer::{CONSISTENCY_OUTCOMES, ConsistencyResult, RelistReason};
use std::time::Duration;

/// Pods whose store gets a consistency check every 200 ms.
fn compared() -> InformerSpec {
    let mut pods = informer("pods");
    pods.settings.consistency_check_period = Some(Duration::from_millis(200));
    pods.settings.lists.page_size = 2;
    pods
}

fn both() -> [String; 2] {
    [object("a", 1, 3), object("b", 2, 4)]
}

/// Two objects, listed at version 7.
fn two(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &both())),
        _ => quiet(asked),
    }
}

/// The number of finished consistency checks.
fn all(engine: &Engine) -> u64 {
    engine.count(|metrics| sum(&metrics.consistency_checks, &CONSISTENCY_OUTCOMES))
}

/// The number of consistency checks with this result.
fn compared_as(engine: &Engine, result: ConsistencyResult) -> u64 {
    engine.count(|metrics| {
        let different = metrics.consistency_differences.get();
        let counted =
            |outcome: MetricOutcome| metrics.consistency_checks.with_label_values(&[outcome]).get();
        match result {
            ConsistencyResult::Equal => counted(MetricOutcome::Success) - different,
            ConsistencyResult::Different => different,
            ConsistencyResult::Skipped => counted(MetricOutcome::Cancelled),
            ConsistencyResult::Failed => counted(MetricOutcome::Error),
        }
    })
}

/// Waits for two consistency checks with the expected result. Returns the number of consistency
/// checks with other results, and the number of relists.
async fn ended(
    script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
    expected: ConsistencyResult,
) -> (u64, u64) {
    let pods = compared();
    let (_server, engine) = run(quick(), &[&pods], script).await;
    engine.until(&pods.key, |_| compared_as(&engine, expected) >= 2).await;
    let answer = (all(&engine) - compared_as(&engine, expected), engine.relists());
    engine.shut_down().await;
    answer
}

#[tokio::test]
async fn comparisons_pause_until_a_list_has_no_undecodable_object() {
    let pods = compared();
    let (feed, script) = fed(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3), bad("b", 4)])),
        (Kind::First, _) => Reply::json(list(asked.query("resourceVersion"), &both())),
        _ => two(asked),
    });
    let (server, engine) = run(quick(), &[&pods], script).await;
    engine.until(&pods.key, |_| compared_as(&engine, ConsistencyResult::Skipped) >= 2).await;
    assert_eq!(compared_as(&engine, ConsistencyResult::Skipped), all(&engine));
    feed.line(format!(r#"{{"type":"ERROR","object":{}}}"#, status(410, "Expired")));
    engine.until(&pods.key, |_| compared_as(&engine, ConsistencyResult::Equal) >= 2).await;
    assert_eq!(server.count(Kind::List), 2);
}

#[tokio::test]
async fn the_time_until_a_comparison_goes_on_when_a_watch_ends() {
    let mut pods = compared();
    pods.settings.consistency_check_period = Some(Duration::from_millis(600));
    let (_server, engine) = run(quick(), &[&pods], |asked| match asked.kind {
        // Each watch ends after 320 ms. If the period of 600 ms counted from the start of a watch,
        // no consistency check would ever begin.
        Kind::Watch => {
            let pause = tokio::time::sleep(Duration::from_millis(320));
            Reply::in_two(bookmark(8 + asked.nth) + "\n", pause, String::new())
        }
        Kind::First => Reply::json(list(asked.query("resourceVersion"), &both())),
        _ => two(asked),
    })
    .await;
    engine.until(&pods.key, |_| compared_as(&engine, ConsistencyResult::Equal) >= 2).await;
}

#[tokio::test]
async fn an_object_that_a_watch_missed_is_found_and_relisted() {
    let pods = compared();
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        // The API server deleted `b` at version 9, but the watch did not send this deletion. So the
        // store still contains `b`.
        (Kind::Watch, 0) => Reply::held(bookmark(20) + "\n"),
        (Kind::List, 1) => Reply::json(list(30, &[object("a", 1, 3)])),
        (Kind::First, _) => {
            let at = asked.query("resourceVersion").to_owned();
            let all = if at == "7" { both().to_vec() } else { vec![object("a", 1, 3)] };
            Reply::json(list(at, &all))
        }
        _ => two(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@3"]).await;
    let relist = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    let relist = relist.last_relist.unwrap();
    assert_eq!((relist.reason, relist.deleted_objects), (RelistReason::Inconsistent, 1));
    assert_eq!(compared_as(&engine, ConsistencyResult::Different), 1);
    let relisted = &server.of(Kind::List)[1];
    assert_eq!(relisted.query("resourceVersion"), "", "a consistent read");
    let first = &server.of(Kind::First)[0];
    assert_eq!((first.query("resourceVersionMatch"), first.query("limit")), ("Exact", "2"));
    // After the relist, the store is equal to the API server again.
    engine.until(&pods.key, |_| compared_as(&engine, ConsistencyResult::Equal) >= 2).await;
    assert_eq!(engine.relists(), 1);
}

#[tokio::test]
async fn changes_during_a_comparison_are_no_differences() {
    let script = |asked: &ReceivedQuery| match asked.kind {
        Kind::First => {
            let at = asked.query("resourceVersion").to_owned();
            let more = r#","continue":"next""#;
            Reply::json(list_with(at, more, &both())).after(Duration::from_millis(300))
        }
        // The continue token contains the version of the first page, so all pages have this
        // version.
        Kind::Next => Reply::json(list(7, &[object("c", 3, 5)])),
        Kind::List => {
            Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 4), object("c", 3, 5)]))
        }
        Kind::Watch => {
            let (feed, reply) = Reply::fed();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(350)).await;
                feed.line(event("MODIFIED", object("a", 1, 9)));
                feed.line(event("DELETED", object("b", 2, 10)));
                std::future::pending::<()>().await;
            });
            reply
        }
        _ => quiet(asked),
    };
    let pods = compared();
    let (_server, engine) = run(quick(), &[&pods], script).await;
    engine.until_shown(&pods.key, &["a@9", "c@5"]).await;
    engine.until(&pods.key, |_| all(&engine) >= 1).await;
    assert_eq!(compared_as(&engine, ConsistencyResult::Equal), 1);
    assert_eq!(engine.relists(), 0);
}

#[tokio::test]
async fn a_comparison_without_a_matching_list_has_no_effect() {
    for gone in [410, 500] {
        let expected =
            if gone == 410 { ConsistencyResult::Skipped } else { ConsistencyResult::Failed };
        let script = move |asked: &ReceivedQuery| match asked.kind {
            Kind::First => {
                Reply::refused(gone, if gone == 410 { "Expired" } else { "InternalError" })
            }
            _ => two(asked),
        };
        assert_eq!(ended(script, expected).await, (0, 0), "{gone}");
    }
    // A server that ignores the requested version and lists its newest state, which the check
    // cannot compare.
    let script = |asked: &ReceivedQuery| match asked.kind {
        Kind::First => Reply::json(list(8, &[])),
        _ => two(asked),
    };
    assert_eq!(ended(script, ConsistencyResult::Skipped).await, (0, 0));
    // A server with an object that kubewarm cannot decode. The store lacks it, so the check cannot
    // compare the store.
    let script = |asked: &ReceivedQuery| match asked.kind {
        Kind::List => {
            Reply::json(list(7, &[object("a", 1, 3), r#"{"metadata":{"name":7}}"#.to_owned()]))
        }
        _ => two(asked),
    };
    assert_eq!(ended(script, ConsistencyResult::Skipped).await, (0, 0));
}
