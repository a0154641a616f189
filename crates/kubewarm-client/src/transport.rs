//! Creates HTTP clients from a configuration: TCP and TLS settings, timeouts, retries.
//!
//! kubewarm does not use kube's HTTP stack, which sets neither keepalive nor `TCP_NODELAY` and logs
//! each 5xx as an error.

use super::account::AnonymousConfig;
use bytes::Bytes;
use futures::{Stream, stream};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming},
    rt::{Read, Write},
};
use hyper_util::{
    client::{
        legacy::{
            Client as Http, Error as HttpError,
            connect::{
                Connect, Connection, HttpConnector,
                proxy::{SocksV5, Tunnel},
            },
        },
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _, retry::RetryPolicy},
};
use std::{io, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};
use tower::{
    BoxError, Service, ServiceBuilder, retry::RetryLayer, service_fn, util::BoxCloneSyncService,
};

/// Timeout of the TCP connect only. The TLS handshake counts against the timeout of the request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time before the first keepalive probe. After three unanswered probes at intervals of 10 s,
/// TCP closes the connection: 60 s in total.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// `TCP_USER_TIMEOUT`: a connection closes if the peer does not acknowledge sent bytes for this
/// long. Keepalive does not detect such a peer, because TCP sends no probes while bytes are
/// unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_mins(1);
/// Time after which an idle connection closes, so that a burst of lists leaves no sockets open for
/// long. The API server closes idle connections later, so kubewarm sends no request on a connection
/// that the API server is closing.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// Largest read buffer of a connection, in bytes. The buffer grows to this size while kubewarm
/// reads a list, and keeps its size during the watch that follows. Hyper's default, about 400 KiB,
/// does not make lists faster.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Time limit of short requests, such as access reviews, until the response headers arrive.
/// Includes the retries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of retries of a request after the statuses 429, 503 and 504. The delay grows from
/// `RETRY_FIRST` to at most `RETRY_LAST`.
const RETRIES: u32 = 5;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// The body of a caller's request, which kubewarm forwards to the API server while the body
/// arrives.
pub type StreamingBody = UnsyncBoxBody<Bytes, BoxError>;
/// An HTTP service that sends requests unchanged and returns each response before its body arrives.
pub(super) type StreamingService =
    BoxCloneSyncService<Request<StreamingBody>, Response<Incoming>, HttpError>;

/// Creates an API client without retries. Only the TCP connect has a timeout, so each caller must
/// limit the time of its requests.
///
/// Must be called within a tokio runtime. Runs the kubeconfig's exec plugin, if the kubeconfig has
/// one.
pub(super) fn plain(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.write_timeout = None;
    if config.proxy_url.is_some() {
        // With a proxy, TCP keepalive would detect only a dead proxy and not a dead API server. So
        // kubewarm uses kube's HTTP stack, which sets no keepalive.
        return Ok(ClientBuilder::try_from(config)?.build());
    }
    direct(tcp(), &config)
}

/// Creates an HTTP service that forwards requests of callers to the API server, with the same TCP
/// and TLS settings as [`plain`]. The type of `server` has no credentials, so each request has only
/// the caller's credentials.
pub(super) fn pipe(server: &AnonymousConfig) -> kube::Result<StreamingService> {
    let config = server.as_config();
    let Some(proxy) = config.proxy_url.clone() else {
        return piped(tcp(), config);
    };
    match proxy.scheme_str() {
        Some("http") => piped(tunnel(proxy, tcp()), config),
        Some("https") => config
            .rustls_https_connector_with_connector(tcp())
            .and_then(|tls| piped(tunnel(proxy, tls), config)),
        Some("socks5") => piped(SocksV5::new(proxy, tcp()), config),
        _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy) }),
    }
}

fn tunnel<C>(proxy: Uri, connector: C) -> Tunnel<C> {
    // The matcher extracts user and password from the proxy's URL, as in kube.
    let matcher = Matcher::builder().all(proxy.to_string()).build();
    let intercepted = matcher.intercept(&Uri::from_static("https://any.server"));
    let auth = intercepted.and_then(|proxy| proxy.basic_auth().cloned());
    let tunnel = Tunnel::new(proxy, connector);
    match auth {
        Some(auth) => tunnel.with_auth(auth),
        None => tunnel,
    }
}

