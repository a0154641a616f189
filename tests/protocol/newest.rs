//! Tests that a caller's reads do not go back to older versions if two informers can answer them.

use crate::{
    engine::{fed, informer},
    read_engine::{ReadEngine, ReadSetup},
    reply::{Reply, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::ProfileRef;
use serde_json::Value;

const OF_NAMESPACE: &str = "/api/v1/namespaces/ns/pods";

/// Starts two informers that can answer reads of the namespace `ns`. An informer of all namespaces,
/// which the profile `home/p` declares, is at version 244. An informer of `ns`, which the profile
/// `ns/p` declares, is at version 242. By the order of keys, the second one would answer.
async fn start(script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static) -> ReadEngine {
    let setup = ReadSetup { more: vec![("ns", informer("pods"))], ..ReadSetup::default() };
    ReadEngine::start_with(setup, move |asked| match asked.kind {
        Kind::List => {
            let version = if asked.path == OF_NAMESPACE { 242 } else { 244 };
            Reply::json(list(version, &[object("a", 1, 3)]))
        }
        _ => script(asked),
    })
    .await
}

fn version(list: &Value) -> &str {
    list["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn the_newest_store_answers_whatever_version_a_request_asks_for() {
    let world = start(quiet).await;
    for query in ["", "?resourceVersion=242", "?resourceVersion=244", "?resourceVersion=0", ""] {
        let list = world.read_json(&format!("{OF_NAMESPACE}{query}")).await.unwrap();
        assert_eq!(version(&list), "244", "{query}");
    }
    let exact = format!("{OF_NAMESPACE}?resourceVersion=242&resourceVersionMatch=Exact");
    assert_eq!(version(&world.read_json(&exact).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 0, "no read needs a check");
}

#[tokio::test]
async fn a_caller_who_has_read_a_newer_version_waits_for_a_check_of_the_older_store() {
    let world = start(|asked| match (asked.kind, asked.nth) {
        (Kind::First, 0) => Reply::json(list(300, &[object("a", 1, 3)])),
        (Kind::First, _) => Reply::refused(403, "Forbidden"),
        _ => quiet(asked),
    })
    .await;
    let older = ProfileRef { namespace: "ns".into(), name: "p".into() };
    let read = async |caller, profile| world.read_as(caller, profile, OF_NAMESPACE).await;
    assert_eq!(version(&read("other", Some(&older)).await.unwrap()), "242");
    assert_eq!(version(&read("one", None).await.unwrap()), "244");
    assert_eq!(world.server.count(Kind::First), 0);
    // A freshness check finds the older store equal to the list at version 300, so its objects are
    // current.
    assert_eq!(version(&read("one", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1);
    assert_eq!(version(&read("other", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1, "another caller has read no newer version");
    // This caller's later reads need no further check, because the freshness check has proven the
    // store after the caller's newest read.
    assert_eq!(version(&read("one", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1);
    // After this newer read, the older store needs a newer freshness check, which fails.
    assert_eq!(version(&read("one", None).await.unwrap()), "244");
    assert_eq!(read("one", Some(&older)).await.unwrap_err().code(), 504);
}

#[tokio::test]
async fn the_last_confirmed_store_answers_for_an_exact_version() {
    let (feed, script) = fed(|asked| match asked.kind {
        Kind::List if asked.path != OF_NAMESPACE && asked.nth > 0 => {
            Reply::json(list(242, &[object("b", 2, 5)]))
        }
        Kind::List => Reply::json(list(242, &[object("a", 1, 3)])),
        _ => quiet(asked),
    });
    let setup = ReadSetup { more: vec![("ns", informer("pods"))], ..ReadSetup::default() };
    let world = ReadEngine::start_with(setup, script).await;
    // The informer of all namespaces lists again, and finds another history, as after an etcd
    // restore. The informer of `ns` has not noticed it.
    feed.line(event("ERROR", status(410, "Expired")));
    world.engine.until_shown(&world.key, &["b@5"]).await;
    let exact = format!("{OF_NAMESPACE}?resourceVersion=242&resourceVersionMatch=Exact");
    assert_eq!(world.read(&exact).await.unwrap(), ["b"]);
}
