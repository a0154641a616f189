//! Relists after resource versions have gone back, as after an etcd restore.
//!
//! Every list is a consistent read. One that is older than the table shows a rollback, whichever way it
//! was fetched, and wherever it says its version.

use crate::{
    engine::{Engine, cell, quick, run},
    reply::{Reply, end_bookmark, event, list, object, quiet, status},
    server::{Asked, Kind, Server},
};
use kubewarm_api::model::{CellKey, ListStrategy};
use kubewarm_cache::informer::RelistReason;
use std::time::Duration;

const STRATEGIES: [ListStrategy; 3] =
    [ListStrategy::List, ListStrategy::PagedList, ListStrategy::WatchList];

/// Where a list says its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Before its items, as of built-in kinds.
    First,
    /// Behind them, as of custom resources.
    Last,
}

/// Everything there is, as the way that was asked for says it. `lines` come behind a streaming list.
fn all(asked: &Asked, at: Version, version: u64, items: &[String], lines: &str) -> Reply {
    match (asked.kind, at) {
        (Kind::Stream, _) => {
            let added: String = items.iter().map(|item| event("ADDED", item) + "\n").collect();
            Reply::held(format!("{added}{}\n{lines}", end_bookmark(version)))
        }
        (_, Version::First) => Reply::json(list(version, items)),
        (_, Version::Last) => {
            let items = items.join(",");
            let frame = format!(r#""metadata":{{"resourceVersion":"{version}"}}"#);
            Reply::json(format!(r#"{{"items":[{items}],{frame}}}"#))
        }
    }
}

/// An informer that was complete at version 9, with `a@3` and `b@9`, and whose watch has ended with 410.
/// `relist` says what the later lists bring.
async fn run_to_nine(
    strategy: ListStrategy,
    at: Version,
    relist: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
) -> (Server, Engine, CellKey) {
    let mut widgets = cell("widgets.example.com");
    widgets.tuning.lists.strategy = strategy;
    let gone = event("ERROR", status(410, "Expired")) + "\n";
    let (server, engine) = run(quick(), &[&widgets], move |asked| match (asked.kind, asked.nth) {
        (Kind::List | Kind::First | Kind::Stream, 0) => {
            all(asked, at, 9, &[object("a", 1, 3), object("b", 2, 9)], &gone)
        }
        (Kind::List | Kind::First | Kind::Stream, _) => relist(asked),
        (Kind::Watch, 0) if strategy != ListStrategy::WatchList => Reply::json(gone.clone()),
        _ => quiet(asked),
    })
    .await;
    (server, engine, widgets.key)
}

#[tokio::test]
async fn an_older_list_purges_what_is_held_and_is_taken_again() {
    for strategy in STRATEGIES {
        for at in [Version::First, Version::Last] {
            let (server, engine, key) = run_to_nine(strategy, at, move |asked| {
                // Late, so that whoever looks sees the purge.
                let late = Duration::from_millis(if asked.nth == 1 { 0 } else { 100 });
                all(asked, at, 6, &[object("a", 1, 3), object("b", 2, 5)], "").after(late)
            })
            .await;
            let purged = engine.until(&key, |report| report.warmed.is_none()).await;
            assert!(purged.version.is_none(), "{strategy:?} {at:?}: nothing may be served");
            engine.until_shown(&key, &["a@3", "b@5"]).await;
            let report = engine.until(&key, |report| report.last_relist.is_some()).await;
            assert_eq!(report.last_relist.unwrap().reason, RelistReason::Rollback);
            let rollbacks = engine.count(|of| of.resource_version_rollbacks.get());
            assert_eq!(rollbacks, 1, "{strategy:?} {at:?}");
            assert_eq!(server.count(Kind::Newest), 0, "the list itself has shown it");
        }
    }
}

#[tokio::test]
async fn a_list_that_is_new_enough_is_no_rollback_and_brings_what_was_missed() {
    for strategy in STRATEGIES {
        let at = Version::Last;
        let (server, engine, key) = run_to_nine(strategy, at, move |asked| {
            let items = [object("a", 1, 3), object("m", 7, 4), object("n", 8, 9)];
            all(asked, at, 12, &items, "")
        })
        .await;
        engine.until_shown(&key, &["a@3", "m@4", "n@9"]).await;
        assert_eq!(engine.count(|of| of.resource_version_rollbacks.get()), 0, "{strategy:?}");
        let lists = server
            .asked()
            .into_iter()
            .filter(|asked| matches!(asked.kind, Kind::List | Kind::First | Kind::Stream));
        for list in lists {
            assert_eq!(list.query("resourceVersion"), "", "{strategy:?}: a consistent read");
        }
    }
}
