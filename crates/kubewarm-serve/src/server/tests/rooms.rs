//! Who keeps room for a request, and how long, whatever the other end takes of the answer.

use super::*;
use std::{
    num::NonZeroU64,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
};
use tokio::io::ReadBuf;

/// Of an answer that HTTP/2 takes at once, whatever is taken of it.
const SOME: usize = 60 << 10;

/// Those of the other tests, objects of 60 KiB and of 2 MiB, the former in pieces, too, and somebody who is refused.
fn routes(app: &mut web::ServiceConfig) {
    super::routes(app);
    app.service(web::resource("/some").to(async || Bytes::from(vec![b'x'; SOME])))
        .service(web::resource("/pieces").to(pieces))
        .service(web::resource("/whole").to(async || Bytes::from(vec![b'x'; 2 << 20])))
        .service(
            web::resource("/refused")
                .to(async || HttpResponse::Forbidden().body("x".repeat(1_000))),
        );
}

async fn pieces() -> HttpResponse {
    let part = Bytes::from(vec![b'x'; SOME / 6]);
    let parts = (0..6).map(move |_| Ok::<_, io::Error>(part.clone()));
    HttpResponse::Ok().streaming(stream::iter(parts))
}

/// Who reads nothing any more once it is said.
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

fn served(change: impl FnOnce(&mut Limits)) -> Served {
    Served::answering(routes, Certificate::self_signed(names("here", "ops")).unwrap(), change)
}

/// Over HTTP/2, taking no more than a byte of each answer before it is asked for.
async fn taking_a_byte(
    served: &Served,
) -> (http2::SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(served.tls("h2").await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.initial_stream_window_size(1).handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

async fn from(served: &Served, address: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let tcp = socket.connect(served.address).await.unwrap();
    let mut stream = served.tls_over(tcp, "http/1.1").await.unwrap();
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    rest(&mut stream).await
}

/// Until it answers: a room comes back as soon as the thread that answered has time for it.
async fn has_room(served: &Served) {
    let answered = async {
        while !served.get("/ok").await.ends_with("ok") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(MOST, answered).await.expect("the room is given back");
}

#[tokio::test]
async fn an_answer_that_is_not_taken_keeps_its_room_and_is_cut_off() {
    let served = served(|limits| {
        (limits.room, limits.stall) = (1, Duration::from_secs(3));
        limits.look = Duration::from_millis(100);
    });
    let (mut sender, connection) = taking_a_byte(&served).await;
    let answer = sender.send_request(h2_get(served.address, "/whole")).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(served.get("/ok").await.starts_with("HTTP/1.1 429"), "the only room is taken");
    let _ended = timeout(MOST, connection).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
    has_room(&served).await;
    served.end().await;
}

#[tokio::test]
async fn an_answer_that_is_taken_drop_by_drop_is_cut_off() {
    let served = served(|limits| {
        (limits.room, limits.stall) = (1, Duration::from_secs(2));
        (limits.slowest, limits.look) = (NonZeroU64::MAX, Duration::from_millis(100));
    });
    let drop = Duration::from_millis(20);
    let mut slow = served.tls("http/1.1").await.unwrap();
    slow.write_all(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let over_http1 = async {
        let (mut some, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(read @ 1..) = slow.read(&mut some).await {
            taken += read;
            sleep(drop).await;
        }
        taken
    };
    let taken = timeout(MOST, over_http1).await.expect("it ends");
    assert!(taken < PART * PARTS, "{taken}");
    has_room(&served).await;

    let (mut sender, connection) = served.h2().await;
    let mut body = sender.send_request(h2_get(served.address, "/much")).await.unwrap().into_body();
    let over_http2 = async {
        while let Some(part) = body.frame().await {
            part?;
            sleep(drop).await;
        }
        Ok::<_, hyper::Error>(())
    };
    assert!(timeout(MOST, over_http2).await.expect("it ends").is_err());
    let _ended = timeout(MOST, connection).await.unwrap();
    has_room(&served).await;
    served.end().await;
}

#[tokio::test]
async fn a_short_answer_keeps_its_room_until_it_is_written() {
    for path in ["/some", "/pieces"] {
        let served = served(|limits| (limits.room, limits.room_of_address) = (8, 8));
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let (tcp, is_deaf) = (socket.connect(served.address).await.unwrap(), Arc::default());
        let deaf = Deaf { tcp, is_deaf: Arc::clone(&is_deaf) };
        let io = TokioIo::new(served.tls_over(deaf, "h2").await.unwrap());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 30);
        let (mut sender, connection) = builder.handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(h2_get(served.address, "/ok")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
        is_deaf.store(true, Ordering::Relaxed);
        // More than sockets hold; one after the other, so that each finds room as long as they do.
        let mut asking = Vec::new();
        for _ in 0..90 {
            let answer = sender.send_request(h2_get(served.address, path));
            asking.push(tokio::spawn(answer));
            sleep(Duration::from_millis(20)).await;
        }
        let refused = async {
            let mut in_a_row = 0;
            while in_a_row < 10 {
                sleep(Duration::from_millis(50)).await;
                let is_refused = served.get("/ok").await.starts_with("HTTP/1.1 429");
                in_a_row = if is_refused { in_a_row + 1 } else { 0 };
            }
        };
        timeout(MOST, refused).await.expect("all rooms are kept");
        connection.abort();
        asking.iter().for_each(JoinHandle::abort);
        has_room(&served).await;
        served.end().await;
    }
}

#[tokio::test]
async fn whoever_is_refused_keeps_no_room() {
    let served = served(|limits| limits.room = 1);
    let (mut sender, _connection) = taking_a_byte(&served).await;
    let mut refused = Vec::new();
    for _ in 0..3 {
        let answer = sender.send_request(h2_get(served.address, "/refused")).await.unwrap();
        assert_eq!(answer.status(), 403);
        refused.push(answer);
    }
    assert!(served.get("/ok").await.ends_with("ok"));
    served.end().await;
}

#[tokio::test]
async fn one_address_leaves_room_for_the_others() {
    let served = served(|limits| (limits.room, limits.room_of_address) = (3, 2));
    let (mut sender, _connection) = taking_a_byte(&served).await;
    let mut open = Vec::new();
    for code in [200, 200, 429] {
        let answer = sender.send_request(h2_get(served.address, "/whole")).await.unwrap();
        assert_eq!(answer.status(), code);
        open.push(answer);
    }
    assert!(from(&served, "127.0.0.2").await.ends_with("ok"));
    served.end().await;
}

#[tokio::test]
async fn an_answer_of_one_piece_comes_whole() {
    let served = served(|_| ());
    let answer = served.get("/whole").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_ascii_lowercase().contains("content-length: 2097152"), "{head}");
    assert_eq!(body.len(), 2 << 20);
    let (mut sender, _connection) = served.h2().await;
    let answer = sender.send_request(h2_get(served.address, "/whole")).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 2 << 20);
    served.end().await;
}
