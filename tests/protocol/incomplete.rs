//! Tests of reads from a store that lacks an object, because kubewarm cannot read it: no response is shorter than
//! the truth.

use crate::{
    engine::fed,
    read_engine::{ReadEngine, request},
    reply::{Feed, Reply, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
    undecodable::bad,
};
use kubewarm_wire::{StatusError, WatchStart};
use std::time::Duration;
use tokio::time::timeout;

/// Lists `items`, and answers the first watch with what the test sends.
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
    let own = "/api/v1/namespaces/ns/pods";
    for path in [
        "/api/v1/pods",
        own,
        &format!("{own}?limit=1"),
        &format!("{own}?resourceVersion=0&labelSelector=x"),
        &format!("{own}?fieldSelector=metadata.name%3Db"),
        &format!("{own}/b"),
    ] {
        refused(world.read(path).await, "\"ns/b\"");
    }
    for path in ["?watch=1", "?watch=1&resourceVersion=7", "?watch=1&resourceVersion=0"] {
        let request = request(&format!("{own}{path}"));
        let watching = request.watch.clone().unwrap();
        let failed = world.reads.watch(&request, &watching, None, &"caller").await;
        refused(failed.map(|_| Vec::new()), "\"ns/b\"");
    }
    // Other namespaces and names are complete.
    assert_eq!(world.read("/api/v1/namespaces/other/pods").await.unwrap(), [""; 0]);
    assert_eq!(world.read(&format!("{own}/a")).await.unwrap(), ["a"]);
    let of_name = format!("{own}?fieldSelector=metadata.name%3Dc");
    assert_eq!(world.read(&of_name).await.unwrap(), ["c"]);
    assert_eq!(world.read(&format!("{own}/none")).await.unwrap_err().code(), 404);
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
    let own = "/api/v1/namespaces/ns/pods";
    assert_eq!(world.read(own).await.unwrap(), ["a"]);
    let exact = format!("{own}?resourceVersion=7&resourceVersionMatch=Exact");
    assert_eq!(world.read(&exact).await.unwrap_err().code(), 410);
}

#[tokio::test]
async fn a_watch_ends_instead_of_reporting_an_undecodable_object_as_deleted() {
    let (feed, script) = listed(vec![object("a", 1, 3), object("b", 2, 5)]);
    let world = ReadEngine::start(script).await;
    world.engine.until_watching(&world.key).await;
    let request = request("/api/v1/namespaces/ns/pods?watch=1&resourceVersion=7");
    let watching = request.watch.clone().unwrap();
    let own = "/api/v1/namespaces/ns/pods";
    for (kind, name, version, undecodable) in
        [("MODIFIED", "a", 9, &["ns/a"][..]), ("ADDED", "c", 10, &["ns/a", "ns/c"])]
    {
        // The second object is new, so the store does not change. The namespace already lacks the first one.
        let mut request = request.clone();
        let mut watching = watching.clone();
        if name == "c" {
            request.namespace = Some("other".into());
            watching.start = WatchStart::Now;
        }
        let mut watch = world.reads.watch(&request, &watching, None, &"caller").await.unwrap();
        feed.line(event(kind, bad(name, version)));
        world.until_undecodable(undecodable).await;
        let last = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&last.lines);
        assert!(text.contains("\"code\":410") && !text.contains("DELETED"), "{text}");
        assert!(watch.next().await.is_none());
        refused(world.read(own).await, "\"ns/a\"");
    }
    feed.line(event("MODIFIED", object("a", 1, 11)));
    feed.line(event("DELETED", object("c", 3, 12)));
    world.until_undecodable(&[]).await;
    assert_eq!(world.read(own).await.unwrap(), ["a", "b"]);
    // The event log lacks the undecodable states, so it has neither their changes nor their versions.
    for version in [7, 9, 10] {
        let exact = format!("{own}?resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(world.read(&exact).await.unwrap_err().code(), 410, "{version}");
        let mut watching = watching.clone();
        watching.start = WatchStart::After(version.into());
        let mut watch = world.reads.watch(&request, &watching, None, &"caller").await.unwrap();
        let first = timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&first.lines);
        assert!(text.contains("\"code\":410"), "{version}: {text}");
    }
}

#[tokio::test]
async fn a_list_of_one_name_does_not_show_that_further_objects_exist() {
    let (_feed, script) = listed(vec![object("a", 1, 3), object("b", 2, 5)]);
    let world = ReadEngine::start(script).await;
    let own = "/api/v1/namespaces/ns/pods?limit=1";
    for (path, has_token) in [
        (own.to_owned(), true),
        (format!("{own}&fieldSelector=metadata.name%3Da"), false),
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
    let report = world.engine.until(&world.key, |it| it.undecodable.len() == 17).await;
    assert_eq!(&*report.undecodable[16].object, "?");
    refused(world.read("/api/v1/namespaces/other/pods").await, "an object whose name");
}
