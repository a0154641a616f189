//! Sends reads over several connections, one after another on each, and measures the responses.
//!
//! It uses one thread and HTTP/1.1 and decodes nothing, so that it measures the server and not
//! itself.

use crate::{drain::EndBookmarkFinder, quantile::quantile};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use kubewarm_wire::JSON;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpSocket,
    runtime::Builder,
    task::{JoinSet, LocalSet, spawn_blocking},
};
use tokio_rustls::TlsConnector;

/// Requests of this first period are not counted: they open connections and fill the server's
/// caches.
const REHEARSAL: Duration = Duration::from_millis(500);

/// A server and the credentials of a client.
#[derive(Clone)]
pub struct LoadClient {
    address: SocketAddr,
    tls: TlsConnector,
    token: Arc<str>,
    accept: &'static str,
}

/// The requests of a measurement.
#[derive(Clone, Debug)]
pub struct Load {
    /// Paths with queries, which are used in turn.
    pub paths: Arc<[String]>,
    /// The number of connections, with one request at a time on each.
    pub connections: usize,
    /// The duration. Each connection sends at least one request.
    pub lasts: Duration,
}

/// The measurement of one response.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The time from the request to the last byte.
    pub seconds: f64,
    /// The size of the body.
    pub gigabytes: f64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct LoadResult {
    /// Responses per second.
    pub per_second: f64,
    /// The median latency, in seconds.
    pub p50: f64,
    /// The 99th percentile of the latency, in seconds.
    pub p99: f64,
}

fn whole(began: Instant, bytes: u64) -> Whole {
    #[expect(clippy::cast_precision_loss, reason = "some gigabytes")]
    Whole { seconds: began.elapsed().as_secs_f64(), gigabytes: bytes as f64 / 1e9 }
}

impl std::fmt::Debug for LoadClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadClient").field("address", &self.address).finish_non_exhaustive()
    }
}

