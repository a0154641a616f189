//! Tests how long a response holds its permits while the client does not read the response.

use super::*;
use crate::callers::{PERMIT_BYTES, UserPermits, fixtures::user_permits};
use crate::server::unwritten_response::ResponsePermit;
use std::{
    num::NonZeroU64,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
};
use tokio::io::ReadBuf;

/// The size in bytes of a response that hyper buffers completely, even if the client reads nothing.
const SOME: usize = 60 << 10;

/// The users of the tests. The first segment of a request path is the name of a user.
const USERS: [&str; 5] = ["jane", "a", "b", "c", "d"];

/// The permits for requests, by user, and the permits for unwritten response bytes of each user in
/// `USERS`.
#[derive(Clone)]
struct RequestPermits {
    requests: KeyedSemaphore<String>,
    bytes: [UserPermits; 5],
}

/// Answers the path `/USER/NAME`. For the name `some` the response has 60 KiB, for `pieces` 60 KiB
/// in six pieces, for `whole` 2 MiB. For `much` the response exceeds the socket buffers. Each
/// response holds one request permit.
fn answer(request: &IncomingRequest, permits: &RequestPermits) -> OutgoingResponse {
    let (user, what) = request.head.uri.path()[1..].split_once('/').unwrap();
    let bytes =
        USERS.iter().position(|name| *name == user).map(|at| permits.bytes[at].clone()).unwrap();
    let Some(permit) = permits.requests.try_acquire(&user.to_owned()) else {
        return coded(StatusCode::TOO_MANY_REQUESTS);
    };
    let part = Bytes::from(vec![b'x'; SOME / 6]);
    let response = match what {
        "some" => answered(vec![b'x'; SOME]),
        "pieces" => {
            let parts = (0..6).map(move |_| Ok::<_, io::Error>(part.clone()));
            OutgoingResponse::new(ResponseBody::streamed(stream::iter(parts)))
        }
        "whole" => answered(vec![b'x'; 2 << 20]),
        "much" => much(),
        _ => answered("ok"),
    };
    response.body().keep(ResponsePermit::timely(permit, bytes));
    response
}

/// The socket of a client. The client stops reading when `is_deaf` is set.
struct Deaf {
    tcp: TcpStream,
    is_deaf: Arc<AtomicBool>,
}

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.tcp).poll_read(context, into)
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

/// A server that serves at most `permits` requests at once. One user can have a quarter of these
/// requests.
fn served(
    permits: usize,
    change: impl FnOnce(&mut ConnectionLimits),
) -> (TestServer, RequestPermits) {
    with_bytes(permits, 64 << 20, change)
}

/// A server that serves at most `permits` requests at once, with at most `bytes` unwritten response
/// bytes in total.
fn with_bytes(
    permits: usize,
    bytes: usize,
    change: impl FnOnce(&mut ConnectionLimits),
) -> (TestServer, RequestPermits) {
    let requests = KeyedSemaphore::new(permits, permits.div_ceil(4));
    let permits = RequestPermits { requests, bytes: user_permits(bytes / PERMIT_BYTES, USERS) };
    let of_threads = permits.clone();
    let handler: RequestHandler = Box::new(move |request| {
        let answer = answer(&request, &of_threads);
        Box::pin(async move { Ok(answer) })
    });
    (TestServer::by(handler, change), permits)
}

fn is_taken(permits: &RequestPermits) -> bool {
    permits.requests.try_acquire(&"jane".to_owned()).is_none()
}

