//! A watch as a body: checked again and again whether its caller still may have it, until it ends.

use super::{
    answer::{NOT_KEPT, streamed, tell_source},
    body::PlaceOfItsOwn,
};
use crate::{
    callers::{Action, Caller, Callers, Credentials, Place, Refused},
    metrics::{WatchClosed, Watching},
    reads::{Cut, End, Feed},
    server::watchers::Entered,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, ContentType},
};
use aws_lc_rs::hmac;
use bytes::Bytes;
use futures::stream;
use std::{any::Any, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// How often it is asked whether the caller still may: decisions count for 10 s at most, so that one who may
/// not any more is cut off within 14 s.
const CHECK: Duration = Duration::from_secs(4);
/// How long the API server may say nothing of a caller before the watch ends.
const UNDECIDED: Duration = Duration::from_secs(30);

/// What a caller needs to be allowed for as long as the watch lasts.
pub(super) struct Needed {
    pub(super) callers: Arc<Callers>,
    pub(super) credentials: Credentials,
    pub(super) actions: Vec<Action>,
    pub(super) peer: IpAddr,
}

/// What is taken for as long as a watch lasts.
pub(super) struct Held {
    /// Its place among the watches: until what has been told is written.
    pub(super) place: Option<Place>,
    /// That among the requests: until what the watch begins with has been sent, since that is held.
    pub(super) caller: Option<Caller>,
    /// It is counted.
    pub(super) counted: Watching,
    /// It is shown to those who look on.
    pub(super) _entered: Entered,
    /// Ends it.
    pub(super) stop: CancellationToken,
}

/// A watch under way.
struct Watch {
    feed: Feed,
    needed: Needed,
    /// When the caller was last known to be allowed.
    allowed_at: Instant,
    check_at: Instant,
    held: Held,
}

/// Sends what `feed` brings, until its end or until nobody listens any more. `names` names its cell.
pub(super) fn watch(
    request: &HttpRequest,
    (feed, names): (Feed, &hmac::Key),
    needed: Needed,
    mut held: Held,
) -> HttpResponse {
    let place = held.place.take();
    let mut response = HttpResponse::Ok();
    response.insert_header(ContentType::json()).insert_header((header::CACHE_CONTROL, NOT_KEPT));
    if let Some(source) = feed.source() {
        tell_source(&mut response, source, names);
    }
    let now = Instant::now();
    // Those that begin together are not checked together.
    let check_at = now + CHECK.mul_f64(fastrand::f64());
    let watch = Watch { feed, needed, allowed_at: now, check_at, held };
    let pieces = stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((Ok::<_, Cut>(piece), watch))
    });
    let mut response = streamed(request, response, pieces);
    let place = place.map(|place| -> Box<dyn Any + Send> { Box::new(place) });
    response.extensions_mut().insert(PlaceOfItsOwn(place));
    response
}

impl Watch {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Also after the other end took its time: nothing is sent that was not checked lately.
            if Instant::now() >= self.check_at && !self.is_allowed().await {
                self.held.counted.close(WatchClosed::Refused);
                return None;
            }
            if !self.feed.is_beginning() {
                drop(self.held.caller.take());
            }
            let piece = select! {
                biased;
                () = self.held.stop.cancelled() => {
                    self.held.counted.close(WatchClosed::Shutdown);
                    return None;
                }
                () = sleep_until(self.check_at) => continue,
                piece = self.feed.next() => piece,
            };
            if let Some(end) = self.feed.ended() {
                self.held.counted.close(match end {
                    End::Timeout => WatchClosed::Timeout,
                    End::Expired => WatchClosed::Expired,
                    End::Future => WatchClosed::Future,
                    End::Slow => WatchClosed::Slow,
                    End::CellGone => WatchClosed::CellGone,
                });
            }
            let piece = piece?;
            self.held.counted.sent(piece.events);
            return Some(piece.lines);
        }
    }

    async fn is_allowed(&mut self) -> bool {
        let now = Instant::now();
        for action in &self.needed.actions {
            let Needed { callers, credentials, peer, .. } = &self.needed;
            match callers.recheck(credentials, action, *peer).await {
                Ok(()) => {}
                // Nobody says so: what is allowed for a while is not taken back at once.
                Err(Refused::Busy | Refused::Undecided(_))
                    if now.saturating_duration_since(self.allowed_at) < UNDECIDED =>
                {
                    self.check_at = now + CHECK;
                    return true;
                }
                Err(_) => return false,
            }
        }
        self.allowed_at = now;
        self.check_at = now + CHECK;
        true
    }
}
