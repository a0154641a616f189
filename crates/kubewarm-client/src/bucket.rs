//! A bound on the requests that are made for the profiles of a namespace.

use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// For one namespace 20 a second, as many as checks of the whole process, so that a namespace that is
/// alone is checked no later than without this bound.
const EVERY: Duration = Duration::from_millis(50);
/// After so many at once: what checks, tokens and a forecast may have to begin with.
const BURST: u32 = 40;

/// What requests for readers leave: they can wait, or be refused, and checks of access cannot.
const SPARE: u32 = BURST / 2;

/// A bucket for each namespace. Clones share them.
///
/// Tokens, Events and forecasts wait for their turn, each after those before it. Checks of access, and what readers
/// need, have buckets of their own: they draw, and come again later where nothing is left.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// When each will be full. Bounded by what is drawn within some seconds: full ones are forgotten.
    full_at: Arc<Mutex<BTreeMap<Arc<str>, Instant>>>,
}

impl Buckets {
    /// Draws so many requests at once for a namespace.
    ///
    /// # Errors
    ///
    /// When there will be as many; then nothing is drawn.
    pub fn draw(&self, namespace: &Arc<str>, count: usize, now: Instant) -> Result<(), Instant> {
        self.draw_from(BURST, namespace, count, now)
    }

    /// Draws one request for a reader, of what others leave: so many readers keep nothing else from
    /// getting on.
    ///
    /// # Errors
    ///
    /// When there will be one, if nothing else is drawn meanwhile; then nothing is drawn.
    pub fn draw_spare(&self, namespace: &Arc<str>, now: Instant) -> Result<(), Instant> {
        self.draw_from(BURST - SPARE, namespace, 1, now)
    }

    fn draw_from(
        &self,
        burst: u32,
        namespace: &Arc<str>,
        count: usize,
        now: Instant,
    ) -> Result<(), Instant> {
        let mut buckets = self.full_at.lock();
        let full_at = after(buckets.get(namespace), count, now);
        let open_at = full_at.checked_sub(EVERY * burst).unwrap_or(now);
        if open_at > now {
            return Err(open_at);
        }
        set(&mut buckets, namespace, full_at, now);
        Ok(())
    }

    /// Draws so many requests and waits for their turn, which comes in the order of asking. Whoever gives up
    /// waiting has drawn them all the same.
    pub async fn pass(&self, namespace: &Arc<str>, count: usize) {
        let now = Instant::now();
        self.charge(namespace, count, now);
        let full_at = self.full_at.lock().get(namespace).copied();
        let turn = full_at.and_then(|at| at.checked_sub(EVERY * BURST));
        if let Some(turn) = turn.filter(|at| *at > now) {
            sleep_until(turn).await;
        }
    }

    /// Draws them whether there are as many or not.
    pub fn charge(&self, namespace: &Arc<str>, count: usize, now: Instant) {
        let mut buckets = self.full_at.lock();
        let full_at = after(buckets.get(namespace), count, now);
        set(&mut buckets, namespace, full_at, now);
    }
}

/// When a bucket will be full of which so many are drawn now.
fn after(full_at: Option<&Instant>, count: usize, now: Instant) -> Instant {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    full_at.map_or(now, |at| (*at).max(now)) + EVERY.saturating_mul(count)
}

fn set(
    buckets: &mut BTreeMap<Arc<str>, Instant>,
    namespace: &Arc<str>,
    full_at: Instant,
    now: Instant,
) {
    if let Some(known) = buckets.get_mut(namespace) {
        *known = full_at;
        return;
    }
    buckets.retain(|_, full_at| *full_at > now);
    buckets.insert(Arc::clone(namespace), full_at);
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
        assert_eq!(buckets.draw(&a, 40, now + Duration::from_secs(9)), Ok(()));
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
