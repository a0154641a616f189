mod broken;
mod slow;
mod tunnel;
mod unparsed;
mod unreviewed;

use super::{
    super::{
        listen::{ConnectionLimits, RequestHandler},
        response,
        route::Route,
        tests::{MOST, TestServer, rest},
    },
    *,
};
use crate::callers::{CallerCredentials, fixtures};
use futures::stream;
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use parking_lot::Mutex;
use prometheus::Registry;
use std::{convert::Infallible, fs, net::IpAddr};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinHandle,
    time::sleep,
};

/// One text for each write that `RequestForwarder` has reported to its `WriteObserver`. The text
/// contains the write's resource, namespace and version.
type Told = Arc<Mutex<Vec<String>>>;

struct Handlers {
    forward: RequestForwarder,
    callers: CallerGate,
    metrics: ReadMetrics,
}

/// A read API without stores, so it forwards each request that [`Route`] lets it forward. The test
/// writes the responses of the fake API server.
struct ForwardFixture {
    served: TestServer,
    server: TcpListener,
    told: Told,
    handlers: Arc<Handlers>,
}

fn said(token: &str, _: &str) -> fixtures::ReviewAnswer {
    match token {
        "of-the-caller" | "a" | "b" => fixtures::ReviewAnswer::Denied("jane"),
        _ => fixtures::ReviewAnswer::Unknown,
    }
}

impl ForwardFixture {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut ConnectionLimits)) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The token of kubewarm's own identity, which must not appear in forwarded requests.
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], \
             users: [{{name: o, user: {{token: of-the-operator}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: o}}}}]}}",
            server.local_addr().unwrap()
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, kubeconfig).unwrap();
        let connection = ApiServerConnection::load(&ConnectionOptions::of_file(&path)).unwrap();
        let told = Told::default();
        let noted = Arc::clone(&told);
        let wrote: WriteObserver = Box::new(move |written, version| {
            noted.lock().push(format!("{} {:?} {version}", written.resource, written.namespace));
        });
        let forward =
            RequestForwarder::new(connection.new_upstream_proxy(Handle::current()).unwrap(), wrote);
        let metrics = ReadMetrics::register(&Registry::new()).unwrap();
        let handlers = Handlers { forward, callers: fixtures::changing(said).0, metrics };
        let handlers = Arc::new(handlers);
        let of_threads = Arc::clone(&handlers);
        let handler: RequestHandler = Box::new(move |request| {
            let handlers = Arc::clone(&of_threads);
            Box::pin(async move {
                let Handlers { forward, callers, metrics } = &*handlers;
                let mut sent = ForwardedRequest::default();
                let answered = match Route::of(Some(forward), &request) {
                    Ok(Route::CacheThenForward(_, Err(failure)))
                        if !failure.is_specific_to_cache() =>
                    {
                        Err(failure.into())
                    }
                    Ok(Route::Cache(_) | Route::Forward(_) | Route::CacheThenForward(..))
                    | Err(_) => forward.send(request, callers, metrics, &mut sent).await,
                };
                match answered {
                    Err(RequestError::Status(failure)) => {
                        Ok(response::failure(&failure, kubewarm_wire::MediaType::Json, false))
                    }
                    Err(RequestError::Broken(broken)) => Err(broken),
                    Ok(response) => Ok(response),
                }
            })
        });
        let reading = TestServer::by(handler, change);
        Self { served: reading, server, told, handlers }
    }

    /// Accepts the next connection to the fake API server. Returns the request's head with `body`
    /// bytes of the request body, and the connection.
    async fn next(&self, body: usize) -> (String, TcpStream) {
        let (mut stream, _) = timeout(MOST, self.server.accept()).await.unwrap().unwrap();
        let asked = received(&mut stream, body).await;
        (asked, stream)
    }
}

impl ForwardFixture {
    /// The number of further requests that the limit on forwarded requests permits the caller now.
    async fn free_slots(&self) -> usize {
        let bearer = [("authorization", &b"Bearer of-the-caller"[..])];
        let (credentials, peer) =
            (CallerCredentials::from_headers(bearer).unwrap(), IpAddr::from([127, 0, 0, 1]));
        let mut permits = Vec::new();
        let authentication = ForwardAuthentication::Review;
        let admit = || self.handlers.callers.admit_forwarded(&credentials, peer, authentication);
        while let Ok((_, permit)) = admit().await {
            permits.push(permit);
        }
        permits.len()
    }
}

