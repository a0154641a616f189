//! Tests the read address with slow, large, malformed and very many connections while a client goes
//! on reading.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use super::Fault;
use super::frames;
use super::peer::Peer;
use crate::world::Outcome;

/// The result of one attack: `Ok` if the server answered or closed the connection as it should.
pub(super) type Tried = Result<(), Fault>;

/// Timeout until the server closes a slow connection: twelve times the 10 s that it allows for a
/// request head.
const PATIENCE: Duration = Duration::from_mins(2);
/// Timeout for an ordinary read during the attacks. Such a read takes some milliseconds.
const ORDINARY: Duration = Duration::from_secs(20);
/// Timeout for a new connection while all slots are used. The server closes silent connections
/// within 15 s.
const NEW: Duration = Duration::from_secs(45);
/// The number of connections of the flood, more than the server accepts: 128 for each address and
/// 1,024 in all.
const FLOOD: usize = 10_000;
const OF_ADDRESS: usize = 120;
/// File descriptors that this process needs for everything except the flood.
const OTHER_FILES: u64 = 2_000;
/// Connections that send each kind of slow request.
const SLOW: usize = 30;

/// Runs all attacks at once. An ordinary reader must get every answer, during the attacks and
/// afterwards.
pub(super) fn are_cut_off(peer: &Peer, path: &str) -> Outcome {
    let runtime = tokio::runtime::Runtime::new()?;
    let flood = flood_size().map_err(|error| error.to_string())?;
    let done = runtime.block_on(async {
        let is_over = Arc::new(AtomicBool::new(false));
        let reading = tokio::spawn(ordinary(peer.clone(), path.to_owned(), Arc::clone(&is_over)));
        let mut slow = JoinSet::new();
        for _ in 0..SLOW {
            slow.spawn(named("silent", silent(peer.clone())));
            slow.spawn(named("a slow handshake", slow_handshake(peer.clone())));
            slow.spawn(named("a slow head", slow_head(peer.clone())));
            slow.spawn(named("a slow body", slow_body(peer.clone())));
            slow.spawn(named("a slow preface", frames::slow(peer.clone())));
        }
        sleep(Duration::from_secs(1)).await;
        let mut noisy = JoinSet::new();
        for seed in 0..20 {
            noisy.spawn(named("garbage", garbage(peer.clone(), seed)));
            noisy.spawn(named("garbled frames", frames::garbled(peer.clone(), seed)));
        }
        noisy.spawn(named("large heads", large_heads(peer.clone())));
        noisy.spawn(named("pipelining", pipelined(peer.clone(), path.to_owned())));
        noisy.spawn(named("continuations", frames::continuations(peer.clone())));
        noisy.spawn(named("an HPACK bomb", frames::bomb(peer.clone())));
        noisy.spawn(named("resets", frames::resets(peer.clone())));
        let mut wrong = failures(noisy).await?;
        // The flood starts last: while it runs, the server accepts no other new connection.
        wrong.extend(named("a flood", crowd(peer.clone(), flood)).await.err());
        wrong.extend(failures(slow).await?);
        is_over.store(true, Ordering::Relaxed);
        let reads = reading.await??;
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(reads > 10, "only {reads} reads");
        let new = peer.send(&get(peer, path, "Connection: close\r\n"), ORDINARY).await?;
        assert_eq!(new.map(|answer| answer.code), Some(200), "a new client is accepted");
        Ok::<_, Fault>(())
    });
    done.map_err(|error| error.to_string().into())
}

/// Collects the failures of `tasks` after all of them have ended.
async fn failures(mut tasks: JoinSet<Result<(), String>>) -> Result<Vec<String>, Fault> {
    let mut failures = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        failures.extend(ended?.err());
    }
    Ok(failures)
}

async fn named(what: &'static str, doing: impl Future<Output = Tried>) -> Result<(), String> {
    doing.await.map_err(|error| format!("{what}: {error}"))
}

