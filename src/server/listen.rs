//! The admin listener: bound first, so that the address is known, then served until told to stop.

use super::admin::{Admin, Held, routes};
use actix_web::{App, HttpServer, dev::Server, http::KeepAlive, web};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Connections at once: probes, a few scrapers, a few people.
const MAX_CONNECTIONS: usize = 256;
/// Threads that answer: while one writes a large answer, the other says that we live.
const WORKERS: usize = 2;
/// From connect to the last byte of the request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last answers may take when the process ends.
const STOP_SECONDS: u64 = 2;

/// A bound listener.
#[derive(Debug)]
pub struct Listening {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
}

/// The admin address cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot be bound.
    #[error("--admin-addr {address} cannot be bound; name one that is free, such as [::]:9091")]
    Bind {
        /// As the user wrote it.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Serving ended.
    #[error("the admin server ended")]
    Serve(#[source] io::Error),
}

/// Binds `address`. `[::]` means every address of both families: where the kernel keeps IPv4 apart
/// it is bound too, and where there is no IPv6, alone.
///
/// # Errors
///
/// [`ServeError::Bind`].
pub fn bind(address: SocketAddr) -> Result<Listening, ServeError> {
    let failed = |source| ServeError::Bind { address, source };
    let everywhere = address.is_ipv6() && address.ip().is_unspecified();
    let first = match TcpListener::bind(address) {
        Err(error) if everywhere && is_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).map_err(failed)?
        }
        bound => bound.map_err(failed)?,
    };
    let bound = first.local_addr().map_err(failed)?;
    let mut listeners = vec![first];
    if everywhere && bound.is_ipv6() {
        // On a dual-stack socket this fails, because the first one has it already.
        listeners.extend(TcpListener::bind((Ipv4Addr::UNSPECIFIED, bound.port())));
    }
    Ok(Listening { listeners, address: bound })
}

/// `EAFNOSUPPORT` and `EADDRNOTAVAIL`: built without IPv6, and switched off.
fn is_no_ipv6(error: &io::Error) -> bool {
    /// On Linux; the standard library has no kind for it.
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

impl Listening {
    /// The bound address, with the port that was found for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests, on two threads of its own, until `stop`; then finishes those under way,
    /// for at most 2 s.
    ///
    /// # Errors
    ///
    /// [`ServeError::Serve`] if the listener breaks.
    pub async fn serve(self, admin: Arc<Admin>, stop: CancellationToken) -> Result<(), ServeError> {
        let mut running = self.start(admin).map_err(ServeError::Serve)?;
        let handle = running.handle();
        tokio::select! {
            ended = &mut running => return ended.map_err(ServeError::Serve),
            () = stop.cancelled() => {}
        }
        let (ended, ()) = tokio::join!(running, handle.stop(true));
        ended.map_err(ServeError::Serve)
    }

    /// Not part of [`Self::serve`]: the builder cannot be sent between threads.
    fn start(self, admin: Arc<Admin>) -> io::Result<Server> {
        let held = Arc::new(Held::default());
        let mut server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::from(Arc::clone(&admin)))
                .app_data(web::Data::from(Arc::clone(&held)))
                .configure(routes)
        })
        .workers(WORKERS)
        .max_connections(MAX_CONNECTIONS / WORKERS)
        .client_request_timeout(REQUEST_TIMEOUT)
        // One request a connection: idle ones would keep the probes out.
        .keep_alive(KeepAlive::Disabled)
        .shutdown_timeout(STOP_SECONDS)
        .disable_signals();
        for listener in self.listeners {
            server = server.listen(listener)?;
        }
        Ok(server.run())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{BuildInfo, Metrics};
    use jiff::Timestamp;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        time::timeout,
    };

    fn admin() -> Arc<Admin> {
        Arc::new(Admin {
            metrics: Arc::new(Metrics::new(&BuildInfo::current()).unwrap()),
            cells: Box::new(Vec::new),
            declared: Box::new(|| None),
            gate: Arc::default(),
            set_log_filter: Box::new(|_| Ok(())),
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

    /// Says `request` and listens until the other end closes, for at most 4 s.
    async fn say(address: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        timeout(Duration::from_secs(4), stream.read_to_string(&mut answer)).await??;
        Ok(answer)
    }

    /// Serves on a port of the loopback interface while `ask` runs.
    async fn serving<F: Future<Output = ()>>(ask: impl FnOnce(SocketAddr) -> F) {
        let listening = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, stop) = (listening.address(), CancellationToken::new());
        let serving = tokio::spawn(listening.serve(admin(), stop.clone()));
        ask(address).await;
        stop.cancel();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn every_route_is_served() {
        serving(|address| async move {
            for (path, code) in [("livez", 200), ("metrics", 200), ("readyz", 503)] {
                let request =
                    format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                let answer = say(address, &request).await.unwrap();
                assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {answer}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_answer() {
        serving(|address| async move {
            let answer = say(address, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            assert!(answer.ends_with("ok\n"), "{answer}");
        })
        .await;
    }

    #[tokio::test]
    async fn http_1_0_gets_cells_without_chunks() {
        serving(|address| async move {
            for connection in ["close", "keep-alive"] {
                let request = format!(
                    "GET /debug/cells HTTP/1.0\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n"
                );
                let answer = say(address, &request).await.unwrap();
                let (head, body) = answer.split_once("\r\n\r\n").unwrap();
                assert!(head.contains(" 200 OK"), "{head}");
                assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
                assert_eq!(body, "{\"cells\":[\n\n]}\n");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn bodies_that_do_not_come_keep_no_probe_out() {
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
            let refused = say(address, head).await.unwrap();
            assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        })
        .await;
    }

    #[tokio::test]
    async fn every_address_answers_until_told_to_stop() {
        let listening = bind("[::]:0".parse().unwrap()).unwrap();
        let port = listening.address().port();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(listening.serve(admin(), stop.clone()));
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let answer = livez(v4).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
        stop.cancel();
        serving.await.unwrap().unwrap();
        assert!(livez(v4).await.is_err());
    }

    #[test]
    fn a_taken_address_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let holder = TcpListener::bind(taken).unwrap();
        let error = bind(taken).unwrap_err();
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
        drop(holder);
    }
}
