//! How much may go on at once: so much in all, and a part of it for each key.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits, of which one key, such as a namespace, has no more than its part. Beyond that, first come is first
/// served. Clones share the permits.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore<K> {
    all: Arc<Semaphore>,
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

impl<K: Clone + Eq + Hash> KeyedSemaphore<K> {
    /// So many permits in all, of which each key has `part` at most.
    #[must_use]
    pub fn new(all: usize, part: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), part, parts: Arc::default() }
    }

    /// A permit for `key`, if there is one now.
    #[must_use]
    pub fn try_acquire(&self, key: &K) -> Option<KeyedPermit> {
        let of_part = self.part_of(key).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
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
}
