//! Tests of the admin listener with real sockets.

use super::*;
use crate::{
    metrics::{BuildInfo, MetricsRegistry},
    server::{
        MetricsAccess,
        fixtures::{key, snapshot, synced},
    },
};
use jiff::Timestamp;
use kubewarm_serve::certificate::names;
use rustls::{
    ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider, pki_types::ServerName,
};
use std::net::Ipv4Addr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

fn admin() -> Arc<AdminState> {
    Arc::new(AdminState {
        metrics: Arc::new(MetricsRegistry::new(&BuildInfo::current()).unwrap()),
        informers: Box::new(Vec::new),
        declared: Box::new(|| None),
        failing_watches: Box::new(Vec::new),
        readiness: Arc::default(),
        scrapers: MetricsAccess::Unrestricted,
        set_log_filter: Box::new(|_| Ok(())),
        watchers: kubewarm_serve::WatcherRegistry::default(),
        user_reads: kubewarm_serve::UserReads::default(),
        appliers: kubewarm_serve::ApplierRegistry::default(),
        now: || Timestamp::UNIX_EPOCH,
    })
}

async fn livez(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A TLS client that trusts only `certificate`.
fn connector(certificate: &ServingCertificate) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().unwrap()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = ["h2", "http/1.1"].map(|name| name.as_bytes().to_vec()).into();
    TlsConnector::from(Arc::new(client))
}

#[tokio::test]
async fn with_a_certificate_the_admin_address_serves_https_only_with_the_same_limits() {
    let made = || ServingCertificate::self_signed(names("here", "ops")).unwrap();
    let (certificate, another) = (Arc::new(made()), made());
    let mut listening = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listening.connection_timeout = Duration::from_secs(2);
    let (address, stop) = (listening.address(), CancellationToken::new());
    let shown = Some(Arc::clone(&certificate));
    let serving = tokio::spawn(listening.serve(admin(), shown, stop.clone()));
    let name = ServerName::try_from("localhost").unwrap();
    let connect = async |connector: TlsConnector| {
        connector.connect(name.clone(), TcpStream::connect(address).await?).await
    };

    assert!(connect(connector(&another)).await.is_err(), "another certificate is not trusted");
    let plain = livez(address).await.unwrap_or_default();
    assert!(!plain.contains("ok"), "{plain}");
    for path in ["livez", "metrics", "debug/informers"] {
        let mut stream = connect(connector(&certificate)).await.unwrap();
        let spoken = stream.get_ref().1.alpn_protocol();
        assert_eq!(spoken, Some(&b"http/1.1"[..]), "HTTP/2 is not offered");
        let request = format!("GET /{path} HTTP/1.1\r\nHost: localhost:9090\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(Duration::from_secs(4), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path} for a client on this host: {answer}");
    }
    let mut idle = connect(connector(&certificate)).await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(20), idle.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is closed");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// Sends `request`, and returns everything that the server sends before it closes the connection.
/// Waits at most 4 s.
async fn send(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(Duration::from_secs(4), stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

/// Runs an admin server on a loopback port while `test` runs.
async fn serving<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr) -> F) {
    let listening = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, stop) = (listening.address(), CancellationToken::new());
    let serving = tokio::spawn(listening.serve(admin(), None, stop.clone()));
    test(address).await;
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn every_route_is_served() {
    serving(|address| async move {
        for (path, code) in [("livez", 200), ("metrics", 200), ("readyz", 503)] {
            let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let answer = send(address, &request).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_closes_after_one_response() {
    serving(|address| async move {
        let answer = send(address, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn http_1_0_gets_debug_informers_without_chunks() {
    serving(|address| async move {
        for connection in ["close", "keep-alive"] {
            let request = format!(
                "GET /debug/informers HTTP/1.0\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n"
            );
            let answer = send(address, &request).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(" 200 OK"), "{head}");
            assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
            assert_eq!(body, "{\"informers\":[\n\n]}\n");
        }
    })
    .await;
}

#[tokio::test]
async fn requests_without_their_bodies_do_not_block_probes() {
    serving(|address| async move {
        let head = "PUT /debug/log-level HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n";
        let mut open = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            open.push(stream);
        }
        let probe = timeout(Duration::from_secs(4), livez(address)).await;
        assert!(probe.unwrap().unwrap().starts_with("HTTP/1.1 200"));
        let refused = send(address, head).await.unwrap();
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    })
    .await;
}

/// Returns the part of a 20 MB response that a client receives. The response is larger than all
/// socket buffers. The client starts to read after `pause`, and the server closes the connection
/// after `most`.
async fn much(pause: Duration, most: Duration) -> String {
    let informers = Box::new(|| vec![snapshot(key("pods", &"n".repeat(1_000)), synced()); 10_000]);
    let admin = Arc::new(AdminState { informers, ..Arc::into_inner(admin()).unwrap() });
    let mut listening = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listening.connection_timeout = most;
    let (address, stop) = (listening.address(), CancellationToken::new());
    let serving = tokio::spawn(listening.serve(admin, None, stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /debug/informers HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    tokio::time::sleep(pause).await;
    let mut answer = String::new();
    let read = timeout(Duration::from_mins(1), stream.read_to_string(&mut answer)).await;
    read.unwrap().unwrap();
    stop.cancel();
    serving.await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let whole = much(Duration::ZERO, CONNECTION_TIMEOUT).await;
    assert!(whole.contains("\n]}\n"), "{} bytes", whole.len());
    let part = much(Duration::from_secs(1), Duration::from_millis(500)).await;
    assert!(part.starts_with("HTTP/1.1 200") && part.len() < whole.len() / 2);
}

#[tokio::test]
async fn every_address_answers_until_shutdown() {
    let listening = bind("[::]:0".parse().unwrap()).unwrap();
    let port = listening.address().port();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listening.serve(admin(), None, stop.clone()));
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answer = livez(v4).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    stop.cancel();
    serving.await.unwrap().unwrap();
    assert!(livez(v4).await.is_err());
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let error = bind(taken).unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    drop(holder);
}
