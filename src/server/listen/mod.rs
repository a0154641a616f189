//! The listener of the admin server (the HTTP server for probes, metrics and debug information).
//! `bind` binds the address, and `serve` then serves HTTP or HTTPS until the shutdown.

use super::admin::{AdminState, CachedExposition, routes};
use actix_http::{
    HttpService, Request, Response,
    body::{BoxBody, MessageBody},
    h1::H1Service,
};
use actix_service::{Service, ServiceFactory, map_config};
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::{
    App,
    dev::{AppConfig, Extensions, Server, ServiceResponse},
    http::KeepAlive,
    rt::net::TcpStream,
    web,
};
use kubewarm_serve::{
    ServeError, bind_all_families,
    certificate::{ServingCertificate, keep_refreshed},
};
use rustls::ServerConfig;
use std::{
    io,
    net::{self, Shutdown, SocketAddr, TcpListener},
    os::fd::AsFd as _,
    sync::Arc,
    time::Duration,
};
use tokio::select;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Maximum number of open connections. This number is enough for probes, a few scrapers and a few
/// users.
const MAX_CONNECTIONS: usize = 256;
/// Number of worker threads. While one thread writes a large response, the other thread can answer
/// liveness probes.
const WORKERS: usize = 2;
/// Timeout from the connect until the complete request head has arrived.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout from the connect until the client has read the complete response. Without this timeout,
/// clients that do not read could use all connections, so that probes fail. Scrapers have shorter
/// timeouts of their own.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);
const ENDED: &str = "the admin server ended";
/// Time for responses in progress after the shutdown begins, in seconds.
const STOP_SECONDS: u64 = 2;
/// Time in which the client must close its connection after the response.
const CLOSE: Duration = Duration::from_secs(1);
/// The only ALPN protocol that the server offers over TLS. With HTTP/2, one connection could
/// request any number of responses.
const PROTOCOL: &[u8] = b"http/1.1";

#[derive(Debug)]
pub struct AdminListener {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    connection_timeout: Duration,
}

/// Binds `address`. `[::]` means all IPv4 and IPv6 addresses.
///
/// If IPv6 sockets on this host do not accept IPv4, `bind` also binds IPv4. Without IPv6, `bind`
/// binds only IPv4.
///
/// # Errors
///
/// Returns [`ServeError`] if the kernel rejects the address.
pub fn bind(address: SocketAddr) -> Result<AdminListener, ServeError> {
    let (listeners, address) = bind_all_families(address).map_err(ServeError::of(format!(
        "--admin-addr {address} cannot be bound; name one that is free, such as [::]:9091"
    )))?;
    Ok(AdminListener { listeners, address, connection_timeout: CONNECTION_TIMEOUT })
}

impl AdminListener {
    /// Returns the bound address. If port 0 was requested, the address contains the port that the
    /// kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests on two threads of its own until `stop`, and then waits up to 2 s for
    /// responses in progress. With a certificate it serves only HTTPS.
    ///
    /// # Errors
    ///
    /// Returns [`ServeError`] if the certificate is unusable or the listener fails.
    pub async fn serve(
        self,
        admin: Arc<AdminState>,
        certificate: Option<Arc<ServingCertificate>>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let tls =
            certificate.as_ref().map(|certificate| certificate.tls(None, &[PROTOCOL])).transpose();
        let tls = tls.map_err(ServeError::of("the admin address has no certificate"))?;
        let mut running = self.start(admin, tls.as_ref()).map_err(ServeError::of(ENDED))?;
        let handle = running.handle();
        select! {
            ended = &mut running => return ended.map_err(ServeError::of(ENDED)),
            () = keep_refreshed(certificate.as_ref(), ServingCertificate::refresh) => {}
            () = stop.cancelled() => {}
        }
        let (ended, ()) = tokio::join!(running, handle.stop(true));
        ended.map_err(ServeError::of(ENDED))
    }

    /// Starts the server. [`Self::serve`] does not contain this code, because its future must be
    /// `Send` and the server builder is not `Send`.
    ///
    /// This function combines parts of actix, because actix-web's own TLS server also offers
    /// HTTP/2.
    fn start(self, admin: Arc<AdminState>, tls: Option<&ServerConfig>) -> io::Result<Server> {
        let exposition = Arc::new(CachedExposition::default());
        let most = self.connection_timeout;
        let app = move || {
            let (admin, exposition) = (Arc::clone(&admin), Arc::clone(&exposition));
            let app = App::new().app_data(web::Data::from(admin));
            let app = app.app_data(web::Data::from(exposition));
            map_config(app.configure(routes), |()| AppConfig::default())
        };
        let mut server = Server::build()
            .workers(WORKERS)
            .max_concurrent_connections(MAX_CONNECTIONS / WORKERS)
            .shutdown_timeout(STOP_SECONDS)
            .disable_signals();
        for listener in self.listeners {
            let app = app.clone();
            server = match tls.cloned() {
                None => server.listen("admin", listener, move || {
                    http_service(app(), most, |stream: &TcpStream| stream).tcp()
                })?,
                Some(tls) => server.listen("admin", listener, move || {
                    let http =
                        http_service(app(), most, |stream: &TlsStream<_>| stream.get_ref().0);
                    http.rustls_0_23(tls.clone())
                })?,
            };
        }
        Ok(server.run())
    }
}

/// Returns the HTTP/1.1 service of `app`. The service closes a connection after one response, or at
/// the latest after the duration `most`. Idle connections could otherwise use all connections, so
/// that probes fail.
fn http_service<T, S, B>(app: S, most: Duration, socket: fn(&T) -> &TcpStream) -> H1Service<T, S, B>
where
    T: 'static,
    S: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, InitError = ()>,
    S::Error: Into<Response<BoxBody>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    HttpService::build()
        .keep_alive(KeepAlive::Disabled)
        .client_request_timeout(REQUEST_TIMEOUT)
        .client_disconnect_timeout(CLOSE)
        .on_connect_ext(move |stream, data| close_after(most, socket(stream), data))
        .h1(app)
}

/// Closes the connection `stream` when `most` has passed. The server itself limits only how long a
/// request takes to arrive, not how long the client takes to read the response.
fn close_after(most: Duration, stream: &TcpStream, data: &mut Extensions) {
    // The task uses a duplicate of the socket, because the server owns the original socket.
    let socket = match stream.as_fd().try_clone_to_owned() {
        Ok(socket) => net::TcpStream::from(socket),
        Err(error) => {
            tracing::warn!(%error, "a connection has no bound in time");
            return;
        }
    };
    let ending = actix_web::rt::spawn(async move {
        tokio::time::sleep(most).await;
        // An error means that the connection has already ended.
        let _ended = socket.shutdown(Shutdown::Both);
    });
    // The server drops `data` with the connection, which aborts this task.
    data.insert(AbortOnDropHandle::new(ending));
}

#[cfg(test)]
mod tests;