async fn received(stream: &mut (impl tokio::io::AsyncRead + Unpin), body: usize) -> String {
    let mut asked = Vec::new();
    let end = |asked: &[u8]| asked.windows(4).position(|end| end == b"\r\n\r\n");
    while end(&asked).is_none_or(|at| asked.len() < at + 4 + body) {
        let read = timeout(MOST, stream.read_buf(&mut asked)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&asked));
    }
    String::from_utf8(asked).unwrap()
}

/// A request with the bearer token `of-the-caller`. `line` contains the request's method and path.
fn request(line: &str, headers: &str, body: &str) -> String {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!(
        "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer of-the-caller\r\n{length}{headers}\r\n{body}"
    )
}

const CLOSE: &str = "Connection: close\r\n";

#[tokio::test]
async fn a_forwarded_request_has_the_callers_credentials_and_none_of_the_operator() {
    let scene = ForwardFixture::new().await;
    let post = "POST /profiles/a/p/api/v1/namespaces/n/pods/x/proxy/y?a=b%20c";
    let headers = format!("{CLOSE}X-Remote-User: admin\r\nImpersonate-User: jane\r\n");
    let asked = request(post, &headers, "body");
    let (answer, ()) = tokio::join!(scene.served.say(&asked), async {
        let (asked, mut stream) = scene.next(4).await;
        let lower = asked.to_lowercase();
        assert!(asked.starts_with("POST /api/v1/namespaces/n/pods/x/proxy/y?a=b%20c HTTP/1.1\r\n"));
        assert!(lower.contains("\r\nauthorization: bearer of-the-caller\r\n"), "{asked}");
        assert!(lower.contains("\r\nimpersonate-user: jane\r\n"), "{asked}");
        assert!(!lower.contains("of-the-operator") && !lower.contains("x-remote"), "{asked}");
        assert!(asked.ends_with("\r\n\r\nbody"), "{asked}");
        let server = scene.server.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{server}/elsewhere\r\nX-Hop: 1\r\n\
             Connection: X-Hop\r\nContent-Length: 2\r\n\r\nok"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    // The API server answers with a redirect. kubewarm passes it to the client and does not follow
    // it.
    assert!(answer.starts_with("HTTP/1.1 307") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(
        answer.contains("/elsewhere\r\n") && !answer.to_lowercase().contains("x-hop"),
        "{answer}"
    );
    assert!(scene.told.lock().is_empty(), "a pod's response records no write");
    scene.served.end().await;
}

#[tokio::test]
async fn a_path_that_kubewarm_does_not_understand_is_forwarded_unchanged() {
    let scene = ForwardFixture::new().await;
    for path in
        ["//logs", "/api/v1/namespaces//pods/p", "/api/../x%2f%2E?a=%zz;b", "/profiles/A/p/api"]
    {
        let asked = request(&format!("GET {path}"), CLOSE, "");
        let (answer, ()) = tokio::join!(scene.served.say(&asked), async {
            let (asked, mut stream) = scene.next(0).await;
            assert!(asked.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{asked}");
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
        });
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{path}: {answer}");
    }
    scene.served.end().await;
}

#[tokio::test]
async fn requests_without_a_valid_bearer_token_are_not_forwarded() {
    let scene = ForwardFixture::new().await;
    for (line, headers, code) in [
        ("POST /api/v1/pods", "", "403"),
        ("GET /logs", "Authorization: Basic Z29vZA==\r\n", "403"),
        ("GET /logs", "X-Remote-User: admin\r\n", "403"),
        // The API server finds no token after two spaces, and answers `/version` without
        // authentication. kubewarm must not forward a request that the API server treats as
        // unauthenticated.
        ("GET /version", "Authorization: Bearer  a\r\n", "403"),
        ("GET /logs", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", "400"),
        // The fake API server rejects the token `made-up`.
        ("GET /logs", "Authorization: Bearer made-up\r\n", "401"),
        ("TRACE /logs", "Authorization: Bearer a\r\n", "405"),
        ("POST /x", "Authorization: Bearer a\r\nContent-Length: 99999999\r\n", "413"),
    ] {
        let asked = format!("{line} HTTP/1.1\r\nHost: x\r\n{CLOSE}{headers}\r\n");
        let answer = scene.served.say(&asked).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{line} {headers}: {answer}");
        assert_eq!(answer.contains("\"reason\":\"CannotForward\""), code == "403", "{answer}");
    }
    let request = timeout(Duration::from_millis(200), scene.server.accept()).await;
    assert!(request.is_err(), "the API server received a request");
    scene.served.end().await;
}

#[tokio::test]
async fn a_body_that_proves_too_large_is_not_sent_completely() {
    const PART: usize = 1 << 20;
    let scene = ForwardFixture::new().await;
    let io = TokioIo::new(scene.served.tls("h2").await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    // The request has no `Content-Length`.
    let parts = (0..=16).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; PART]))));
    let asked = http::Request::post("https://kubewarm.ops.svc/api/v1/namespaces/n/configmaps")
        .header(header::AUTHORIZATION, "Bearer of-the-caller")
        .body(StreamBody::new(stream::iter(parts)))
        .unwrap();
    let (answer, sent) = tokio::join!(timeout(MOST, sender.send_request(asked)), async {
        let (mut stream, _) = timeout(MOST, scene.server.accept()).await.unwrap().unwrap();
        let mut sent = Vec::new();
        // `read_to_end` can fail, because kubewarm closes the connection before the request is
        // complete.
        let _end = timeout(MOST, stream.read_to_end(&mut sent)).await.unwrap();
        sent
    });
    let (head, body) = answer.unwrap().unwrap().into_parts();
    assert_eq!(head.status, 413);
    let body = body.collect().await.unwrap().to_bytes();
    assert!(str::from_utf8(&body).unwrap().contains("RequestEntityTooLarge"), "{body:?}");
    assert!(!sent.ends_with(b"\r\n0\r\n\r\n"), "the whole body was sent");
    connection.abort();
    scene.served.end().await;
}

#[tokio::test]
async fn a_response_is_passed_through_while_it_is_written() {
    let scene = ForwardFixture::new().await;
    let mut caller = scene.served.tls("http/1.1").await.unwrap();
    let asked = request("GET /api/v1/pods?watch=true", "", "");
    caller.write_all(asked.as_bytes()).await.unwrap();
    let (_, mut stream) = scene.next(0).await;
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}3\r\none\r\n").as_bytes()).await.unwrap();
    let answer = received(&mut caller, 8).await;
    assert!(answer.contains("\r\n3\r\none\r\n"), "{answer}");
    // When the caller disconnects, kubewarm ends the request to the API server too.
    drop(caller);
    let mut gone = Vec::new();
    let ended = timeout(MOST, stream.read_to_end(&mut gone)).await;
    assert!(ended.is_ok());
    scene.served.end().await;
}

