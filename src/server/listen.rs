//! The admin listener: bound first, so that the address is known, then served until told to stop.

use super::admin::{Admin, Held, routes};
use actix_web::{
    App, HttpServer,
    dev::{Extensions, Server},
    http::KeepAlive,
    rt::net::TcpStream,
    web,
};
use std::{
    any::Any,
    io,
    net::{self, Ipv4Addr, Shutdown, SocketAddr, TcpListener},
    os::fd::AsFd as _,
    sync::Arc,
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Connections at once: probes, a few scrapers, a few people.
const MAX_CONNECTIONS: usize = 256;
/// Threads that answer: while one writes a large answer, the other says that we live.
const WORKERS: usize = 2;
/// From connect to the last byte of the request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// From connect to the last byte of the answer, however slowly it is read: scrapes give up sooner, and
/// those who read nothing would keep the probes out.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);
/// How long the last answers may take when the process ends.
const STOP_SECONDS: u64 = 2;

/// A bound listener.
#[derive(Debug)]
pub struct Listening {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    connection_timeout: Duration,
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
    let (listeners, address) =
        everywhere(address).map_err(|source| ServeError::Bind { address, source })?;
    Ok(Listening { listeners, address, connection_timeout: CONNECTION_TIMEOUT })
}

/// What listens to `address`, and the address that it is: of both families if it is `[::]`.
pub(super) fn everywhere(address: SocketAddr) -> io::Result<(Vec<TcpListener>, SocketAddr)> {
    let everywhere = address.is_ipv6() && address.ip().is_unspecified();
    let first = match TcpListener::bind(address) {
        Err(error) if everywhere && is_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))?
        }
        bound => bound?,
    };
    let bound = first.local_addr()?;
    let mut listeners = vec![first];
    if everywhere && bound.is_ipv6() {
        // On a dual-stack socket this fails, because the first one has it already.
        listeners.extend(TcpListener::bind((Ipv4Addr::UNSPECIFIED, bound.port())));
    }
    Ok((listeners, bound))
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
        let most = self.connection_timeout;
        let mut server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::from(Arc::clone(&admin)))
                .app_data(web::Data::from(Arc::clone(&held)))
                .configure(routes)
        })
        .workers(WORKERS)
        .max_connections(MAX_CONNECTIONS / WORKERS)
        .client_request_timeout(REQUEST_TIMEOUT)
        .on_connect(move |connection, data| end_after(most, connection, data))
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

/// What is kept of a connection for as long as it lives.
struct Ending(
    #[expect(dead_code, reason = "ends the waiting when it is dropped")] AbortOnDropHandle<()>,
);

/// Ends a connection `most` after it began. The server itself bounds only how long it listens: what
/// is not read it would keep for ever.
fn end_after(most: Duration, connection: &dyn Any, data: &mut Extensions) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else { return };
    // Another handle on the same socket: the server owns this one.
    let socket = match stream.as_fd().try_clone_to_owned() {
        Ok(socket) => net::TcpStream::from(socket),
        Err(error) => {
            tracing::warn!(%error, "a connection has no bound in time");
            return;
        }
    };
    let ending = actix_web::rt::spawn(async move {
        tokio::time::sleep(most).await;
        // An error says that it has ended.
        let _ended = socket.shutdown(Shutdown::Both);
    });
    data.insert(Ending(AbortOnDropHandle::new(ending)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metrics::{BuildInfo, Metrics},
        server::sample::{key, snapshot, synced},
    };
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
            unlisted: Box::new(Vec::new),
            replicas: Box::new(|| None),
            gate: Arc::default(),
            guard: None,
            set_log_filter: Box::new(|_| Ok(())),
            watchers: crate::server::Watchers::default(),
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

    /// What a reader gets of 20 MB, which no socket's buffers hold, if it begins to read after `pause`
    /// and a connection may last for `most`.
    async fn much(pause: Duration, most: Duration) -> String {
        let cells = Box::new(|| vec![snapshot(key("pods", &"n".repeat(1_000)), synced()); 10_000]);
        let admin = Arc::new(Admin { cells, ..Arc::into_inner(admin()).unwrap() });
        let mut listening = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        listening.connection_timeout = most;
        let (address, stop) = (listening.address(), CancellationToken::new());
        let serving = tokio::spawn(listening.serve(admin, stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /debug/cells HTTP/1.1\r\nHost: localhost\r\n\r\n";
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
    async fn who_does_not_read_is_cut_off() {
        let whole = much(Duration::ZERO, CONNECTION_TIMEOUT).await;
        assert!(whole.contains("\n]}\n"), "{} bytes", whole.len());
        let part = much(Duration::from_secs(1), Duration::from_millis(500)).await;
        assert!(part.starts_with("HTTP/1.1 200") && part.len() < whole.len() / 2);
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
