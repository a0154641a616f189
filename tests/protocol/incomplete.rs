//! Tests of reads from a store that lacks an object, because kubewarm cannot read it: no response
//! is shorter than the truth.

use crate::{
    engine::{fed, informer},
    protobuf::message,
    read_engine::{ReadEngine, ReadSetup, large_object_permits, request},
    read_server::ReadApiServer,
    reply::{Feed, Reply, end_bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
    undecodable::bad,
};
use kubewarm_api::model::{
    DecodedObject, Delta, DeltaOutcome, DeltaSink, ListStrategy, ObjectEncoding, ProfileRef,
};
use kubewarm_cache::store::StoreWriter;
use kubewarm_wire::{StatusError, WatchStart, protobuf::message_of_kind};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// A script that lists `items`. The test sends the events of the first watch.
fn listed(items: Vec<String>) -> (Feed, impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static) {
    fed(move |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &items)),
        _ => quiet(asked),
    })
}

fn refused(answer: Result<Vec<String>, StatusError>, object: &str) {
    let failure = answer.unwrap_err();
    assert_eq!((failure.code(), failure.is_specific_to_cache()), (500, true), "{failure:?}");
    assert!(failure.message().contains(object), "{failure:?}");
}

#[tokio::test]
async fn reads_that_would_lack_an_object_fail_with_its_name() {
    let (_feed, script) = listed(vec![object("a", 1, 3), bad("b", 4), object("c", 3, 5)]);
    let world = ReadEngine::start(script).await;
    world.until_undecodable(&["ns/b"]).await;
    let collection = "/api/v1/namespaces/ns/pods";
    for path in [
        "/api/v1/pods",
        collection,
        &format!("{collection}?limit=1"),
        &format!("{collection}?resourceVersion=0&labelSelector=x"),
        &format!("{collection}?fieldSelector=metadata.name%3Db"),
        &format!("{collection}/b"),
    ] {
        refused(world.read(path).await, "\"ns/b\"");
    }
    for path in ["?watch=1", "?watch=1&resourceVersion=7", "?watch=1&resourceVersion=0"] {
        let request = request(&format!("{collection}{path}"));
        let watching = request.watch.clone().unwrap();
        let failed =
            world.reads.watch(&request, &watching, None, &"caller", &large_object_permits()).await;
        refused(failed.map(|_| Vec::new()), "\"ns/b\"");
    }
    // The store lacks only an object of the namespace `ns`, so reads of other namespaces and names
    // are complete.
    assert_eq!(world.read("/api/v1/namespaces/other/pods").await.unwrap(), [""; 0]);
    assert_eq!(world.read(&format!("{collection}/a")).await.unwrap(), ["a"]);
    let of_name = format!("{collection}?fieldSelector=metadata.name%3Dc");
    assert_eq!(world.read(&of_name).await.unwrap(), ["c"]);
    assert_eq!(world.read(&format!("{collection}/none")).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn a_version_that_lacked_an_object_is_not_served_after_the_object_is_gone() {
    let (feed, script) = fed(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3), bad("b", 4)])),
        (Kind::List, _) => Reply::json(list(20, &[object("a", 1, 3)])),
        _ => quiet(asked),
    });
    let world = ReadEngine::start(script).await;
    world.until_undecodable(&["ns/b"]).await;
    world.engine.until_watching(&world.key).await;
    feed.line(event("ERROR", status(410, "Expired")));
    world.until_undecodable(&[]).await;
    let collection = "/api/v1/namespaces/ns/pods";
    assert_eq!(world.read(collection).await.unwrap(), ["a"]);
    let exact = format!("{collection}?resourceVersion=7&resourceVersionMatch=Exact");
    assert_eq!(world.read(&exact).await.unwrap_err().code(), 410);
}

