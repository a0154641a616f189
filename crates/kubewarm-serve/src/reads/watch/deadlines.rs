//! The times at which a watch sends its next bookmark, and ends.

use kubewarm_wire::WatchOptions;
use std::time::Duration;
use tokio::time::Instant;

/// The interval at which a watch sends bookmarks, as in the API server. A client with a recent
/// bookmark can reconnect without a list.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// A watch sends its last bookmark this long before its end, so that the client can resume from a
/// recent version.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The minimum duration of a watch if the client requests no timeout. The actual duration is
/// random, up to twice as long, so that watches that start together end at different times.
const MIN_LIFETIME: Duration = Duration::from_mins(30);

#[derive(Clone, Debug)]
pub(super) struct WatchDeadlines {
    pub(super) end: Instant,
    /// The time of the watch's next bookmark. `None` if the client requests no bookmarks, or after
    /// the last bookmark.
    pub(super) bookmark: Option<Instant>,
}

impl WatchDeadlines {
    pub(super) fn new(watching: &WatchOptions, now: Instant) -> Self {
        let life = watching.timeout.unwrap_or_else(|| MIN_LIFETIME.mul_f64(1.0 + fastrand::f64()));
        let end = now + life;
        let mut timing = Self { end, bookmark: None };
        if watching.has_bookmarks {
            timing.bookmark = timing.bookmark_after(now);
        }
        timing
    }

    /// The time of the bookmark that follows a bookmark at `now`; `None` if the bookmark at `now`
    /// is the last one.
    pub(super) fn bookmark_after(&self, now: Instant) -> Option<Instant> {
        let last = self.end.checked_sub(LAST_BOOKMARK)?;
        // The interval is random, so that watches do not send their bookmarks all at the same
        // moment.
        let next = now + BOOKMARK_INTERVAL.mul_f64(fastrand::f64().mul_add(0.05, 0.95));
        (now < last).then(|| next.min(last))
    }

    /// The time of the next bookmark or the end of the watch, whichever is earlier.
    pub(super) fn next_deadline(&self) -> Instant {
        self.bookmark.map_or(self.end, |bookmark| bookmark.min(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_wire::WatchStart;

    fn timing(seconds: Option<u64>, has_bookmarks: bool, now: Instant) -> WatchDeadlines {
        let timeout = seconds.map(Duration::from_secs);
        WatchDeadlines::new(&WatchOptions { start: WatchStart::State, has_bookmarks, timeout }, now)
    }

    #[test]
    fn bookmarks_come_each_minute_and_once_before_the_end() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let long = timing(Some(300), true, now);
        let first = long.bookmark.unwrap();
        assert!(first > at(55) && first <= at(60));
        assert_eq!(long.bookmark_after(at(290)), Some(at(298)));
        assert_eq!(long.bookmark_after(at(298)), None, "the last bookmark was sent");
        assert_eq!(timing(Some(4), true, now).bookmark, Some(at(2)));
        assert_eq!(timing(Some(2), true, now).bookmark, None);
        assert_eq!(timing(Some(300), false, now).bookmark, None);
    }

    #[test]
    fn a_watch_lasts_for_its_timeout_or_for_30_to_60_minutes() {
        let now = Instant::now();
        assert_eq!(timing(Some(300), false, now).end, now + Duration::from_mins(5));
        for _ in 0..50 {
            let end = timing(None, false, now).end;
            assert!(end >= now + Duration::from_mins(30) && end < now + Duration::from_hours(1));
        }
    }
}
