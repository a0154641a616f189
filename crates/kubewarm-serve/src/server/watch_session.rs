//! The response to a watch. kubewarm repeats the watch's TokenReview and access reviews until the
//! watch ends, so that a revoked permission ends the watch.

use super::{
    body::{OutgoingResponse, ResponseBody},
    response::{NOT_KEPT, headers, response, set_source_headers, watch_content_type},
    unwritten_response::ResponsePermit,
};
use crate::{
    callers::{CallerCredentials, CallerGate, CallerRejection},
    metrics::{ClientWatchEnd, OpenClientWatch},
    reads::{ListEncodingError, WatchFeed},
    watcher_registry::WatcherEntry,
};
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_client::KeyedPermit;
use std::{hash::RandomState, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// The interval at which kubewarm repeats the TokenReview and the access reviews of an open watch.
const REVIEW_INTERVAL: Duration = Duration::from_secs(10);
/// The interval until kubewarm repeats the TokenReview and the access reviews of an open watch if
/// the API server did not decide in the previous ones.
const RETRY_INTERVAL: Duration = Duration::from_secs(4);
/// The maximum age of the last positive access review of an open watch, counted from the time at
/// which kubewarm sent the review. At this age kubewarm ends the watch, even if the API server
/// answers no reviews.
const MAX_REVIEW_AGE: Duration = Duration::from_secs(30);

/// A client's open watch, with its permit, its metrics and its entry in the list of open watches.
pub(super) struct WatchSession {
    pub(super) feed: WatchFeed,
    pub(super) review: WatchReview,
    /// The watch counts against the limits on requests until this permit is dropped, because its
    /// initial objects occupy memory. The watch drops the permit when it has sent all initial
    /// objects.
    pub(super) request: Option<KeyedPermit>,
    pub(super) counted: OpenClientWatch,
    pub(super) _entry: Arc<WatcherEntry>,
    /// When this token is cancelled, the watch ends.
    pub(super) stop: CancellationToken,
}

/// The TokenReview and the access reviews that kubewarm repeats while a watch is open.
pub(super) struct WatchReview {
    callers: Arc<CallerGate>,
    credentials: CallerCredentials,
    accesses: Vec<SelfSubjectAccessReviewSpec>,
    peer: IpAddr,
    /// The time at which kubewarm sent the oldest of the TokenReview and the access reviews that
    /// permit the watch.
    allowed_at: Instant,
    /// The time at which kubewarm repeats the TokenReview and the access reviews.
    due: Instant,
}

impl WatchSession {
    /// A response that sends the events of the watch until the watch ends or the client
    /// disconnects. A header contains a hash of the informer's key, computed with `tag_key`. The
    /// response holds `permit` until the connection has written the response.
    pub(super) fn response(
        self,
        tag_key: &RandomState,
        permit: ResponsePermit,
    ) -> OutgoingResponse {
        let mut headers = headers(watch_content_type(self.feed.media_type()), NOT_KEPT);
        if let Some(source) = self.feed.source() {
            let _age = set_source_headers(&mut headers, source, tag_key);
        }
        let pieces = stream::unfold(self, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok::<_, ListEncodingError>(piece), watch))
        });
        let body = ResponseBody::streamed(pieces);
        body.keep(permit);
        response(StatusCode::OK, headers, body)
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // A slow client can delay this call for long, so kubewarm checks the age of the last
            // access review before each chunk of events.
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
    /// Creates the repeated reviews of a watch that starts now. The caller has passed access
    /// reviews for all `accesses`. kubewarm sent the oldest of these reviews at `allowed_at`.
    pub(super) fn new(
        callers: Arc<CallerGate>,
        credentials: CallerCredentials,
        peer: IpAddr,
        accesses: Vec<SelfSubjectAccessReviewSpec>,
        allowed_at: Instant,
    ) -> Self {
        // The first repetition is at a random time, so that kubewarm does not review all watches
        // that started together at the same time.
        let due = Instant::now() + REVIEW_INTERVAL.mul_f64(fastrand::f64());
        Self { callers, credentials, accesses, peer, allowed_at, due }
    }

    /// The time at which the watch ends if no further access review permits it.
    fn end(&self) -> Instant {
        self.allowed_at + MAX_REVIEW_AGE
    }

    fn next(&self) -> Instant {
        self.due.min(self.end())
    }

    /// Whether the watch can continue. Sends the TokenReview and the access reviews again if they
    /// are due.
    async fn is_allowed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return now < self.end();
        }
        // A slow client can delay this call until `allowed_at` is more than `MAX_REVIEW_AGE` ago.
        // kubewarm then still tries the reviews once, with the time limit `RETRY_INTERVAL`.
        let until = if now < self.end() { self.end() } else { now + RETRY_INTERVAL };
        match timeout_at(until, self.review_all()).await {
            Ok(Ok(reviewed_at)) => {
                self.allowed_at = reviewed_at;
                self.due = Instant::now() + REVIEW_INTERVAL;
            }
            // If the API server has not decided, the last positive reviews stay valid until their
            // age is `MAX_REVIEW_AGE`.
            Ok(Err(CallerRejection::Limited(_) | CallerRejection::Undecided(_))) => {
                self.due = Instant::now() + RETRY_INTERVAL;
            }
            Ok(Err(_)) | Err(_) => return false,
        }
        Instant::now() < self.end()
    }

    /// Repeats the TokenReview and all access reviews of the watch. Returns the time at which
    /// kubewarm sent the oldest of these reviews.
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
    use crate::callers::fixtures::{FakeReviewFn, ReviewAnswer, changing, pods};
    use kubewarm_api::model::{FaultReason, RequestFault};
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn credentials() -> CallerCredentials {
        CallerCredentials::from_headers([("authorization", &b"Bearer t0k3n"[..])]).unwrap()
    }

    fn may(_: &str, _: &str) -> ReviewAnswer {
        ReviewAnswer::Allowed("jane")
    }

    async fn begun(callers: &Arc<CallerGate>) -> WatchReview {
        let (credentials, accesses) = (credentials(), vec![pods("watch", Some("web"))]);
        let (caller, _) = callers.admit(&credentials, &accesses[0], PEER).await.unwrap();
        WatchReview::new(Arc::clone(callers), credentials, PEER, accesses, caller.reviewed_at)
    }

    /// Repeats the reviews of a watch until the watch ends, or until the time `most` has passed.
    /// Returns the time for which the watch was open.
    async fn go_on(review: &mut WatchReview, most: Duration) -> Duration {
        let began = Instant::now();
        while began.elapsed() < most && review.is_allowed().await {
            sleep_until(review.next()).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_caller_is_disconnected_within_20_seconds() {
        for no in
            [(|_, _| ReviewAnswer::Denied("jane")) as FakeReviewFn, |_, _| ReviewAnswer::Unknown]
        {
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
        // The second watch starts with cached results of a TokenReview and an access review from 9
        // s ago.
        sleep_until(reviewed_at + Duration::from_secs(9)).await;
        let mut review = begun(&callers).await;
        *say.lock() =
            |_, _| ReviewAnswer::Nothing(RequestFault::new(FaultReason::Unreachable, "refused"));
        go_on(&mut review, Duration::from_hours(1)).await;
        let late = reviewed_at.elapsed().saturating_sub(MAX_REVIEW_AGE);
        assert!(
            reviewed_at.elapsed() >= MAX_REVIEW_AGE && late < Duration::from_millis(10),
            "{late:?}"
        );
    }
}
