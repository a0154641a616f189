//! Tests of consistency checks: comparisons of a store with a list of the same version.

use crate::{
    engine::{Engine, informer, quick, run, sum},
    reply::{Reply, bookmark, event, list, list_with, object, quiet},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::{InformerSpec, MetricOutcome};
use kubewarm_cache::informer::{CONSISTENCY_OUTCOMES, ConsistencyResult, RelistReason};
use std::time::Duration;

/// Pods with a consistency check every 200 ms.
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

/// The number of finished comparisons.
fn all(engine: &Engine) -> u64 {
    engine.count(|of| sum(&of.consistency_checks, &CONSISTENCY_OUTCOMES))
}

/// How many comparisons had this result.
fn compared_as(engine: &Engine, result: ConsistencyResult) -> u64 {
    engine.count(|of| {
        let different = of.consistency_differences.get();
        let counted =
            |outcome: MetricOutcome| of.consistency_checks.with_label_values(&[outcome]).get();
        match result {
            ConsistencyResult::Equal => counted(MetricOutcome::Success) - different,
            ConsistencyResult::Different => different,
            ConsistencyResult::Skipped => counted(MetricOutcome::Cancelled),
            ConsistencyResult::Failed => counted(MetricOutcome::Error),
        }
    })
}

/// Waits for two comparisons with the expected result. Returns the number of other results, and of relists.
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
async fn an_object_that_a_watch_missed_is_found_and_relisted() {
    let pods = compared();
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        // The watch has not sent the deletion of `b` at version 9.
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
    // It is well now.
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
        // The continue token contains the version of the first page.
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
    // A server that ignores the requested version and lists its newest state.
    let script = |asked: &ReceivedQuery| match asked.kind {
        Kind::First => Reply::json(list(8, &[])),
        _ => two(asked),
    };
    assert_eq!(ended(script, ConsistencyResult::Skipped).await, (0, 0));
    // An object that cannot be decoded and is therefore not in the store.
    let script = |asked: &ReceivedQuery| match asked.kind {
        Kind::List => {
            Reply::json(list(7, &[object("a", 1, 3), r#"{"metadata":{"name":7}}"#.to_owned()]))
        }
        _ => two(asked),
    };
    assert_eq!(ended(script, ConsistencyResult::Skipped).await, (0, 0));
}
