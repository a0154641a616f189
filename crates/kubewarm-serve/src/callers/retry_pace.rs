//! Spreads the retries of rejected requests over time, so that not all rejected clients retry at
//! once.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// The number of retries a second for which kubewarm chooses the delays. kubewarm can reject far
/// more requests a second, so retries leave capacity for other requests.
const RETRIES_PER_SECOND: u32 = 50;
/// The maximum delay in seconds, as long as the longest pause of client-go's informers.
const MAX_DELAY: u32 = 30;
/// The time over which rejections are counted. A rejected client has retried or given up after this
/// time.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts rejections, and chooses the delay after which a rejected client should retry.
#[derive(Debug)]
pub(super) struct RetryPace(Mutex<RefusalWindow>);

#[derive(Debug)]
struct RefusalWindow {
    started_at: Instant,
    refusals: u32,
    /// The rejections of the window before this one, so that the delays do not drop at the start of
    /// each window.
    earlier: u32,
}

impl RetryPace {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(RefusalWindow { started_at: now, refusals: 0, earlier: 0 }))
    }

    /// Counts a rejection at `now`. Returns after how many seconds the client should retry: a
    /// random number, which grows with the number of recent rejections.
    pub(super) fn record_refusal(&self, now: Instant) -> u64 {
        let mut window = self.0.lock();
        let age = now.saturating_duration_since(window.started_at);
        if age >= WINDOW {
            window.earlier = if age < 2 * WINDOW { window.refusals } else { 0 };
            (window.started_at, window.refusals) = (now, 0);
        }
        window.refusals = window.refusals.saturating_add(1);
        let recent = window.refusals.saturating_add(window.earlier);
        drop(window);
        fastrand::u32(1..=(recent / RETRIES_PER_SECOND).clamp(1, MAX_DELAY)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(pace: &RetryPace, count: usize, now: Instant) -> Vec<u64> {
        (0..count).map(|_| pace.record_refusal(now)).collect()
    }

    #[test]
    fn a_few_refused_clients_retry_after_a_second() {
        let start = Instant::now();
        assert_eq!(delays(&RetryPace::new(start), 99, start), [1; 99]);
    }

    #[test]
    fn the_retries_of_a_thousand_refused_clients_are_spread() {
        let start = Instant::now();
        let pace = RetryPace::new(start);
        delays(&pace, 1_000, start);
        let all = delays(&pace, 1_000, start + WINDOW / 2);
        assert!(all.iter().any(|delay| *delay >= 15) && all.contains(&1), "{all:?}");
        assert!(all.iter().all(|delay| *delay <= 40), "{all:?}");
        let later = start + WINDOW;
        assert!(delays(&pace, 100, later).iter().any(|delay| *delay >= 15), "still recent");
        assert_eq!(delays(&pace, 9, later + 2 * WINDOW), [1; 9]);
        let most = delays(&pace, 10_000, later + 4 * WINDOW).into_iter().max();
        assert_eq!(most, Some(u64::from(MAX_DELAY)));
    }
}
