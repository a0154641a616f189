//! A cache whose values expire after a fixed time. Concurrent callers for one key wait for one
//! fetch.

use futures::future::{BoxFuture, FutureExt as _, Shared};
use kubewarm_api::model::RequestFault;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hash,
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

/// A cache of values by key. A value is fresh for a fixed time after its fetch started. All clones
/// of the cache contain the same values.
///
/// If the cache has more values than its capacity, it removes the least recently used value. A
/// stale value stays until the cache replaces or removes it. Concurrent callers for one key wait
/// for one fetch. The cache does not store a failed fetch.
///
/// The cache reads tokio's clock, so that tests can pause the clock.
pub struct ExpiringCache<K, V, E = RequestFault> {
    capacity: u64,
    ttl: Duration,
    state: Arc<Mutex<CacheState<K, V, E>>>,
}

struct CacheState<K, V, E> {
    entries: HashMap<K, CacheSlot<V>>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
    fetches: HashMap<K, SharedFetch<V, E>>,
}

/// A cached value, and the time at which its fetch started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry<V> {
    /// The value, which can be stale.
    pub value: V,
    /// Time at which the fetch of the value started. The value's age counts from this time, because
    /// the source of the value can change during the fetch.
    pub requested_at: Instant,
}

struct CacheSlot<V> {
    entry: CacheEntry<V>,
    last_use: u64,
}

type SharedFetch<V, E> = Shared<BoxFuture<'static, Result<CacheEntry<V>, E>>>;

impl<K, V, E> ExpiringCache<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + From<RequestFault> + Send + Sync + 'static,
{
    /// Creates a cache of at most `capacity` values, each fresh for `ttl`.
    pub fn new(capacity: u64, ttl: Duration) -> Self {
        Self { capacity, ttl, state: Arc::default() }
    }

    /// Returns the value of `key` if the value is fresh. The call counts as a use, which delays the
    /// removal of the value.
    pub fn get(&self, key: &K) -> Option<CacheEntry<V>> {
        self.state.lock().fresh(key, self.ttl)
    }

    /// Returns the value of `key`, fresh or stale. The call counts as a use, which delays the
    /// removal of the value.
    pub fn get_stale(&self, key: &K) -> Option<CacheEntry<V>> {
        self.state.lock().used(key)
    }

    /// Removes the value of `key`, fresh or stale. A fetch in progress still inserts its value.
    pub fn remove(&self, key: &K) {
        self.state.lock().remove(key);
    }

    /// Inserts `value`, whose fetch started at `requested_at`.
    pub fn insert(&self, key: K, value: V, requested_at: Instant) {
        self.insert_if(key, value, requested_at, |_| true);
    }

    /// Inserts `value` if no fresh value exists, or if `can_replace` returns `true` for the fresh
    /// value.
    pub fn insert_if(
        &self,
        key: K,
        value: V,
        requested_at: Instant,
        can_replace: impl FnOnce(&V) -> bool,
    ) {
        let mut state = self.state.lock();
        if state.fresh(&key, self.ttl).is_none_or(|known| can_replace(&known.value)) {
            state.insert(key, CacheEntry { value, requested_at }, self.capacity);
        }
    }

    /// Replaces the entry of `key` with the result of `change`. `change` receives the fresh entry,
    /// or `None` if the cache has no fresh entry. `change` runs under the cache's lock, so that
    /// concurrent updates do not overwrite each other.
    pub fn update(&self, key: K, change: impl FnOnce(Option<CacheEntry<V>>) -> CacheEntry<V>) {
        let mut state = self.state.lock();
        let entry = change(state.fresh(&key, self.ttl));
        state.insert(key, entry, self.capacity);
    }

