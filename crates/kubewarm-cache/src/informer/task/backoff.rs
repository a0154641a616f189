//! Computes the delay after a failed request. The delay grows exponentially, has a random part, and
//! respects a `Retry-After` of up to 120 s.

use std::time::Duration;

/// Maximum exponential delay (without `Retry-After`), in multiples of the first delay.
const MAX_UNITS: u32 = 30;
/// Maximum accepted `Retry-After`. A longer value, such as a day, is an error of a server or proxy.
const MAX_SERVER_DELAY: Duration = Duration::from_mins(2);

/// Counts consecutive failures, and computes the delay before the next attempt from their number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBackoff {
    /// The first delay.
    unit: Duration,
    failures: u32,
    /// Number of attempts since the last reset that began before the end of their delay, because
    /// the API server was reachable again. [`RetryBackoff::early_delay`] grows with this number.
    early_starts: u32,
}

impl RetryBackoff {
    /// Starts with zero failures. The first delay is `unit`, one second in production.
    pub(crate) fn new(unit: Duration) -> Self {
        Self { unit, failures: 0, early_starts: 0 }
    }

    pub(crate) fn failures(self) -> u32 {
        self.failures
    }

    /// Counts a failure and returns the delay before the next attempt.
    ///
    /// `retry_after` is the response's `Retry-After`, and `spread` is a random number in
    /// `0.0..1.0`. A unit is the first delay, one second in production.
    ///
    /// Without `Retry-After`, the delay doubles with each failure, from one unit up to 30 units.
    /// `spread` then shortens the delay by up to a quarter.
    ///
    /// With `Retry-After`, the delay is that value (at most 120 s) plus a random part. The random
    /// part is up to a quarter of the value, or up to one unit if a unit is longer. So clients with
    /// the same `Retry-After` do not retry at the same time. The delay is never shorter than
    /// without `Retry-After`.
    pub(crate) fn record_failure(
        &mut self,
        retry_after: Option<Duration>,
        spread: f64,
    ) -> Duration {
        let delay = self.own_delay();
        self.failures = self.failures.saturating_add(1);
        let delay = delay.mul_f64(1.0 - spread / 4.0);
        retry_after.map_or(delay, |retry_after| {
            let retry_after = retry_after.min(MAX_SERVER_DELAY);
            let extra = (retry_after / 4).max(self.unit);
            (retry_after + extra.mul_f64(spread)).max(delay)
        })
    }

    pub(crate) fn reset(&mut self) {
        (self.failures, self.early_starts) = (0, 0);
    }

    /// Returns the delay before an attempt that begins early, because the API server is reachable
    /// again. The first early attempt needs no delay. Later ones have the delays of a new backoff,
    /// so that a server that comes and goes does not receive attempts in a loop.
    pub(crate) fn early_delay(self) -> Duration {
        let earlier = Self { failures: self.early_starts.saturating_sub(1), ..self };
        if self.early_starts == 0 { Duration::ZERO } else { earlier.own_delay() }
    }

    /// Counts an attempt that begins early.
    pub(crate) fn start_early(&mut self) {
        self.early_starts = self.early_starts.saturating_add(1);
    }

    /// One unit for the first failure, and twice as much for each further one, up to 30 units.
    fn own_delay(self) -> Duration {
        self.unit.saturating_mul((1 << self.failures.min(5)).min(MAX_UNITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_thirty_seconds() {
        let mut backoff = RetryBackoff::new(Duration::from_secs(1));
        let waits: Vec<_> = (0..8).map(|_| backoff.record_failure(None, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.failures(), 8);
        backoff.reset();
        assert_eq!(backoff.record_failure(None, 0.0), Duration::from_secs(1));
    }

    #[test]
    fn early_attempts_have_a_growing_delay_of_their_own() {
        let mut backoff = RetryBackoff::new(Duration::from_secs(1));
        backoff.record_failure(None, 0.0);
        let waits: Vec<_> = (0..8)
            .map(|_| {
                let delay = backoff.early_delay().as_secs();
                backoff.start_early();
                delay
            })
            .collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.early_delay(), Duration::ZERO);
    }

    #[test]
    fn retry_after_is_respected_up_to_two_minutes() {
        let wait = |retry_after, spread| {
            RetryBackoff::new(Duration::from_secs(1))
                .record_failure(Some(Duration::from_secs(retry_after)), spread)
                .as_millis()
        };
        assert_eq!(wait(30, 0.0), 30_000);
        assert_eq!(wait(30, 0.5), 33_750);
        assert_eq!(wait(0, 0.0), 1_000, "a `Retry-After` of 0 does not remove the delay");
        assert_eq!(wait(86_400, 0.0), 120_000);
    }
}
