//! Limits how many operations run at the same time, in total, for each group of keys, and for each
//! key.

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

/// A semaphore with a total limit and a limit for each key, such as a namespace or an address. Keys
/// can form groups, each with a limit for all its keys together.
///
/// Within these limits, waiters get permits in the order of their calls. All clones use the same
/// permits.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore<K> {
    all: Arc<Semaphore>,
    size: usize,
    keys: SemaphoreParts<K>,
    /// The kinds of groups, as many as calls of `with_groups`.
    groups: Arc<[SemaphoreGroups<K>]>,
}

/// The groups of one kind. A group has a name of the type of keys, but is no key itself.
#[derive(Clone, Debug)]
struct SemaphoreGroups<K> {
    group_of: fn(&K) -> Option<K>,
    parts: SemaphoreParts<K>,
}

/// A semaphore for each key or group.
#[derive(Clone, Debug)]
struct SemaphoreParts<K> {
    size: usize,
    /// One entry for each key or group that holds or waits for a permit. When the function `get`
    /// adds an entry, the function removes the entries without holders and waiters, so that the
    /// map does not grow without limit.
    semaphores: Arc<Mutex<HashMap<K, Weak<Semaphore>>>>,
}

/// One or more permits of a [`KeyedSemaphore`]. Dropping this value releases the permits.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once bounds nothing"]
pub struct KeyedPermit {
    key: OwnedSemaphorePermit,
    /// `None` if the key has no group.
    group: Option<OwnedSemaphorePermit>,
    all: OwnedSemaphorePermit,
}

/// The limit of a [`KeyedSemaphore`] that prevents a key from getting a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedAcquireError {
    /// The key already holds its maximum number of permits.
    Key,
    /// The keys of the key's group together already hold their maximum number of permits.
    Group,
    /// All permits of the semaphore are in use.
    All,
}

/// The limits of a [`KeyedSemaphore`] and the numbers of its permits in use, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreUsage {
    /// Total number of permits.
    pub size: usize,
    /// Permits in use.
    pub in_use: usize,
    /// Maximum number of permits of the key or group that has the largest part of its maximum.
    pub part: usize,
    /// Number of permits that this key or group uses.
    pub most_of_one: usize,
}

impl<K: Clone + Eq + Hash> KeyedSemaphore<K> {
    /// Creates a semaphore with `all` permits in total, and at most `part` permits for each key.
    pub fn new(all: usize, part: usize) -> Self {
        let all_permits = Arc::new(Semaphore::new(all));
        Self {
            all: all_permits,
            size: all,
            keys: SemaphoreParts::new(part),
            groups: Arc::default(),
        }
    }

    /// Limits the keys of each group together to `part` permits, or to the maximum number of
    /// permits of one key if this is more. `group_of` returns the group of a key. A further call
    /// adds groups of another kind. A key with groups of two kinds counts in that of the first.
    pub fn with_groups(self, part: usize, group_of: fn(&K) -> Option<K>) -> Self {
        // `acquire_many` would wait forever for more permits than the group has.
        let parts = SemaphoreParts::new(part.max(self.keys.size));
        let new = SemaphoreGroups { group_of, parts };
        Self { groups: self.groups.iter().cloned().chain([new]).collect(), ..self }
    }

    /// Returns a permit for `key` if one is available now.
    pub fn try_acquire(&self, key: &K) -> Option<KeyedPermit> {
        self.acquire_now(key).ok()
    }

    /// Returns a permit for `key` without waiting.
    ///
    /// # Errors
    ///
    /// [`KeyedAcquireError`], which names the limit (of the key, of its group or of the semaphore)
    /// that is reached.
    pub fn acquire_now(&self, key: &K) -> Result<KeyedPermit, KeyedAcquireError> {
        self.acquire_many_now(key, 1)
    }

    /// Returns `count` permits for `key` without waiting. If one key can have fewer, takes all
    /// permits of the key. From the permits of the group and of the semaphore, takes at most a
    /// quarter of the semaphore's, or what one key can have if this is more.
    ///
    /// # Errors
    ///
    /// As [`acquire_now`](Self::acquire_now).
    pub fn acquire_many_now(
        &self,
        key: &K,
        count: usize,
    ) -> Result<KeyedPermit, KeyedAcquireError> {
        // Without any permits, this call must fail too.
        let (of_key, of_others) = self.counts(count);
        let (of_key, of_others) = (of_key.max(1), of_others.max(1));
        let of_key = self.keys.get(key).try_acquire_many_owned(of_key);
        let of_key = of_key.map_err(|_| KeyedAcquireError::Key)?;
        let of_group = self.group_of(key).map(|group| group.try_acquire_many_owned(of_others));
        let of_group = of_group.transpose().map_err(|_| KeyedAcquireError::Group)?;
        let of_all = Arc::clone(&self.all).try_acquire_many_owned(of_others);
        let of_all = of_all.map_err(|_| KeyedAcquireError::All)?;
        Ok(KeyedPermit { key: of_key, group: of_group, all: of_all })
    }

