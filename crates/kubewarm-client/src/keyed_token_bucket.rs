//! Token buckets that limit the rate of events for each key, such as the requests that kubewarm
//! sends for the profiles of a namespace.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Time in which a namespace's token bucket regains one unit (one request). The rate is 20 requests
/// a second.
const EVERY: Duration = Duration::from_millis(50);
/// Capacity of a namespace's token bucket, in requests. A full bucket permits this many requests at
/// once.
const BURST: u32 = 40;

/// Number of units (requests) that `try_take_spare` leaves in a namespace's token bucket for access
/// checks. Only freshness checks and consistency checks call `try_take_spare`, because these checks
/// can wait.
const SPARE: u32 = BURST / 2;

/// A token bucket for each key. All clones use the same buckets.
#[derive(Clone, Debug)]
pub struct KeyedTokenBucket<K> {
    every: Duration,
    burst: u32,
    /// The time at which the bucket of each key will be full. When a new key draws units,
    /// `take_within` removes all full buckets, so that the map does not grow without limit.
    full_at: Arc<Mutex<HashMap<K, Instant>>>,
}

/// One token bucket for each namespace. Each request that kubewarm sends for the namespace's
/// profiles draws one unit.
///
/// The operator has two sets of buckets. Token requests, Kubernetes Events and the lists for
/// forecasts use one set and wait in [`take`](KeyedTokenBucket::take) for a unit. Access checks,
/// freshness checks and consistency checks use the other set and retry later if a bucket is empty.
///
/// For buckets with other limits, define another type around [`KeyedTokenBucket`].
/// `NamespaceBuckets::default` and `try_take_spare` contain the limits of the requests above.
pub type NamespaceBuckets = KeyedTokenBucket<Arc<str>>;

impl<K: Clone + Eq + Hash> KeyedTokenBucket<K> {
    /// Creates buckets that start full, with `burst` units. A bucket regains one unit after each
    /// `every`.
    pub fn new(every: Duration, burst: u32) -> Self {
        Self { every, burst, full_at: Arc::default() }
    }

    /// Returns how many units the bucket of `key` contains at `now`.
    pub fn available(&self, key: &K, now: Instant) -> u32 {
        let full_at = self.full_at.lock().get(key).copied();
        let missing = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let drawn = missing.as_nanos().div_ceil(self.every.as_nanos());
        self.burst.saturating_sub(u32::try_from(drawn).unwrap_or(u32::MAX))
    }

    /// Draws `count` units from the bucket of `key`, or no unit if the bucket contains fewer.
    ///
    /// # Errors
    ///
    /// The time at which the bucket will contain `count` units, if no other call draws from it
    /// until then.
    pub fn try_take(&self, key: &K, count: usize, now: Instant) -> Result<(), Instant> {
        self.try_take_above(0, key, count, now)
    }

    /// Draws `count` units only if at least `reserve` units then remain in the bucket.
    fn try_take_above(
        &self,
        reserve: u32,
        key: &K,
        count: usize,
        now: Instant,
    ) -> Result<(), Instant> {
        let wait = self.take_within(Duration::ZERO, key, count, reserve, now);
        if wait.is_zero() { Ok(()) } else { Err(now + wait) }
    }

