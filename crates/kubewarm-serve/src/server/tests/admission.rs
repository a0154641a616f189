//! Tests the limits that apply before a request handler runs: slow and long heads, many
//! connections, and bodies.

use super::*;
use crate::{callers::ReadLimit, server::listen::ConnectionSlots};
use futures::{future::ready, stream::FuturesUnordered};
use http_body_util::StreamBody;
use hyper::body::Frame;

#[tokio::test]
async fn a_slow_request_head_closes_the_connection_each_time() {
    let served = TestServer::new(|limits| limits.head_timeout = Duration::from_millis(500));
    let began = Instant::now();
    let mut silent = served.tcp().await;
    let mut first = served.tls("http/1.1").await.unwrap();
    let mut second = served.tls("http/1.1").await.unwrap();
    second.write_all(OK).await.unwrap();
    one_ok(&mut second).await;
    let half = b"GET /ok HTTP/1.1\r\nHost: x\r\nX-";
    first.write_all(half).await.unwrap();
    second.write_all(half).await.unwrap();
    for stream in [&mut first, &mut second] {
        let trickling = async {
            let (mut reading, mut writing) = tokio::io::split(stream);
            let mut answer = Vec::new();
            let mut more = tokio::time::interval(Duration::from_millis(100));
            loop {
                tokio::select! {
                    read = reading.read_buf(&mut answer) => if !matches!(read, Ok(1..)) { break },
                    _ = more.tick() => if writing.write_all(b"x").await.is_err() { break },
                }
            }
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        };
        timeout(MOST, trickling).await.unwrap();
    }
    let mut nothing = Vec::new();
    let _end = timeout(MOST, silent.read_to_end(&mut nothing)).await.unwrap();
    assert!(nothing.is_empty() && began.elapsed() < Duration::from_secs(10));
    served.end().await;
}