#[tokio::test]
async fn a_watch_ends_instead_of_reporting_an_undecodable_object_as_deleted() {
    let (feed, script) = listed(vec![object("a", 1, 3), object("b", 2, 5)]);
    let world = ReadEngine::start(script).await;
    world.engine.until_watching(&world.key).await;
    let request = request("/api/v1/namespaces/ns/pods?watch=1&resourceVersion=7");
    let watching = request.watch.clone().unwrap();
    let collection = "/api/v1/namespaces/ns/pods";
    for (kind, name, version, undecodable) in
        [("MODIFIED", "a", 9, &["ns/a"][..]), ("ADDED", "c", 10, &["ns/a", "ns/c"])]
    {
        // The second unreadable object is new, so the store does not change and only this event can
        // end the watch. The watch is in another namespace, because the namespace `ns` already
        // lacks the first object.
        let mut request = request.clone();
        let mut watching = watching.clone();
        if name == "c" {
            request.namespace = Some("other".into());
            watching.start = WatchStart::Now;
        }
        let mut watch = world
            .reads
            .watch(&request, &watching, None, &"caller", &large_object_permits())
            .await
            .unwrap();
        feed.line(event(kind, bad(name, version)));
        world.until_undecodable(undecodable).await;
        let last = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&last.lines);
        assert!(text.contains("\"code\":410") && !text.contains("DELETED"), "{text}");
        assert!(watch.next().await.is_none());
        refused(world.read(collection).await, "\"ns/a\"");
    }
    feed.line(event("MODIFIED", object("a", 1, 11)));
    feed.line(event("DELETED", object("c", 3, 12)));
    world.until_undecodable(&[]).await;
    assert_eq!(world.read(collection).await.unwrap(), ["a", "b"]);
    // The event log lacks the states that kubewarm could not decode. So lists and watches from
    // these versions get 410.
    for version in [7, 9, 10] {
        let exact = format!("{collection}?resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(world.read(&exact).await.unwrap_err().code(), 410, "{version}");
        let mut watching = watching.clone();
        watching.start = WatchStart::After(version.into());
        let mut watch = world
            .reads
            .watch(&request, &watching, None, &"caller", &large_object_permits())
            .await
            .unwrap();
        let first = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&first.lines);
        assert!(text.contains("\"code\":410"), "{version}: {text}");
    }
}

#[tokio::test]
async fn a_list_of_one_name_does_not_show_that_further_objects_exist() {
    let (_feed, script) = listed(vec![object("a", 1, 3), object("b", 2, 5)]);
    let world = ReadEngine::start(script).await;
    let page = "/api/v1/namespaces/ns/pods?limit=1";
    for (path, has_token) in [
        (page.to_owned(), true),
        (format!("{page}&fieldSelector=metadata.name%3Da"), false),
        ("/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Da".to_owned(), false),
    ] {
        let list = world.read_json(&path).await.unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{path}: {list}");
        assert_eq!(list["metadata"].get("continue").is_some(), has_token, "{path}: {list}");
    }
}

