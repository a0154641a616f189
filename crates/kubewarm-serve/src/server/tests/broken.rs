//! Tests that a panic in the handler of one request affects no other request.

use super::*;
use crate::callers::fixtures::user_permits;
use crate::server::unwritten_response::ResponsePermit;
use std::future::ready;

type BrokenRoutePermits = KeyedSemaphore<()>;

/// The routes of the other server tests, and two routes that panic. `/breaks` panics in its
/// handler, `/breaks-off` while kubewarm sends the response. Each request to one of the two routes
/// acquires one of `permits`.
fn breaking(permits: BrokenRoutePermits) -> RequestHandler {
    Box::new(move |request| {
        let permits = permits.clone();
        Box::pin(async move {
            Ok(match request.head.uri.path() {
                "/breaks" => {
                    let _permit = permits.try_acquire(&()).unwrap();
                    panic!("a handler that a test breaks")
                }
                "/breaks-off" => breaks_off(&permits),
                _ => routes(request).await,
            })
        })
    })
}

fn breaks_off(permits: &BrokenRoutePermits) -> OutgoingResponse {
    let permit = permits.try_acquire(&()).unwrap();
    let begun = stream::once(ready(Ok::<_, io::Error>(Bytes::from_static(b"part"))));
    let rest = stream::poll_fn(|_| panic!("a body that a test breaks"));
    let response = OutgoingResponse::new(ResponseBody::streamed(begun.chain(rest)));
    let [bytes] = user_permits(PERMITS, ["jane"]);
    response.body().keep(ResponsePermit::timely(permit, bytes));
    response
}

async fn released(permits: &BrokenRoutePermits) {
    let released = async {
        while (0..PERMITS).map_while(|_| permits.try_acquire(&())).collect::<Vec<_>>().len()
            < PERMITS
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(MOST, released).await.expect("the server releases all permits");
}

/// One permit for each request that panics.
const PERMITS: usize = 4;
const BROKEN: [&str; 4] = ["/breaks", "/breaks-off", "/breaks", "/breaks-off"];

async fn whole(
    sender: &mut http2::SendRequest<Empty<Bytes>>,
    to: &TestServer,
    path: &str,
) -> Option<Bytes> {
    let answer = timeout(MOST, sender.send_request(h2_get(to.address, path)));
    let answer = answer.await.expect("the server ends the response").ok()?;
    let body =
        timeout(MOST, answer.into_body().collect()).await.expect("the server ends the response");
    Some(body.ok()?.to_bytes())
}

#[tokio::test]
async fn a_panic_ends_only_its_http2_stream_and_releases_its_permit() {
    let permits = BrokenRoutePermits::new(PERMITS, PERMITS);
    let served = TestServer::by(breaking(permits.clone()), |_| ());
    let mut open = served.tls("http/1.1").await.unwrap();
    let (mut sender, connection) = served.h2().await;
    let goes_on = sender.send_request(h2_get(served.address, "/slow"));
    for path in BROKEN {
        assert_eq!(whole(&mut sender, &served, path).await, None, "{path}");
    }
    let answer = timeout(MOST, goes_on).await.unwrap().expect("another stream continues");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "slow");
    assert_eq!(whole(&mut sender, &served, "/ok").await.expect("the connection continues"), "ok");
    open.write_all(OK).await.unwrap();
    one_ok(&mut open).await;
    released(&permits).await;
    drop(sender);
    let _ended = timeout(MOST, connection).await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn a_panic_ends_only_its_http1_connection_and_releases_its_permit() {
    let permits = BrokenRoutePermits::new(PERMITS, PERMITS);
    let served = TestServer::by(breaking(permits.clone()), |_| ());
    // The test opens 16 connections, so that each server thread has several connections.
    let open = join_all((0..16).map(|_| served.tls("http/1.1"))).await;
    let mut open: Vec<_> = open.into_iter().map(Result::unwrap).collect();
    for (stream, path) in open.split_off(12).iter_mut().zip(BROKEN) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(stream).await;
        assert!(!answer.starts_with("HTTP/1.1 429") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    }
    released(&permits).await;
    for stream in &mut open {
        stream.write_all(OK).await.unwrap();
        one_ok(stream).await;
    }
    drop(open);
    served.end().await;
}
