//! Sends reads over a few connections, one after the other on each, and says what came of them.
//!
//! One thread, HTTP/1.1, nothing decoded: what is measured is whoever answers.

use crate::{drain::Seam, quantile::quantile};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
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

/// Connections, and what the server has in its caches, before anything counts.
const REHEARSAL: Duration = Duration::from_millis(500);

/// A server, and who asks it.
#[derive(Clone)]
pub struct Gun {
    address: SocketAddr,
    tls: TlsConnector,
    token: Arc<str>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Paths with their queries, in turns.
    pub paths: Arc<[String]>,
    /// How many are under way at once, each on a connection of its own.
    pub connections: usize,
    /// For how long; each connection sends one request at least.
    pub lasts: Duration,
}

/// What one answer came to.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// From the request to the last byte.
    pub seconds: f64,
    /// Of the body.
    pub gigabytes: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Fired {
    /// Answers a second.
    pub per_second: f64,
    /// Half were faster, in seconds.
    pub p50: f64,
    /// All but one in a hundred were faster.
    pub p99: f64,
    /// Of bodies, in gigabytes.
    pub gigabytes: f64,
}

fn whole(began: Instant, bytes: u64) -> Whole {
    #[expect(clippy::cast_precision_loss, reason = "some gigabytes")]
    Whole { seconds: began.elapsed().as_secs_f64(), gigabytes: bytes as f64 / 1e9 }
}

impl std::fmt::Debug for Gun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gun").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Gun {
    /// At `address`, whose certificate is signed by the one in `authority` (PEM).
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
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)), token: token.into() })
    }

    /// Sends `load`, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Connections that end, and every answer but 200.
    pub async fn fire(&self, load: Load) -> Result<Fired> {
        let gun = self.clone();
        spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, gun.fire_here(load))
        })
        .await?
    }

    /// Sends one request, on a connection of its own that is open already.
    ///
    /// # Errors
    ///
    /// As [`fire`](Self::fire).
    pub async fn once(&self, path: &str) -> Result<Whole> {
        let mut sender = self.connect().await?;
        let began = Instant::now();
        let bytes = self.get(&mut sender, path, |_| false).await?;
        Ok(whole(began, bytes))
    }

    /// The same for a watch that sends everything first; until it says that this was all.
    ///
    /// # Errors
    ///
    /// As [`fire`](Self::fire), and if it ends before.
    pub async fn until_synced(&self, path: &str) -> Result<Whole> {
        let mut sender = self.connect().await?;
        let (mut seam, mut is_synced) = (Seam::default(), false);
        let began = Instant::now();
        let bytes = self
            .get(&mut sender, path, |data| {
                is_synced = seam.ends(data);
                is_synced
            })
            .await?;
        ensure!(is_synced, "the stream ended after {bytes} bytes without its end bookmark");
        Ok(whole(began, bytes))
    }

    /// Opens a watch, from this address and on a connection of its own.
    ///
    /// # Errors
    ///
    /// If it is refused.
    pub async fn watch(&self, path: &str, from: Ipv4Addr) -> Result<Incoming> {
        let mut sender = self.connect_from(from).await?;
        let answer = sender.send_request(self.request(path)?).await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        Ok(answer.into_body())
    }

    async fn fire_here(self, load: Load) -> Result<Fired> {
        let gun = Rc::new(self);
        let mut connections = JoinSet::new();
        let began = Instant::now();
        let counts = began + REHEARSAL.min(load.lasts / 4);
        for at in 0..load.connections {
            let (gun, load) = (Rc::clone(&gun), load.clone());
            connections.spawn_local(async move { gun.repeat(&load, at, counts).await });
        }
        let (mut took, mut bytes) = (Vec::new(), 0);
        while let Some(ended) = connections.join_next().await {
            let (some, received) = ended??;
            took.extend(some);
            bytes += received;
        }
        let seconds = counts.elapsed().as_secs_f64();
        ensure!(!took.is_empty(), "nothing was answered in {:?}", load.lasts);
        #[expect(clippy::cast_precision_loss, reason = "some gigabytes and requests")]
        Ok(Fired {
            per_second: took.len() as f64 / seconds,
            p50: quantile(&took, 0.5),
            p99: quantile(&took, 0.99),
            gigabytes: bytes as f64 / 1e9,
        })
    }

    /// One connection: seconds that each answer took since `counts`, and bytes in all.
    async fn repeat(&self, load: &Load, at: usize, counts: Instant) -> Result<(Vec<f64>, u64)> {
        let mut sender = self.connect().await?;
        let (mut took, mut bytes) = (Vec::new(), 0);
        let end = counts + load.lasts;
        // Each connection has paths of its own, so that none finds what another has just warmed.
        let own = load.paths.iter().skip(at).step_by(load.connections);
        let mut own = own.chain(load.paths.iter().take(1)).cycle();
        loop {
            let path = own.next().context("no paths")?;
            let began = Instant::now();
            bytes += self.get(&mut sender, path, |_| false).await?;
            let now = Instant::now();
            if began >= counts || now >= end {
                took.push(now.duration_since(began).as_secs_f64());
            }
            if now >= end {
                return Ok((took, bytes));
            }
        }
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// If there is no server, or another one.
    pub async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        self.connect_from(Ipv4Addr::UNSPECIFIED).await
    }

    async fn connect_from(&self, from: Ipv4Addr) -> Result<SendRequest<Empty<Bytes>>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with its sender.
        drop(tokio::spawn(connection));
        Ok(sender)
    }

    /// One GET; the bytes of its body are counted and thrown away, until `is_enough`.
    async fn get(
        &self,
        sender: &mut SendRequest<Empty<Bytes>>,
        path: &str,
        mut is_enough: impl FnMut(&Bytes) -> bool,
    ) -> Result<u64> {
        sender.ready().await?;
        let answer = sender.send_request(self.request(path)?).await?;
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

    /// A GET of JSON by the caller.
    ///
    /// # Errors
    ///
    /// If `path` is none.
    pub fn request(&self, path: &str) -> Result<Request<Empty<Bytes>>> {
        let request = Request::get(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, "kubewarm-bench");
        Ok(request.body(Empty::new())?)
    }
}