#[tokio::test]
async fn a_head_is_at_most_32_kib() {
    let served = TestServer::new(|_| ());
    let with = |bytes: usize| {
        let value = "x".repeat(bytes);
        format!("GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {value}\r\n\r\n")
    };
    let fits = served.say(&with(31 << 10)).await;
    assert!(fits.starts_with("HTTP/1.1 200") && fits.ends_with("ok"), "{fits}");
    let refused = served.say(&with(33 << 10)).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let many = "X-A: b\r\n".repeat(200);
    let refused = served.say(&format!("GET /ok HTTP/1.1\r\nHost: x\r\n{many}\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let (mut sender, _connection) = served.h2().await;
    for (bytes, fits) in [(30 << 10, true), (33 << 10, false)] {
        let mut request = h2_get(served.address, "/ok");
        let value = "x".repeat(bytes).parse().unwrap();
        request.headers_mut().insert("x-long", value);
        let answer = timeout(MOST, sender.send_request(request)).await.unwrap();
        let code = answer.as_ref().map(|answer| answer.status().as_u16());
        assert_eq!(code.ok() == Some(200), fits, "{answer:?}");
    }
    drop(sender);
    served.end().await;
}

#[tokio::test]
async fn a_flood_from_one_address_leaves_connections_for_others() {
    let served = TestServer::limited(connections(12, 8), |_| ());
    let flood = join_all((0..40).map(|_| served.tls("http/1.1"))).await;
    let mut open: Vec<_> = flood.into_iter().filter_map(Result::ok).collect();
    assert_eq!(open.len(), 8);
    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let tcp = elsewhere.connect(served.address).await.unwrap();
    let mut other = served.tls_over(tcp, "http/1.1").await.unwrap();
    other.write_all(OK).await.unwrap();
    one_ok(&mut other).await;
    for stream in &mut open {
        stream.write_all(OK).await.unwrap();
        one_ok(stream).await;
    }
    drop((open, other));
    let again = async {
        while served.tls("http/1.1").await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(MOST, again).await.expect("slots are released");
    served.end().await;
}

#[test]
fn connections_count_by_address_and_by_ipv6_network() {
    let slots = ConnectionSlots::new(connections(16, 2));
    let hold = |address: &str| {
        let address = address.parse().unwrap();
        std::iter::from_fn(|| slots.acquire(address).ok()).collect::<Vec<_>>()
    };
    let pods = [1, 2, 3, 4, 5].map(|pod| hold(&format!("2001:db8::{pod}")));
    assert_eq!(pods.each_ref().map(Vec::len), [2, 2, 2, 2, 0], "one node gets half of all");
    let others = ["2001:db8:0:1::1", "10.0.0.1", "10.0.0.2", "10.0.0.3"].map(hold);
    assert_eq!(others.each_ref().map(Vec::len), [2; 4]);
    drop(others);
    let rejected = slots.acquire("2001:db8::6".parse().unwrap()).err();
    assert_eq!(rejected, Some(ReadLimit::AddressConnections));
}

#[tokio::test]
async fn accepted_connections_free_their_address_slot_and_others_are_closed_in_time() {
    let served = TestServer::limited(connections(4, 2), |limits| {
        (limits.head_timeout, limits.check_interval) =
            (Duration::from_secs(2), Duration::from_millis(100));
    });
    let mut known = served.tls("http/1.1").await.unwrap();
    known.write_all(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    one_ok(&mut known).await;
    let began = Instant::now();
    let mut silent = served.tls("http/1.1").await.unwrap();
    let mut busy = served.tls("http/1.1").await.unwrap();
    assert!(served.tls("http/1.1").await.is_err(), "two connections have no accepted request");
    let asking = async {
        let mut answer = Vec::new();
        while busy.write_all(OK).await.is_ok()
            && busy.read_buf(&mut answer).await.is_ok_and(|bytes| bytes > 0)
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let silence = async { assert!(rest(&mut silent).await.is_empty()) };
    // The client sends a request every 200 ms, because each HTTP/1.1 request head must arrive
    // within `head_timeout`.
    let using = async {
        loop {
            known.write_all(OK).await.unwrap();
            one_ok(&mut known).await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    let both = async {
        tokio::select! {
            _ = join(asking, silence) => {}
            () = using => {}
        }
    };
    timeout(MOST, both).await.expect("both connections end");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    known.write_all(OK).await.unwrap();
    one_ok(&mut known).await;
    let mut new = served.tls("http/1.1").await.unwrap();
    new.write_all(OK).await.unwrap();
    one_ok(&mut new).await;
    served.end().await;
}

#[tokio::test]
async fn a_first_request_that_waits_for_its_reviews_gets_its_response() {
    let waiting: RequestHandler = Box::new(|_| {
        Box::pin(async {
            sleep(Duration::from_secs(2)).await;
            Ok(answered("late"))
        })
    });
    let served = TestServer::by(waiting, |limits| {
        (limits.head_timeout, limits.check_interval) =
            (Duration::from_millis(500), Duration::from_millis(100));
    });
    assert!(served.get("/").await.ends_with("late"));
    served.end().await;
}

/// The API server accepts the characters in the paths below, but kubewarm's HTTP library does not.
/// So docs/reading.md lists these characters.
#[tokio::test]
async fn the_http_library_rejects_or_drops_characters_that_clients_must_encode() {
    let served = TestServer::new(|_| ());
    for path in ["/ok<", "/ok>", "/ok`", "/ok?a=\"", "/ok?a=<", "/ok?a=>"] {
        let answer = served.get(path).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{path}: the response has a body: {answer}");
    }
    for (path, expected) in [("/asked#x?y", "/asked"), ("/asked?a#b&c=d", "/asked?a")] {
        let answer = served.get(path).await;
        assert!(answer.ends_with(&format!("GET {expected} from 127.0.0.1")), "{path}: {answer}");
    }
    served.end().await;
}

#[tokio::test]
async fn no_part_of_a_request_body_is_parsed_as_a_request() {
    let served = TestServer::new(|_| ());
    for (request, code) in [
        ("GET /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", 413),
        ("GET /ok HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200),
        (
            "GET /ok HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            413,
        ),
        (
            "GET /ok HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST /asked HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
             GET /ok HTTP/1.1\r\nHost: x\r\n\r\n",
            200,
        ),
        ("POST /asked HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nbody", 200),
    ] {
        let answer = served.say(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {answer}");
        let heads = answer.matches("HTTP/1.1 ").count();
        assert_eq!(heads, 1, "{answer}");
    }
    assert_eq!(["4xx", "400"].map(|code| served.refused(code)), [2, 1]);
    served.end().await;
}

#[tokio::test]
async fn heads_of_requests_that_wait_for_the_end_of_their_body_are_limited() {
    let served = TestServer::new(|_| ());
    let io = TokioIo::new(served.tls("h2").await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut ends = Vec::new();
    let mut asking: FuturesUnordered<_> = (0..20)
        .map(|_| {
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            ends.push(end);
            let frames =
                stream::once(ended).filter_map(|_| ready(None::<Result<Frame<Bytes>, io::Error>>));
            let request = hyper::Request::get(format!("https://{}/ok", served.address))
                .header("x-long", "x".repeat(28 << 10));
            sender.send_request(request.body(StreamBody::new(frames)).unwrap())
        })
        .collect();
    let refused = timeout(MOST, asking.by_ref().take(11).collect::<Vec<_>>()).await;
    let refused = refused.expect("11 requests are refused at once");
    assert!(refused.into_iter().all(|answer| answer.unwrap().status() == 413));
    // The heads of the other nine requests fit into 256 KiB.
    drop(ends);
    assert!(asking.map(|answer| answer.unwrap().status()).all(|code| ready(code == 200)).await);
    connection.abort();
    served.end().await;
}
