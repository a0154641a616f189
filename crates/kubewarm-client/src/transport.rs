//! From a configuration to a client: TCP and TLS settings, time-outs, retries.
//!
//! One pool of HTTP/1.1 connections for everything that is sent as the process itself. The client
//! library's own stack sets neither keepalive nor `TCP_NODELAY` and logs each 5xx as an error.

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

/// For the TCP connection alone; a TLS handshake that hangs falls under the time-out of its request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that is gone is noticed after 30 s + 3 × 10 s, half the default silence of a watch.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Sent bytes that nobody acknowledges end the connection; keepalive does not run meanwhile.
const UNACKNOWLEDGED: Duration = Duration::from_mins(1);
/// After a burst of lists the sockets go back soon; the API server itself waits longer.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// What a connection reads at once. It grows to this while a list arrives and stays while the watch
/// that follows is open; the library's own bound of 400 KiB brings no list sooner.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Until the headers of an answer, retries included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Between the first and the last of at most so many retries of 429, 503 and 504.
const RETRIES: u32 = 5;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// A body that is sent while it arrives.
pub type Piped = UnsyncBoxBody<Bytes, BoxError>;
/// Sends requests as they are, and hands back answers before their bodies have come.
pub(super) type Pipe = BoxCloneSyncService<Request<Piped>, Response<Incoming>, HttpError>;

/// A client without retries and without time-outs beyond the connection's: each request sets its
/// own.
///
/// Needs a tokio runtime. An exec plugin of the kubeconfig is run here.
pub(super) fn plain(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.write_timeout = None;
    if config.proxy_url.is_some() {
        // Keepalive would reach only as far as the proxy, so the library's stack does as well.
        return Ok(ClientBuilder::try_from(config)?.build());
    }
    direct(&config)
}

/// The same connections for requests whose bodies are piped through: it adds nothing to them, no
/// credentials of `config` either.
pub(super) fn pipe(config: &Config) -> kube::Result<Pipe> {
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
    // It reads user and password out of the URL, as the client library does.
    let matcher = Matcher::builder().all(proxy.to_string()).build();
    let intercepted = matcher.intercept(&Uri::from_static("https://any.server"));
    let auth = intercepted.and_then(|it| it.basic_auth().cloned());
    let tunnel = Tunnel::new(proxy, connector);
    match auth {
        Some(auth) => tunnel.with_auth(auth),
        None => tunnel,
    }
}

fn piped<C>(connector: C, config: &Config) -> kube::Result<Pipe>
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

fn direct(config: &Config) -> kube::Result<Client> {
    let tcp = tcp();
    // Without TLS no certificates are needed, and in the image there are none.
    if config.cluster_url.scheme_str() == Some("http") {
        return over(tcp, config);
    }
    over(config.rustls_https_connector_with_connector(tcp)?, config)
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

/// The same connections, with a time limit for each request from its start to the end of its answer. Watches
/// have none.
pub(super) fn limited(plain: &Client, limit: Duration) -> Client {
    let inner = plain.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
            let deadline = (!is_watch).then(|| Instant::now() + limit);
            let answer = before(deadline, limit, client.send(request)).await??;
            Ok::<_, BoxError>(answer.map(|body| StreamBody::new(frames(body, deadline, limit))))
        }
    });
    Client::new(service, plain.default_namespace().to_owned())
}

/// The frames of `body`; after `deadline` the last one is an error.
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

/// The same connections, for short requests: 429, 503 and 504 are retried a few times, and without
/// an answer for 30 s in all the request fails. Bodies, and so watches, may take longer.
pub(super) fn patient(plain: &Client) -> Client {
    let inner = plain.clone();
    let send = service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        async move { client.send(request).await.map_err(BoxError::from) }
    });
    let namespace = plain.default_namespace().to_owned();
    let retried = match RetryPolicy::new(RETRY_FIRST, RETRY_LAST, RETRIES, true) {
        Ok(policy) => Some(RetryLayer::new(policy)),
        // Only for a first delay above the last; requests then fail sooner.
        Err(_) => None,
    };
    let service = ServiceBuilder::new().option_layer(retried).service(send);
    let retrying = Client::new(service, namespace.clone());
    let bounded = service_fn(move |request: Request<Body>| {
        let client = retrying.clone();
        async move {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 s");
            let answer = timeout(ANSWER_TIMEOUT, client.send(request)).await.map_err(late)?;
            answer.map_err(BoxError::from)
        }
    });
    Client::new(bounded, namespace)
}
