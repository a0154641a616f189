//! Tests of the order of a caller's reads, if two informers can answer them.

use crate::{
    engine::informer,
    read_engine::{ReadEngine, ReadSetup},
    reply::{Reply, list, object, quiet},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::ProfileRef;
use serde_json::Value;

const OF_NAMESPACE: &str = "/api/v1/namespaces/ns/pods";

/// An informer of all namespaces at version 244, which the profile `home/p` declares, and an informer of the namespace
/// `ns` at version 242, which the profile `ns/p` declares. The order of keys prefers the second one.
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
    // The check finds the store equal to the list at version 300.
    assert_eq!(version(&read("one", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1);
    assert_eq!(version(&read("other", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1, "another caller has read no newer version");
    // The check has proven the store for all later reads of this caller.
    assert_eq!(version(&read("one", Some(&older)).await.unwrap()), "242");
    assert_eq!(world.server.count(Kind::First), 1);
    // A newer read needs a newer check, which fails.
    assert_eq!(version(&read("one", None).await.unwrap()), "244");
    assert_eq!(read("one", Some(&older)).await.unwrap_err().code(), 504);
}
