//! Tests of relists after resource versions went back, which happens after an etcd restore.
//!
//! Every list of an informer is a consistent read. So a list with a lower version than the store's
//! shows a rollback. The tests use each list method and each position of the version in a list.

use crate::{
    engine::{Engine, informer, quick, run},
    reply::{Reply, end_bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::{InformerKey, ListStrategy};
use kubewarm_cache::informer::RelistReason;
use std::time::Duration;

const STRATEGIES: [ListStrategy; 3] =
    [ListStrategy::List, ListStrategy::PagedList, ListStrategy::WatchList];

/// Where a list contains its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionPosition {
    /// Before the items, as in lists of built-in kinds.
    First,
    /// After the items, as in lists of custom resources.
    Last,
}

/// The complete list, in the form of the requested method. `lines` follow a streaming list.
fn all(
    asked: &ReceivedQuery,
    at: VersionPosition,
    version: u64,
    items: &[String],
    lines: &str,
) -> Reply {
    match (asked.kind, at) {
        (Kind::Stream, _) => {
            let added: String = items.iter().map(|item| event("ADDED", item) + "\n").collect();
            Reply::held(format!("{added}{}\n{lines}", end_bookmark(version)))
        }
        (_, VersionPosition::First) => Reply::json(list(version, items)),
        (_, VersionPosition::Last) => {
            let items = items.join(",");
            let frame = format!(r#""metadata":{{"resourceVersion":"{version}"}}"#);
            Reply::json(format!(r#"{{"items":[{items}],{frame}}}"#))
        }
    }
}

/// Starts an informer whose first list contained `a@3` and `b@9`, at version 9. The informer's
/// watch ends with 410. The script `relist` answers later lists.
async fn run_to_nine(
    strategy: ListStrategy,
    at: VersionPosition,
    relist: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, Engine, InformerKey) {
    let mut widgets = informer("widgets.example.com");
    widgets.settings.lists.strategy = strategy;
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
async fn an_older_list_purges_the_store_and_is_repeated() {
    for strategy in STRATEGIES {
        for at in [VersionPosition::First, VersionPosition::Last] {
            let (server, engine, key) = run_to_nine(strategy, at, move |asked| {
                // The relist is delayed, so that the test can see that the store is empty before
                // it.
                let late = Duration::from_millis(if asked.nth == 1 { 0 } else { 100 });
                all(asked, at, 6, &[object("a", 1, 3), object("b", 2, 5)], "").after(late)
            })
            .await;
            let purged = engine.until(&key, |report| report.warmed.is_none()).await;
            assert!(purged.version.is_none(), "{strategy:?} {at:?}: no read may be served");
            engine.until_shown(&key, &["a@3", "b@5"]).await;
            let report = engine.until(&key, |report| report.last_relist.is_some()).await;
            assert_eq!(report.last_relist.unwrap().reason, RelistReason::Rollback);
            let rollbacks = engine.count(|metrics| metrics.resource_version_rollbacks.get());
            assert_eq!(rollbacks, 1, "{strategy:?} {at:?}");
            assert_eq!(server.count(Kind::Newest), 0, "the list itself showed the rollback");
        }
    }
}

#[tokio::test]
async fn a_newer_list_is_no_rollback_and_adds_missed_changes() {
    for strategy in STRATEGIES {
        let at = VersionPosition::Last;
        let (server, engine, key) = run_to_nine(strategy, at, move |asked| {
            let items = [object("a", 1, 3), object("m", 7, 4), object("n", 8, 9)];
            all(asked, at, 12, &items, "")
        })
        .await;
        engine.until_shown(&key, &["a@3", "m@4", "n@9"]).await;
        assert_eq!(
            engine.count(|metrics| metrics.resource_version_rollbacks.get()),
            0,
            "{strategy:?}"
        );
        let lists = server
            .asked()
            .into_iter()
            .filter(|asked| matches!(asked.kind, Kind::List | Kind::First | Kind::Stream));
        for list in lists {
            assert_eq!(list.query("resourceVersion"), "", "{strategy:?}: a consistent read");
        }
    }
}