/// The size of the flood: `FLOOD`, or less if this process may not open as many files. In CI, the
/// process may.
fn flood_size() -> Result<usize, Fault> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let most = maximum.map_or(u64::MAX, |most| most.saturating_sub(OTHER_FILES));
    let size = usize::try_from(most).unwrap_or(FLOOD).min(FLOOD);
    // The flood must be larger than the server's limit of 1,024 connections.
    assert!(size > 2_048, "no flood with {maximum:?} open files: ulimit -Hn 8192");
    if size < FLOOD {
        let all = FLOOD as u64 + OTHER_FILES;
        let notice =
            format!("a flood of {size} connections, NOT of {FLOOD}: that takes ulimit -Hn {all}");
        if std::env::var_os("CI").is_some() {
            return Err(notice.into());
        }
        // Written directly, because the test harness shows captured output only for failed tests.
        writeln!(io::stderr(), "{notice}")?;
    }
    Ok(size)
}

pub(super) fn get(peer: &Peer, path: &str, headers: &str) -> Vec<u8> {
    let token = &peer.token;
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{headers}\r\n")
        .into()
}

/// Connects from the address 127.0.0.HOST, so that the connection does not count against the
/// ordinary reader's address.
pub(super) async fn from(peer: &Peer, host: u8) -> Result<TcpStream, Fault> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)))?;
    Ok(socket.connect(peer.address).await?)
}

