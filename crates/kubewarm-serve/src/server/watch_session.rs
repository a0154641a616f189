//! The response to a watch: reviews its caller's access repeatedly until the watch ends.

use super::{
    body::{OutgoingResponse, ResponseBody},
    pending_response::ResponsePermit,
    response::{JSON, NOT_KEPT, headers, response, set_source_headers},
};
use crate::{
    callers::{CallerAdmission, CallerCredentials, CallerRejection},
    metrics::{ClientWatchEnd, OpenClientWatch},
    reads::{TruncatedListError, WatchFeed},
    watcher_registry::WatcherEntry,
};
use aws_lc_rs::hmac;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_client::KeyedPermit;
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// The interval of a watch's access reviews.
const REVIEW_INTERVAL: Duration = Duration::from_secs(10);
/// The interval after an access review without a result.
const RETRY_INTERVAL: Duration = Duration::from_secs(4);
/// The maximum age of an open watch's last positive review, counted from the time of its request. After this
/// time the watch ends, even if no review is possible. A revoked permission thus ends in time.
const MAX_REVIEW_AGE: Duration = Duration::from_secs(30);

/// An open watch, with everything that it occupies.
pub(super) struct WatchSession {
    pub(super) feed: WatchFeed,
    pub(super) review: WatchReview,
    /// The request's permit. It is held until the initial objects are sent, because they occupy memory.
    pub(super) request: Option<KeyedPermit>,
    /// Counts the watch and its events.
    pub(super) counted: OpenClientWatch,
    /// The watch's entry in the list of open watches.
    pub(super) _entry: Arc<WatcherEntry>,
    /// Ends the watch when it is cancelled.
    pub(super) stop: CancellationToken,
}

/// The access reviews that the caller must pass for as long as the watch is open.
pub(super) struct WatchReview {
    callers: Arc<CallerAdmission>,
    credentials: CallerCredentials,
    accesses: Vec<SelfSubjectAccessReviewSpec>,
    peer: IpAddr,
    /// When the oldest of the current positive reviews was requested.
    allowed_at: Instant,
    /// When the next review is due.
    due: Instant,
}

impl WatchSession {
    /// A response that sends the feed's pieces until its end, or until the client disconnects. `names` is the
    /// hash key of informer names. The response holds `permit` until it is written.
    pub(super) fn response(self, names: &hmac::Key, permit: ResponsePermit) -> OutgoingResponse {
        let mut headers = headers(JSON, NOT_KEPT);
        if let Some(source) = self.feed.source() {
            set_source_headers(&mut headers, source, names);
        }
        let pieces = stream::unfold(self, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok::<_, TruncatedListError>(piece), watch))
        });
        let body = ResponseBody::streamed(pieces);
        body.keep(permit);
        response(StatusCode::OK, headers, body)
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Also after a pause by a slow client: no event is sent without a recent review.
            if !self.review.is_allowed().await {
                self.counted.set_end(ClientWatchEnd::Rejected);
                return None;
            }
            if !self.feed.is_beginning() {
                drop(self.request.take());
            }
            let piece = select! {
                biased;
                () = self.stop.cancelled() => {
                    self.counted.set_end(ClientWatchEnd::Shutdown);
                    return None;
                }
                () = sleep_until(self.review.next()) => continue,
                piece = self.feed.next() => piece,
            };
            if let Some(end) = self.feed.ended() {
                self.counted.set_end(end);
            }
            let piece = piece?;
            self.counted.count_events(piece.events);
            return Some(piece.lines);
        }
    }
}

impl WatchReview {
    /// The reviews of a watch that begins now. Its caller has passed the reviews of `accesses`, the oldest at
    /// `allowed_at`.
    pub(super) fn new(
        callers: Arc<CallerAdmission>,
        credentials: CallerCredentials,
        peer: IpAddr,
        accesses: Vec<SelfSubjectAccessReviewSpec>,
        allowed_at: Instant,
    ) -> Self {
        // Random, so that watches that begin together are not reviewed together.
        let due = Instant::now() + REVIEW_INTERVAL.mul_f64(fastrand::f64());
        Self { callers, credentials, accesses, peer, allowed_at, due }
    }

