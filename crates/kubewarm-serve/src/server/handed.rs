//! What of an answer its connection was handed, and whether the other end takes it in time.

use super::listen::Limits;
use std::{cell::Cell, time::Duration};
use tokio::time::Instant;

/// Of one answer: kept by it, and looked at by whoever looks after its connection.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// When a part was handed on behind which none has been asked for; `None` while the answer itself is waited for.
    part: Cell<Option<Instant>>,
    /// How long the parts before that were to be taken.
    taking: Cell<Duration>,
    bytes: Cell<u64>,
    /// Whether all of it must be taken in time.
    must_end: Cell<bool>,
}

impl Handed {
    /// The connection asks for more.
    pub(super) fn ask(&self) {
        if let Some(since) = self.part.take() {
            self.taking.set(self.taking.get() + since.elapsed());
        }
    }

    /// So many bytes were handed on; of an answer that others may have to wait for, `must_end`.
    pub(super) fn hand(&self, bytes: usize, must_end: bool) {
        self.part.set(Some(Instant::now()));
        self.bytes.set(self.bytes.get() + bytes as u64);
        self.must_end.set(must_end);
    }

    /// Whether a part has not been taken for too long, or all of it is taken too slowly. How long it took to write does not
    /// count.
    pub(super) fn is_late(&self, now: Instant, limits: Limits) -> bool {
        let since = self.part.get();
        let part = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let most = limits.stall + Duration::from_secs(self.bytes.get() / limits.slowest);
        part >= limits.stall || (self.must_end.get() && self.taking.get() + part >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn is_late(handed: &Handed) -> bool {
        handed.is_late(Instant::now(), Limits::default())
    }

    #[tokio::test(start_paused = true)]
    async fn each_part_is_to_be_taken_in_time() {
        let (limits, handed) = (Limits::default(), Handed::default());
        advance(limits.stall).await;
        assert!(!is_late(&handed), "nothing was handed on");
        handed.hand(1, false);
        advance(limits.stall / 2).await;
        assert!(!is_late(&handed));
        advance(limits.stall / 2).await;
        assert!(is_late(&handed));
        handed.ask();
        assert!(!is_late(&handed));
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_end_is_to_be_taken_fast_enough() {
        let limits = Limits::default();
        let second = usize::try_from(limits.slowest.get()).unwrap();
        for (part, must_end, expected) in
            [(second / 2, true, true), (2 * second, true, false), (second / 2, false, false)]
        {
            let handed = Handed::default();
            let mut was_late = false;
            for _ in 0..limits.stall.as_secs() * 3 {
                handed.ask();
                handed.hand(part, must_end);
                advance(Duration::from_secs(1)).await;
                was_late |= is_late(&handed);
            }
            assert_eq!(was_late, expected, "{part}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn however_long_it_takes_to_write_nobody_is_cut_off_for_that() {
        let handed = Handed::default();
        for _ in 0..10 {
            handed.ask();
            advance(Limits::default().stall).await;
            assert!(!is_late(&handed));
            handed.hand(1, true);
        }
    }
}
