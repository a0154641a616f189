//! Tests the memory of large objects in responses that clients do not read.

use crate::{
    engine::fed,
    read_engine::ReadEngine,
    read_server::ReadApiServer,
    reply::{Feed, Reply, list, quiet},
    server::Kind,
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::timeout;

/// Larger than the socket buffers, and more than half of one user's memory for large objects.
const LARGE: usize = 12 << 20;
/// The number of unread responses.
const UNREAD: usize = 3;

/// The path of the only object, a pod, is `PODS/a`.
const PODS: &str = "/api/v1/namespaces/ns/pods";

async fn with_large_pod() -> (ReadEngine, ReadApiServer, Feed) {
    let text = "x".repeat(LARGE);
    let metadata = r#""name":"a","namespace":"ns","uid":"u","resourceVersion":"3""#;
    let pod = format!(r#"{{"metadata":{{{metadata},"annotations":{{"text":"{text}"}}}}}}"#);
    let (feed, script) = fed(move |asked| match asked.kind {
        Kind::List => Reply::json(list(7, std::slice::from_ref(&pod))),
        _ => quiet(asked),
    });
    let world = ReadEngine::start(script).await;
    let served = ReadApiServer::start(&world);
    (world, served, feed)
}

/// The body of a response whose first bytes have arrived. The head of a watch comes before its
/// first event.
async fn open(served: &ReadApiServer, path: &str) -> Incoming {
    let mut body = served.open(path, &[("accept", "application/json")]).await.into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    body
}

#[tokio::test]
async fn a_users_unread_responses_keep_one_large_object() {
    let (_world, served, _feed) = with_large_pod().await;
    for path in [format!("{PODS}/a"), PODS.to_owned(), format!("{PODS}?watch=1")] {
        let mut opening: FuturesUnordered<_> = (0..UNREAD).map(|_| open(&served, &path)).collect();
        for left in (0..UNREAD).rev() {
            let unread = opening.next().await.unwrap();
            let other = timeout(Duration::from_secs(1), opening.next()).await;
            assert!(left == 0 || other.is_err(), "{path}: two objects are in memory");
            drop(unread);
        }
    }
    let (code, body) = served.get(&format!("{PODS}/a"), "application/json").await;
    assert!(code == 200 && body.len() > LARGE, "{code}");
}

#[tokio::test]
async fn a_watch_that_waits_for_memory_ends_at_its_timeout() {
    let (_world, served, _feed) = with_large_pod().await;
    let _unread = open(&served, &format!("{PODS}/a")).await;
    let path = format!("{PODS}?watch=1&timeoutSeconds=1");
    let (code, body) = timeout(Duration::from_secs(10), served.get(&path, "application/json"))
        .await
        .expect("the watch is still open");
    assert_eq!((code, body.as_str()), (200, ""));
}
