mod broken;
mod permits;

use super::{
    bind,
    body::{Request, Response, ResponseBody},
    listen::{Limits, Reading, RequestHandler},
};
use crate::ServeError;
use crate::callers::ReaderLimits;
use crate::certificate::{Certificate, names};
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

/// How long anything here may take.
pub(super) const MOST: Duration = Duration::from_secs(20);
/// Of a part of an answer, and how many there are: more than sockets hold.
const PART: usize = 64 << 10;
const PARTS: usize = 400;

async fn routes(request: Request) -> Response {
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

pub(super) fn answered(body: impl Into<Bytes>) -> Response {
    Response::new(ResponseBody::from(body))
}

fn coded(code: StatusCode) -> Response {
    let mut response = answered("");
    *response.status_mut() = code;
    response
}

/// So many in all, and of one address.
fn connections(limits: &mut Limits, all: usize, of_address: usize) {
    let [all, of_address] = [all, of_address].map(|it| NonZeroUsize::new(it).unwrap());
    (limits.readers.connections, limits.readers.address_connections) = (all, of_address);
}

fn much() -> Response {
    let part = Bytes::from(vec![b'x'; PART]);
    let parts = (0..PARTS).map(move |_| Ok::<_, io::Error>(part.clone()));
    Response::new(ResponseBody::streamed(stream::iter(parts)))
}

/// A read address on the loopback interface.
pub(super) struct Served {
    address: SocketAddr,
    certificate: Arc<Certificate>,
    registry: Registry,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Served {
    fn with(certificate: Certificate, change: impl FnOnce(&mut Limits)) -> Self {
        Self::answering(Box::new(|request| Box::pin(routes(request))), certificate, change)
    }

    /// One whose answers are those of `handler`.
    pub(super) fn by(handler: RequestHandler, change: impl FnOnce(&mut Limits)) -> Self {
        Self::answering(handler, Certificate::self_signed(names("here", "ops")).unwrap(), change)
    }

    fn answering(
        handler: RequestHandler,
        certificate: Certificate,
        change: impl FnOnce(&mut Limits),
    ) -> Self {
        let certificate = Arc::new(certificate);
        let mut reading: Reading =
            bind("[::]:0".parse().unwrap(), ReaderLimits::default()).unwrap();
        change(&mut reading.limits);
        let address = SocketAddr::from(([127, 0, 0, 1], reading.address().port()));
        let stop = CancellationToken::new();
        let registry = Registry::new();
        let (shown, counted) =
            ((Arc::clone(&certificate), None), ReadMetrics::register(&registry).unwrap());
        let serving = tokio::spawn(reading.serve_by(shown, (handler, counted), stop.clone()));
        Self { address, certificate, registry, stop, serving }
    }

    /// Requests that no handler has counted.
    fn refused(&self, code: &str, method: &str) -> u64 {
        let of = format!(
            "kubewarm_http_requests_total{{code=\"{code}\",handler=\"other\",method=\"{method}\"}} "
        );
        let said = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        said.lines().find_map(|line| line.strip_prefix(&of)).map_or(0, |it| it.parse().unwrap())
    }

    fn new(change: impl FnOnce(&mut Limits)) -> Self {
        Self::with(Certificate::self_signed(names("here", "ops")).unwrap(), change)
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that trusts this server's certificate and no other.
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

    /// What is answered to `request`, said in HTTP/1.1, until the end of the connection.
    pub(super) async fn say(&self, request: &str) -> String {
        let mut stream = self.tls("http/1.1").await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    async fn get(&self, path: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    /// Over HTTP/2, and the end of the connection.
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

/// All that comes until the end, however it ends.
pub(super) async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let _end = timeout(MOST, stream.read_to_end(&mut answer)).await.expect("it ends");
    String::from_utf8_lossy(&answer).into_owned()
}

/// One answer whose body is `ok`.
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
async fn a_certificate_of_our_own_serves_both_protocols_to_who_trusts_it() {
    let served = Served::new(|_| ());
    let mut stream = served.tls("http/1.1").await.unwrap();
    // The client's first wish is AES-256.
    let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
    for _ in 0..2 {
        stream.write_all(OK).await.unwrap();
        one_ok(&mut stream).await;
    }
    let (sender, _connection) = served.h2().await;
    let asking = (0..50).map(|n| {
        let (mut sender, request) =
            (sender.clone(), h2_get(served.address, &format!("/asked?n={n}")));
        async move {
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("GET /asked?n={n} from 127.0.0.1"));
        }
    });
    timeout(MOST, join_all(asking)).await.unwrap();
    let other = Certificate::self_signed(names("here", "ops")).unwrap().der().unwrap();
    let tcp = served.tcp().await;
    assert!(trusting(&other, "h2", "kubewarm.ops.svc", tcp).await.is_err());
    let own = served.certificate.der().unwrap();
    let tcp = served.tcp().await;
    assert!(trusting(&own, "h2", "kubewarm.other.svc", tcp).await.is_err());
    drop((stream, sender));
    served.end().await;
}

#[tokio::test]
async fn without_tls_nothing_is_answered() {
    let served = Served::new(|_| ());
    let mut stream = served.tcp().await;
    stream.write_all(OK).await.unwrap();
    let mut answer = Vec::new();
    let _end = timeout(MOST, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.windows(4).any(|part| part == b"HTTP"), "{answer:?}");
    served.end().await;
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_the_next_and_leaves_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate_file, key_file) = (path("tls.crt"), path("tls.key"));
    let write = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let wanted = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        fs::write(&certificate_file, wanted.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
    };
    write("kubewarm.ops.svc");
    let served = Served::with(
        Certificate::of_files(certificate_file.clone(), key_file.clone()).unwrap(),
        |_| (),
    );
    let before = served.certificate.der().unwrap();
    let mut open = served.tls("http/1.1").await.unwrap();
    write("kubewarm.ops.svc");
    served.certificate.refresh();
    assert_ne!(served.certificate.der().unwrap(), before);
    assert!(served.get("/ok").await.ends_with("ok"));
    let tcp = served.tcp().await;
    assert!(trusting(&before, "http/1.1", "kubewarm.ops.svc", tcp).await.is_err());
    open.write_all(OK).await.unwrap();
    one_ok(&mut open).await;
    served.end().await;
}

#[tokio::test]
async fn whoever_is_slow_with_a_head_is_cut_off_each_time() {
    let served = Served::new(|limits| limits.head = Duration::from_millis(500));
    let began = Instant::now();
    let mut silent = served.tcp().await;
    let mut first = served.tls("http/1.1").await.unwrap();
    let mut second = served.tls("http/1.1").await.unwrap();
    second.write_all(OK).await.unwrap();
    one_ok(&mut second).await;
    let half = b"GET /ok HTTP/1.1\r\nHost: x\r\nX-";
    first.write_all(half).await.unwrap();
    second.write_all(half).await.unwrap();
    for stream in [&mut first, &mut second] {
        let trickling = async {
            let (mut reading, mut writing) = tokio::io::split(stream);
            let mut answer = Vec::new();
            let mut more = tokio::time::interval(Duration::from_millis(100));
            loop {
                tokio::select! {
                    read = reading.read_buf(&mut answer) => if !matches!(read, Ok(1..)) { break },
                    _ = more.tick() => if writing.write_all(b"x").await.is_err() { break },
                }
            }
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        };
        timeout(MOST, trickling).await.unwrap();
    }
    let mut nothing = Vec::new();
    let _end = timeout(MOST, silent.read_to_end(&mut nothing)).await.unwrap();
    assert!(nothing.is_empty() && began.elapsed() < Duration::from_secs(10));
    served.end().await;
}

#[tokio::test]
async fn a_head_is_at_most_32_kib() {
    let served = Served::new(|_| ());
    let with = |bytes: usize| {
        let value = "x".repeat(bytes);
        format!("GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {value}\r\n\r\n")
    };
    let fits = served.say(&with(31 << 10)).await;
    assert!(fits.starts_with("HTTP/1.1 200") && fits.ends_with("ok"), "{fits}");
    let refused = served.say(&with(33 << 10)).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let many = "X-A: b\r\n".repeat(200);
    let refused = served.say(&format!("GET /ok HTTP/1.1\r\nHost: x\r\n{many}\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let (mut sender, _connection) = served.h2().await;
    for (bytes, fits) in [(30 << 10, true), (33 << 10, false)] {
        let mut request = h2_get(served.address, "/ok");
        let value = "x".repeat(bytes).parse().unwrap();
        request.headers_mut().insert("x-long", value);
        let answer = timeout(MOST, sender.send_request(request)).await.unwrap();
        let code = answer.as_ref().map(|answer| answer.status().as_u16());
        assert_eq!(code.ok() == Some(200), fits, "{answer:?}");
    }
    drop(sender);
    served.end().await;
}

#[tokio::test]
async fn a_flood_of_connections_leaves_room_for_other_addresses_and_passes() {
    let served = Served::new(|limits| connections(limits, 12, 8));
    let flood = join_all((0..40).map(|_| served.tls("http/1.1"))).await;
    let mut open: Vec<_> = flood.into_iter().filter_map(Result::ok).collect();
    assert_eq!(open.len(), 8);
    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let tcp = elsewhere.connect(served.address).await.unwrap();
    let mut other = served.tls_over(tcp, "http/1.1").await.unwrap();
    other.write_all(OK).await.unwrap();
    one_ok(&mut other).await;
    for stream in &mut open {
        stream.write_all(OK).await.unwrap();
        one_ok(stream).await;
    }
    drop((open, other));
    let again = async {
        while served.tls("http/1.1").await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(MOST, again).await.expect("places come back");
    served.end().await;
}

#[tokio::test]
async fn who_is_accepted_leaves_room_for_its_address_and_who_is_not_goes_in_time() {
    let served = Served::new(|limits| {
        connections(limits, 4, 2);
        (limits.head, limits.look) = (Duration::from_secs(2), Duration::from_millis(100));
    });
    let mut known = served.tls("http/1.1").await.unwrap();
    known.write_all(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    one_ok(&mut known).await;
    let began = Instant::now();
    let mut silent = served.tls("http/1.1").await.unwrap();
    let mut busy = served.tls("http/1.1").await.unwrap();
    assert!(served.tls("http/1.1").await.is_err(), "two of the address are not known");
    let asking = async {
        let mut answer = Vec::new();
        while busy.write_all(OK).await.is_ok()
            && busy.read_buf(&mut answer).await.is_ok_and(|it| it > 0)
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let silence = async { assert!(rest(&mut silent).await.is_empty()) };
    // With HTTP/1.1 the next head is to come in time, too.
    let using = async {
        loop {
            known.write_all(OK).await.unwrap();
            one_ok(&mut known).await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    let both = async {
        tokio::select! {
            _ = join(asking, silence) => {}
            () = using => {}
        }
    };
    timeout(MOST, both).await.expect("both end, whatever they ask");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    known.write_all(OK).await.unwrap();
    one_ok(&mut known).await;
    let mut new = served.tls("http/1.1").await.unwrap();
    new.write_all(OK).await.unwrap();
    one_ok(&mut new).await;
    served.end().await;
}

#[tokio::test]
async fn no_body_reaches_anybody() {
    let served = Served::new(|_| ());
    for (request, code) in [
        ("GET /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", 413),
        ("GET /ok HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (
            "POST /asked HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("POST /asked HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbody", 200),
    ] {
        let answer = served.say(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {answer}");
        let heads = answer.matches("HTTP/1.1 ").count();
        assert_eq!(heads, 1, "nothing of a body is taken for a request: {answer}");
    }
    let refused = [("4xx", "GET"), ("400", "GET"), ("400", "other")];
    assert_eq!(refused.map(|(code, method)| served.refused(code, method)), [1, 1, 1]);
    served.end().await;
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_in_both_protocols() {
    let served = Served::new(|limits| {
        limits.stall = Duration::from_millis(500);
        limits.look = Duration::from_millis(100);
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
    // Its window is taken up, and the client still answers pings.
    let _ended = timeout(MOST, connection).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    served.end().await;
}

#[tokio::test]
async fn a_connection_that_is_not_used_ends() {
    let served = Served::new(|limits| {
        limits.idle = Duration::from_millis(500);
        limits.look = Duration::from_millis(100);
    });
    let (mut sender, connection) = served.h2().await;
    let answer = sender.send_request(h2_get(served.address, "/slow")).await.unwrap();
    assert_eq!(answer.status(), 200, "it is used while it is answered");
    drop(answer);
    let _ended = timeout(MOST, connection).await.unwrap();
    let mut stream = served.tls("http/1.1").await.unwrap();
    stream.write_all(OK).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.ends_with("ok"), "{answer}");
    served.end().await;
}

#[tokio::test]
async fn the_end_waits_for_what_is_under_way_and_takes_nothing_new() {
    let served = Served::new(|_| ());
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