impl LoadClient {
    /// A client for the server at `address`, which accepts JSON. `authority` is the file of its CA
    /// certificate (PEM).
    ///
    /// # Errors
    ///
    /// If the certificate cannot be read.
    pub fn new(address: SocketAddr, authority: &Path, token: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authority)? {
            roots.add(certificate?)?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self {
            address,
            tls: TlsConnector::from(Arc::new(config)),
            token: token.into(),
            accept: JSON,
        })
    }

    /// The same client, which accepts another media type.
    #[must_use]
    pub fn accepting(&self, accept: &'static str) -> Self {
        Self { accept, ..self.clone() }
    }

    /// The same client with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    /// Sends `load` from a separate thread.
    ///
    /// # Errors
    ///
    /// Connections that end, and every response except 200.
    pub async fn send(&self, load: Load) -> Result<LoadResult> {
        let client = self.clone();
        spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, client.send_here(load))
        })
        .await?
    }

    /// Measures one request on a new connection, which is open before the measurement starts.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn once(&self, path: &str) -> Result<Whole> {
        let mut sender = self.connect().await?;
        let began = Instant::now();
        let bytes = self.get(&mut sender, path, |_| false).await?;
        Ok(whole(began, bytes))
    }

    /// Measures a streaming list, from the request until the bookmark that ends its initial events.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and if the watch ends before.
    pub async fn until_synced(&self, path: &str) -> Result<Whole> {
        let mut sender = self.connect().await?;
        let (mut finder, mut is_synced) = (EndBookmarkFinder::default(), false);
        let began = Instant::now();
        let bytes = self
            .get(&mut sender, path, |data| {
                is_synced = finder.ends(data);
                is_synced
            })
            .await?;
        ensure!(is_synced, "the stream ended after {bytes} bytes without its end bookmark");
        Ok(whole(began, bytes))
    }

    /// Opens a watch on a new connection from this address.
    ///
    /// # Errors
    ///
    /// If the watch is refused.
    pub async fn watch(&self, path: &str, from: Ipv4Addr) -> Result<Incoming> {
        let mut sender = self.connect_from(from).await?;
        let answer = sender.send_request(self.request(path)?).await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        Ok(answer.into_body())
    }

    /// Measures a JSON merge patch on a new connection, in seconds. The connection is open before
    /// the measurement starts.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn merge_patch(&self, path: &str, body: Vec<u8>) -> Result<f64> {
        let mut sender = self.connect().await?;
        let mut request = self.request(path)?;
        *request.method_mut() = Method::PATCH;
        let merge = HeaderValue::from_static("application/merge-patch+json");
        request.headers_mut().insert(header::CONTENT_TYPE, merge);
        *request.body_mut() = Full::from(body);
        let began = Instant::now();
        Self::read(sender.send_request(request).await?, path, |_| false).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    async fn send_here(self, load: Load) -> Result<LoadResult> {
        let client = Rc::new(self);
        let mut connections = JoinSet::new();
        let began = Instant::now();
        let counts = began + REHEARSAL.min(load.lasts / 4);
        for at in 0..load.connections {
            let (client, load) = (Rc::clone(&client), load.clone());
            connections.spawn_local(async move { client.repeat(&load, at, counts).await });
        }
        let mut took = Vec::new();
        while let Some(ended) = connections.join_next().await {
            took.extend(ended??);
        }
        let seconds = counts.elapsed().as_secs_f64();
        ensure!(!took.is_empty(), "nothing was answered in {:?}", load.lasts);
        #[expect(clippy::cast_precision_loss, reason = "some million requests")]
        Ok(LoadResult {
            per_second: took.len() as f64 / seconds,
            p50: quantile(&took, 0.5),
            p99: quantile(&took, 0.99),
        })
    }

    /// Sends requests on one connection. Returns the latency of each response after the time
    /// `counts`, the end of the rehearsal.
    async fn repeat(&self, load: &Load, at: usize, counts: Instant) -> Result<Vec<f64>> {
        let (mut sender, mut took) = (self.connect().await?, Vec::new());
        let end = counts + load.lasts;
        // Each connection has its own paths, so that no connection profits from another one's
        // requests.
        let paths = load.paths.iter().skip(at).step_by(load.connections);
        let mut paths = paths.chain(load.paths.iter().take(1)).cycle();
        loop {
            let path = paths.next().context("no paths")?;
            let began = Instant::now();
            self.get(&mut sender, path, |_| false).await?;
            let now = Instant::now();
            if began >= counts || now >= end {
                took.push(now.duration_since(began).as_secs_f64());
            }
            if now >= end {
                return Ok(took);
            }
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or its certificate is wrong.
    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        self.connect_from(Ipv4Addr::UNSPECIFIED).await
    }

    async fn connect_from(&self, from: Ipv4Addr) -> Result<SendRequest<Full<Bytes>>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The connection's task ends with its sender.
        drop(tokio::spawn(connection));
        Ok(sender)
    }

    /// Sends one GET request and counts the bytes of the body until `is_enough` returns true.
    async fn get(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        path: &str,
        is_enough: impl FnMut(&Bytes) -> bool,
    ) -> Result<u64> {
        sender.ready().await?;
        Self::read(sender.send_request(self.request(path)?).await?, path, is_enough).await
    }

    /// Counts the bytes of a response's body until `is_enough` returns true.
    async fn read(
        answer: Response<Incoming>,
        path: &str,
        mut is_enough: impl FnMut(&Bytes) -> bool,
    ) -> Result<u64> {
        let status = answer.status();
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                ensure!(
                    status == StatusCode::OK,
                    "{path}: {status}: {}",
                    String::from_utf8_lossy(&data)
                );
                bytes += data.len() as u64;
                if is_enough(&data) {
                    break;
                }
            }
        }
        Ok(bytes)
    }

    /// A GET request with the client's token and media type.
    ///
    /// # Errors
    ///
    /// If `path` is invalid.
    pub fn request(&self, path: &str) -> Result<Request<Full<Bytes>>> {
        let request = Request::get(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::ACCEPT, self.accept)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, "kubewarm-bench");
        Ok(request.body(Full::default())?)
    }
}
