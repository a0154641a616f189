//! Tests of connections to the API server that break during a forwarded write.

use super::*;
use crate::callers::ReadLimit;

/// What the API server sends before its connection breaks.
const PARTS: [&str; 3] = [
    "",
    "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"kind\":",
];
const WRITE: &str = "/api/v1/namespaces/n/events";

async fn break_after(scene: &ForwardFixture, part: &str) {
    let (asked, mut stream) = scene.next(2).await;
    assert!(asked.starts_with(&format!("POST {WRITE} ")), "{asked}");
    stream.write_all(part.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn an_http2_stream_is_reset_with_internal_error_and_its_connection_continues() {
    let scene = ForwardFixture::new().await;
    let io = TokioIo::new(scene.served.tls("h2").await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    for part in PARTS {
        let asked = http::Request::post(format!("https://kubewarm.ops.svc{WRITE}"))
            .header(header::AUTHORIZATION, "Bearer of-the-caller")
            .body("{}".to_owned())
            .unwrap();
        let (answer, ()) =
            tokio::join!(timeout(MOST, sender.send_request(asked)), break_after(&scene, part));
        // client-go retries `REFUSED_STREAM`, even for a write that the API server can have
        // executed.
        let error = format!("{:?}", answer.unwrap().unwrap_err());
        assert!(error.contains("INTERNAL_ERROR") && error.contains("Remote"), "{part}: {error}");
    }
    let usage = scene.handlers.callers.usage();
    let mut forwarded = usage.iter().filter(|usage| usage.limit == ReadLimit::ForwardedRequests);
    assert!(forwarded.all(|usage| usage.in_use == 0), "a broken request releases its permit");
    assert!(scene.told.lock().is_empty(), "an incomplete response records no write");
    drop(sender);
    timeout(MOST, connection).await.unwrap().unwrap().unwrap();
    scene.served.end().await;
}

#[tokio::test]
async fn an_http1_connection_is_closed_without_a_response_and_no_request_is_repeated() {
    let scene = ForwardFixture::new().await;
    for part in PARTS {
        let asked = request(&format!("POST {WRITE}"), "", "{}");
        let (answer, ()) = tokio::join!(scene.served.say(&asked), break_after(&scene, part));
        assert_eq!(answer, "", "{part}");
    }
    let repeated = timeout(Duration::from_millis(200), scene.server.accept()).await;
    assert!(repeated.is_err(), "a request was repeated");
    scene.served.end().await;
}
