//! Limits the number of reviews that are sent at once, and the number of reviews that wait.

use super::{
    CallerRejection,
    limits::{CallerLimits, ReadLimit, quarter},
};
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::{KeyedPermit, KeyedSemaphore};
use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// The time limit of one review. A metrics scrape needs two reviews and times out after 10 s.
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue for one type of reviews, with limits per address or per user. Clones share the slots.
#[derive(Clone, Debug)]
pub(super) struct ReviewQueue<K> {
    slots: KeyedSemaphore<K>,
    waiting: KeyedSemaphore<K>,
    queue: Duration,
    /// What callers read, for log messages.
    reads: &'static str,
    /// Whether the last review had no result. The queues of the same callers share this.
    is_failing: Arc<AtomicBool>,
}

impl<K: Copy + Eq + Hash> ReviewQueue<K> {
    /// Creates a queue with `slots` slots. One key can have a quarter of the slots and half of the waiting
    /// slots.
    pub(super) fn new(slots: usize, limits: &CallerLimits, is_failing: Arc<AtomicBool>) -> Self {
        Self {
            slots: KeyedSemaphore::new(slots, quarter(slots)),
            waiting: KeyedSemaphore::new(limits.waiting_reviews, limits.waiting_reviews / 2),
            queue: limits.max_review_wait,
            reads: limits.reads,
            is_failing,
        }
    }

    /// Acquires a waiting slot.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if no slot is free.
    pub(super) fn acquire_waiting(&self, one: K) -> Result<KeyedPermit, CallerRejection> {
        self.waiting.acquire_now(&one).map_err(|exhausted| {
            ReadLimit::rejection(exhausted, ReadLimit::Reviews, ReadLimit::UserReviews)
        })
    }

    /// Waits for a slot to send a review of `one`.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if no slot is free in time.
    pub(super) async fn acquire_slot(&self, one: K) -> Result<KeyedPermit, CallerRejection> {
        let slot = self.slots.acquire_within(&one, self.queue).await;
        slot.ok_or(CallerRejection::Limited(ReadLimit::Reviews))
    }

    /// Awaits the result of `review`, within the time limit.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Undecided`] if the review fails or times out.
    pub(super) async fn await_decision<T>(
        &self,
        review: impl Future<Output = Result<T, RequestFault>>,
    ) -> Result<T, CallerRejection> {
        let answer = timeout(REVIEW_TIMEOUT, review).await.unwrap_or_else(|_| {
            Err(RequestFault::new(
                FaultReason::TimedOut,
                format!("no decision within {REVIEW_TIMEOUT:?}"),
            ))
        });
        self.log_change(answer.as_ref().err());
        answer.map_err(CallerRejection::Undecided)
    }

    /// Logs the first review without a result, and the first result after that.
    fn log_change(&self, fault: Option<&RequestFault>) {
        let was_failing = self.is_failing.swap(fault.is_some(), Ordering::Relaxed);
        let reads = self.reads;
        match fault {
            Some(fault) if !was_failing => {
                tracing::warn!(%fault, "reviews of callers fail; requests for {reads} get 503");
            }
            None if was_failing => tracing::info!("reviews of callers succeed again"),
            Some(_) | None => {}
        }
    }
}
