//! Median and 99th percentile of the last five minutes, in under a kilobyte.

use super::Quantiles;
use std::time::Duration;
use tokio::time::Instant;

/// One-minute slices: together the window.
const SLICES: usize = 5;
const SLICE: Duration = Duration::from_mins(1);

/// Half octaves from 256 µs to 134 s; the first and the last take what lies beyond.
const BUCKETS: usize = 40;

/// log2 of the first bucket's upper bound in microseconds. Below it nothing needs to be told
/// apart: status shows whole milliseconds.
const FIRST: u32 = 8;

/// Latencies of the last 4 to 5 minutes: the current minute and the four before it.
///
/// Empty until the first [`record`](Self::record): a cell without events pays one pointer, any
/// other 840 bytes. Quantiles are rounded up to at most √2 times the true value, and never above
/// the largest one recorded.
#[derive(Clone, Debug, Default)]
pub struct LatencyWindow(Option<Box<Window>>);

#[derive(Clone, Debug)]
struct Window {
    /// Minutes are counted from here.
    start: Instant,
    slices: [Slice; SLICES],
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    minute: u32,
    largest_micros: u32,
    counts: [u32; BUCKETS],
}

impl Slice {
    fn new(minute: u32) -> Self {
        Self { minute, largest_micros: 0, counts: [0; BUCKETS] }
    }
}

impl LatencyWindow {
    /// Takes one latency, at `now`.
    pub fn record(&mut self, now: Instant, took: Duration) {
        let window = self.0.get_or_insert_with(|| {
            Box::new(Window { start: now, slices: [Slice::new(0); SLICES] })
        });
        let minute = window.minute(now);
        let Some(slice) = window.slices.get_mut(position(minute)) else {
            return;
        };
        if slice.minute != minute {
            *slice = Slice::new(minute);
        }
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        slice.largest_micros = slice.largest_micros.max(micros);
        if let Some(count) = slice.counts.get_mut(bucket(micros)) {
            *count = count.saturating_add(1);
        }
    }

    /// The quantiles at `now`; `None` if nothing was recorded in the window.
    ///
    /// # Cost
    ///
    /// 200 additions.
    #[must_use]
    pub fn quantiles(&self, now: Instant) -> Option<Quantiles> {
        let window = self.0.as_deref()?;
        let minute = window.minute(now);
        let mut sums = [0_u64; BUCKETS];
        let mut largest = 0;
        let live = |slice: &&Slice| minute.saturating_sub(slice.minute) < 5;
        for slice in window.slices.iter().filter(live) {
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
        Some(Quantiles {
            p50: at_rank(total.div_ceil(2)),
            p99: at_rank(total.saturating_mul(99).div_ceil(100)),
        })
    }
}

impl Window {
    fn minute(&self, now: Instant) -> u32 {
        let passed = now.saturating_duration_since(self.start).as_secs() / SLICE.as_secs();
        u32::try_from(passed).unwrap_or(u32::MAX)
    }
}

fn position(minute: u32) -> usize {
    usize::try_from(minute).unwrap_or(0) % SLICES
}

/// The bucket whose upper bound is the first at or above `micros`.
fn bucket(micros: u32) -> usize {
    (0..BUCKETS - 1).find(|&at| u64::from(micros) <= upper_micros(at)).unwrap_or(BUCKETS - 1)
}

/// The largest value in bucket `at`; the last bucket has none.
fn upper_micros(at: usize) -> u64 {
    if at >= BUCKETS - 1 {
        return u64::MAX;
    }
    let octave = 1_u64 << (u64::from(FIRST) + at as u64 / 2);
    // 181/128 is the square root of two.
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
    fn nothing_recorded_is_nothing_known() {
        assert_eq!(LatencyWindow::default().quantiles(Instant::now()), None);
        assert_eq!(size_of::<LatencyWindow>(), size_of::<usize>());
        assert!(size_of::<Window>() <= 1024);
    }

    #[test]
    fn equal_latencies_come_back_exactly() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        (0..10).for_each(|_| window.record(now, millis(3)));
        assert_eq!(window.quantiles(now), Some(Quantiles { p50: millis(3), p99: millis(3) }));
    }

    #[test]
    fn one_slow_in_fifty_shows_in_the_99th_percentile_only() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        (0..98).for_each(|_| window.record(now, millis(1)));
        (0..2).for_each(|_| window.record(now, millis(900)));
        let found = window.quantiles(now).unwrap();
        assert!(found.p50 >= millis(1) && found.p50 < millis(2), "{found:?}");
        assert_eq!(found.p99, millis(900));
    }

    #[test]
    fn what_is_older_than_five_minutes_is_forgotten() {
        let start = Instant::now();
        let mut window = LatencyWindow::default();
        window.record(start, millis(500));
        assert!(window.quantiles(start + Duration::from_secs(299)).is_some());
        assert_eq!(window.quantiles(start + Duration::from_mins(5)), None);
        window.record(start + Duration::from_secs(301), millis(2));
        let found = window.quantiles(start + Duration::from_secs(301)).unwrap();
        assert_eq!(found.p99, millis(2), "the slice was emptied before it was used again");
    }

    #[test]
    fn absurd_latencies_are_the_largest_bucket() {
        let now = Instant::now();
        let mut window = LatencyWindow::default();
        window.record(now, Duration::MAX);
        assert_eq!(window.quantiles(now).unwrap().p50, Duration::from_micros(u64::from(u32::MAX)));
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_root_two_above_the_truth(
            mut micros in proptest::collection::vec(256_u32..130_000_000, 1..200),
        ) {
            let now = Instant::now();
            let mut window = LatencyWindow::default();
            for &value in &micros {
                window.record(now, Duration::from_micros(u64::from(value)));
            }
            micros.sort_unstable();
            let found = window.quantiles(now).unwrap();
            for (rank, found) in [(50, found.p50), (99, found.p99)] {
                let at = (micros.len() * rank).div_ceil(100) - 1;
                let truth = u128::from(micros[at]);
                prop_assert!(found.as_micros() >= truth);
                prop_assert!(found.as_micros() * 100 <= truth * 143, "{} for {truth}", found.as_micros());
            }
        }
    }
}
