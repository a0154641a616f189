//! Tests of reads that kubewarm forwards although it would reject them without `--forward`.

use super::*;

/// A label selector may have at most 1,024 values at kubewarm.
const VALUES: usize = 1_025;

/// Sends `asked`, answers as the API server, and returns the request that the API server received.
async fn forwarded(scene: &ForwardFixture, asked: &str) -> String {
    let (answer, sent) = tokio::join!(scene.served.say(asked), async {
        let (sent, mut stream) = scene.next(0).await;
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
        sent
    });
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    sent
}

#[tokio::test]
async fn a_chunked_get_without_a_body_is_forwarded_without_a_body() {
    let scene = ForwardFixture::new().await;
    for path in ["/logs", "/api/v1/nodes"] {
        let head = request(&format!("GET {path}"), "Transfer-Encoding: chunked\r\n", "");
        let sent = forwarded(&scene, &format!("{head}0\r\n\r\n")).await;
        assert!(sent.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{sent}");
        assert!(!sent.to_lowercase().contains("transfer-encoding"), "{sent}");
        assert!(sent.ends_with("\r\n\r\n"), "{sent}");
    }
    scene.served.end().await;
}

#[tokio::test]
async fn selectors_above_kubewarms_limits_are_forwarded_unchanged() {
    let scene = ForwardFixture::new().await;
    let values = (0..VALUES).map(|n| format!("v{n}")).collect::<Vec<_>>().join(",");
    let long_value = "v".repeat(VALUES);
    for selector in [
        format!("labelSelector=app+in+({values})"),
        format!("labelSelector=app+notin+({values})&watch=true"),
        format!("fieldSelector=metadata.name%3D{long_value}"),
    ] {
        let path = format!("/api/v1/pods?{selector}");
        let sent = forwarded(&scene, &request(&format!("GET {path}"), CLOSE, "")).await;
        assert!(sent.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{sent}");
    }
    scene.served.end().await;
}