    /// Returns the value of `key` if the value is fresh and its fetch started after `since`. With
    /// `None`, each fresh value is new enough. Otherwise calls `fetch`, or waits for a fetch of
    /// `key` in progress.
    ///
    /// The fetch runs on `runtime`, and continues even if all callers are cancelled.
    ///
    /// # Errors
    ///
    /// The error of `fetch`, for all callers that wait for this fetch; an internal error if `fetch`
    /// panics.
    pub async fn get_or_fetch<F>(
        &self,
        runtime: &Handle,
        key: K,
        since: Option<Instant>,
        fetch: impl FnOnce() -> F,
    ) -> Result<CacheEntry<V>, E>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let is_new = |entry: &CacheEntry<V>| since.is_none_or(|since| entry.requested_at > since);
        let fetching = loop {
            let running = {
                let mut state = self.state.lock();
                if let Some(entry) = state.fresh(&key, self.ttl).filter(is_new) {
                    return Ok(entry);
                }
                let Some(running) = state.fetches.get(&key) else {
                    let fetching = self.begin(runtime, key.clone(), fetch());
                    state.fetches.insert(key, fetching.clone());
                    break fetching;
                };
                running.clone()
            };
            let entry = running.await?;
            if is_new(&entry) {
                return Ok(entry);
            }
        };
        fetching.await
    }

    fn begin<F>(&self, runtime: &Handle, key: K, fetch: F) -> SharedFetch<V, E>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let guard = FetchGuard { cache: self.clone(), key };
        let fetching = async move {
            let requested_at = Instant::now();
            let value = fetch.await?;
            guard.cache.insert(guard.key.clone(), value.clone(), requested_at);
            Ok(CacheEntry { value, requested_at })
        };
        let runtime = runtime.clone();
        // The first poll of this future spawns `fetching`, after the caller has released the
        // cache's lock. Spawning it under the lock could deadlock: a runtime that has shut down
        // drops the task at once, and the drop of `guard` acquires the lock.
        let spawned = async move {
            let fetched = runtime.spawn(fetching).await;
            fetched.unwrap_or_else(|_| Err(RequestFault::task_panicked().into()))
        };
        spawned.boxed().shared()
    }
}

/// Removes a fetch in progress from the cache when the fetch ends or is dropped, so that the next
/// caller starts another fetch.
struct FetchGuard<K: Eq + Hash, V, E> {
    cache: ExpiringCache<K, V, E>,
    key: K,
}

impl<K: Eq + Hash, V, E> Drop for FetchGuard<K, V, E> {
    fn drop(&mut self) {
        let ended = self.cache.state.lock().fetches.remove(&self.key);
        // The drop of `ended` can run code that acquires the cache's lock. So this function
        // releases the lock before it drops `ended`.
        drop(ended);
    }
}

impl<K: Clone + Eq + Hash, V: Clone, E> CacheState<K, V, E> {
    fn fresh(&mut self, key: &K, ttl: Duration) -> Option<CacheEntry<V>> {
        let is_fresh = self.entries.get(key)?.entry.requested_at.elapsed() < ttl;
        if is_fresh { self.used(key) } else { None }
    }

    /// Returns the value of `key` and counts a use.
    fn used(&mut self, key: &K) -> Option<CacheEntry<V>> {
        let slot = self.entries.get_mut(key)?;
        self.uses += 1;
        let key = self.by_use.remove(&slot.last_use)?;
        slot.last_use = self.uses;
        self.by_use.insert(self.uses, key);
        Some(slot.entry.clone())
    }

    fn remove(&mut self, key: &K) {
        if let Some(slot) = self.entries.remove(key) {
            self.by_use.remove(&slot.last_use);
        }
    }

    fn insert(&mut self, key: K, entry: CacheEntry<V>, capacity: u64) {
        self.remove(&key);
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, CacheSlot { entry, last_use: self.uses });
        if self.entries.len() as u64 > capacity
            && let Some((_, least)) = self.by_use.pop_first()
        {
            self.entries.remove(&least);
        }
    }
}

impl<K, V, E> Clone for ExpiringCache<K, V, E> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), ..*self }
    }
}

impl<K, V, E> Default for CacheState<K, V, E> {
    fn default() -> Self {
        let (entries, by_use, fetches) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Self { entries, by_use, uses: 0, fetches }
    }
}

