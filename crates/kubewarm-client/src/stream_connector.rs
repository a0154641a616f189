//! Connects to a server through streams that the caller opens, such as the streams of a
//! port-forward.

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::DuplexStream;
use tower::{service_fn, util::BoxCloneSyncService};

/// Opens a stream to the server for each connection, instead of a TCP connection.
#[derive(Clone, Debug)]
pub struct StreamConnector(pub(super) BoxCloneSyncService<Uri, ServerStream, io::Error>);

impl StreamConnector {
    /// Creates a connector for an HTTP client. `open` returns a new stream for each connection,
    /// whatever the URL.
    pub fn new<O, F>(open: O) -> Self
    where
        O: Fn() -> F + Clone + Send + Sync + 'static,
        F: Future<Output = io::Result<DuplexStream>> + Send + 'static,
    {
        let connect = move |_: Uri| {
            let stream = open();
            async move { stream.await.map(|stream| ServerStream(TokioIo::new(stream))) }
        };
        Self(BoxCloneSyncService::new(service_fn(connect)))
    }
}

/// A stream with hyper's traits for connections.
#[derive(Debug)]
pub(super) struct ServerStream(TokioIo<DuplexStream>);

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for ServerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
