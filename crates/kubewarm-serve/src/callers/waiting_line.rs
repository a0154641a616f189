//! A limit at which callers wait for their turn, instead of an immediate rejection.

use super::{CallerRejection, limit_key::LimitKey, limits::ReadLimit};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, SemaphoreUsage};
use std::time::Duration;

/// Limits how many operations run at once, and how many callers wait for their turn, in total and
/// for each key (a user or a client address). Clones share the limits.
#[derive(Clone, Debug)]
pub(super) struct WaitingLine {
    slots: KeyedSemaphore<LimitKey>,
    waiting: KeyedSemaphore<LimitKey>,
    max_wait: Duration,
    /// The limit that a rejection names if all callers together have reached it.
    of_all: ReadLimit,
    /// The limit that a rejection names if the user or address has reached it.
    of_one: ReadLimit,
}

impl WaitingLine {
    /// Creates a line in which a caller waits at most `max_wait` for one of `slots`. Rejections
    /// name the limit `of_all` or `of_one`.
    pub(super) fn new(
        slots: KeyedSemaphore<LimitKey>,
        waiting: KeyedSemaphore<LimitKey>,
        max_wait: Duration,
        (of_all, of_one): (ReadLimit, ReadLimit),
    ) -> Self {
        Self { slots, waiting, max_wait, of_all, of_one }
    }

    /// Waits for a slot. The caller occupies the slot until the returned permit is dropped.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::enter`] and [`Self::wait`].
    pub(super) async fn acquire(&self, key: LimitKey) -> Result<KeyedPermit, CallerRejection> {
        if let Some(slot) = self.slots.try_acquire(&key) {
            return Ok(slot);
        }
        let _waits = self.enter(key)?;
        self.wait(key).await
    }

    /// Counts a caller as waiting until the returned permit is dropped.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if too many callers wait.
    pub(super) fn enter(&self, key: LimitKey) -> Result<KeyedPermit, CallerRejection> {
        self.waiting
            .acquire_now(&key)
            .map_err(|exhausted| ReadLimit::rejection(exhausted, key, self.of_all, self.of_one))
    }

    /// Waits for a slot without counting the caller as waiting.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if the wait exceeds its time limit.
    pub(super) async fn wait(&self, key: LimitKey) -> Result<KeyedPermit, CallerRejection> {
        if let Some(slot) = self.slots.acquire_within(&key, self.max_wait).await {
            return Ok(slot);
        }
        // `acquire_within` does not return which of the two limits is reached, so this last attempt
        // finds it out.
        self.slots
            .acquire_now(&key)
            .map_err(|exhausted| ReadLimit::rejection(exhausted, key, self.of_all, self.of_one))
    }

    pub(super) fn usage(&self) -> SemaphoreUsage {
        self.slots.usage()
    }
}
