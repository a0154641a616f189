//! The response to a watch.

use super::{
    body::{OutgoingResponse, ResponseBody},
    response::{NOT_KEPT, headers, response, set_source_headers, watch_content_type},
    unwritten_response::ResponsePermit,
    watch_review::{WatchPermission, WatchReview},
};
use crate::{
    metrics::{ClientWatchEnd, OpenClientWatch},
    reads::{ListEncodingError, WatchFeed},
    watcher_registry::WatcherEntry,
};
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use kubewarm_client::KeyedPermit;
use std::{hash::RandomState, sync::Arc, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// When kubewarm stops, its watches end at random times within this time, so that their clients do
/// not all reconnect to the other replicas at once. The server gives responses in progress twice
/// this time.
const STOP_SPREAD: Duration = Duration::from_secs(5);

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
    /// When this token is cancelled, the watch ends within [`STOP_SPREAD`].
    pub(super) stop: CancellationToken,
    /// The time at which the watch ends because kubewarm stops; `None` before.
    pub(super) stop_at: Option<Instant>,
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
            if !self.feed.is_beginning() {
                drop(self.request.take());
            }
            // A slow client can delay this call for long, so kubewarm checks the permission before
            // each chunk of events.
            let permission = self.review.permission(Instant::now());
            // Unsent initial objects occupy memory, and the client has no version yet from which it
            // could resume. So without a confirmed permission, the watch ends instead of waiting.
            let is_stuck = permission == WatchPermission::Unconfirmed && self.feed.is_beginning();
            if permission == WatchPermission::Lost || is_stuck {
                self.counted.set_end(ClientWatchEnd::Rejected);
                return None;
            }
            if permission != WatchPermission::Confirmed {
                self.feed.release_memory();
            }
            let timeout = self.feed.timeout();
            let piece = select! {
                biased;
                () = stopped(&self.stop, &mut self.stop_at) => {
                    self.counted.set_end(ClientWatchEnd::Shutdown);
                    return None;
                }
                () = self.review.changed() => continue,
                // Without a confirmed permission, this loop does not poll the feed, which would end
                // the watch at its timeout. So this branch ends the watch instead.
                () = sleep_until(timeout), if permission != WatchPermission::Confirmed => {
                    self.counted.set_end(ClientWatchEnd::Timeout);
                    return None;
                }
                // Without a confirmed permission, the client receives neither events nor bookmarks.
                piece = self.feed.next(), if permission == WatchPermission::Confirmed => piece,
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

/// Waits until `stop` is cancelled, and then until the random time `stop_at`, which this function
/// sets. Cancel safe.
async fn stopped(stop: &CancellationToken, stop_at: &mut Option<Instant>) {
    stop.cancelled().await;
    let until =
        *stop_at.get_or_insert_with(|| Instant::now() + STOP_SPREAD.mul_f64(fastrand::f64()));
    sleep_until(until).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn watches_end_at_different_times_when_kubewarm_stops() {
        let stop = CancellationToken::new();
        stop.cancel();
        let began = Instant::now();
        let mut ends = Vec::new();
        for _ in 0..20 {
            let mut stop_at = None;
            // A chunk of events interrupts the wait, and must not postpone the end.
            let first = tokio::time::timeout(Duration::ZERO, stopped(&stop, &mut stop_at)).await;
            let at = stop_at.unwrap();
            if first.is_err() {
                stopped(&stop, &mut stop_at).await;
            }
            assert_eq!(stop_at, Some(at));
            ends.push(at - began);
        }
        let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
        assert!(last > first + Duration::from_secs(1), "{ends:?}");
    }
}
