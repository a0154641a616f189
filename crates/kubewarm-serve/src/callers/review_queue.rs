//! Limits how many TokenReviews and access reviews kubewarm sends at once, and how many can wait.

use super::{CallerRejection, waiting_line::WaitingLine};
use kubewarm_api::model::{FaultReason, RequestFault};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// The time limit of one TokenReview or access review. A metrics scrape needs one of each, so both
/// must fit into the scrape's timeout of 10 s.
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits the reviews of one kind: TokenReviews or access reviews. An access review counts for its
/// user, and a TokenReview for its client address, because kubewarm does not know the user yet.
/// Clones share the limits.
#[derive(Clone, Debug)]
pub(super) struct ReviewQueue {
    /// The queue in which reviews wait for a slot. A review occupies its slot from the time at
    /// which kubewarm sends the review until the result arrives.
    pub(super) line: WaitingLine,
    /// What callers read from the listener, such as `objects` or `metrics`. Log messages contain
    /// this text.
    reads: &'static str,
    /// Whether the last review failed. The queue for TokenReviews and the queue for access reviews
    /// share this value, so kubewarm logs one warning for an outage of the API server.
    is_failing: Arc<AtomicBool>,
}

impl ReviewQueue {
    /// Creates a queue whose reviews wait in `line`. `reads` is what callers read from the
    /// listener.
    pub(super) fn new(line: WaitingLine, reads: &'static str, is_failing: Arc<AtomicBool>) -> Self {
        Self { line, reads, is_failing }
    }

    /// Waits for the result of `review`, a TokenReview or access review, for at most
    /// [`REVIEW_TIMEOUT`].
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
