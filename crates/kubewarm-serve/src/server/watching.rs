//! A watch as a body: checked again and again whether its caller still may have it, until it ends.

use super::{
    answer::{JSON, NOT_KEPT, headers, response, tell_source},
    body::{Response, ResponseBody},
    unwritten::ResponsePermit,
};
use crate::{
    callers::{Callers, Credentials, Refused},
    metrics::{ClientWatchEnd, OpenClientWatch},
    reads::{Cut, Feed},
    watchers::Watcher,
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

/// How often a watch is reviewed.
const REVIEW: Duration = Duration::from_secs(10);
/// The same after a review that had no answer.
const RETRY: Duration = Duration::from_secs(4);
/// How old, by the time it was asked for, the newest positive review of an open watch may be, whatever the reason: a
/// right that is revoked ends within it.
const REVIEWED: Duration = Duration::from_secs(30);

/// A watch under way, and what is taken for as long as it lasts.
pub(super) struct Watch {
    pub(super) feed: Feed,
    pub(super) review: WatchReview,
    /// The permit of the request, until what the watch begins with has been sent: that is held.
    pub(super) request: Option<KeyedPermit>,
    /// It is counted.
    pub(super) counted: OpenClientWatch,
    /// It is shown to those who look on.
    pub(super) _entered: Arc<Watcher>,
    /// Ends it.
    pub(super) stop: CancellationToken,
}

/// What a caller needs to be allowed for as long as a watch lasts.
pub(super) struct WatchReview {
    callers: Arc<Callers>,
    credentials: Credentials,
    accesses: Vec<SelfSubjectAccessReviewSpec>,
    peer: IpAddr,
    /// When the oldest of the answers was asked for by which the caller is allowed.
    allowed_at: Instant,
    /// When the next review is due.
    due: Instant,
}

impl Watch {
    /// Sends what the feed brings, until its end or until nobody listens any more. `names` names its cell. The `permit` is
    /// kept until what has been told is written.
    pub(super) fn response(self, names: &hmac::Key, permit: ResponsePermit) -> Response {
        let mut headers = headers(JSON, NOT_KEPT);
        if let Some(source) = self.feed.source() {
            tell_source(&mut headers, source, names);
        }
        let pieces = stream::unfold(self, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok::<_, Cut>(piece), watch))
        });
        let body = ResponseBody::streamed(pieces);
        body.keep(permit);
        response(StatusCode::OK, headers, body)
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Also after the other end took its time: nothing is sent that was not reviewed lately.
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
    /// Of a watch that begins now, of whoever was allowed all of `accesses`.
    pub(super) fn new(
        callers: Arc<Callers>,
        (credentials, peer): (Credentials, IpAddr),
        (accesses, allowed_at): (Vec<SelfSubjectAccessReviewSpec>, Instant),
    ) -> Self {
        // Those that begin together are not reviewed together.
        let due = Instant::now() + REVIEW.mul_f64(fastrand::f64());
        Self { callers, credentials, accesses, peer, allowed_at, due }
    }

    /// When the watch ends unless a review says yes.
    fn end(&self) -> Instant {
        self.allowed_at + REVIEWED
    }

    /// When [`Self::is_allowed`] has something to do.
    fn next(&self) -> Instant {
        self.due.min(self.end())
    }

    /// Whether the watch may go on. Reviews it if that is due.
    async fn is_allowed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return now < self.end();
        }
        // One of which nothing was taken for long gets another review before it goes on.
        let until = if now < self.end() { self.end() } else { now + RETRY };
        match timeout_at(until, self.ask()).await {
            Ok(Ok(asked)) => {
                self.allowed_at = asked;
                self.due = Instant::now() + REVIEW;
            }
            // Nobody says so: what is allowed for a while is not taken back at once.
            Ok(Err(Refused::Limited(_) | Refused::Undecided(_))) => self.due = Instant::now() + RETRY,
            Ok(Err(_)) | Err(_) => return false,
        }
        Instant::now() < self.end()
    }

    /// When the oldest of the answers was asked for by which all is allowed.
    async fn ask(&self) -> Result<Instant, Refused> {
        let mut oldest = Instant::now();
        for access in &self.accesses {
            let asked = self.callers.recheck(&self.credentials, access, self.peer).await?;
            oldest = oldest.min(asked);
        }
        Ok(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::sample::{Said, Say, changing, pods};
    use kubewarm_api::model::{Fault, Reason};
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn credentials() -> Credentials {
        Credentials::of([("authorization", &b"Bearer t0k3n"[..])]).unwrap()
    }

    fn may(_: &str, _: &str) -> Said {
        Said::Allowed("jane")
    }

    /// The review of a watch that begins now.
    async fn begun(callers: &Arc<Callers>) -> WatchReview {
        let (credentials, accesses) = (credentials(), vec![pods("watch", Some("web"))]);
        let (caller, _) = callers.admit(&credentials, &accesses[0], PEER).await.unwrap();
        WatchReview::new(Arc::clone(callers), (credentials, PEER), (accesses, caller.asked))
    }

    /// Lets it be reviewed for as long as it goes on, or for so long.
    async fn go_on(review: &mut WatchReview, most: Duration) -> Duration {
        let began = Instant::now();
        while began.elapsed() < most && review.is_allowed().await {
            sleep_until(review.next()).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_for_as_long_as_its_caller_may_and_ends_within_20_s_of_a_no() {
        for no in [(|_, _| Said::Denied("jane")) as Say, |_, _| Said::Unknown] {
            let (callers, say) = changing(may);
            let callers = Arc::new(callers);
            let mut review = begun(&callers).await;
            let hour = Duration::from_hours(1);
            assert!(go_on(&mut review, hour).await >= hour);
            *say.lock() = no;
            let most = 2 * REVIEW + Duration::from_secs(1);
            assert!(go_on(&mut review, hour).await <= most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_when_its_newest_yes_is_30_s_old_by_when_it_was_asked() {
        let (callers, say) = changing(may);
        let callers = Arc::new(callers);
        let asked = Instant::now();
        drop(begun(&callers).await);
        // What it begins with is remembered, and not from now.
        sleep_until(asked + Duration::from_secs(9)).await;
        let mut review = begun(&callers).await;
        *say.lock() = |_, _| Said::Nothing(Fault::new(Reason::Unreachable, "refused"));
        go_on(&mut review, Duration::from_hours(1)).await;
        let late = asked.elapsed().saturating_sub(REVIEWED);
        assert!(asked.elapsed() >= REVIEWED && late < Duration::from_millis(10), "{late:?}");
    }
}
