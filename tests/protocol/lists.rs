//! Tests of failing lists and relists.

use crate::{
    engine::{Engine, informer, quick},
    reply::{Reply, list, list_with, object, quiet},
    server::{Kind, ScriptedServer},
};
use kubewarm_api::model::{FaultReason, ListStrategy};
use kubewarm_cache::informer::FirstSyncMethod;

/// Metadata of a page of a list after which another page follows.
const MORE: &str = r#","continue":"token","remainingItemCount":1"#;

#[tokio::test]
async fn a_list_fills_the_store() {
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5)])),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, pods) = (Engine::new(&server, quick()), informer("pods"));
    engine.start(&pods);
    let report = engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@3", "b@5"]);
    assert_eq!(report.version.unwrap().to_string(), "7");
    assert_eq!(server.of(Kind::Watch)[0].query("resourceVersion"), "7");
    assert_eq!(report.warmed.unwrap().strategy, FirstSyncMethod::List);
}

#[tokio::test]
async fn the_version_of_a_list_of_custom_resources_stands_behind_its_items() {
    for strategy in [ListStrategy::List, ListStrategy::PagedList] {
        let server = ScriptedServer::start(|asked| match asked.kind {
            Kind::List | Kind::First => Reply::json(format!(
                r#"{{"apiVersion":"v1","items":[{}],"kind":"List","metadata":{{"resourceVersion":"7"}}}}"#,
                object("a", 1, 3)
            )),
            _ => quiet(asked),
        })
        .await;
        let (mut engine, mut pods) = (Engine::new(&server, quick()), informer("pods"));
        pods.settings.lists.strategy = strategy;
        engine.start(&pods);
        let report = engine.until_watching(&pods.key).await;
        assert_eq!(engine.shown(&pods.key), ["a@3"]);
        assert_eq!(report.version.unwrap().to_string(), "7");
    }
}

#[tokio::test]
async fn a_truncated_page_is_requested_again_and_no_object_is_removed() {
    let server = ScriptedServer::start(|asked| match (asked.kind, asked.nth) {
        (Kind::First, _) => Reply::json(list_with(7, MORE, &[object("a", 1, 3)])),
        (Kind::Next, 0) => {
            let whole = list(7, &[object("b", 2, 5), object("c", 3, 6)]);
            Reply::json(&whole[..whole.len() - 30])
        }
        (Kind::Next, _) => Reply::json(list(7, &[object("b", 2, 5), object("c", 3, 6)])),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, mut pods) = (Engine::new(&server, quick()), informer("pods"));
    pods.settings.lists.strategy = ListStrategy::PagedList;
    engine.start(&pods);
    engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@3", "b@5", "c@6"]);
    assert_eq!((server.count(Kind::First), server.count(Kind::Next)), (1, 2));
    assert_eq!(server.of(Kind::Next)[1].query("continue"), "token");
}

#[tokio::test]
async fn after_two_broken_lists_the_next_has_pages_and_a_later_one_is_whole_again() {
    let server = ScriptedServer::start(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 0 | 1) => Reply::cut(r#"{"kind":"List","#),
        (Kind::First, _) => Reply::json(list(7, &[object("a", 1, 3)])),
        (Kind::Watch, 0) => Reply::refused(410, "Expired"),
        (Kind::List, _) => Reply::json(list(9, &[object("a", 1, 8)])),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, pods) = (Engine::new(&server, quick()), informer("pods"));
    engine.start(&pods);
    engine.until_shown(&pods.key, &["a@8"]).await;
    assert_eq!((server.count(Kind::List), server.count(Kind::First)), (3, 1));
}

#[tokio::test]
async fn a_continue_token_that_expired_ends_in_one_whole_list() {
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::First => Reply::json(list_with(7, MORE, &[object("a", 1, 3), object("gone", 9, 2)])),
        Kind::Next => Reply::refused(410, "Expired"),
        Kind::List => Reply::json(list(9, &[object("a", 1, 3), object("b", 2, 8)])),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, mut pods) = (Engine::new(&server, quick()), informer("pods"));
    pods.settings.lists.strategy = ListStrategy::PagedList;
    engine.start(&pods);
    let report = engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@3", "b@8"]);
    assert_eq!(report.version.unwrap().to_string(), "9");
    assert_eq!(server.count(Kind::List), 1);
}

#[tokio::test]
async fn an_html_page_is_not_accepted_as_a_list() {
    let server = ScriptedServer::start(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json("<html><body>Welcome</body></html>"),
        (Kind::List, 1) => Reply::status(502, "", "<html>secret</html>".to_owned()),
        (Kind::List | Kind::First, _) => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, pods) = (Engine::new(&server, quick()), informer("pods"));
    engine.start(&pods);
    let failing = engine.until(&pods.key, |report| report.fault.is_some()).await;
    assert_eq!(failing.fault.unwrap().reason, FaultReason::Malformed);
    let report = engine.until_watching(&pods.key).await;
    assert_eq!((engine.shown(&pods.key), report.fault), (vec!["a@3".to_owned()], None));
}
