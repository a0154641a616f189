//! Peers without credentials: what they try keeps out nobody who reads, and what they hold is little.

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

/// Addresses that try tokens, and connections of each.
const TRYING: [u8; 2] = [31, 32];
const TRYING_EACH: usize = 100;
/// Readers whose tokens nobody has reviewed yet, and how many of them must get in.
const READERS: usize = 40;
const GET_IN: usize = 38;
/// Addresses that begin heads and do not end them, and connections that each tries to open.
const HOLDING: [u8; 4] = [41, 42, 43, 44];
const HOLDING_EACH: usize = 512;
/// Of a head that does not end.
const HALF: usize = 31 << 10;
/// What all of that may add to the process.
const ADDED_KIB: u64 = 48 << 10;
/// Of anything here.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn strangers_keep_no_reader_out_and_hold_little() -> Outcome {
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
    let (got_in, tried) = answered.map_err(|error| error.to_string())?;
    assert!(tried > 1_000, "only {tried} tokens were tried");
    assert!(got_in >= GET_IN, "only {got_in} of {READERS} readers got in");

    Kept::forget_peak(&served.operator)?;
    let before = Kept::read(&served.operator)?;
    let held = runtime.block_on(half_heads(&peer)).map_err(|error| error.to_string())?;
    let after = Kept::read(&served.operator)?;
    assert!((400..=512).contains(&held.len()), "{} connections are held", held.len());
    let added = after.peak_kib.saturating_sub(before.resident_kib);
    assert!(added <= ADDED_KIB, "{added} KiB: {before:?}, and {after:?}");
    Ok(())
}

/// How many readers are answered while others try tokens, and how many tokens those have tried.
async fn readers_get_in(peer: &Peer, tokens: &[String]) -> Result<(usize, usize), Fault> {
    let (is_over, tried) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut trying = JoinSet::new();
    for number in 0..TRYING.len() * TRYING_EACH {
        let (peer, host) = (peer.clone(), TRYING[number % TRYING.len()]);
        let (is_over, tried) = (Arc::clone(&is_over), Arc::clone(&tried));
        trying.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                // Its connections end, and it makes others.
                let _ended = try_tokens(&peer, host, (&is_over, &tried)).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    sleep(Duration::from_secs(2)).await;
    let mut got_in = 0;
    for token in tokens {
        let reader = peer.with_token(token.clone());
        let request = get(&reader, "/version", "Connection: close\r\n");
        let answer = reader.say(&request, SOON).await?;
        got_in += usize::from(answer.is_some_and(|answer| answer.code == 200));
        sleep(Duration::from_millis(100)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    trying.shutdown().await;
    Ok((got_in, tried.load(Ordering::Relaxed)))
}

/// One token after the other, over one connection.
async fn try_tokens(
    peer: &Peer,
    host: u8,
    (is_over, tried): (&AtomicBool, &AtomicUsize),
) -> Result<(), Fault> {
    let mut stream = peer.tls(from(peer, host).await?, "http/1.1").await?;
    let mut heard = vec![0; 4 << 10];
    while !is_over.load(Ordering::Relaxed) {
        let token = std::iter::repeat_with(fastrand::alphanumeric).take(40).collect();
        let stranger = peer.with_token(token);
        stream.write_all(&get(&stranger, "/version", "")).await?;
        if timeout(SOON, stream.read(&mut heard)).await?? == 0 {
            break;
        }
        tried.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Connections that are kept open, and whose heads do not end.
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
    let held: Vec<_> = all.into_iter().filter_map(Result::ok).collect();
    sleep(Duration::from_secs(1)).await;
    Ok(held)
}