    /// Draws `count` units. If the bucket contains fewer, waits until it has regained the missing
    /// units. Callers wait in the order of their calls.
    ///
    /// A cancelled call does not return its units to the bucket.
    pub async fn take(&self, key: &K, count: usize) {
        let wait = self.take_within(Duration::MAX, key, count, 0, Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// Draws `count` units even if the bucket contains fewer. Later draws then wait until the
    /// bucket has regained the difference.
    pub fn charge(&self, key: &K, count: usize, now: Instant) {
        self.take_within(Duration::MAX, key, count, 0, now);
    }

    /// Returns how long the bucket needs until it contains `count` units in addition to `reserve`.
    /// Draws the `count` units unless this time is longer than `patience`.
    fn take_within(
        &self,
        patience: Duration,
        key: &K,
        count: usize,
        reserve: u32,
        now: Instant,
    ) -> Duration {
        let mut buckets = self.full_at.lock();
        if !buckets.contains_key(key) {
            buckets.retain(|_, full_at| *full_at > now);
        }
        let begin = buckets.get(key).map_or(now, |full_at| now.max(*full_at));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let full_at = begin + self.every.saturating_mul(count);
        let wait = (full_at - now).saturating_sub(self.every * self.burst.saturating_sub(reserve));
        if wait <= patience {
            buckets.insert(key.clone(), full_at);
        }
        wait
    }
}

impl NamespaceBuckets {
    /// Draws one unit for a freshness check or a consistency check. Leaves at least 20 units, half
    /// of the bucket, for access checks.
    ///
    /// # Errors
    ///
    /// The same as for [`KeyedTokenBucket::try_take`].
    pub fn try_take_spare(&self, namespace: &Arc<str>, now: Instant) -> Result<(), Instant> {
        self.try_take_above(SPARE, namespace, 1, now)
    }
}

impl Default for NamespaceBuckets {
    fn default() -> Self {
        Self::new(EVERY, BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_allows_a_burst_and_fills_again() {
        let (buckets, a, now) = (NamespaceBuckets::default(), "a".into(), Instant::now());
        assert_eq!(buckets.try_take(&a, 39, now), Ok(()));
        assert_eq!(buckets.try_take(&a, 2, now), Err(now + EVERY));
        assert_eq!(buckets.try_take(&a, 1, now), Ok(()));
        assert_eq!(buckets.try_take(&a, 1, now), Err(now + EVERY));
        assert_eq!(buckets.try_take(&a, 1, now + EVERY), Ok(()));
        let later = now + Duration::from_secs(9);
        assert_eq!((buckets.available(&a, now), buckets.available(&a, later)), (0, 40));
        assert_eq!(buckets.try_take(&a, 40, later), Ok(()));
        assert!(
            buckets.try_take(&"b".into(), 1, now).is_ok(),
            "namespaces a and b share one bucket"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_charge_above_the_capacity_delays_later_draws() {
        let (buckets, a, now) = (NamespaceBuckets::default(), "a".into(), Instant::now());
        buckets.charge(&a, 60, now);
        assert_eq!(buckets.try_take(&a, 3, now), Err(now + EVERY * 23));
        assert_eq!(buckets.try_take(&"b".into(), 40, now), Ok(()), "another namespace waited");
        assert_eq!(buckets.try_take(&a, 3, now + EVERY * 23), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_until_the_bucket_has_regained_their_units() {
        let (buckets, a, start) = (NamespaceBuckets::default(), "a".into(), Instant::now());
        join_all((0..60).map(|_| buckets.take(&a, 1))).await;
        assert!(start.elapsed().abs_diff(EVERY * 20) < Duration::from_millis(5));
        let waiting = Instant::now();
        buckets.take(&"b".into(), 1).await;
        assert_eq!(waiting.elapsed(), Duration::ZERO, "another namespace waited");
        buckets.take(&a, 1).await;
        assert!(waiting.elapsed().abs_diff(EVERY) < Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn spare_draws_leave_half_of_the_bucket_to_other_draws() {
        let (buckets, a, now) = (NamespaceBuckets::default(), "a".into(), Instant::now());
        for _ in 0..BURST - SPARE {
            assert_eq!(buckets.try_take_spare(&a, now), Ok(()));
        }
        assert_eq!(buckets.try_take_spare(&a, now), Err(now + EVERY));
        assert_eq!(buckets.try_take(&a, 20, now), Ok(()), "an access check has to wait");
        assert_eq!(buckets.try_take_spare(&a, now + EVERY), Err(now + EVERY * 21));
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_removed() {
        let buckets = NamespaceBuckets::default();
        for n in 0..1_000 {
            buckets.charge(&n.to_string().into(), 1, Instant::now());
            advance(Duration::from_millis(10)).await;
        }
        assert!(buckets.full_at.lock().len() < 10);
    }
}