fn piped<C>(connector: C, config: &Config) -> kube::Result<StreamingService>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
    C::Future: Send + Unpin + 'static,
    C::Error: Into<BoxError>,
{
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(BoxCloneSyncService::new(pooled(connector)));
    }
    let tls = config.rustls_https_connector_with_connector(connector)?;
    Ok(BoxCloneSyncService::new(pooled(tls)))
}

fn pooled<C, B>(connector: C) -> Http<C, B>
where
    C: Connect + Clone,
    B: HttpBody + Send,
    B::Data: Send,
{
    Http::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .http1_max_buf_size(RECEIVE_BUFFER)
        .build(connector)
}

/// Creates a client like [`plain`] that opens its connections with `connector`, and uses no proxy.
pub(super) fn direct<C>(connector: C, config: &Config) -> kube::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
    C::Future: Send + Unpin + 'static,
    C::Error: Into<BoxError>,
{
    // An `http` server needs no TLS connector. In kubewarm's image without CA certificates,
    // creating a TLS connector would fail.
    if config.cluster_url.scheme_str() == Some("http") {
        return over(connector, config);
    }
    over(config.rustls_https_connector_with_connector(connector)?, config)
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

fn over<C>(connector: C, config: &Config) -> kube::Result<Client>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let http: Http<_, Body> = pooled(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Creates an API client that uses the connections of `plain` and limits the time from a request to
/// the end of its response. Watches have no limit.
pub(super) fn limited(plain: &Client, limit: Duration) -> Client {
    let inner = plain.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
            let deadline = (!is_watch).then(|| Instant::now() + limit);
            let response = before(deadline, limit, client.send(request)).await??;
            Ok::<_, BoxError>(response.map(|body| StreamBody::new(frames(body, deadline, limit))))
        }
    });
    Client::new(service, plain.default_namespace().to_owned())
}

/// Returns the frames of `body`. At `deadline`, the stream ends with an error.
fn frames(
    body: Body,
    deadline: Option<Instant>,
    limit: Duration,
) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send {
    stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match before(deadline, limit, body.frame()).await {
            Ok(None) => None,
            Ok(Some(frame)) => Some((frame.map_err(BoxError::from), Some(body))),
            Err(late) => Some((Err(late.into()), None)),
        }
    })
}

async fn before<T>(
    deadline: Option<Instant>,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, io::Error> {
    let Some(deadline) = deadline else { return Ok(work.await) };
    timeout_at(deadline, work).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("no complete answer within {limit:?}"))
    })
}

/// Creates an API client for short requests, such as access reviews. The client uses the
/// connections of `plain`.
///
/// The client retries up to five times after 429, 503 and 504. A request fails if its response
/// headers do not arrive within 30 s, retries included. The body has no time limit.
pub(super) fn patient(plain: &Client) -> Client {
    let inner = plain.clone();
    let send = service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        async move { client.send(request).await.map_err(BoxError::from) }
    });
    let namespace = plain.default_namespace().to_owned();
    let retried = match RetryPolicy::new(RETRY_FIRST, RETRY_LAST, RETRIES, true) {
        Ok(policy) => Some(RetryLayer::new(policy)),
        // `RetryPolicy::new` fails only if the first delay exceeds the last delay. The client would
        // then send no retries.
        Err(_) => None,
    };
    let service = ServiceBuilder::new().option_layer(retried).service(send);
    let retrying = Client::new(service, namespace.clone());
    let bounded = service_fn(move |request: Request<Body>| {
        let client = retrying.clone();
        async move {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 s");
            let response = timeout(ANSWER_TIMEOUT, client.send(request)).await.map_err(late)?;
            response.map_err(BoxError::from)
        }
    });
    Client::new(bounded, namespace)
}
