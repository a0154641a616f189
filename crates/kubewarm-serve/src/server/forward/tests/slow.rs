//! Tests with clients that read responses slowly or in parts.

use super::*;

/// Connects over HTTP/2. For each response, the client's flow-control window has `bytes` bytes.
async fn taking(
    scene: &ForwardFixture,
    bytes: u32,
) -> (http2::SendRequest<String>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(scene.served.tls("h2").await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) =
        builder.initial_stream_window_size(bytes).handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test]
async fn an_unread_response_keeps_its_slot_until_the_connection_is_closed() {
    let scene = ForwardFixture::with(|limits| {
        limits.piece_timeout = Duration::from_secs(3);
        limits.check_interval = Duration::from_millis(100);
    })
    .await;
    let all = scene.free_slots().await;
    let (mut sender, connection) = taking(&scene, 1).await;
    let asked = http::Request::get("https://kubewarm.ops.svc/api/v1/pods")
        .header(header::AUTHORIZATION, "Bearer of-the-caller")
        .body(String::new())
        .unwrap();
    let (answer, mut stream) = tokio::join!(sender.send_request(asked), async {
        let (_, mut stream) = scene.next(0).await;
        let head =
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4000\r\n\r\n";
        stream.write_all(format!("{head}{}", "x".repeat(4000)).as_bytes()).await.unwrap();
        stream
    });
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 404);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.free_slots().await, all - 1, "the response keeps its slot");
    let _ended = timeout(MOST, connection).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    stream.shutdown().await.unwrap();
    // The client can see the end of the connection before the server stops counting the forwarded
    // request, so the test waits.
    let released = async {
        while scene.free_slots().await < all {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(MOST, released).await.unwrap();
    scene.served.end().await;
}

#[tokio::test]
async fn an_event_is_delivered_completely_before_the_next_one() {
    let scene = ForwardFixture::new().await;
    let (mut sender, _connection) = taking(&scene, 1 << 20).await;
    let asked = http::Request::get("https://kubewarm.ops.svc/api/v1/pods?watch=true")
        .header(header::AUTHORIZATION, "Bearer of-the-caller")
        .body(String::new())
        .unwrap();
    let (answer, _stream) = tokio::join!(sender.send_request(asked), async {
        let (_, mut stream) = scene.next(0).await;
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}4\r\none\n\r\n").as_bytes()).await.unwrap();
        stream
    });
    let (mut body, mut received) = (answer.unwrap().into_body(), Vec::new());
    while received != b"one\n" {
        let frame = timeout(MOST, body.frame()).await.unwrap().unwrap().unwrap();
        received.extend_from_slice(frame.data_ref().unwrap());
    }
    drop(body);
    scene.served.end().await;
}

#[tokio::test]
async fn a_request_that_the_api_server_rejects_releases_its_permit() {
    let scene = ForwardFixture::new().await;
    let all = scene.free_slots().await;
    // The client's flow-control window is 0, so the client reads no byte of the response's body.
    let (mut sender, _connection) = taking(&scene, 0).await;
    let asked = http::Request::get("https://kubewarm.ops.svc/api/v1/pods")
        .header(header::AUTHORIZATION, "Bearer of-the-caller")
        .body(String::new())
        .unwrap();
    let answering = async {
        let (_, mut stream) = scene.next(0).await;
        assert_eq!(scene.free_slots().await, all - 1, "the request is in progress");
        let refusal =
            "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(refusal.as_bytes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(sender.send_request(asked), answering);
    assert_eq!(answer.unwrap().status(), 401);
    assert_eq!(scene.free_slots().await, all);
    scene.served.end().await;
}
