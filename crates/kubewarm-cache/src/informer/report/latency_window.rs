//! Computes the median and the 99th percentile of the latencies of the last five minutes.

use crate::informer::LatencyQuantiles;
use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;

/// Duration of one slice. A latency window consists of slices, and drops all latencies of its
/// oldest slice together.
const SLICE: Duration = Duration::from_mins(1);
const WINDOW: Duration = Duration::from_mins(5);

/// Number of buckets in which a slice counts latencies. Their upper bounds grow by a factor of √2
/// from 256 µs to 134 s. The last bucket also counts all longer latencies.
const BUCKETS: usize = 40;

/// log2 of the first bucket's upper bound, in microseconds. Profile statuses show whole
/// milliseconds, so shorter latencies need no buckets of their own.
const FIRST: u32 = 8;

/// Latencies of the last 4 to 5 minutes, in at most five slices of less than 200 bytes each. The
/// oldest slice comes first.
///
/// A returned quantile from 256 µs to 134 s is at least the true quantile, and at most √2 times the
/// true quantile. No quantile exceeds the largest recorded latency.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyWindow(VecDeque<LatencySlice>);

#[derive(Clone, Copy, Debug)]
struct LatencySlice {
    started_at: Instant,
    largest_micros: u32,
    counts: [u32; BUCKETS],
}

impl LatencySlice {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }
}

impl LatencyWindow {
    pub(crate) fn record(&mut self, now: Instant, took: Duration) {
        if self.0.back().is_none_or(|newest| newest.age(now) >= SLICE) {
            self.0.retain(|slice| slice.age(now) < WINDOW);
            self.0.push_back(LatencySlice {
                started_at: now,
                largest_micros: 0,
                counts: [0; BUCKETS],
            });
        }
        let Some(slice) = self.0.back_mut() else { return };
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        slice.largest_micros = slice.largest_micros.max(micros);
        if let Some(count) = slice.counts.get_mut(bucket(micros)) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns the median and the 99th percentile at `now`. `None` if the window contains no
    /// latency.
    ///
    /// # Cost
    ///
    /// At most 200 additions: 40 buckets of each of five slices.
    pub(crate) fn quantiles(&self, now: Instant) -> Option<LatencyQuantiles> {
        let mut sums = [0_u64; BUCKETS];
        let mut largest = 0;
        for slice in self.0.iter().filter(|slice| slice.age(now) < WINDOW) {
            largest = largest.max(slice.largest_micros);
            for (sum, count) in sums.iter_mut().zip(slice.counts) {
                *sum += u64::from(count);
            }
        }
        let total: u64 = sums.iter().sum();
        if total == 0 {
            return None;
        }
        let at_rank = |rank: u64| {
            let mut seen = 0;
            let reached = sums.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            let bound = reached.map_or(u64::MAX, upper_micros);
            Duration::from_micros(bound.min(u64::from(largest)))
        };
        Some(LatencyQuantiles {
            p50: at_rank(total.div_ceil(2)),
            p99: at_rank(total.saturating_mul(99).div_ceil(100)),
        })
    }
}

fn bucket(micros: u32) -> usize {
    (0..BUCKETS - 1).find(|&at| u64::from(micros) <= upper_micros(at)).unwrap_or(BUCKETS - 1)
}

fn upper_micros(at: usize) -> u64 {
    if at >= BUCKETS - 1 {
        return u64::MAX;
    }
    let octave = 1_u64 << (u64::from(FIRST) + at as u64 / 2);
    // 181/128 approximates √2.
    if at.is_multiple_of(2) { octave } else { octave * 181 / 128 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn an_empty_window_has_no_quantiles() {
        assert_eq!(LatencyWindow::default().quantiles(Instant::now()), None);
        assert!(size_of::<LatencySlice>() <= 200);
    }

    #[test]
    fn equal_latencies_are_reported_exactly() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        (0..10).for_each(|_| window.record(now, millis(3)));
        assert_eq!(
            window.quantiles(now),
            Some(LatencyQuantiles { p50: millis(3), p99: millis(3) })
        );
    }

    #[test]
    fn one_slow_in_fifty_shows_in_the_99th_percentile_only() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        (0..98).for_each(|_| window.record(now, millis(1)));
        (0..2).for_each(|_| window.record(now, millis(900)));
        let quantiles = window.quantiles(now).unwrap();
        assert!(quantiles.p50 >= millis(1) && quantiles.p50 < millis(2), "{quantiles:?}");
        assert_eq!(quantiles.p99, millis(900));
    }

    #[test]
    fn latencies_older_than_five_minutes_do_not_count() {
        let start = Instant::now();
        let mut window = LatencyWindow::default();
        window.record(start, millis(500));
        assert!(window.quantiles(start + Duration::from_secs(299)).is_some());
        assert_eq!(window.quantiles(start + Duration::from_mins(5)), None);
        window.record(start + Duration::from_secs(301), millis(2));
        let quantiles = window.quantiles(start + Duration::from_secs(301)).unwrap();
        assert_eq!(quantiles.p99, millis(2));
    }

    #[test]
    fn the_window_keeps_at_most_five_slices() {
        let start = Instant::now();
        let mut window = LatencyWindow::default();
        for second in 0..3_600 {
            window.record(start + Duration::from_secs(second), millis(1));
        }
        assert_eq!(window.0.len(), 5);
    }

    #[test]
    fn excessive_latencies_count_in_the_last_bucket() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        window.record(now, Duration::MAX);
        assert_eq!(window.quantiles(now).unwrap().p50, Duration::from_micros(u64::from(u32::MAX)));
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_root_two_times_the_true_value(
            mut micros in proptest::collection::vec(256_u32..130_000_000, 1..200),
        ) {
            let now = Instant::now();
            let mut window = LatencyWindow::default();
            for &value in &micros {
                window.record(now, Duration::from_micros(u64::from(value)));
            }
            micros.sort_unstable();
            let quantiles = window.quantiles(now).unwrap();
            for (rank, quantile) in [(50, quantiles.p50), (99, quantiles.p99)] {
                let at = (micros.len() * rank).div_ceil(100) - 1;
                let truth = u128::from(micros[at]);
                prop_assert!(quantile.as_micros() >= truth);
                prop_assert!(quantile.as_micros() * 100 <= truth * 143, "{} for {truth}", quantile.as_micros());
            }
        }
    }
}