#[tokio::test]
async fn a_write_is_recorded_before_its_response_is_sent() {
    let scene = ForwardFixture::new().await;
    let asked = request("PUT /api/v1/namespaces/n/pods/x", "Accept-Encoding: gzip\r\n", "{}");
    let mut caller = scene.served.tls("http/1.1").await.unwrap();
    caller.write_all(asked.as_bytes()).await.unwrap();
    let (sent, mut stream) = scene.next(2).await;
    assert!(!sent.to_lowercase().contains("accept-encoding"), "{sent}");
    let object = r#"{"kind":"Pod","metadata":{"name":"x","resourceVersion":"42"}}"#;
    let head = format!("Content-Type: application/json\r\nContent-Length: {}", object.len());
    stream
        .write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{object}").as_bytes())
        .await
        .unwrap();
    let answer = received(&mut caller, object.len()).await;
    assert!(answer.ends_with(object), "{answer}");
    assert_eq!(*scene.told.lock(), [r#"pods Some("n") 42"#]);

    // kubewarm reads only the beginning of a long response before it starts to send the response to
    // the client.
    let asked = request("PUT /api/v1/namespaces/n/pods/x", "", "{}");
    caller.write_all(asked.as_bytes()).await.unwrap();
    let _sent = received(&mut stream, 2).await;
    let begun = format!(
        r#"{{"kind":"Pod","metadata":{{"name":"x","resourceVersion":"43"}},"spec":"{}"#,
        "x".repeat(20 << 10)
    );
    let head = "Content-Type: application/json\r\nContent-Length: 3000000";
    let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{begun}");
    stream.write_all(answer.as_bytes()).await.unwrap();
    let answer = received(&mut caller, begun.len() - 100).await;
    assert!(answer.contains(r#""resourceVersion":"43""#), "{answer}");
    assert_eq!(scene.told.lock().len(), 2);
    drop((caller, stream));
    scene.served.end().await;
}

#[tokio::test]
async fn an_unreachable_api_server_is_reported() {
    let ForwardFixture { served, server, .. } = ForwardFixture::new().await;
    drop(server);
    let asked = request("DELETE /api/v1/namespaces/n/pods/x", CLOSE, "");
    let answer = served.say(&asked).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{answer}");
    served.end().await;
}
