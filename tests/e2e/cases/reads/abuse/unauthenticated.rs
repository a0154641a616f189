//! Connections without valid credentials: they do not keep readers out, and they use little memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

use super::Fault;
use super::connections::{from, get};
use super::peer::Peer;
use crate::api::{Served, account};
use crate::figures::Kept;
use crate::world::{Outcome, World};

/// Hosts that send invalid tokens, and the number of connections of each.
const TRYING: [u8; 2] = [31, 32];
const TRYING_EACH: usize = 100;
/// Readers with valid tokens for which kubewarm has sent no TokenReview yet, and how many of these
/// readers must get a response.
const READERS: usize = 40;
const ANSWERED: usize = 38;
/// Hosts that send unfinished request heads, and the number of connections that each tries to open.
const HOLDING: [u8; 4] = [41, 42, 43, 44];
const HOLDING_EACH: usize = 512;
/// Bytes of a request head that never ends, so that the server stores them.
const HALF: usize = 31 << 10;
/// Limit for the memory that these connections add, in KiB.
const ADDED_KIB: u64 = 48 << 10;
/// Timeout for each step of this test.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn unauthenticated_connections_block_no_reader_and_use_little_memory() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &[])?;
    let team = world.namespace("team")?;
    let mut tokens = vec![account(&world, &team, "reader")?];
    while tokens.len() < READERS {
        let token = world.cluster.run(["create", "token", "reader", "-n", &team])?;
        tokens.push(token.trim().to_owned());
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let runtime = tokio::runtime::Runtime::new()?;
    let peer = Peer::of(&served, "made-up")?;
    let answered = runtime.block_on(readers_get_in(&peer, &tokens));
    let (answered, attempts) = answered.map_err(|error| error.to_string())?;
    assert!(attempts > 1_000, "only {attempts} tokens were sent");
    assert!(answered >= ANSWERED, "only {answered} of {READERS} readers were answered");

    Kept::forget_peak(&served.operator)?;
    let before = Kept::read(&served.operator)?;
    let streams = runtime.block_on(half_heads(&peer)).map_err(|error| error.to_string())?;
    let after = Kept::read(&served.operator)?;
    assert!((400..=512).contains(&streams.len()), "{} connections are open", streams.len());
    let added = after.peak_kib.saturating_sub(before.resident_kib);
    assert!(added <= ADDED_KIB, "{added} KiB: {before:?}, and {after:?}");
    Ok(())
}

/// Returns how many readers got a response while other hosts sent invalid tokens, and how many
/// tokens these hosts sent.
async fn readers_get_in(peer: &Peer, tokens: &[String]) -> Result<(usize, usize), Fault> {
    let (is_over, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut trying = JoinSet::new();
    for number in 0..TRYING.len() * TRYING_EACH {
        let (peer, host) = (peer.clone(), TRYING[number % TRYING.len()]);
        let (is_over, attempts) = (Arc::clone(&is_over), Arc::clone(&attempts));
        trying.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                // The server closes the connection after an invalid token, so this loop opens the
                // next one.
                let _ended = try_tokens(&peer, host, (&is_over, &attempts)).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    sleep(Duration::from_secs(2)).await;
    let mut answered = 0;
    for token in tokens {
        let reader = peer.with_token(token.clone());
        let request = get(&reader, "/version", "Connection: close\r\n");
        let answer = reader.send(&request, SOON).await?;
        answered += usize::from(answer.is_some_and(|answer| answer.code == 200));
        sleep(Duration::from_millis(100)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    trying.shutdown().await;
    Ok((answered, attempts.load(Ordering::Relaxed)))
}

/// Sends one invalid token after another over one connection.
async fn try_tokens(
    peer: &Peer,
    host: u8,
    (is_over, attempts): (&AtomicBool, &AtomicUsize),
) -> Result<(), Fault> {
    let mut stream = peer.tls(from(peer, host).await?, "http/1.1").await?;
    let mut buffer = vec![0; 4 << 10];
    while !is_over.load(Ordering::Relaxed) {
        let token = std::iter::repeat_with(fastrand::alphanumeric).take(40).collect();
        let intruder = peer.with_token(token);
        stream.write_all(&get(&intruder, "/version", "")).await?;
        if timeout(SOON, stream.read(&mut buffer)).await?? == 0 {
            break;
        }
        attempts.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Opens connections whose request heads never end, and keeps them open.
async fn half_heads(peer: &Peer) -> Result<Vec<TlsStream<TcpStream>>, Fault> {
    let mut beginning = JoinSet::new();
    for number in 0..HOLDING.len() * HOLDING_EACH {
        let (peer, host) = (peer.clone(), HOLDING[number % HOLDING.len()]);
        beginning.spawn(async move {
            let mut stream = peer.tls(from(&peer, host).await?, "http/1.1").await?;
            let head = format!("GET /version HTTP/1.1\r\nX-Half: {}", "x".repeat(HALF));
            stream.write_all(head.as_bytes()).await?;
            Ok::<_, Fault>(stream)
        });
    }
    let all = timeout(SOON, beginning.join_all()).await?;
    let streams: Vec<_> = all.into_iter().filter_map(Result::ok).collect();
    sleep(Duration::from_secs(1)).await;
    Ok(streams)
}