    /// When the watch ends if no further review is positive.
    fn end(&self) -> Instant {
        self.allowed_at + MAX_REVIEW_AGE
    }

    /// When [`Self::is_allowed`] must be called again.
    fn next(&self) -> Instant {
        self.due.min(self.end())
    }

    /// Whether the watch can continue. Reviews the caller's access if a review is due.
    async fn is_allowed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return now < self.end();
        }
        // After a long pause by a slow client, the watch is reviewed again before it continues.
        let until = if now < self.end() { self.end() } else { now + RETRY_INTERVAL };
        match timeout_at(until, self.review_all()).await {
            Ok(Ok(reviewed_at)) => {
                self.allowed_at = reviewed_at;
                self.due = Instant::now() + REVIEW_INTERVAL;
            }
            // The review has no result, so the last permission stays valid for a while.
            Ok(Err(CallerRejection::Limited(_) | CallerRejection::Undecided(_))) => {
                self.due = Instant::now() + RETRY_INTERVAL;
            }
            Ok(Err(_)) | Err(_) => return false,
        }
        Instant::now() < self.end()
    }

    /// Repeats all reviews. Returns when the oldest of their results was requested.
    async fn review_all(&self) -> Result<Instant, CallerRejection> {
        let mut oldest = Instant::now();
        for access in &self.accesses {
            let reviewed_at = self.callers.recheck(&self.credentials, access, self.peer).await?;
            oldest = oldest.min(reviewed_at);
        }
        Ok(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::fake_reviews::{Said, Say, changing, pods};
    use kubewarm_api::model::{FaultReason, RequestFault};
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn credentials() -> CallerCredentials {
        CallerCredentials::from_headers([("authorization", &b"Bearer t0k3n"[..])]).unwrap()
    }

    fn may(_: &str, _: &str) -> Said {
        Said::Allowed("jane")
    }

    /// The reviews of a watch that begins now.
    async fn begun(callers: &Arc<CallerAdmission>) -> WatchReview {
        let (credentials, accesses) = (credentials(), vec![pods("watch", Some("web"))]);
        let (caller, _) = callers.admit(&credentials, &accesses[0], PEER).await.unwrap();
        WatchReview::new(Arc::clone(callers), credentials, PEER, accesses, caller.reviewed_at)
    }

    /// Reviews the watch until it ends, or for the time `most`. Returns the time that has passed.
    async fn go_on(review: &mut WatchReview, most: Duration) -> Duration {
        let began = Instant::now();
        while began.elapsed() < most && review.is_allowed().await {
            sleep_until(review.next()).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_caller_is_disconnected_within_20_seconds() {
        for no in [(|_, _| Said::Denied("jane")) as Say, |_, _| Said::Unknown] {
            let (callers, say) = changing(may);
            let callers = Arc::new(callers);
            let mut review = begun(&callers).await;
            let hour = Duration::from_hours(1);
            assert!(go_on(&mut review, hour).await >= hour);
            *say.lock() = no;
            let most = 2 * REVIEW_INTERVAL + Duration::from_secs(1);
            assert!(go_on(&mut review, hour).await <= most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_when_its_last_positive_review_is_30_seconds_old() {
        let (callers, say) = changing(may);
        let callers = Arc::new(callers);
        let reviewed_at = Instant::now();
        drop(begun(&callers).await);
        // The second watch begins with a cached review that is 9 s old.
        sleep_until(reviewed_at + Duration::from_secs(9)).await;
        let mut review = begun(&callers).await;
        *say.lock() = |_, _| Said::Nothing(RequestFault::new(FaultReason::Unreachable, "refused"));
        go_on(&mut review, Duration::from_hours(1)).await;
        let late = reviewed_at.elapsed().saturating_sub(MAX_REVIEW_AGE);
        assert!(
            reviewed_at.elapsed() >= MAX_REVIEW_AGE && late < Duration::from_millis(10),
            "{late:?}"
        );
    }
}
