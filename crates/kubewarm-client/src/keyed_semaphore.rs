//! Limits how many operations run at the same time, in total and for each key.

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

/// A semaphore with a total limit and a limit for each key, such as a namespace or an address.
///
/// Within these limits, waiters get permits in the order of their calls. All clones use the same
/// permits.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore<K> {
    all: Arc<Semaphore>,
    size: usize,
    part: usize,
    /// One entry for each key that holds or waits for a permit. When `part_of` adds a key, it
    /// removes the entries of keys without holders and waiters, so that the map does not grow
    /// without limit.
    parts: Arc<Mutex<HashMap<K, Weak<Semaphore>>>>,
}

/// One or more permits of a [`KeyedSemaphore`]. Dropping this value releases the permits.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once bounds nothing"]
pub struct KeyedPermit {
    _of_part: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The limit of a [`KeyedSemaphore`] that prevents a key from getting a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedAcquireError {
    /// The key already holds its maximum number of permits.
    Key,
    /// All permits of the semaphore are in use.
    All,
}

/// The limits of a [`KeyedSemaphore`] and the numbers of its permits in use, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreUsage {
    /// Total number of permits.
    pub size: usize,
    /// Maximum number of permits of one key.
    pub part: usize,
    /// Permits in use.
    pub in_use: usize,
    /// Number of permits that the key with the most permits uses.
    pub most_of_one: usize,
}

impl<K: Clone + Eq + Hash> KeyedSemaphore<K> {
    /// Creates a semaphore with `all` permits in total, and at most `part` permits for each key.
    pub fn new(all: usize, part: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), size: all, part, parts: Arc::default() }
    }

    /// Returns a permit for `key` if one is available now.
    pub fn try_acquire(&self, key: &K) -> Option<KeyedPermit> {
        self.acquire_now(key).ok()
    }

    /// Returns a permit for `key` without waiting.
    ///
    /// # Errors
    ///
    /// [`KeyedAcquireError`], which names the limit (of the key or of the semaphore) that is
    /// reached.
    pub fn acquire_now(&self, key: &K) -> Result<KeyedPermit, KeyedAcquireError> {
        let of_part = self.part_of(key).try_acquire_owned().map_err(|_| KeyedAcquireError::Key)?;
        let of_all =
            Arc::clone(&self.all).try_acquire_owned().map_err(|_| KeyedAcquireError::All)?;
        Ok(KeyedPermit { _of_part: of_part, _of_all: of_all })
    }

    /// Returns the semaphore's limits and the numbers of its permits in use.
    ///
    /// # Cost
    ///
    /// Visits each key. Other calls that acquire a permit wait until this call has visited all
    /// keys.
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

    /// Waits for a permit for `key`. Returns `None` if `patience` ends before a permit is
    /// available.
    pub async fn acquire_within(&self, key: &K, patience: Duration) -> Option<KeyedPermit> {
        if let Some(permit) = self.try_acquire(key) {
            return Some(permit);
        }
        timeout(patience, self.acquire(key)).await.ok().flatten()
    }

    /// Waits for a permit for `key` without a time limit.
    ///
    /// Never returns `None`, because the semaphores are never closed. Cancel safe.
    pub async fn acquire(&self, key: &K) -> Option<KeyedPermit> {
        self.acquire_many(key, 1).await
    }

    /// Waits for `count` permits for `key`, or for the maximum number of permits of one key if
    /// `count` is larger. The wait has no time limit.
    ///
    /// The result holds all these permits and releases them together. Cancel safe.
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
    fn permits_are_limited_for_each_key_and_in_total() {
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
        assert_eq!(permits.parts.lock().len(), 1, "keys without permits have an entry");
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
        assert_eq!(permits.acquire_now(&"a").err(), Some(KeyedAcquireError::Key));
        let c = hold("c", 1);
        assert_eq!(permits.acquire_now(&"b").err(), Some(KeyedAcquireError::All));
        drop(a);
        assert_eq!(permits.usage(), usage(2, 1));
        drop((b, c));
        assert_eq!(permits.usage(), usage(0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn several_permits_are_acquired_at_once_up_to_the_limit_of_the_key() {
        let permits = KeyedSemaphore::new(6, 4);
        let permit = permits.acquire_many(&"a", 9).await.unwrap();
        assert!(permits.try_acquire(&"a").is_none());
        let waiting = permits.acquire_many(&"b", 3);
        assert!(
            timeout(Duration::from_hours(1), waiting).await.is_err(),
            "3 permits were acquired, but only 2 are available"
        );
        drop(permit);
        assert!(permits.acquire_many(&"b", 3).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_gets_the_next_permit_or_none_after_its_time_limit() {
        let (permits, patience) = (KeyedSemaphore::new(6, 4), Duration::from_secs(3));
        let mut slots: Vec<_> = (0..4).filter_map(|_| permits.try_acquire(&"a")).collect();
        assert!(permits.acquire_within(&"a", patience).await.is_none());
        assert!(permits.acquire_within(&"a", Duration::ZERO).await.is_none());
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire_within(&"a", patience).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        slots.pop();
        assert!(waiting.await.unwrap().is_some());
        assert!(
            permits.acquire_within(&"b", patience).await.is_some(),
            "b waits, although only a has all its permits"
        );
    }
}
