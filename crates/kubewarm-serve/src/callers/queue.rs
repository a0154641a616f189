//! Reviews on their way to the API server: a bounded number at once, and a bounded number that wait.

use super::{
    Refused,
    limits::{CallerLimits, ReadLimit, quarter},
};
use kubewarm_api::model::{Fault, Reason};
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

/// How long the API server may take to each review: scrapes give up after 10 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Reviews of one kind, each for one address or user. Clones share the slots.
#[derive(Clone, Debug)]
pub(super) struct ReviewQueue<K> {
    slots: KeyedSemaphore<K>,
    waiting: KeyedSemaphore<K>,
    queue: Duration,
    /// What callers read, for the log.
    reads: &'static str,
    /// Whether the last review had no answer. Queues of the same callers share it.
    is_failing: Arc<AtomicBool>,
}

impl<K: Copy + Eq + Hash> ReviewQueue<K> {
    /// So many `slots`, a quarter of which are for one, and places to wait in, half of which are for one.
    pub(super) fn new(slots: usize, limits: &CallerLimits, is_failing: Arc<AtomicBool>) -> Self {
        Self {
            slots: KeyedSemaphore::new(slots, quarter(slots)),
            waiting: KeyedSemaphore::new(limits.waiting, limits.waiting / 2),
            queue: limits.queue,
            reads: limits.reads,
            is_failing,
        }
    }

    /// A place to wait in for an answer.
    ///
    /// # Errors
    ///
    /// [`Refused::Limited`].
    pub(super) fn enter(&self, one: K) -> Result<KeyedPermit, Refused> {
        let limits = (ReadLimit::Reviews, ReadLimit::UserReviews);
        let place = self.waiting.acquire_now(&one);
        place.map_err(|reached| ReadLimit::reached(reached, limits))
    }

    /// A slot for a review of `one`, waiting for it.
    ///
    /// # Errors
    ///
    /// [`Refused::Limited`] if there is none in time.
    pub(super) async fn slot(&self, one: K) -> Result<KeyedPermit, Refused> {
        let slot = self.slots.acquire_within(&one, self.queue).await;
        slot.ok_or(Refused::Limited(ReadLimit::Reviews))
    }

    /// What `review` says, in time.
    ///
    /// # Errors
    ///
    /// [`Refused::Undecided`].
    pub(super) async fn decide<T>(
        &self,
        review: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Refused> {
        let answer = timeout(PATIENCE, review).await.unwrap_or_else(|_| {
            Err(Fault::new(Reason::TimedOut, format!("no decision within {PATIENCE:?}")))
        });
        self.note(answer.as_ref().err());
        answer.map_err(Refused::Undecided)
    }

    /// Logs the first review without an answer, and the first with one after that.
    fn note(&self, fault: Option<&Fault>) {
        let was_failing = self.is_failing.swap(fault.is_some(), Ordering::Relaxed);
        let reads = self.reads;
        match fault {
            Some(fault) if !was_failing => {
                tracing::warn!(%fault, "nobody can say who may read {reads}; callers get 503");
            }
            None if was_failing => tracing::info!("callers are told apart again"),
            Some(_) | None => {}
        }
    }
}
