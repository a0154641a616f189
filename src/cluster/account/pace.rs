//! How often tokens are asked for: bounded over the process, and fair between namespaces.

use crate::cluster::Buckets;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Of the whole process: 10 a second, after 20 at once.
const PROCESS: Rate = Rate { every: Duration::from_millis(100), burst: 20 };
/// For the accounts of one namespace, half of that: 100 accounts take 18 s, once an hour.
const NAMESPACE: Rate = Rate { every: Duration::from_millis(200), burst: 10 };

#[derive(Clone, Copy, Debug)]
struct Rate {
    every: Duration,
    burst: u32,
}

/// One at a time, and in the order in which they came. Whoever goes away has taken nothing.
#[derive(Debug)]
struct Turnstile {
    rate: Rate,
    /// When the next one passes if none may come early.
    due: tokio::sync::Mutex<Instant>,
}

/// The bound of the process. Cheap to share.
#[derive(Debug)]
pub(super) struct Pace {
    process: Turnstile,
    buckets: Buckets,
    namespaces: Mutex<BTreeMap<Arc<str>, Weak<Turnstile>>>,
}

/// The bound of one namespace's accounts, and through it of the process.
#[derive(Debug)]
pub(super) struct Lane {
    namespace: Arc<str>,
    own: Arc<Turnstile>,
    all: Arc<Pace>,
}

impl Turnstile {
    fn new(rate: Rate) -> Self {
        Self { rate, due: tokio::sync::Mutex::new(Instant::now()) }
    }

    /// Waits until the next one may pass.
    async fn open(&self, due: Instant) {
        let early = self.rate.every * self.rate.burst.saturating_sub(1);
        let ahead = due.saturating_duration_since(Instant::now());
        if let Some(wait) = ahead.checked_sub(early).filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
        }
    }

    fn pass(&self, due: &mut Instant) {
        *due = (*due).max(Instant::now()) + self.rate.every;
    }
}

impl Pace {
    pub(super) fn new(buckets: Buckets) -> Self {
        Self { process: Turnstile::new(PROCESS), buckets, namespaces: Mutex::default() }
    }

    /// The lane of a namespace. Lanes that nobody holds are forgotten.
    pub(super) fn lane(self: &Arc<Self>, namespace: &Arc<str>) -> Lane {
        let mut lanes = self.namespaces.lock();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        let own = lanes.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let lane = Arc::new(Turnstile::new(NAMESPACE));
            lanes.insert(Arc::clone(namespace), Arc::downgrade(&lane));
            lane
        });
        Lane { namespace: Arc::clone(namespace), own, all: Arc::clone(self) }
    }
}

impl Lane {
    /// Waits until one more token may be asked for.
    pub(super) async fn pass(&self) {
        let mut own = self.own.due.lock().await;
        self.own.open(*own).await;
        let mut all = self.all.process.due.lock().await;
        self.all.process.open(*all).await;
        self.own.pass(&mut own);
        self.all.process.pass(&mut all);
        self.all.buckets.charge(&self.namespace, 1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, future::join_all};

    async fn passed(lanes: &[Lane], each: usize) -> Duration {
        let began = Instant::now();
        let all = lanes.iter().flat_map(|lane| (0..each).map(|_| lane.pass()));
        join_all(all).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_and_each_namespace_have_their_bounds() {
        let pace = Arc::new(Pace::new(Buckets::default()));
        let lanes = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| pace.lane(&Arc::from(*name))).collect()
        };
        let one = lanes(&["a"]);
        assert!(passed(&one, 10).await < Duration::from_millis(2));
        let (least, most) = (Duration::from_secs(18), Duration::from_millis(18_100));
        let took = passed(&one, 90).await;
        assert!((least..most).contains(&took), "one namespace: {took:?}");

        let many: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let took = passed(&lanes(&many), 3).await;
        let (least, most) = (Duration::from_secs(28), Duration::from_secs(30));
        assert!((least..=most).contains(&took), "300 of all namespaces: {took:?}");
        assert_eq!(pace.namespaces.lock().len(), 101);
        drop(lanes(&["b"]));
        assert_eq!(pace.lane(&"c".into()).all.namespaces.lock().len(), 2, "a and c");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_charged_to_the_bucket_of_their_namespace_and_wait_for_none() {
        let buckets = Buckets::default();
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        buckets.charge(&a, 1_000, Instant::now());
        let pace = Arc::new(Pace::new(buckets.clone()));
        assert!(passed(&[pace.lane(&a), pace.lane(&b)], 5).await < Duration::from_millis(2));
        let now = Instant::now();
        assert!(buckets.draw(&b, 36, now).is_err() && buckets.draw(&b, 35, now).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_away_has_taken_nothing_and_holds_up_nobody_elsewhere() {
        let pace = Arc::new(Pace::new(Buckets::default()));
        let (greedy, modest) = (pace.lane(&"a".into()), pace.lane(&"b".into()));
        passed(std::slice::from_ref(&greedy), 10).await;
        for _ in 0..20 {
            assert!(greedy.pass().now_or_never().is_none());
        }
        assert!(modest.pass().now_or_never().is_some());
        tokio::time::advance(Duration::from_millis(201)).await;
        assert!(greedy.pass().now_or_never().is_some());
    }
}
