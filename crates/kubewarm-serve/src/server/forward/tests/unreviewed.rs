//! Tests of writes whose tokens no TokenReview has accepted.

use super::*;
use tokio::time::Instant;

fn write(token: &str) -> http::Request<String> {
    http::Request::post("https://kubewarm.ops.svc/api/v1/namespaces/n/configmaps")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body("{}".to_owned())
        .unwrap()
}

#[tokio::test]
async fn the_api_server_authenticates_a_write_and_only_an_accepted_token_keeps_its_connection() {
    let scene = ForwardFixture::with(|limits| {
        limits.head_timeout = Duration::from_secs(4);
        limits.check_interval = Duration::from_millis(100);
    })
    .await;
    let mut open = Vec::new();
    // The fixture's TokenReviews accept neither token, and only the API server's responses show
    // which token is valid.
    for (token, code, line) in [("made-up", 401, "Unauthorized"), ("writer", 201, "Created")] {
        let io = TokioIo::new(scene.served.tls("h2").await.unwrap());
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let connection = tokio::spawn(connection);
        let answering = async {
            let (sent, mut stream) = scene.next(2).await;
            assert!(sent.to_lowercase().contains(&format!("bearer {token}\r\n")), "{sent}");
            let answer = format!(
                "HTTP/1.1 {code} {line}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(sender.send_request(write(token)), answering);
        assert_eq!(answer.unwrap().status(), code);
        // kubewarm remembers for 10 s that the API server rejected the token, and rejects the next
        // write itself.
        if code == 401 {
            assert_eq!(sender.send_request(write(token)).await.unwrap().status(), 401);
        }
        open.push((sender, connection));
    }
    let repeated = timeout(Duration::from_millis(200), scene.server.accept()).await;
    assert!(repeated.is_err(), "the refused token reached the API server again");
    let (accepted, refused) = (open.pop().unwrap(), open.pop().unwrap());
    let _ended = timeout(MOST, refused.1).await.expect("kubewarm closes this connection");
    sleep(Duration::from_secs(5)).await;
    assert!(!accepted.1.is_finished(), "the connection of an accepted token stays open");
    drop((accepted, refused.0));
    scene.served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_response_is_noticed_after_five_seconds_and_times_out_unless_it_is_long_running() {
    for (seconds, is_long_running, has_noticed, is_answered) in [
        (4, false, false, true),
        (6, false, true, true),
        (74, false, true, true),
        (76, false, true, false),
        (600, true, true, true),
    ] {
        let (mut noticed, began) = (None, Instant::now());
        let answering = sleep(Duration::from_secs(seconds));
        let on_slow = || noticed = Some(began.elapsed());
        let answer = await_head(answering, is_long_running, on_slow).await;
        assert_eq!(noticed, has_noticed.then_some(VERIFY_TIMEOUT), "{seconds} s");
        assert_eq!(answer.map_err(|failure| failure.code()), is_answered.then_some(()).ok_or(504));
    }
}
