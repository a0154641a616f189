//! Tests the memory of large objects in responses that clients do not read.

use crate::{
    engine::fed,
    read_engine::ReadEngine,
    read_server::ReadApiServer,
    reply::{Reply, list, quiet},
    server::Kind,
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use http_body_util::BodyExt as _;
use std::time::Duration;
use tokio::time::timeout;

/// Larger than the socket buffers, and more than half of one user's memory for large objects.
const LARGE: usize = 12 << 20;
/// The number of unread responses.
const UNREAD: usize = 3;

#[tokio::test]
async fn a_users_unread_responses_keep_one_large_object() {
    let text = "x".repeat(LARGE);
    let metadata = r#""name":"a","namespace":"ns","uid":"u","resourceVersion":"3""#;
    let pod = format!(r#"{{"metadata":{{{metadata},"annotations":{{"text":"{text}"}}}}}}"#);
    let (_feed, script) = fed(move |asked| match asked.kind {
        Kind::List => Reply::json(list(7, std::slice::from_ref(&pod))),
        _ => quiet(asked),
    });
    let world = ReadEngine::start(script).await;
    let served = ReadApiServer::start(&world);
    let pods = "/api/v1/namespaces/ns/pods";
    for path in [format!("{pods}/a"), pods.to_owned(), format!("{pods}?watch=1")] {
        // The head of a watch comes before its first event, so the first bytes count.
        let open = async || {
            let mut body = served.open(&path, &[("accept", "application/json")]).await.into_body();
            assert!(body.frame().await.unwrap().unwrap().is_data());
            body
        };
        let mut opening: FuturesUnordered<_> = (0..UNREAD).map(|_| open()).collect();
        for left in (0..UNREAD).rev() {
            let unread = opening.next().await.unwrap();
            let other = timeout(Duration::from_secs(1), opening.next()).await;
            assert!(left == 0 || other.is_err(), "{path}: two objects are in memory");
            drop(unread);
        }
    }
    let (code, body) = served.get(&format!("{pods}/a"), "application/json").await;
    assert!(code == 200 && body.len() > LARGE, "{code}");
}
