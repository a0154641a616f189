mod admission;
mod broken;
mod permits;
mod tls;

use super::{
    bind,
    body::{IncomingRequest, OutgoingResponse, ResponseBody},
    listen::{ConnectionLimits, ReadListener, RequestHandler},
};
use crate::ServeError;
use crate::callers::ReaderLimits;
use crate::certificate::{ServingCertificate, names};
use crate::metrics::ReadMetrics;
use bytes::Bytes;
use futures::{
    StreamExt as _,
    future::{join, join_all},
    stream,
};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewarm_client::KeyedSemaphore;
use prometheus::{Registry, TextEncoder};
use rustls::{
    CipherSuite, ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName},
};
use std::{fs, io, net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

pub(super) const MOST: Duration = Duration::from_secs(20);
/// The response to `/much` has parts of this size in bytes. All parts together are larger than the
/// socket buffers.
const PART: usize = 64 << 10;
const PARTS: usize = 400;

async fn routes(request: IncomingRequest) -> OutgoingResponse {
    match request.head.uri.path() {
        "/ok" => answered("ok"),
        "/known" => {
            request.connection.accept(|| KeyedSemaphore::new(1, 1).try_acquire(&()));
            answered("ok")
        }
        "/slow" => {
            sleep(Duration::from_secs(1)).await;
            answered("slow")
        }
        "/asked" => {
            let (head, peer) = (&request.head, request.connection.peer.to_canonical());
            let path = head.uri.path_and_query().unwrap();
            answered(format!("{} {path} from {peer}", head.method))
        }
        "/much" => much(),
        _ => coded(StatusCode::NOT_FOUND),
    }
}

pub(super) fn answered(body: impl Into<Bytes>) -> OutgoingResponse {
    OutgoingResponse::new(ResponseBody::from(body))
}

fn coded(code: StatusCode) -> OutgoingResponse {
    let mut response = answered("");
    *response.status_mut() = code;
    response
}

/// The default limits of the read API, except for the maximum number of connections: `all` in
/// total, and `of_address` per client address.
fn connections(all: usize, of_address: usize) -> ReaderLimits {
    let [connections, address_connections] =
        [all, of_address].map(|limit| NonZeroUsize::new(limit).unwrap());
    ReaderLimits { connections, address_connections, ..ReaderLimits::default() }
}

fn much() -> OutgoingResponse {
    let part = Bytes::from(vec![b'x'; PART]);
    let parts = (0..PARTS).map(move |_| Ok::<_, io::Error>(part.clone()));
    OutgoingResponse::new(ResponseBody::streamed(stream::iter(parts)))
}

/// A read API for tests, which listens on the loopback interface.
pub(super) struct TestServer {
    address: SocketAddr,
    certificate: Arc<ServingCertificate>,
    registry: Registry,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl TestServer {
    fn with(certificate: ServingCertificate, change: impl FnOnce(&mut ConnectionLimits)) -> Self {
        let handler: RequestHandler =
            Box::new(|request| Box::pin(async { Ok(routes(request).await) }));
        Self::start(handler, certificate, ReaderLimits::default(), change)
    }

    pub(super) fn by(handler: RequestHandler, change: impl FnOnce(&mut ConnectionLimits)) -> Self {
        let certificate = ServingCertificate::self_signed(names("here", "ops")).unwrap();
        Self::start(handler, certificate, ReaderLimits::default(), change)
    }

    fn limited(readers: ReaderLimits, change: impl FnOnce(&mut ConnectionLimits)) -> Self {
        let handler: RequestHandler =
            Box::new(|request| Box::pin(async { Ok(routes(request).await) }));
        let certificate = ServingCertificate::self_signed(names("here", "ops")).unwrap();
        Self::start(handler, certificate, readers, change)
    }

    fn start(
        handler: RequestHandler,
        certificate: ServingCertificate,
        readers: ReaderLimits,
        change: impl FnOnce(&mut ConnectionLimits),
    ) -> Self {
        let certificate = Arc::new(certificate);
        let mut reading: ReadListener = bind("[::]:0".parse().unwrap(), readers).unwrap();
        reading.change_limits(change);
        let address = SocketAddr::from(([127, 0, 0, 1], reading.address().port()));
        let stop = CancellationToken::new();
        let registry = Registry::new();
        let (shown, metrics) =
            (Arc::clone(&certificate), ReadMetrics::register(&registry).unwrap());
        let serving = reading.serve_by(shown, None, handler, metrics, stop.clone());
        let serving = tokio::spawn(serving);
        Self { address, certificate, registry, stop, serving }
    }

    /// The number of requests with the status code `code` that the metrics count with
    /// `handler="other"`.
    fn refused(&self, code: &str) -> u64 {
        let labels = [format!("code=\"{code}\""), "handler=\"other\"".to_owned()];
        let exposition = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let counted = exposition.lines().filter(|line| {
            line.starts_with("kubewarm_read_requests_total{")
                && labels.iter().all(|label| line.contains(label))
        });
        counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    }

    fn new(change: impl FnOnce(&mut ConnectionLimits)) -> Self {
        Self::with(ServingCertificate::self_signed(names("here", "ops")).unwrap(), change)
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects with TLS. The client trusts only this server's certificate.
    pub(super) async fn tls(&self, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        self.tls_over(self.tcp().await, protocol).await
    }

    async fn tls_over<I>(&self, tcp: I, protocol: &str) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let certificate = self.certificate.der().unwrap();
        timeout(MOST, trusting(&certificate, protocol, "kubewarm.ops.svc", tcp)).await.unwrap()
    }

    pub(super) async fn say(&self, request: &str) -> String {
        let mut stream = self.tls("http/1.1").await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    async fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    /// Connects over HTTP/2. The returned task ends with the connection.
    async fn h2(&self) -> (http2::SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
        let io = TokioIo::new(self.tls("h2").await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        (sender, tokio::spawn(connection))
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        timeout(MOST, self.serving).await.unwrap().unwrap().unwrap();
    }
}

async fn trusting<I: AsyncRead + AsyncWrite + Unpin>(
    certificate: &CertificateDer<'static>,
    protocol: &str,
    name: &'static str,
    tcp: I,
) -> io::Result<TlsStream<I>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// Reads all bytes until the stream ends or fails.
pub(super) async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let _end = timeout(MOST, stream.read_to_end(&mut answer))
        .await
        .expect("the server ends the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads one response with the body `ok`.
async fn one_ok(stream: &mut TlsStream<TcpStream>) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let read = timeout(MOST, stream.read_buf(&mut answer)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

fn h2_get(address: SocketAddr, path: &str) -> hyper::Request<Empty<Bytes>> {
    let uri = format!("https://{address}{path}");
    hyper::Request::get(uri).body(Empty::new()).unwrap()
}

const OK: &[u8] = b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_in_both_protocols() {
    let served = TestServer::new(|limits| {
        limits.piece_timeout = Duration::from_millis(500);
        limits.check_interval = Duration::from_millis(100);
    });
    let whole = served.get("/much").await;
    assert!(whole.len() > PART * PARTS, "{} bytes", whole.len());
    let mut stream = served.tls("http/1.1").await.unwrap();
    stream.write_all(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let part = rest(&mut stream).await;
    assert!(part.starts_with("HTTP/1.1 200") && part.len() < whole.len() / 2, "{}", part.len());
    let (mut sender, connection) = served.h2().await;
    let answer = sender.send_request(h2_get(served.address, "/much")).await.unwrap();
    // The client's flow-control window is full, but the client still answers pings. So only
    // `piece_timeout` ends the connection.
    let _ended = timeout(MOST, connection).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    served.end().await;
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let served = TestServer::new(|limits| {
        limits.idle_timeout = Duration::from_millis(500);
        limits.check_interval = Duration::from_millis(100);
    });
    let (mut sender, connection) = served.h2().await;
    let answer = sender.send_request(h2_get(served.address, "/slow")).await.unwrap();
    assert_eq!(answer.status(), 200, "the connection is in use until the response");
    drop(answer);
    let _ended = timeout(MOST, connection).await.unwrap();
    let mut stream = served.tls("http/1.1").await.unwrap();
    stream.write_all(OK).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.ends_with("ok"), "{answer}");
    served.end().await;
}

#[tokio::test]
async fn a_stop_waits_for_requests_in_progress_and_accepts_no_connection() {
    let served = TestServer::new(|_| ());
    let mut stream = served.tls("http/1.1").await.unwrap();
    let mut idle = served.tls("http/1.1").await.unwrap();
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(300)).await;
    served.stop.cancel();
    assert!(rest(&mut stream).await.ends_with("slow"));
    assert!(rest(&mut idle).await.is_empty());
    let address = served.address;
    timeout(MOST, served.serving).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
