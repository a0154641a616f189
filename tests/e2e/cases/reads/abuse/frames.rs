//! HTTP/2 frames that no ordinary client sends.

use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Fault;
use super::connections::{Tried, from, until_closed};
use super::peer::Peer;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET https://x/` in HPACK.
const GET: [u8; 6] = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
/// The largest frame that the server accepts.
const FRAME: usize = 16 << 10;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

async fn begun(peer: &Peer) -> Result<TlsStream<TcpStream>, Fault> {
    let mut stream = peer.tls(from(peer, 8).await?, "h2").await?;
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    Ok(stream)
}

/// Sends `frames` while it reads, and waits until the server closes the connection.
async fn send(peer: &Peer, frames: Vec<Vec<u8>>) -> Result<Vec<u8>, Fault> {
    let (reading, mut writing) = tokio::io::split(begun(peer).await?);
    let saying = tokio::spawn(async move {
        for frame in frames {
            // The server may have closed the connection already.
            if writing.write_all(&frame).await.is_err() {
                break;
            }
        }
        writing
    });
    let received = received(reading).await?;
    drop(saying.await?);
    Ok(received)
}

/// Returns the types of the frames that the server sends before it closes the connection.
async fn received(reading: impl AsyncRead + Unpin) -> Result<Vec<u8>, Fault> {
    let bytes = until_closed(reading).await?;
    let mut kinds = Vec::new();
    let mut rest = &bytes[..];
    while let [a, b, c, kind, ..] = rest {
        kinds.push(*kind);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    Ok(kinds)
}

/// Sends the preface of a connection, or the start of a request head, and nothing else.
pub(super) async fn slow(peer: Peer) -> Tried {
    let stream = begun(&peer).await?;
    let half = send(&peer, vec![frame(HEADERS, END_STREAM, 1, &GET)]);
    let (quiet, half) = tokio::join!(received(stream), half);
    if quiet?.contains(&HEADERS) || half?.contains(&HEADERS) {
        return Err("an unfinished head was answered".into());
    }
    Ok(())
}

pub(super) async fn garbled(peer: Peer, seed: u64) -> Tried {
    let mut random = fastrand::Rng::with_seed(seed);
    let frames = (0..random.usize(1..200)).map(|_| {
        let payload: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
        frame(random.u8(0..12), random.u8(..), random.u32(0..9), &payload)
    });
    let frames = frames.collect();
    send(&peer, frames).await.map(|_| ())
}

/// Sends a request head that never ends.
pub(super) async fn continuations(peer: Peer) -> Tried {
    // HPACK literals without indexing: `x: yyy…`.
    let mut part = Vec::new();
    while part.len() + 103 <= FRAME {
        part.extend([0x10, 1, b'x', 99]);
        part.extend([b'y'; 99]);
    }
    let mut frames = vec![frame(HEADERS, END_STREAM, 1, &GET)];
    frames.extend((0..4_000).map(|_| frame(CONTINUATION, 0, 1, &part)));
    let kinds = send(&peer, frames).await?;
    if kinds.contains(&HEADERS) { Err("a head without an end was answered".into()) } else { Ok(()) }
}

/// Uses a small request head that a receiver expands: one byte refers to a header of 4 KB in the
/// HPACK table, sixteen thousand times.
pub(super) async fn bomb(peer: Peer) -> Tried {
    // An HPACK literal with indexing: `b: zzz…` of 3,968 bytes.
    let mut first = GET.to_vec();
    first.extend([0x40, 1, b'b', 0x7f, 0x81, 0x1e]);
    first.extend([b'z'; 3_968]);
    let again = vec![0xbe; FRAME];
    let mut frames = Vec::new();
    for stream in (1..40).step_by(2) {
        frames.push(frame(HEADERS, END_STREAM, stream, &first));
        frames.push(frame(CONTINUATION, END_HEADERS, stream, &again));
    }
    // The server rejects a head that is too large, or closes the connection.
    send(&peer, frames).await?;
    Ok(())
}

/// Sends requests and resets their streams at once.
pub(super) async fn resets(peer: Peer) -> Tried {
    let streams = (1..40_001).step_by(2);
    let pairs = streams.flat_map(|stream| {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, &GET);
        [head, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])]
    });
    let kinds = send(&peer, pairs.collect()).await?;
    if kinds.contains(&GOAWAY) || kinds.is_empty() {
        return Ok(());
    }
    Err(format!("no GOAWAY in {} frames", kinds.len()).into())
}