/// Sends a byte now and then until the server closes the connection, and returns what the server
/// sent. If a write fails, an answer can still be unread.
async fn trickle(
    stream: impl AsyncRead + AsyncWrite,
    text: impl Iterator<Item = u8>,
) -> Result<Vec<u8>, Fault> {
    let (mut reading, mut writing) = tokio::io::split(Box::pin(stream));
    let mut received = Vec::new();
    let mut more = interval(Duration::from_millis(500));
    let sending = async {
        for byte in text {
            more.tick().await;
            if writing.write_all(&[byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let receiving = async { while matches!(reading.read_buf(&mut received).await, Ok(1..)) {} };
    let until_closed = async {
        tokio::select! { () = receiving => (), () = sending => () }
    };
    timeout(PATIENCE, until_closed).await.map_err(|_| "still open")?;
    Ok(received)
}

async fn silent(peer: Peer) -> Tried {
    let received = trickle(from(&peer, 2).await?, std::iter::empty()).await?;
    if received.is_empty() { Ok(()) } else { Err("a silent client was answered".into()) }
}

/// Sends the first bytes of a TLS handshake message and never the rest.
async fn slow_handshake(peer: Peer) -> Tried {
    let promise = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    trickle(from(&peer, 3).await?, promise.into_iter().chain(std::iter::repeat(0))).await?;
    Ok(())
}

async fn slow_head(peer: Peer) -> Tried {
    let stream = peer.tls(from(&peer, 4).await?, "http/1.1").await?;
    let head = b"GET /version HTTP/1.1\r\nX-Slow: ".iter().copied();
    let answer = trickle(stream, head.chain(std::iter::repeat(b'x'))).await?;
    let is_refused = answer.is_empty() || answer.starts_with(b"HTTP/1.1 408");
    if is_refused { Ok(()) } else { Err("an unfinished head was answered".into()) }
}

async fn slow_body(peer: Peer) -> Tried {
    let mut stream = peer.tls(from(&peer, 5).await?, "http/1.1").await?;
    let path = "/api/v1/namespaces/default/configmaps";
    let (host, length) = ("Host: x", "Content-Length: 1000000");
    let bearer = format!("Authorization: Bearer {}", peer.token);
    let head = format!("POST {path} HTTP/1.1\r\n{host}\r\n{bearer}\r\n{length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let answer = trickle(stream, std::iter::repeat(b'{')).await?;
    if answer.starts_with(b"HTTP/1.1 405") {
        return Ok(());
    }
    Err(format!("not 405 but {:?}", String::from_utf8_lossy(&answer)).into())
}

/// Sends random bytes as TCP payload, as a TLS payload and inside an HTTP request.
async fn garbage(peer: Peer, seed: u64) -> Tried {
    let mut random = fastrand::Rng::with_seed(seed);
    let noise: Vec<u8> = (0..random.usize(1..40_000)).map(|_| random.u8(..)).collect();
    let mut bare = from(&peer, 6).await?;
    let _said = bare.write_all(&noise).await;
    until_closed(bare).await?;
    let mut within = peer.tls(from(&peer, 6).await?, "http/1.1").await?;
    let _said = within.write_all(&noise).await;
    until_closed(within).await?;
    let mut broken = peer.tls(from(&peer, 6).await?, "http/1.1").await?;
    broken.write_all(b"GET /version HTTP/1.1\r\n").await?;
    let (tcp, _) = broken.into_inner();
    let mut tcp = tcp;
    let _said = tcp.write_all(&noise).await;
    until_closed(tcp).await?;
    Ok(())
}

/// Reads until the server closes the connection and returns all bytes.
pub(super) async fn until_closed(mut stream: impl AsyncRead + Unpin) -> Result<Vec<u8>, Fault> {
    let mut received = Vec::new();
    let _end = timeout(PATIENCE, stream.read_to_end(&mut received)).await.map_err(|_| "open")?;
    Ok(received)
}

async fn large_heads(peer: Peer) -> Tried {
    let large = format!("X-Large: {}\r\n", "x".repeat(1 << 20));
    let many = "X-Many: y\r\n".repeat(10_000);
    let long = format!("/version?{}", "x".repeat(1 << 20));
    for request in
        [get(&peer, "/version", &large), get(&peer, "/version", &many), get(&peer, &long, "")]
    {
        let answer = peer.send(&request, PATIENCE).await?;
        // The server may close the connection before it has read the whole head. Then the answer
        // can be lost.
        if let Some(answer) = answer
            && ![400, 414, 431].contains(&answer.code)
        {
            return Err(format!("{}", answer.code).into());
        }
    }
    Ok(())
}

/// Sends thousands of requests without waiting for an answer. The server answers in order, up to
/// some request.
async fn pipelined(peer: Peer, path: String) -> Tried {
    const REQUESTS: usize = 3_000;
    let stream = peer.tls(from(&peer, 7).await?, "http/1.1").await?;
    let (reading, mut writing) = tokio::io::split(stream);
    let requests = get(&peer, &path, "").repeat(REQUESTS - 1);
    let last = get(&peer, &path, "Connection: close\r\n");
    let sending = tokio::spawn(async move {
        writing.write_all(&requests).await?;
        writing.write_all(&last).await
    });
    let received = until_closed(reading).await?;
    sending.await??;
    let answers = received.windows(12).filter(|window| window.starts_with(b"HTTP/1.1 ")).count();
    let good = received.windows(12).filter(|window| *window == b"HTTP/1.1 200").count();
    if (answers, good) == (REQUESTS, REQUESTS) {
        return Ok(());
    }
    Err(format!("{answers} answers, {good} of them good").into())
}

/// Opens as many connections as the server accepts, from many addresses, and sends nothing on them.
async fn crowd(peer: Peer, size: usize) -> Tried {
    let mut streams = Vec::with_capacity(size);
    for number in 0..size {
        let host = 20 + u8::try_from(number / OF_ADDRESS)?;
        streams.push(from(&peer, host).await?);
    }
    // All slots of the server are used. The server accepts this new client after it has closed
    // connections that sent nothing.
    let version = get(&peer, "/version", "Connection: close\r\n");
    let began = Instant::now();
    while !matches!(peer.send(&version, ORDINARY).await, Ok(Some(answer)) if answer.code == 200) {
        if began.elapsed() > NEW {
            return Err("no new client is accepted".into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    // The server closes all of these connections by itself. So this loop can wait for them in any
    // order.
    for stream in streams {
        until_closed(stream).await?;
    }
    Ok(())
}

/// Reads the same object over one connection until `is_over`, and returns the number of reads.
async fn ordinary(peer: Peer, path: String, is_over: Arc<AtomicBool>) -> Result<u32, Fault> {
    let mut stream = peer.tls(TcpStream::connect(peer.address).await?, "http/1.1").await?;
    let mut reads = 0;
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        stream.write_all(&get(&peer, &path, "")).await?;
        let mut received = Vec::new();
        // The response is one object in JSON, whose body ends with a line end.
        while !received.ends_with(b"}\n") {
            let read = timeout(ORDINARY, stream.read_buf(&mut received)).await;
            let read = read.map_err(|_| format!("nothing for {:?}", began.elapsed()))??;
            if read == 0 {
                return Err("an ordinary client was cut off".into());
            }
        }
        if !received.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&received).into());
        }
        reads += 1;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(reads)
}