#[tokio::test]
async fn an_object_without_a_readable_name_can_be_in_every_namespace() {
    let (_feed, script) = listed(vec![object("a", 1, 3), r#"{"metadata":{"name":7}}"#.to_owned()]);
    let world = ReadEngine::start(script).await;
    world.until_undecodable(&["?"]).await;
    for path in ["/api/v1/namespaces/other/pods", "/api/v1/namespaces/ns/pods/none"] {
        refused(world.read(path).await, "an object whose name it cannot read");
    }
    assert_eq!(world.read("/api/v1/namespaces/ns/pods/a").await.unwrap(), ["a"]);
}

#[tokio::test]
async fn all_undecodable_objects_count_although_the_report_is_bounded() {
    let mut items: Vec<_> = (0..40).map(|n| bad(&format!("b{n:02}"), 3)).collect();
    items.push(object("a", 1, 3));
    let (_feed, script) = listed(items);
    let world = ReadEngine::start(script).await;
    let report = world.engine.until(&world.key, |report| report.undecodable.len() == 17).await;
    assert_eq!(&*report.undecodable[16].object, "?");
    refused(world.read("/api/v1/namespaces/other/pods").await, "an object whose name");
}

/// An object in protobuf, which is damaged if its name is `b`.
fn damaged_message(name: &str) -> Vec<u8> {
    let mut body = message(name, 3);
    if name == "b" {
        // The head of a field of 127 bytes, without these bytes.
        body.extend([0x12, 0x7f]);
    }
    body
}

/// A sink that stores objects in protobuf, and damages the object `b`.
struct DamagingSink(StoreWriter);

impl DeltaSink for DamagingSink {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        let Self(writer) = self;
        match delta {
            Delta::ListStarted(policy) => {
                let message = message_of_kind("v1", "Pod").unwrap();
                writer.apply(Delta::Encoding(ObjectEncoding::Protobuf(message)));
                writer.apply(Delta::ListStarted(policy))
            }
            Delta::Upsert(object) => {
                let body = damaged_message(&object.name);
                writer.apply(Delta::Upsert(DecodedObject { body: &body, ..object }))
            }
            Delta::WatchEvent(object) => {
                let body = damaged_message(&object.name);
                writer.apply(Delta::WatchEvent(DecodedObject { body: &body, ..object }))
            }
            other => writer.apply(other),
        }
    }
}

fn damaging_setup() -> ReadSetup {
    let sink = |writer| Box::new(DamagingSink(writer)) as Box<dyn DeltaSink>;
    ReadSetup { sink: Some(sink), ..ReadSetup::default() }
}

/// Sends each kind of read of the object `b` over HTTP. Each one must fail with an error whose
/// message contains `problem`.
async fn each_read_fails_over_http(world: &ReadEngine, problem: &str) {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    const METADATA: &str =
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    const STREAM: &str = "watch=1&timeoutSeconds=5&sendInitialEvents=true\
        &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (served, pods) = (ReadApiServer::start(world), "/api/v1/namespaces/ns/pods");
    let (json, metadata) = ("application/json", METADATA.replace("List", ""));
    for (path, accept) in [
        (format!("{pods}/b"), json),
        (format!("{pods}/b"), TABLE),
        (pods.to_owned(), json),
        (pods.to_owned(), TABLE),
        (pods.to_owned(), METADATA),
        ("/api/v1/pods".to_owned(), json),
        (format!("{pods}?limit=2"), json),
        (format!("{pods}?resourceVersion=0"), json),
        (format!("{pods}?fieldSelector=metadata.name%3Db"), TABLE),
        (format!("{pods}?fieldSelector=spec.nodeName%3Dx"), json),
        (format!("{pods}?watch=1&timeoutSeconds=5"), json),
        (format!("{pods}?watch=1&timeoutSeconds=5&resourceVersion=0"), TABLE),
        (format!("{pods}?{STREAM}"), json),
        (format!("{pods}?{STREAM}&fieldSelector=spec.nodeName%3Dx"), json),
        (format!("{pods}?{STREAM}"), TABLE),
        (format!("{pods}?{STREAM}"), &metadata),
    ] {
        let (code, body) = served.get(&path, accept).await;
        let last = body.lines().last().unwrap_or_default();
        let last: Value = serde_json::from_str(last).unwrap_or_default();
        // A watch whose response has begun ends with an error event.
        let status = if code == 200 && path.contains("watch=1") { &last["object"] } else { &last };
        let seen = (&status["kind"], &status["code"]);
        assert_eq!(seen, (&"Status".into(), &500.into()), "{path} {accept}: {code} {body}");
        assert!(status["message"].as_str().unwrap().contains(problem), "{path} {accept}: {body}");
        assert!(!body.contains("initial-events-end"), "{path} {accept}: {body}");
    }
    let (code, body) = served.get(&format!("{pods}/a"), json).await;
    assert_eq!(code, 200, "{body}");
    let (code, body) = served.get("/api/v1/namespaces/other/pods", json).await;
    assert_eq!((code, body.contains("\"items\":[]")), (200, true), "{body}");
}

#[tokio::test]
async fn over_http_each_read_of_an_object_that_is_missing_in_the_store_gets_500() {
    let (_feed, script) = listed(vec![object("a", 1, 3), bad("b", 4), object("c", 3, 5)]);
    let world = ReadEngine::start(script).await;
    world.until_undecodable(&["ns/b"]).await;
    each_read_fails_over_http(&world, "\"ns/b\"").await;
}

#[tokio::test]
async fn over_http_each_read_of_a_damaged_object_in_the_store_gets_500() {
    let (_feed, script) = listed(vec![object("a", 1, 3), object("b", 2, 4), object("c", 3, 5)]);
    let world = ReadEngine::start_with(damaging_setup(), script).await;
    each_read_fails_over_http(&world, "a stored object is damaged").await;
}

#[tokio::test]
async fn over_http_a_watch_ends_with_an_error_at_the_event_of_a_damaged_object() {
    for selector in ["", "&fieldSelector=spec.nodeName%3Dx"] {
        let (feed, script) = listed(vec![object("a", 1, 3)]);
        let world = ReadEngine::start_with(damaging_setup(), script).await;
        world.engine.until_watching(&world.key).await;
        feed.line(event("ADDED", object("b", 2, 9)));
        world.engine.until(&world.key, |report| report.version >= Some(9.into())).await;
        let path = format!("/api/v1/pods?watch=1&timeoutSeconds=5&resourceVersion=7{selector}");
        let (code, body) = ReadApiServer::start(&world).get(&path, "application/json").await;
        assert_eq!((code, body.contains("a stored object is damaged")), (200, true), "{body}");
    }
}

#[tokio::test]
async fn an_object_that_becomes_undecodable_during_a_streaming_list_is_not_served() {
    let mut streamed = informer("pods");
    streamed.settings.lists.strategy = ListStrategy::WatchList;
    let setup = ReadSetup { more: vec![("ns", streamed)], ..ReadSetup::default() };
    let world = ReadEngine::start_with(setup, |asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[])),
        Kind::Stream => {
            let lines = [
                event("ADDED", object("a", 1, 3)),
                event("MODIFIED", bad("a", 5)),
                end_bookmark(7),
            ];
            Reply::held(lines.map(|line| line + "\n").concat())
        }
        _ => quiet(asked),
    })
    .await;
    let streamed = ProfileRef { namespace: "ns".into(), name: "p".into() };
    let path = "/api/v1/namespaces/ns/pods/a";
    let answer = world.read_as("caller", Some(&streamed), path).await;
    refused(answer.map(|_| Vec::new()), "\"ns/a\"");
}
