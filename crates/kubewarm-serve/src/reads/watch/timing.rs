//! When a watch tells how far it has come, and when it ends.

use kubewarm_wire::Watching;
use std::time::Duration;
use tokio::time::Instant;

/// Between two bookmarks: as with the API server. Clients that were told how far they are need no list
/// when they come back.
const BOOKMARK: Duration = Duration::from_mins(1);
/// How long before its end a watch sends its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How long a watch lasts if it is not said, and up to twice as long: so that those that began together do
/// not end together.
const LIFE: Duration = Duration::from_mins(30);
/// How often it is looked whether the profiles still let the cell answer.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// When what is due.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// When the watch ends.
    pub(super) end: Instant,
    /// When the next bookmark is due; `None`: none is wanted, or the last one has been sent.
    pub(super) bookmark: Option<Instant>,
    /// When the profiles are looked at next.
    pub(super) look: Instant,
}

impl Timing {
    /// Of a watch that begins now.
    pub(super) fn new(watching: &Watching, now: Instant) -> Self {
        let life = watching.timeout.unwrap_or_else(|| LIFE.mul_f64(1.0 + fastrand::f64()));
        let end = now + life;
        let look = now + LOOK.mul_f64(fastrand::f64());
        let mut timing = Self { end, bookmark: None, look };
        if watching.bookmarks {
            timing.bookmark = timing.bookmark_after(now);
        }
        timing
    }

    /// When the next bookmark is due after one at `now`.
    pub(super) fn bookmark_after(&self, now: Instant) -> Option<Instant> {
        let last = self.end.checked_sub(LAST_BOOKMARK)?;
        // Not all at the same moment.
        let next = now + BOOKMARK.mul_f64(fastrand::f64().mul_add(0.05, 0.95));
        (now < last).then(|| next.min(last))
    }

    /// Until when there is nothing to do but to wait for news.
    pub(super) fn next(&self) -> Instant {
        let next = self.end.min(self.look);
        self.bookmark.map_or(next, |bookmark| bookmark.min(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_wire::Begin;

    fn timing(seconds: Option<u64>, bookmarks: bool, now: Instant) -> Timing {
        let timeout = seconds.map(Duration::from_secs);
        Timing::new(&Watching { begin: Begin::State, bookmarks, timeout }, now)
    }

    #[test]
    fn bookmarks_come_each_minute_and_once_before_the_end() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let long = timing(Some(300), true, now);
        let first = long.bookmark.unwrap();
        assert!(first > at(55) && first <= at(60));
        assert_eq!(long.bookmark_after(at(290)), Some(at(298)));
        assert_eq!(long.bookmark_after(at(298)), None, "that was the last");
        assert_eq!(timing(Some(4), true, now).bookmark, Some(at(2)));
        assert_eq!(timing(Some(2), true, now).bookmark, None);
        assert_eq!(timing(Some(300), false, now).bookmark, None);
    }

    #[test]
    fn a_watch_lasts_as_long_as_it_is_asked_to_or_up_to_an_hour() {
        let now = Instant::now();
        assert_eq!(timing(Some(300), false, now).end, now + Duration::from_mins(5));
        for _ in 0..50 {
            let end = timing(None, false, now).end;
            assert!(end >= now + Duration::from_mins(30) && end < now + Duration::from_hours(1));
        }
    }
}
