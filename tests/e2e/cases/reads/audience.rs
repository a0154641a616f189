//! A test audience: opens a thousand watches over a few connections, and keeps all bytes that each
//! watch receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::cases::reads::abuse::{Fault, Peer};
use crate::world::{Failure, Outcome, eventually};

const CONNECTIONS: usize = 20;
/// The number of watches on one connection: half of the connection's limit of HTTP/2 streams.
const OF_ONE: usize = 50;
pub(crate) const WATCHES: usize = CONNECTIONS * OF_ONE;

/// The open watches of the test, which end when this value is dropped.
pub(crate) struct Audience {
    /// The bytes that each watch received.
    received: Vec<Arc<Mutex<Vec<u8>>>>,
    lines: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Audience {
    pub(crate) fn gather(peer: &Peer, path: &str, accept: &str) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let (lines, ended): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let received: Vec<Arc<Mutex<Vec<u8>>>> = (0..WATCHES).map(|_| Arc::default()).collect();
        let opened = runtime.block_on(async {
            for of_connection in received.chunks(OF_ONE) {
                let tls = peer.tls(TcpStream::connect(peer.address).await?, "h2").await?;
                let (mut sender, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await?;
                tokio::spawn(connection);
                for into in of_connection {
                    let request = Request::get(format!("https://localhost{path}"))
                        .header("authorization", format!("Bearer {}", peer.token))
                        .header("accept", accept)
                        .body(Empty::<Bytes>::new())?;
                    let answer = sender.send_request(request).await?;
                    if answer.status() != 200 {
                        return Err(answer.status().to_string().into());
                    }
                    let (into, lines) = (Arc::clone(into), Arc::clone(&lines));
                    let ended = Arc::clone(&ended);
                    tokio::spawn(async move {
                        follow(answer.into_body(), &into, &lines).await;
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
            }
            Ok::<_, Fault>(())
        });
        opened.map_err(|error| format!("not all watches are open: {error}"))?;
        Ok(Self { received, lines, ended, _runtime: runtime })
    }

    /// Waits until each watch has received `events` events since the watch began.
    pub(crate) fn await_events(&self, events: usize, within: Duration) -> Outcome {
        let expected = events * WATCHES;
        eventually(within, || {
            let (lines, ended) =
                (self.lines.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed));
            assert_eq!(ended, 0, "of {WATCHES} ended with {lines} of {expected} lines");
            if lines >= expected { Ok(()) } else { Err(format!("{lines} of {expected}").into()) }
        })
    }

    /// Checks that each watch received exactly these events in this order and that no watch has
    /// ended.
    pub(crate) fn check_events(&self, events: &[Value]) -> Outcome {
        let first = self.received[0].lock().clone();
        let received = first.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let received = received.map(serde_json::from_slice).collect::<Result<Vec<Value>, _>>()?;
        assert_eq!(received, events);
        // kubewarm sends the same bytes to every watch, so a comparison with the first watch's
        // bytes is enough.
        let different = self.received.iter().filter(|received| *received.lock() != first).count();
        assert_eq!((different, self.ended.load(Ordering::Relaxed)), (0, 0), "of {WATCHES}");
        Ok(())
    }
}

async fn follow(mut body: Incoming, into: &Mutex<Vec<u8>>, lines: &AtomicUsize) {
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        into.lock().extend_from_slice(data);
        lines.fetch_add(memchr::memchr_iter(b'\n', data).count(), Ordering::Relaxed);
    }
}
