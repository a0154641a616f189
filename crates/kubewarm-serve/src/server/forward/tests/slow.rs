//! Clients that take their answers slowly, or in parts.

use super::*;

/// Over HTTP/2, taking so many bytes of each answer.
async fn taking(
    scene: &Scene,
    bytes: u32,
) -> (http2::SendRequest<String>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(scene.served.tls("h2").await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) =
        builder.initial_stream_window_size(bytes).handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test]
async fn an_answer_keeps_its_place_until_it_is_taken_and_is_cut_off() {
    let scene = Scene::with(|limits| {
        limits.stall = Duration::from_secs(3);
        limits.look = Duration::from_millis(100);
    })
    .await;
    let all = scene.places().await;
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
    assert_eq!(scene.places().await, all - 1, "it is held here");
    let _ended = timeout(MOST, connection).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    stream.shutdown().await.unwrap();
    // The caller sees the end of the connection before this end has let go of what it held.
    let given_back = async {
        while scene.places().await < all {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(MOST, given_back).await.unwrap();
    scene.served.end().await;
}

#[tokio::test]
async fn an_event_is_whole_before_the_next_one_comes() {
    let scene = Scene::new().await;
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
    let (mut body, mut told) = (answer.unwrap().into_body(), Vec::new());
    while told != b"one\n" {
        let frame = timeout(MOST, body.frame()).await.unwrap().unwrap().unwrap();
        told.extend_from_slice(frame.data_ref().unwrap());
    }
    drop(body);
    scene.served.end().await;
}

#[tokio::test]
async fn whoever_is_refused_there_keeps_no_place() {
    let scene = Scene::new().await;
    let all = scene.places().await;
    // Nothing of any answer is taken.
    let (mut sender, _connection) = taking(&scene, 0).await;
    let asked = http::Request::get("https://kubewarm.ops.svc/api/v1/pods")
        .header(header::AUTHORIZATION, "Bearer of-the-caller")
        .body(String::new())
        .unwrap();
    let answering = async {
        let (_, mut stream) = scene.next(0).await;
        assert_eq!(scene.places().await, all - 1, "it is asked");
        let refusal =
            "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(refusal.as_bytes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(sender.send_request(asked), answering);
    assert_eq!(answer.unwrap().status(), 401);
    assert_eq!(scene.places().await, all);
    scene.served.end().await;
}
