//! What of an answer its connection was handed and has not written: whether the other end takes it in time, and what the
//! answer takes up until then.

use super::listen::Limits;
use crate::{
    callers::{UNWRITTEN_UNIT, UserPermits},
    reads::PIECE_BYTES,
};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use kubewarm_client::KeyedPermit;
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::{any::Any, collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The permits of an answer, until it is written.
#[derive(Debug)]
pub(super) struct ResponsePermit {
    _permit: Box<dyn Any + Send>,
    /// What its bytes take until they are written; `None`: there are none, or few.
    bytes: Option<UserPermits>,
    is_timely: bool,
}

/// What a connection has taken of a response and not written. Each part that it takes holds this until hyper drops the part,
/// which it does once the part is written or discarded. Only one thread locks it, unless the connection becomes a tunnel.
#[derive(Debug, Default)]
pub(super) struct Unwritten(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    permit: Option<ResponsePermit>,
    /// When each part was handed on that is not written, the oldest first: parts are written in that order.
    handed: VecDeque<Instant>,
    /// Since when there has always been such a part; `None` where there is none.
    since: Option<Instant>,
    /// How long there were such parts before that.
    taking: Duration,
    /// All that was handed on.
    bytes: u64,
    /// Counts them.
    counter: Option<IntCounter>,
}

/// Resolves once there are permits for the next piece.
pub(super) type PermitWait = BoxFuture<'static, Option<KeyedPermit>>;

/// A part of an answer. Parts of some hundred bytes are copied by the HTTP libraries and dropped at once; they hold a
/// few KiB of such copies for a connection.
struct Part {
    bytes: Bytes,
    /// Shared by all parts of a piece.
    _permit: Option<Arc<KeyedPermit>>,
    answer: Arc<Unwritten>,
}

impl ResponsePermit {
    /// The other end must take the answer fast enough, as others wait for `permit`.
    pub(super) fn timely(permit: impl Any + Send, bytes: UserPermits) -> Self {
        Self { _permit: Box::new(permit), bytes: Some(bytes), is_timely: true }
    }

    /// The answer lasts as long as it lasts.
    pub(super) fn lasting(permit: impl Any + Send, bytes: UserPermits) -> Self {
        Self { _permit: Box::new(permit), bytes: Some(bytes), is_timely: false }
    }

    /// The answer takes up nothing.
    pub(super) fn nothing() -> Self {
        Self { _permit: Box::new(()), bytes: None, is_timely: false }
    }
}

impl Unwritten {
    /// Keeps `permit` until all is written.
    pub(super) fn keep(&self, permit: ResponsePermit) {
        self.0.lock().permit = Some(permit);
    }

    /// Adds bytes that are handed on to `counter`.
    pub(super) fn count_bytes(&self, counter: IntCounter) {
        self.0.lock().counter = Some(counter);
    }

    /// Whether the response keeps a permit.
    pub(super) fn has_permit(&self) -> bool {
        self.0.lock().permit.is_some()
    }

    /// The wait for the permit of a piece of so many bytes. `None` if the response takes none. An object that is larger
    /// than a piece counts as one piece: the limit on requests bounds how many there are.
    pub(super) fn permit(&self, bytes: usize) -> Option<PermitWait> {
        let permits = self.0.lock().permit.as_ref().and_then(|permit| permit.bytes.clone())?;
        let count = bytes.min(PIECE_BYTES).div_ceil(UNWRITTEN_UNIT);
        Some(async move { permits.acquire(count).await }.boxed())
    }

    /// `bytes` as they are handed on, and the `permit` for them.
    pub(super) fn part(self: &Arc<Self>, bytes: Bytes, permit: Option<Arc<KeyedPermit>>) -> Bytes {
        let mut progress = self.0.lock();
        let now = Instant::now();
        progress.handed.push_back(now);
        let length = bytes.len() as u64;
        progress.bytes += length;
        if let Some(counter) = &progress.counter {
            counter.inc_by(length);
        }
        progress.since.get_or_insert(now);
        drop(progress);
        Bytes::from_owner(Part { bytes, _permit: permit, answer: Arc::clone(self) })
    }

    /// Whether the other end has left a part for too long, or takes all of the answer too slowly. The time to make the
    /// answer does not count.
    pub(super) fn is_late(&self, now: Instant, limits: Limits) -> bool {
        let progress = self.0.lock();
        let elapsed = |since| now.saturating_duration_since(since);
        let oldest = progress.handed.front().copied().map_or(Duration::ZERO, elapsed);
        let taking = progress.taking + progress.since.map_or(Duration::ZERO, elapsed);
        let most = limits.stall + Duration::from_secs(progress.bytes / limits.slowest);
        let is_timely = progress.permit.as_ref().is_some_and(|permit| permit.is_timely);
        oldest >= limits.stall || (is_timely && taking >= most)
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut progress = self.answer.0.lock();
        progress.handed.pop_front();
        if progress.handed.is_empty() {
            let since = progress.since.take();
            progress.taking += since.map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::sample::user_permits;
    use tokio::time::advance;

    fn many() -> UserPermits {
        let [jane] = user_permits(1 << 20, ["jane"]);
        jane
    }

    fn answer(permit: ResponsePermit) -> Arc<Unwritten> {
        let answer = Arc::new(Unwritten::default());
        answer.keep(permit);
        answer
    }

    fn part(of: &Arc<Unwritten>, bytes: usize) -> Bytes {
        of.part(vec![b'x'; bytes].into(), None)
    }

    fn is_late(answer: &Unwritten) -> bool {
        answer.is_late(Instant::now(), Limits::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_to_be_taken_in_time() {
        let (stall, answer) =
            (Limits::default().stall, answer(ResponsePermit::lasting((), many())));
        advance(stall).await;
        assert!(!is_late(&answer), "nothing was handed on");
        let first = part(&answer, 1);
        advance(stall / 2).await;
        let second = part(&answer, 1);
        assert!(!is_late(&answer));
        advance(stall / 2).await;
        assert!(is_late(&answer));
        drop(first);
        assert!(!is_late(&answer));
        advance(stall).await;
        assert!(is_late(&answer));
        drop(second);
        advance(stall).await;
        assert!(!is_late(&answer), "all is written");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_a_part_a_minute_of_a_watch_does_not_keep_the_others_for_longer() {
        let answer = answer(ResponsePermit::lasting((), many()));
        let parts: Vec<_> = (0..4).map(|_| part(&answer, 1)).collect();
        let mut was_late = false;
        for part in parts {
            advance(Limits::default().stall.saturating_sub(Duration::from_secs(1))).await;
            was_late |= is_late(&answer);
            drop(part);
        }
        assert!(was_late);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_for_whose_permit_others_wait_is_to_be_taken_fast_enough() {
        let limits = Limits::default();
        let second = usize::try_from(limits.slowest.get()).unwrap();
        for (bytes, permit, expected) in [
            (second / 2, ResponsePermit::timely((), many()), true),
            (2 * second, ResponsePermit::timely((), many()), false),
            (second / 2, ResponsePermit::lasting((), many()), false),
        ] {
            let (answer, mut was_late) = (answer(permit), false);
            for _ in 0..limits.stall.as_secs() * 3 {
                let part = part(&answer, bytes);
                advance(Duration::from_secs(1)).await;
                was_late |= is_late(&answer);
                drop(part);
            }
            assert_eq!(was_late, expected, "{bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_long_it_takes_to_make_an_answer_nobody_is_cut_off_for_that() {
        let answer = answer(ResponsePermit::timely((), many()));
        for _ in 0..10 {
            advance(Limits::default().stall).await;
            assert!(!is_late(&answer));
            drop(part(&answer, 1));
        }
    }
}
