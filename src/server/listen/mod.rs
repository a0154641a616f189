//! The admin listener: bound first, so that the address is known, then served until told to stop, over TLS
//! if there is a certificate for it.

use super::admin::{Admin, Exposition, routes};
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
    ServeError,
    certificate::{Certificate, look_after},
    everywhere,
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

/// Connections at once: probes, a few scrapers, a few people.
const MAX_CONNECTIONS: usize = 256;
/// Threads that answer: while one writes a large answer, the other says that we live.
const WORKERS: usize = 2;
/// From connect to the last byte of the request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// From connect to the last byte of the answer, however slowly it is read: scrapes give up sooner, and
/// those who read nothing would keep the probes out.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);
const ENDED: &str = "the admin server ended";
/// How long the last answers may take when the process ends.
const STOP_SECONDS: u64 = 2;
/// How long the other end may take to close what has been answered.
const CLOSE: Duration = Duration::from_secs(1);
/// What is spoken over TLS: not HTTP/2, of which one connection may ask for any number of answers.
const PROTOCOL: &[u8] = b"http/1.1";

/// A bound listener.
#[derive(Debug)]
pub struct Listening {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    connection_timeout: Duration,
}

/// Binds `address`. `[::]` means every address of both families: where the kernel keeps IPv4 apart
/// it is bound too, and where there is no IPv6, alone.
///
/// # Errors
///
/// [`ServeError`] if the kernel refuses the address.
pub fn bind(address: SocketAddr) -> Result<Listening, ServeError> {
    let (listeners, address) = everywhere(address).map_err(ServeError::of(format!(
        "--admin-addr {address} cannot be bound; name one that is free, such as [::]:9091"
    )))?;
    Ok(Listening { listeners, address, connection_timeout: CONNECTION_TIMEOUT })
}

impl Listening {
    /// The bound address, with the port that was found for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests, on two threads of its own, until `stop`; then finishes those under way,
    /// for at most 2 s. With a certificate it does so over TLS alone.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the certificate cannot be used, or the listener breaks.
    pub async fn serve(
        self,
        admin: Arc<Admin>,
        certificate: Option<Arc<Certificate>>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let tls = certificate.as_ref().map(|it| it.tls(None, &[PROTOCOL])).transpose();
        let tls = tls.map_err(ServeError::of("the admin address has no certificate"))?;
        let mut running = self.start(admin, tls.as_ref()).map_err(ServeError::of(ENDED))?;
        let handle = running.handle();
        select! {
            ended = &mut running => return ended.map_err(ServeError::of(ENDED)),
            () = look_after(certificate.as_ref(), Certificate::refresh) => {}
            () = stop.cancelled() => {}
        }
        let (ended, ()) = tokio::join!(running, handle.stop(true));
        ended.map_err(ServeError::of(ENDED))
    }

    /// Not part of [`Self::serve`]: the builder cannot be sent between threads. Builds the server from its parts, since
    /// actix-web's own TLS server offers HTTP/2, too.
    fn start(self, admin: Arc<Admin>, tls: Option<&ServerConfig>) -> io::Result<Server> {
        let exposition = Arc::new(Exposition::default());
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
                    http(app(), most, |stream: &TcpStream| stream).tcp()
                })?,
                Some(tls) => server.listen("admin", listener, move || {
                    let http = http(app(), most, |stream: &TlsStream<_>| stream.get_ref().0);
                    http.rustls_0_23(tls.clone())
                })?,
            };
        }
        Ok(server.run())
    }
}

/// HTTP/1.1 for `app`. A connection lasts for `most` and carries one request, since idle connections would keep the
/// probes out.
fn http<T, S, B>(app: S, most: Duration, socket: fn(&T) -> &TcpStream) -> H1Service<T, S, B>
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
        .on_connect_ext(move |stream, data| end_after(most, socket(stream), data))
        .h1(app)
}

/// Ends a connection `most` after it began. The server itself bounds only how long it listens: what
/// is not read it would keep for ever.
fn end_after(most: Duration, stream: &TcpStream, data: &mut Extensions) {
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
    // The extensions live as long as the connection, and their end aborts the task.
    data.insert(AbortOnDropHandle::new(ending));
}

#[cfg(test)]
mod tests;