    /// Returns the semaphore's limits and the numbers of its permits in use.
    ///
    /// # Cost
    ///
    /// Visits each key. Other calls that acquire a permit wait until this call has visited all
    /// keys.
    pub fn usage(&self) -> SemaphoreUsage {
        let (mut part, mut most_of_one) = (self.keys.size, self.keys.most_in_use());
        for SemaphoreGroups { parts, .. } in self.groups.iter() {
            let of_group = parts.most_in_use();
            if of_group.saturating_mul(part) > most_of_one.saturating_mul(parts.size) {
                (part, most_of_one) = (parts.size, of_group);
            }
        }
        let in_use = self.size.saturating_sub(self.all.available_permits());
        SemaphoreUsage { size: self.size, in_use, part, most_of_one }
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

    /// Waits for the permits that [`acquire_many_now`](Self::acquire_many_now) returns, without a
    /// time limit. A semaphore without any permits limits nothing here: the call returns at once.
    ///
    /// The result holds all these permits. Cancel safe.
    pub async fn acquire_many(&self, key: &K, count: usize) -> Option<KeyedPermit> {
        let (of_key, of_others) = self.counts(count);
        let of_key = self.keys.get(key).acquire_many_owned(of_key).await.ok()?;
        let of_group = match self.group_of(key) {
            Some(group) => Some(group.acquire_many_owned(of_others).await.ok()?),
            None => None,
        };
        let of_all = Arc::clone(&self.all).acquire_many_owned(of_others).await.ok()?;
        Some(KeyedPermit { key: of_key, group: of_group, all: of_all })
    }

    /// Two numbers of permits: one call takes the first from the key, and the second from the group
    /// and from the semaphore. The second is at most a quarter of the semaphore, or the part of one
    /// key if this is more, because a call that took all permits would exclude all other keys.
    fn counts(&self, wanted: usize) -> (u32, u32) {
        let up_to = |most: usize| u32::try_from(wanted.min(most)).unwrap_or(u32::MAX);
        let most = self.keys.size.max(self.size / 4);
        let least_group = self.groups.iter().map(|groups| groups.parts.size).min();
        (up_to(self.keys.size), up_to(most.min(least_group.unwrap_or(most))))
    }

    /// The semaphore of the key's group, or `None` if the key has no group.
    fn group_of(&self, key: &K) -> Option<Arc<Semaphore>> {
        self.groups.iter().find_map(|SemaphoreGroups { group_of, parts }| {
            group_of(key).map(|group| parts.get(&group))
        })
    }
}

impl KeyedPermit {
    /// Releases all permits except `count`.
    pub fn shrink(&mut self, count: usize) {
        let Self { key, group, all } = self;
        for permit in [key, all].into_iter().chain(group) {
            drop(permit.split(permit.num_permits().saturating_sub(count)));
        }
    }
}

impl<K: Clone + Eq + Hash> SemaphoreParts<K> {
    fn new(size: usize) -> Self {
        Self { size, semaphores: Arc::default() }
    }

