//! How long to wait before the next attempt: growing, spread, and as long as the server asks.

use std::time::Duration;

/// The longest wait of our own, in units of the first.
const MAX: u32 = 30;
/// No `Retry-After` is honoured beyond this: a server (or a proxy) that says a day is wrong.
const MAX_TOLD: Duration = Duration::from_mins(2);

/// Failures in a row and the wait that follows from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// The first wait.
    unit: Duration,
    failures: u32,
}

impl Backoff {
    /// No failures yet; the first wait will be `unit`, one second in production.
    pub(super) fn new(unit: Duration) -> Self {
        Self { unit, failures: 0 }
    }

    /// Failures since the last success.
    pub(super) fn failures(self) -> u32 {
        self.failures
    }

    /// Counts a failure and says how long to wait.
    ///
    /// `told` is the server's `Retry-After`. `spread` is a random number in `0.0..1.0`. Our own wait
    /// doubles from one unit to 30 and is cut by up to a quarter; a told one is kept, at most 120 s of
    /// it, and lengthened by up to a quarter and at least up to one unit, so that those who were all told
    /// the same do not come back at once.
    pub(super) fn failed(&mut self, told: Option<Duration>, spread: f64) -> Duration {
        let own = self.unit.saturating_mul((1 << self.failures.min(5)).min(MAX));
        self.failures = self.failures.saturating_add(1);
        let own = own.mul_f64(1.0 - spread / 4.0);
        told.map_or(own, |told| {
            let told = told.min(MAX_TOLD);
            let extra = (told / 4).max(self.unit);
            (told + extra.mul_f64(spread)).max(own)
        })
    }

    /// Forgets all failures.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_thirty_seconds() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let waits: Vec<_> = (0..8).map(|_| backoff.failed(None, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.failures(), 8);
        backoff.succeeded();
        assert_eq!(backoff.failed(None, 0.0), Duration::from_secs(1));
    }

    #[test]
    fn what_the_server_says_is_kept_within_reason() {
        let wait = |told, spread| {
            Backoff::new(Duration::from_secs(1))
                .failed(Some(Duration::from_secs(told)), spread)
                .as_millis()
        };
        assert_eq!(wait(30, 0.0), 30_000);
        assert_eq!(wait(30, 0.5), 33_750);
        assert_eq!(wait(0, 0.0), 1_000, "never at once");
        assert_eq!(wait(86_400, 0.0), 120_000);
    }
}