impl<K, V, E> fmt::Debug for ExpiringCache<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringCache").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use kubewarm_api::model::FaultReason;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::{advance, sleep, timeout};

    const TTL: Duration = Duration::from_secs(10);

    fn of(capacity: u64) -> ExpiringCache<&'static str, u64> {
        ExpiringCache::new(capacity, TTL)
    }

    fn value(cache: &ExpiringCache<&'static str, u64>, key: &'static str) -> Option<u64> {
        cache.get(&key).map(|entry| entry.value)
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_fresh_for_a_fixed_time_after_its_request() {
        let cache = of(10);
        cache.insert("a", 1, Instant::now());
        advance(TTL.mul_f64(0.9)).await;
        assert_eq!(value(&cache, "a"), Some(1));
        advance(TTL.mul_f64(0.1)).await;
        assert_eq!(
            (value(&cache, "a"), cache.get_stale(&"a").map(|entry| entry.value)),
            (None, Some(1))
        );
        let slow = async {
            sleep(TTL / 2).await;
            Ok(2)
        };
        let entry = cache.get_or_fetch(&Handle::current(), "a", None, || slow).await.unwrap();
        assert_eq!(entry.requested_at.elapsed(), TTL / 2);
        advance(TTL / 2).await;
        assert_eq!(value(&cache, "a"), None, "the age must count from the request");
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_recently_used_value_is_removed() {
        let cache = of(4);
        for key in ["a", "b", "c", "d"] {
            cache.insert(key, 1, Instant::now());
        }
        assert_eq!(value(&cache, "a"), Some(1));
        cache.insert("e", 2, Instant::now());
        cache.insert("e", 3, Instant::now());
        let left = ["a", "b", "c", "d", "e"].map(|key| value(&cache, key));
        assert_eq!(left, [Some(1), None, Some(1), Some(1), Some(3)]);
        let state = cache.state.lock();
        assert_eq!((state.by_use.len(), state.entries.len()), (4, 4));
        drop(state);
        let none = of(0);
        none.insert("a", 1, Instant::now());
        assert_eq!(value(&none, "a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_sees_the_fresh_value_only() {
        let cache = of(1);
        let add = |key, requested_at| {
            cache.update(key, |known| {
                let value = known.map_or(0, |known| known.value) + 1;
                CacheEntry { value, requested_at }
            });
        };
        let begin = Instant::now();
        add("a", begin);
        add("a", begin);
        assert_eq!(value(&cache, "a"), Some(2));
        advance(TTL).await;
        add("a", Instant::now());
        assert_eq!(value(&cache, "a"), Some(1));
        add("b", Instant::now());
        assert_eq!((value(&cache, "a"), value(&cache, "b")), (None, Some(1)), "the capacity is 1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_value_stays_while_it_is_used_and_can_be_removed() {
        let cache = of(2);
        cache.insert("used", 1, Instant::now());
        advance(TTL).await;
        for (key, value) in [("b", 2), ("c", 3), ("d", 4)] {
            assert_eq!(cache.get_stale(&"used").map(|entry| entry.value), Some(1));
            cache.insert(key, value, Instant::now());
        }
        cache.remove(&"used");
        assert_eq!((cache.get_stale(&"used"), value(&cache, "d")), (None, Some(4)));
        assert_eq!(cache.state.lock().by_use.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_wait_for_one_fetch_even_if_the_first_is_cancelled() {
        let (cache, count) = (of(10), Arc::new(AtomicUsize::new(0)));
        let get = || {
            let count = Arc::clone(&count);
            let fetch = async move {
                count.fetch_add(1, Ordering::Relaxed);
                sleep(TTL / 10).await;
                Ok(1)
            };
            async { cache.get_or_fetch(&Handle::current(), "a", None, || fetch).await }
        };
        assert!(timeout(TTL / 20, get()).await.is_err());
        let results = join_all((0..9).map(|_| get())).await;
        assert!(results.into_iter().all(|result| result.unwrap().value == 1));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(cache.state.lock().fetches.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_was_requested_before_since_is_not_returned() {
        let (cache, count) = (of(10), Arc::new(AtomicUsize::new(0)));
        let get = |since| {
            let count = Arc::clone(&count);
            let fetch = async move {
                let number = count.fetch_add(1, Ordering::Relaxed);
                sleep(TTL / 10).await;
                Ok(u64::try_from(number).unwrap())
            };
            let cache = cache.clone();
            async move {
                let handle = Handle::current();
                cache.get_or_fetch(&handle, "a", Some(since), || fetch).await.unwrap().value
            }
        };
        let begin = Instant::now();
        advance(TTL / 100).await;
        let first = tokio::spawn(get(begin));
        advance(TTL / 100).await;
        // The first fetch started before `later` and is still in progress, so `get(later)` must not
        // return its value.
        let later = Instant::now();
        advance(TTL / 100).await;
        assert_eq!(join_all([get(later), get(later), get(begin)]).await, [1, 1, 0]);
        assert_eq!((first.await.unwrap(), get(later).await), (0, 1));
        assert_eq!(get(Instant::now()).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_fails_or_panics_is_not_stored() {
        let cache = of(10);
        let fail = async || Err(RequestFault::new(FaultReason::TimedOut, "slow"));
        let result = cache.get_or_fetch(&Handle::current(), "a", None, fail).await;
        assert_eq!(result.unwrap_err().reason(), FaultReason::TimedOut);
        let broken = async || -> Result<u64, RequestFault> { panic!("a fetch that a test breaks") };
        let result = cache.get_or_fetch(&Handle::current(), "a", None, broken).await;
        assert_eq!(result.unwrap_err().reason(), FaultReason::Internal);
        let result = cache.get_or_fetch(&Handle::current(), "a", None, async || Ok(1)).await;
        assert_eq!(result.unwrap().value, 1);
    }
}