    /// The semaphore of this key or group.
    fn get(&self, key: &K) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock();
        if let Some(known) = semaphores.get(key).and_then(Weak::upgrade) {
            return known;
        }
        semaphores.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.size));
        semaphores.insert(key.clone(), Arc::downgrade(&new));
        new
    }

    /// The number of permits of the key or group with the most permits.
    fn most_in_use(&self) -> usize {
        let in_use = |known: Arc<Semaphore>| self.size.saturating_sub(known.available_permits());
        let semaphores = self.semaphores.lock();
        semaphores.values().filter_map(Weak::upgrade).map(in_use).max().unwrap_or_default()
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
        let d = hold("d");
        assert_eq!(permits.keys.semaphores.lock().len(), 1, "keys without permits have an entry");
        drop(d);
        let _three = permits.acquire_many_now(&"e", 3).unwrap();
        assert_eq!(permits.acquire_many_now(&"e", 2).err(), Some(KeyedAcquireError::Key));
        assert_eq!(permits.acquire_many_now(&"f", 4).err(), Some(KeyedAcquireError::All));
        assert_eq!(hold("f").len(), 3);
        let most = KeyedSemaphore::new(6, 4);
        let _four = most.acquire_many_now(&"a", 9).unwrap();
        assert_eq!((most.usage().in_use, most.usage().most_of_one), (4, 4));
        assert!(KeyedSemaphore::new(0, 0).acquire_many_now(&"a", 9).is_err());
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
    async fn the_keys_of_a_group_together_have_a_limit_that_leaves_the_rest_to_others() {
        // Keys with a slash belong to the group before the slash.
        let group_of = |key: &&'static str| key.split_once('/').map(|(group, _)| group);
        let permits = KeyedSemaphore::new(8, 3).with_groups(5, group_of);
        let hold = |key: &'static str| {
            std::iter::from_fn(|| permits.try_acquire(&key)).collect::<Vec<_>>()
        };
        let slots = ["a/1", "a/2", "a/3"].map(hold);
        assert_eq!(slots.each_ref().map(Vec::len), [3, 2, 0]);
        assert_eq!(permits.acquire_now(&"a/1").err(), Some(KeyedAcquireError::Key));
        assert_eq!(permits.acquire_now(&"a/3").err(), Some(KeyedAcquireError::Group));
        let waiting = permits.acquire_within(&"a/3", Duration::from_secs(3));
        assert!(waiting.await.is_none(), "a waiter gets a permit above the limit of its group");
        assert_eq!(hold("other").len(), 3);
        let [first, ..] = slots;
        let usage = permits.usage();
        assert_eq!((usage.part, usage.most_of_one), (3, 3), "the key is as full as the group");
        drop(first);
        assert_eq!(hold("a/3").len(), 3);
        let least = KeyedSemaphore::new(8, 3).with_groups(1, group_of);
        assert!(least.acquire_many(&"a/1", 3).await.is_some(), "a group has less than one key");
        let _held = ["a/1", "a/1", "a/2"].map(|key| least.try_acquire(&key));
        assert_eq!(least.usage().most_of_one, 3, "the group is fuller than its keys");
    }

    #[test]
    fn groups_of_different_kinds_have_different_limits() {
        let permits = KeyedSemaphore::new(20, 3)
            .with_groups(4, |key: &&'static str| key.split_once('/').map(|(group, _)| group))
            .with_groups(5, |key| key.split_once('-').map(|(group, _)| group));
        let hold = |key: &'static str| {
            std::iter::from_fn(|| permits.try_acquire(&key)).collect::<Vec<_>>()
        };
        let slots = ["a/1", "a/2", "a-1", "a-2", "b"].map(hold);
        assert_eq!(slots.each_ref().map(Vec::len), [3, 1, 3, 2, 3]);
        let [first, ..] = slots;
        drop(first);
        assert_eq!(
            permits.usage(),
            SemaphoreUsage { size: 20, in_use: 9, part: 3, most_of_one: 3 }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn several_permits_are_acquired_at_once_up_to_the_limit_of_the_key() {
        let permits = KeyedSemaphore::new(6, 4);
        let mut permit = permits.acquire_many(&"a", 9).await.unwrap();
        assert!(permits.try_acquire(&"a").is_none());
        let waiting = permits.acquire_many(&"b", 3);
        assert!(
            timeout(Duration::from_hours(1), waiting).await.is_err(),
            "3 permits were acquired, but only 2 are available"
        );
        permit.shrink(3);
        assert_eq!((permits.usage().in_use, permits.usage().most_of_one), (3, 3));
        assert!(permits.acquire_many(&"b", 3).await.is_some());
    }

    #[tokio::test]
    async fn one_call_takes_at_most_a_quarter_of_all_permits() {
        let group_of = |key: &&'static str| key.split_once('/').map(|(group, _)| group);
        let permits = KeyedSemaphore::new(8, 1).with_groups(6, group_of);
        let acquire = |key: &'static str| permits.acquire_many_now(&key, 9);
        let held = ["a/1", "a/2", "a/3", "b"].map(acquire);
        assert!(held.iter().all(Result::is_ok), "{held:?}");
        assert_eq!((permits.usage().in_use, permits.usage().size), (8, 8));
        assert_eq!(acquire("c").err(), Some(KeyedAcquireError::All));
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
