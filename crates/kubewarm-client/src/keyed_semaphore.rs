//! How much may go on at once: so much in all, and a part of it for each key.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Permits, of which one key, such as a namespace or an address, has no more than its part. Beyond that, first come is first
/// served. Clones share the permits.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore<K> {
    all: Arc<Semaphore>,
    /// Permits in all.
    size: usize,
    part: usize,
    /// Bounded by the keys that hold or wait for a permit: others are forgotten when the next one comes.
    parts: Arc<Mutex<HashMap<K, Weak<Semaphore>>>>,
}

/// A permit, until it is dropped.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once bounds nothing"]
pub struct KeyedPermit {
    _of_part: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The limit that leaves no permit for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The key has its part.
    Key,
    /// All permits are in use.
    All,
}

/// The permits of a [`KeyedSemaphore`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreUsage {
    /// Permits in all.
    pub size: usize,
    /// Permits of one key at most.
    pub part: usize,
    /// Permits in use.
    pub in_use: usize,
    /// Permits in use of the key that has most.
    pub most_of_one: usize,
}

impl<K: Clone + Eq + Hash> KeyedSemaphore<K> {
    /// So many permits in all, of which each key has `part` at most.
    #[must_use]
    pub fn new(all: usize, part: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), size: all, part, parts: Arc::default() }
    }

    /// A permit for `key`, if there is one now.
    #[must_use]
    pub fn try_acquire(&self, key: &K) -> Option<KeyedPermit> {
        self.acquire_now(key).ok()
    }

    /// A permit for `key`, without a wait.
    ///
    /// # Errors
    ///
    /// [`Exhausted`]: the limit that was reached.
    pub fn acquire_now(&self, key: &K) -> Result<KeyedPermit, Exhausted> {
        let of_part = self.part_of(key).try_acquire_owned().map_err(|_| Exhausted::Key)?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| Exhausted::All)?;
        Ok(KeyedPermit { _of_part: of_part, _of_all: of_all })
    }

    /// The permits in use now.
    ///
    /// Cost: O(keys), with new keys locked out.
    #[must_use]
    pub fn usage(&self) -> SemaphoreUsage {
        let of_key = |part: Arc<Semaphore>| self.part.saturating_sub(part.available_permits());
        let most = self.parts.lock().values().filter_map(Weak::upgrade).map(of_key).max();
        SemaphoreUsage {
            size: self.size,
            part: self.part,
            in_use: self.size.saturating_sub(self.all.available_permits()),
            most_of_one: most.unwrap_or_default(),
        }
    }

    /// A permit for `key`, waiting for at most `patience`.
    pub async fn acquire_within(&self, key: &K, patience: Duration) -> Option<KeyedPermit> {
        if let Some(permit) = self.try_acquire(key) {
            return Some(permit);
        }
        timeout(patience, self.acquire(key)).await.ok().flatten()
    }

    /// The same, waiting for as long as it takes; never `None`. Cancel safe.
    pub async fn acquire(&self, key: &K) -> Option<KeyedPermit> {
        self.acquire_many(key, 1).await
    }

    /// The same for so many permits at once, or the part of `key` where that is less.
    pub async fn acquire_many(&self, key: &K, count: usize) -> Option<KeyedPermit> {
        let count = u32::try_from(count.min(self.part)).ok()?;
        let of_part = self.part_of(key).acquire_many_owned(count).await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(count).await.ok()?;
        Some(KeyedPermit { _of_part: of_part, _of_all: of_all })
    }

    fn part_of(&self, key: &K) -> Arc<Semaphore> {
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(key).and_then(Weak::upgrade) {
            return part;
        }
        parts.retain(|_, part| part.strong_count() > 0);
        let part = Arc::new(Semaphore::new(self.part));
        parts.insert(key.clone(), Arc::downgrade(&part));
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_no_more_than_its_part_and_all_no_more_than_there_are() {
        let permits = KeyedSemaphore::new(6, 4);
        let hold = |key: &'static str| {
            std::iter::from_fn(|| permits.try_acquire(&key)).collect::<Vec<_>>()
        };
        let (a, b) = (hold("a"), hold("b"));
        assert_eq!((a.len(), b.len(), hold("c").len()), (4, 2, 0));
        drop(a);
        assert_eq!(hold("c").len(), 4);
        drop(b);
        let _held = hold("d");
        assert_eq!(permits.parts.lock().len(), 1, "nothing is kept of keys that hold nothing");
    }

    #[test]
    fn the_usage_has_the_permits_of_all_and_of_the_key_with_most() {
        let permits = KeyedSemaphore::new(6, 4);
        let usage = |in_use, most_of_one| SemaphoreUsage { size: 6, part: 4, in_use, most_of_one };
        assert_eq!(permits.usage(), usage(0, 0));
        let hold = |key: &'static str, count| -> Vec<_> {
            (0..count).filter_map(|_| permits.try_acquire(&key)).collect()
        };
        let (a, b) = (hold("a", 4), hold("b", 1));
        assert_eq!(permits.usage(), usage(5, 4));
        assert_eq!(permits.acquire_now(&"a").err(), Some(Exhausted::Key));
        let c = hold("c", 1);
        assert_eq!(permits.acquire_now(&"b").err(), Some(Exhausted::All));
        drop(a);
        assert_eq!(permits.usage(), usage(2, 1));
        drop((b, c));
        assert_eq!(permits.usage(), usage(0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn many_are_waited_for_and_no_more_than_the_part_of_a_key() {
        let permits = KeyedSemaphore::new(6, 4);
        let held = permits.acquire_many(&"a", 9).await.unwrap();
        assert!(permits.try_acquire(&"a").is_none());
        let waiting = permits.acquire_many(&"b", 3);
        assert!(timeout(Duration::from_hours(1), waiting).await.is_err(), "two are left");
        drop(held);
        assert!(permits.acquire_many(&"b", 3).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_gets_the_next_permit_or_none_in_time() {
        let (permits, patience) = (KeyedSemaphore::new(6, 4), Duration::from_secs(3));
        let mut held: Vec<_> = (0..4).filter_map(|_| permits.try_acquire(&"a")).collect();
        assert!(permits.acquire_within(&"a", patience).await.is_none());
        assert!(permits.acquire_within(&"a", Duration::ZERO).await.is_none());
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire_within(&"a", patience).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.pop();
        assert!(waiting.await.unwrap().is_some());
        assert!(
            permits.acquire_within(&"b", patience).await.is_some(),
            "others do not wait for it"
        );
    }
}
