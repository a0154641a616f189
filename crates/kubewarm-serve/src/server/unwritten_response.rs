//! Tracks which parts of a response the connection has not written yet. These parts count against
//! the limits on unwritten response bytes. The server uses the times of the parts to find clients
//! that read too slowly.

use super::listen::ConnectionLimits;
use crate::{
    callers::{PERMIT_BYTES, UserPermits},
    reads::PIECE_BYTES,
};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use kubewarm_client::KeyedPermit;
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::{any::Any, collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct ResponsePermit {
    _permit: Box<dyn Any + Send>,
    /// The user's permits for unwritten response bytes; `None` for a response without a body or
    /// with a short body.
    bytes: Option<UserPermits>,
    is_timely: bool,
}

/// Records the parts of a response that kubewarm has passed to hyper and hyper has not written.
/// Each part holds a reference to this value, and removes itself when hyper has written or dropped
/// the part.
#[derive(Debug, Default)]
pub(super) struct UnwrittenResponse(Mutex<UnwrittenResponseState>);

#[derive(Debug, Default)]
struct UnwrittenResponseState {
    permit: Option<ResponsePermit>,
    /// The piece of each part that kubewarm has passed to hyper, the oldest first. hyper writes the
    /// parts in this order, so a part that is written or dropped is always the first one.
    handed: VecDeque<ResponsePiece>,
    /// The piece whose rest kubewarm has not passed to hyper yet. The rest stays in memory until
    /// the client reads on, also if an HTTP/2 client has let hyper write exactly the earlier parts.
    unfinished: Option<ResponsePiece>,
    /// The time since which the client has had to read a part or the rest of a piece; `None` if
    /// nothing is left to read.
    since: Option<Instant>,
    /// The total time, before `since`, in which the client had to read.
    taking: Duration,
    /// The size in bytes of all parts of the response so far, written and unwritten.
    bytes: u64,
    /// The metric that counts the bytes of the response's parts.
    counter: Option<IntCounter>,
}

/// A piece of a response, which kubewarm passes to hyper in parts.
#[derive(Clone, Copy, Debug)]
struct ResponsePiece {
    /// The time at which kubewarm passed the first part to hyper.
    began_at: Instant,
    bytes: u64,
}

/// A future that acquires the permit for the response's next bytes. The permit counts them against
/// the limits on unwritten response bytes.
pub(super) type PermitWait = BoxFuture<'static, Option<KeyedPermit>>;

/// A part of a response that hyper has not written. hyper copies parts of a few hundred bytes and
/// drops the original at once, so the copies hold no permit. They take at most a few KiB per
/// connection.
struct ResponsePart {
    bytes: Bytes,
    /// This permit counts `bytes` against the limits on unwritten response bytes. Several parts of
    /// the response can share the permit.
    _permit: Option<Arc<KeyedPermit>>,
    response: Arc<UnwrittenResponse>,
}

impl ResponsePermit {
    /// Creates the permits of a response that the client must read at the minimum rate. Without
    /// this rate, a slow client could keep `permit` and so block requests of other clients.
    pub(super) fn timely(permit: impl Any + Send, bytes: UserPermits) -> Self {
        Self { _permit: Box::new(permit), bytes: Some(bytes), is_timely: true }
    }

    /// Creates the permits of a response that the client can read at any rate, such as a watch.
    pub(super) fn lasting(permit: impl Any + Send, bytes: UserPermits) -> Self {
        Self { _permit: Box::new(permit), bytes: Some(bytes), is_timely: false }
    }

    /// Creates a `ResponsePermit` without permits, for a response that counts against no limit.
    pub(super) fn nothing() -> Self {
        Self { _permit: Box::new(()), bytes: None, is_timely: false }
    }
}

impl UnwrittenResponse {
    /// Holds `permit` until the response is written.
    pub(super) fn keep(&self, permit: ResponsePermit) {
        self.0.lock().permit = Some(permit);
    }

    /// Adds the bytes of all parts that kubewarm passes to hyper after this call to `counter`.
    pub(super) fn count_bytes(&self, counter: IntCounter) {
        self.0.lock().counter = Some(counter);
    }

    pub(super) fn has_permit(&self) -> bool {
        self.0.lock().permit.is_some()
    }

    /// Returns a future that acquires the permit for the next `bytes` bytes of the body; `None` if
    /// the response needs no permit. For more than `PIECE_BYTES` bytes, the future acquires a
    /// permit for only `PIECE_BYTES` bytes.
    pub(super) fn permit(&self, bytes: usize) -> Option<PermitWait> {
        let permits = self.0.lock().permit.as_ref().and_then(|permit| permit.bytes.clone())?;
        let count = bytes.min(PIECE_BYTES).div_ceil(PERMIT_BYTES);
        Some(async move { permits.acquire(count).await }.boxed())
    }

    /// Creates a part of the response from `bytes`. The part holds `permit` until hyper has written
    /// the part. The piece has `rest` bytes after this part.
    pub(super) fn part(
        self: &Arc<Self>,
        bytes: Bytes,
        rest: usize,
        permit: Option<Arc<KeyedPermit>>,
    ) -> Bytes {
        let mut progress = self.0.lock();
        let now = Instant::now();
        let length = bytes.len() as u64;
        let new = ResponsePiece { began_at: now, bytes: length + rest as u64 };
        let piece = progress.unfinished.take().unwrap_or(new);
        progress.unfinished = (rest > 0).then_some(piece);
        progress.handed.push_back(piece);
        progress.bytes += length;
        if let Some(counter) = &progress.counter {
            counter.inc_by(length);
        }
        progress.since.get_or_insert(now);
        drop(progress);
        Bytes::from_owner(ResponsePart { bytes, _permit: permit, response: Arc::clone(self) })
    }

    /// Whether the client reads a piece or the whole response too slowly. Time between two pieces,
    /// for example while kubewarm encodes more objects, does not count.
    pub(super) fn is_too_slow(&self, now: Instant, limits: ConnectionLimits) -> bool {
        let progress = self.0.lock();
        let elapsed = |since| now.saturating_duration_since(since);
        let oldest = progress.handed.front().or(progress.unfinished.as_ref());
        let is_piece_late =
            oldest.is_some_and(|piece| elapsed(piece.began_at) >= limits.time_to_read(piece.bytes));
        let taking = progress.taking + progress.since.map_or(Duration::ZERO, elapsed);
        let is_timely = progress.permit.as_ref().is_some_and(|permit| permit.is_timely);
        is_piece_late || (is_timely && taking >= limits.time_to_read(progress.bytes))
    }
}

impl AsRef<[u8]> for ResponsePart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ResponsePart {
    fn drop(&mut self) {
        let mut progress = self.response.0.lock();
        progress.handed.pop_front();
        if progress.handed.is_empty() && progress.unfinished.is_none() {
            let since = progress.since.take();
            progress.taking += since.map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::fixtures::user_permits;
    use tokio::time::advance;

    fn many() -> UserPermits {
        let [jane] = user_permits(1 << 20, ["jane"]);
        jane
    }

    fn response(permit: ResponsePermit) -> Arc<UnwrittenResponse> {
        let response = Arc::new(UnwrittenResponse::default());
        response.keep(permit);
        response
    }

    fn part(response: &Arc<UnwrittenResponse>, bytes: usize) -> Bytes {
        response.part(vec![b'x'; bytes].into(), 0, None)
    }

    fn is_too_slow(response: &UnwrittenResponse) -> bool {
        response.is_too_slow(Instant::now(), ConnectionLimits::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_must_be_written_in_time() {
        let (stall, response) = (
            ConnectionLimits::default().piece_timeout,
            response(ResponsePermit::lasting((), many())),
        );
        advance(stall).await;
        assert!(!is_too_slow(&response), "there was no part");
        let first = part(&response, 1);
        advance(stall / 2).await;
        let second = part(&response, 1);
        assert!(!is_too_slow(&response));
        advance(stall / 2).await;
        assert!(is_too_slow(&response));
        drop(first);
        assert!(!is_too_slow(&response));
        advance(stall).await;
        assert!(is_too_slow(&response));
        drop(second);
        advance(stall).await;
        assert!(!is_too_slow(&response), "all parts are written");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_piece_must_be_read_in_time() {
        let stall = ConnectionLimits::default().piece_timeout;
        let response = response(ResponsePermit::lasting((), many()));
        drop(response.part(Bytes::from_static(b"x"), 1, None));
        assert!(!is_too_slow(&response));
        advance(stall).await;
        assert!(is_too_slow(&response), "the client reads the first part and nothing more");
        drop(part(&response, 1));
        advance(stall).await;
        assert!(!is_too_slow(&response), "the piece is written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_must_read_a_large_object_fast_enough() {
        let limits = ConnectionLimits::default();
        let second = usize::try_from(limits.min_bytes_per_second.get()).unwrap();
        for (rate, expected) in [(second / 2, true), (second, false)] {
            let response = response(ResponsePermit::lasting((), many()));
            let (mut rest, mut was_late) = (second * 300, false);
            while rest > 0 {
                rest -= rate;
                drop(response.part(vec![b'x'; rate].into(), rest, None));
                was_late |= is_too_slow(&response);
                advance(Duration::from_secs(1)).await;
            }
            assert_eq!(was_late, expected, "{rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_read_one_part_a_minute_does_not_extend_the_deadline_of_other_parts() {
        let response = response(ResponsePermit::lasting((), many()));
        let parts: Vec<_> = (0..4).map(|_| part(&response, 1)).collect();
        let mut was_late = false;
        for part in parts {
            advance(
                ConnectionLimits::default().piece_timeout.saturating_sub(Duration::from_secs(1)),
            )
            .await;
            was_late |= is_too_slow(&response);
            drop(part);
        }
        assert!(was_late);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_with_a_contended_permit_must_be_read_fast_enough() {
        let limits = ConnectionLimits::default();
        let second = usize::try_from(limits.min_bytes_per_second.get()).unwrap();
        for (bytes, permit, expected) in [
            (second / 2, ResponsePermit::timely((), many()), true),
            (2 * second, ResponsePermit::timely((), many()), false),
            (second / 2, ResponsePermit::lasting((), many()), false),
        ] {
            let (response, mut was_late) = (response(permit), false);
            for _ in 0..limits.piece_timeout.as_secs() * 3 {
                let part = part(&response, bytes);
                advance(Duration::from_secs(1)).await;
                was_late |= is_too_slow(&response);
                drop(part);
            }
            assert_eq!(was_late, expected, "{bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_slow_to_produce_does_not_close_the_connection() {
        let response = response(ResponsePermit::timely((), many()));
        for _ in 0..10 {
            advance(ConnectionLimits::default().piece_timeout).await;
            assert!(!is_too_slow(&response));
            drop(part(&response, 1));
        }
    }
}
