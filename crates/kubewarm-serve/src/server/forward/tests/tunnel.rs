//! Tests of connections that become raw connections to the API server after the response 101.

use super::*;

#[tokio::test]
async fn a_tunnel_opens_only_after_101_and_lasts_until_either_end_closes() {
    let scene = ForwardFixture::new().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let asked = request("POST /api/v1/namespaces/n/pods/x/exec?command=a", upgrade, "");
    let mut caller = scene.served.tls("http/1.1").await.unwrap();

    // The API server rejects the upgrade to a WebSocket, so the connection continues with HTTP.
    caller.write_all(asked.as_bytes()).await.unwrap();
    let (sent, mut stream) = scene.next(0).await;
    let sent = sent.to_lowercase();
    assert!(
        sent.contains("connection: upgrade\r\n") && sent.contains("upgrade: spdy/3.1\r\n"),
        "{sent}"
    );
    stream
        .write_all(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
        .await
        .unwrap();
    let answer = received(&mut caller, 2).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.ends_with("no"), "{answer}");
    drop(stream);

    caller.write_all(asked.as_bytes()).await.unwrap();
    let (_, mut stream) = scene.next(0).await;
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                     X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nhello";
    stream.write_all(switching.as_bytes()).await.unwrap();
    let answer = received(&mut caller, 5).await;
    assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("hello"), "{answer}");
    assert!(answer.to_lowercase().contains("x-stream-protocol-version: v4"), "{answer}");
    caller.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let bytes = received(&mut stream, 0).await;
    assert_eq!(bytes, "GET / HTTP/1.1\r\n\r\n", "the tunnel copies bytes and parses no request");
    drop(stream);
    assert_eq!(rest(&mut caller).await, "");

    // kubewarm removes the `Upgrade` header if Kubernetes does not use the requested protocol.
    let asked = request("GET /x", "Connection: Upgrade\r\nUpgrade: h2c\r\n", "");
    let mut caller = scene.served.tls("http/1.1").await.unwrap();
    caller.write_all(asked.as_bytes()).await.unwrap();
    let (sent, _stream) = scene.next(0).await;
    assert!(!sent.to_lowercase().contains("upgrade"), "{sent}");
    drop(caller);
    scene.served.end().await;
}