/// Waits until the server releases the request permit of the user `jane`.
async fn released(permits: &RequestPermits) {
    let released = async {
        while is_taken(permits) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(MOST, released).await.expect("the permit is released");
}

/// Connects over HTTP/2. For each response, the client's flow-control window has one byte.
async fn taking_a_byte(
    served: &TestServer,
) -> (http2::SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(served.tls("h2").await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.initial_stream_window_size(1).handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

#[tokio::test]
async fn an_unread_response_keeps_its_permit_and_is_disconnected() {
    let (served, permits) = served(1, |limits| {
        (limits.piece_timeout, limits.check_interval) =
            (Duration::from_secs(3), Duration::from_millis(100));
    });
    for path in ["/jane/whole", "/jane/some"] {
        let (mut sender, connection) = taking_a_byte(&served).await;
        let answer = sender.send_request(h2_get(served.address, path)).await.unwrap();
        assert_eq!(answer.status(), 200);
        sleep(Duration::from_millis(500)).await;
        assert!(is_taken(&permits), "{path}");
        let _ended = timeout(MOST, connection).await.unwrap();
        assert!(answer.into_body().collect().await.is_err());
        released(&permits).await;
    }
    served.end().await;
}

#[tokio::test]
async fn a_response_read_too_slowly_is_disconnected() {
    let (served, permits) = served(1, |limits| {
        (limits.piece_timeout, limits.check_interval) =
            (Duration::from_secs(2), Duration::from_millis(100));
        limits.min_bytes_per_second = NonZeroU64::MAX;
    });
    let drop = Duration::from_millis(20);
    let mut slow = served.tls("http/1.1").await.unwrap();
    slow.write_all(b"GET /jane/much HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let over_http1 = async {
        let (mut some, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(read @ 1..) = slow.read(&mut some).await {
            taken += read;
            sleep(drop).await;
        }
        taken
    };
    let taken = timeout(MOST, over_http1).await.expect("the server ends the connection");
    assert!(taken < PART * PARTS, "{taken}");
    released(&permits).await;

    let (mut sender, connection) = served.h2().await;
    let asked = h2_get(served.address, "/jane/much");
    let mut body = sender.send_request(asked).await.unwrap().into_body();
    let over_http2 = async {
        while let Some(part) = body.frame().await {
            part?;
            sleep(drop).await;
        }
        Ok::<_, hyper::Error>(())
    };
    assert!(timeout(MOST, over_http2).await.expect("the server ends the connection").is_err());
    let _ended = timeout(MOST, connection).await.unwrap();
    released(&permits).await;
    served.end().await;
}

#[tokio::test]
async fn a_short_response_keeps_its_permit_until_it_is_written() {
    for path in ["/jane/some", "/jane/pieces"] {
        let (served, permits) = served(32, |_| ());
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let (tcp, is_deaf) = (socket.connect(served.address).await.unwrap(), Arc::default());
        let deaf = Deaf { tcp, is_deaf: Arc::clone(&is_deaf) };
        let io = TokioIo::new(served.tls_over(deaf, "h2").await.unwrap());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 30);
        let (mut sender, connection) = builder.handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(h2_get(served.address, "/jane/ok")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
        is_deaf.store(true, Ordering::Relaxed);
        // The 90 responses together exceed the socket buffers. During each sleep of 20 ms the
        // server writes the previous response and releases its permit, as long as the buffers are
        // not full.
        let mut asking = Vec::new();
        for _ in 0..90 {
            let answer = sender.send_request(h2_get(served.address, path));
            asking.push(tokio::spawn(answer));
            sleep(Duration::from_millis(20)).await;
        }
        let kept = async {
            let mut in_a_row = 0;
            while in_a_row < 10 {
                sleep(Duration::from_millis(50)).await;
                in_a_row = if is_taken(&permits) { in_a_row + 1 } else { 0 };
            }
        };
        timeout(MOST, kept).await.expect("all permits stay in use");
        connection.abort();
        asking.iter().for_each(JoinHandle::abort);
        released(&permits).await;
        served.end().await;
    }
}

#[tokio::test]
async fn four_slow_users_are_disconnected_and_a_fifth_gets_its_list() {
    let (served, permits) = served(8, |limits| {
        (limits.piece_timeout, limits.check_interval) =
            (Duration::from_secs(3), Duration::from_millis(100));
    });
    let mut slow = Vec::new();
    for user in ["a", "b", "c", "d"] {
        let (mut sender, connection) = taking_a_byte(&served).await;
        for code in [200, 200, 429] {
            let asked = h2_get(served.address, &format!("/{user}/whole"));
            let answer = sender.send_request(asked).await.unwrap();
            assert_eq!(answer.status(), code, "{user}");
            slow.push((answer, sender.clone()));
        }
        drop(connection);
    }
    let list = async || served.get("/jane/whole").await;
    assert!(list().await.starts_with("HTTP/1.1 429"), "all permits are in use");
    released(&permits).await;
    assert!(list().await.len() > 2 << 20);
    drop(slow);
    served.end().await;
}

#[tokio::test]
async fn bytes_held_by_slow_users_are_released_for_a_fifth() {
    let (served, _) = with_bytes(32, 256 << 10, |limits| {
        (limits.piece_timeout, limits.check_interval) =
            (Duration::from_secs(3), Duration::from_millis(100));
    });
    let (began, mut slow) = (Instant::now(), Vec::new());
    for user in ["a", "b", "c", "d"] {
        let (mut sender, _connection) = taking_a_byte(&served).await;
        // The limit on unwritten response bytes of one user is 64 KiB. The first response to each
        // user uses up this limit.
        for _ in 0..4 {
            let asked = h2_get(served.address, &format!("/{user}/whole"));
            slow.push((sender.send_request(asked).await.unwrap(), sender.clone()));
        }
    }
    assert!(served.get("/jane/whole").await.len() > 2 << 20);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    drop(slow);
    served.end().await;
}

#[tokio::test]
async fn a_response_of_one_piece_is_complete() {
    let (served, _) = served(4, |_| ());
    let answer = served.get("/jane/whole").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_ascii_lowercase().contains("content-length: 2097152"), "{head}");
    assert_eq!(body.len(), 2 << 20);
    let (mut sender, _connection) = served.h2().await;
    let answer = sender.send_request(h2_get(served.address, "/jane/whole")).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 2 << 20);
    served.end().await;
}
