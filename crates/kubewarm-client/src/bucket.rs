//! A bound on how often something may happen, for each key: the requests of a namespace, the failures of an address.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// For one namespace 20 a second, as many as checks of the whole process, so that a namespace that is
/// alone is checked no later than without this bound.
const EVERY: Duration = Duration::from_millis(50);
/// After so many at once: what checks, tokens and a forecast may have to begin with.
const BURST: u32 = 40;

/// What requests for readers leave: they can wait, or be refused, and checks of access cannot.
const SPARE: u32 = BURST / 2;

/// A token bucket for each key. Clones share them.
#[derive(Clone, Debug)]
pub struct KeyedBucket<K> {
    every: Duration,
    burst: u32,
    /// When each will be full. Full ones are removed when the next key comes, so this is bounded by the keys that draw
    /// within the time in which a bucket fills.
    full_at: Arc<Mutex<HashMap<K, Instant>>>,
}

/// The buckets of the requests that are made for the profiles of a namespace.
///
/// Tokens, Events and forecasts wait for their turn, each after those before it. Checks of access, and what readers
/// need, have buckets of their own: they draw, and come again later where nothing is left. For another limit with such
/// keys, wrap a [`KeyedBucket`]: `draw_spare` and `default` are for these limits only.
pub type Buckets = KeyedBucket<Arc<str>>;

impl<K: Clone + Eq + Hash> KeyedBucket<K> {
    /// Full buckets of `burst`. What is drawn comes back one by one, each after `every`.
    #[must_use]
    pub fn new(every: Duration, burst: u32) -> Self {
        Self { every, burst, full_at: Arc::default() }
    }

    /// How many can be drawn.
    #[must_use]
    pub fn left(&self, key: &K, now: Instant) -> u32 {
        let full_at = self.full_at.lock().get(key).copied();
        let missing = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let drawn = missing.as_nanos().div_ceil(self.every.as_nanos());
        self.burst.saturating_sub(u32::try_from(drawn).unwrap_or(u32::MAX))
    }

    /// Draws so many at once.
    ///
    /// # Errors
    ///
    /// When there will be as many, if nothing else is drawn meanwhile; then nothing is drawn.
    pub fn draw(&self, key: &K, count: usize, now: Instant) -> Result<(), Instant> {
        self.draw_beside(0, key, count, now)
    }

    /// The same, if `reserve` are left then.
    fn draw_beside(
        &self,
        reserve: u32,
        key: &K,
        count: usize,
        now: Instant,
    ) -> Result<(), Instant> {
        let wait = self.draw_within(Duration::ZERO, key, count, reserve, now);
        if wait.is_zero() { Ok(()) } else { Err(now + wait) }
    }

    /// Draws so many and waits for their turn, which comes in the order of asking. Whoever gives up
    /// waiting has drawn them all the same.
    pub async fn pass(&self, key: &K, count: usize) {
        let wait = self.draw_within(Duration::MAX, key, count, 0, Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// Draws so many whether there are as many or not.
    pub fn charge(&self, key: &K, count: usize, now: Instant) {
        self.draw_within(Duration::MAX, key, count, 0, now);
    }

    /// How long it takes until there are so many besides `reserve`. Draws them, unless that is longer than `patience`.
    fn draw_within(
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

impl Buckets {
    /// Draws one request for a reader, of what others leave: so many readers keep nothing else from
    /// getting on.
    ///
    /// # Errors
    ///
    /// As for [`KeyedBucket::draw`].
    pub fn draw_spare(&self, namespace: &Arc<str>, now: Instant) -> Result<(), Instant> {
        self.draw_beside(SPARE, namespace, 1, now)
    }
}

impl Default for Buckets {
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
    async fn a_bucket_lasts_for_a_burst_and_fills_again() {
        let (buckets, a, now) = (Buckets::default(), "a".into(), Instant::now());
        assert_eq!(buckets.draw(&a, 39, now), Ok(()));
        assert_eq!(buckets.draw(&a, 2, now), Err(now + EVERY));
        assert_eq!(buckets.draw(&a, 1, now), Ok(()));
        assert_eq!(buckets.draw(&a, 1, now), Err(now + EVERY));
        assert_eq!(buckets.draw(&a, 1, now + EVERY), Ok(()));
        let later = now + Duration::from_secs(9);
        assert_eq!((buckets.left(&a, now), buckets.left(&a, later)), (0, 40));
        assert_eq!(buckets.draw(&a, 40, later), Ok(()));
        assert!(buckets.draw(&"b".into(), 1, now).is_ok(), "of another namespace");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_charged_is_waited_for_by_what_is_drawn() {
        let (buckets, a, now) = (Buckets::default(), "a".into(), Instant::now());
        buckets.charge(&a, 60, now);
        assert_eq!(buckets.draw(&a, 3, now), Err(now + EVERY * 23));
        assert_eq!(buckets.draw(&"b".into(), 40, now), Ok(()), "another waits for nothing");
        assert_eq!(buckets.draw(&a, 3, now + EVERY * 23), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_the_order_of_asking() {
        let (buckets, a, start) = (Buckets::default(), "a".into(), Instant::now());
        join_all((0..60).map(|_| buckets.pass(&a, 1))).await;
        assert!(start.elapsed().abs_diff(EVERY * 20) < Duration::from_millis(5));
        let waiting = Instant::now();
        buckets.pass(&"b".into(), 1).await;
        assert_eq!(waiting.elapsed(), Duration::ZERO, "another namespace waits for nothing");
        buckets.pass(&a, 1).await;
        assert!(waiting.elapsed().abs_diff(EVERY) < Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn readers_draw_what_is_left_over() {
        let (buckets, a, now) = (Buckets::default(), "a".into(), Instant::now());
        for _ in 0..BURST - SPARE {
            assert_eq!(buckets.draw_spare(&a, now), Ok(()));
        }
        assert_eq!(buckets.draw_spare(&a, now), Err(now + EVERY));
        assert_eq!(buckets.draw(&a, 20, now), Ok(()), "checks are not kept waiting");
        assert_eq!(buckets.draw_spare(&a, now + EVERY), Err(now + EVERY * 21));
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_forgotten() {
        let buckets = Buckets::default();
        for n in 0..1_000 {
            buckets.charge(&n.to_string().into(), 1, Instant::now());
            advance(Duration::from_millis(10)).await;
        }
        assert!(buckets.full_at.lock().len() < 10);
    }
}
