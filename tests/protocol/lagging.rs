//! Relists from servers that lag behind, and say so last.

use crate::{
    engine::{Engine, cell, quick, run},
    reply::{Reply, end_bookmark, event, object, quiet, status},
    server::{Asked, Kind, Server},
};
use kubewarm::{
    informer::CellReport,
    model::{CellKey, ListStrategy, Reason},
};
use std::time::Duration;

const STRATEGIES: [ListStrategy; 3] =
    [ListStrategy::Whole, ListStrategy::Paged, ListStrategy::Streaming];

/// Everything there is, as the way that was asked for says it: the version last. `lines` come behind
/// a streaming list.
fn all(asked: &Asked, version: u64, items: &[String], lines: &str) -> Reply {
    if asked.kind == Kind::Stream {
        let added: String = items.iter().map(|item| event("ADDED", item) + "\n").collect();
        return Reply::held(format!("{added}{}\n{lines}", end_bookmark(version)));
    }
    let items = items.join(",");
    Reply::json(format!(r#"{{"items":[{items}],"metadata":{{"resourceVersion":"{version}"}}}}"#))
}

/// A cell that is complete at version 9, holds `a@3`, and has seen `b@5` go, before `relist` says what
/// the later lists bring.
async fn run_without_b(
    strategy: ListStrategy,
    relist: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
) -> (Server, Engine, CellKey) {
    let mut widgets = cell("widgets.example.com");
    widgets.tuning.strategy = strategy;
    let gone = [event("DELETED", object("b", 2, 9)), event("ERROR", status(410, "Expired"))]
        .join("\n")
        + "\n";
    let (server, engine) = run(quick(), &[&widgets], move |asked| match (asked.kind, asked.nth) {
        (Kind::List | Kind::First | Kind::Stream, 0) => {
            all(asked, 7, &[object("a", 1, 3), object("b", 2, 5)], &gone)
        }
        (Kind::List | Kind::First | Kind::Stream, _) => relist(asked),
        (Kind::Watch, 0) if strategy != ListStrategy::Streaming => Reply::json(gone.clone()),
        _ => quiet(asked),
    })
    .await;
    engine.until_shown(&widgets.key, &["a@3"]).await;
    (server, engine, widgets.key)
}

fn is_lagging(report: &CellReport) -> bool {
    report.fault.as_ref().is_some_and(|fault| fault.reason == Reason::Lagging)
}

#[tokio::test]
async fn what_was_deleted_does_not_come_back_before_the_list_says_how_old_it_is() {
    for strategy in STRATEGIES {
        let (_server, engine, key) = run_without_b(strategy, |asked| match asked.nth {
            1 | 2 => all(asked, 6, &[object("a", 1, 3), object("b", 2, 5)], ""),
            // Late, so that whoever looks sees what the others left behind.
            _ => all(asked, 12, &[object("a", 1, 3), object("c", 3, 11)], "")
                .after(Duration::from_millis(100)),
        })
        .await;
        engine.until(&key, is_lagging).await;
        engine
            .until_all(&key, |_, shown| {
                assert!(!shown.contains(&"b@5".to_owned()), "{strategy:?}: {shown:?}");
                shown == ["a@3", "c@11"]
            })
            .await;
    }
}

#[tokio::test]
async fn what_was_missed_is_made_up_for_by_a_list_that_is_new_enough() {
    for strategy in STRATEGIES {
        let (_server, engine, key) = run_without_b(strategy, |asked| {
            all(asked, 12, &[object("a", 1, 3), object("m", 7, 4), object("n", 8, 9)], "")
        })
        .await;
        let report = engine.until_shown(&key, &["a@3", "m@4", "n@9"]).await;
        assert!(!is_lagging(&report), "{strategy:?}");
    }
}

#[tokio::test]
async fn what_is_deleted_while_it_is_held_back_does_not_come_back() {
    let (_server, engine, key) = run_without_b(ListStrategy::Streaming, |_| {
        let lines = [
            event("ADDED", object("a", 1, 3)),
            event("ADDED", object("m", 7, 4)),
            event("DELETED", object("m", 7, 11)),
            end_bookmark(12),
        ];
        Reply::held(lines.join("\n") + "\n")
    })
    .await;
    engine.until(&key, |report| report.last_relist.is_some()).await;
    assert_eq!(engine.shown(&key), ["a@3"]);
}

#[tokio::test]
async fn a_list_that_leaves_too_much_in_doubt_is_taken_anew_as_a_consistent_read() {
    let (server, engine, key) = run_without_b(ListStrategy::Whole, |asked| match asked.nth {
        1 => {
            let items: Vec<_> = (0..5_000).map(|n| object(&format!("o{n:04}"), n, 4)).collect();
            all(asked, 6, &items, "")
        }
        _ => all(asked, 12, &[object("a", 1, 3), object("c", 3, 5)], ""),
    })
    .await;
    let report = engine
        .until_all(&key, |report, shown| {
            assert!(shown.len() <= 2, "{} shown", shown.len());
            report.last_relist.is_some()
        })
        .await;
    assert_eq!(engine.shown(&key), ["a@3", "c@5"]);
    assert_eq!(report.last_relist.unwrap().deleted_in_gap, 0);
    let lists = server.of(Kind::List);
    let versions: Vec<_> = lists.iter().map(|list| list.query("resourceVersion")).collect();
    assert_eq!(versions, ["", "9", ""]);
}
