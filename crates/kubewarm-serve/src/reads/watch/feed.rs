//! A watch under way: the lines that it sends, one piece after another, until it ends.

use super::{
    super::{Reads, Source, access::AccessTerms, cover::Coverage},
    cursor::{Piece, WatchCursor, WatchStep, error},
    timing::{LOOK, Timing},
};
use crate::metrics::ClientWatchEnd;
use kubewarm_api::model::{Index, OnAccessLost, ProfileRef, ResourceVersion};
use kubewarm_cache::store::Lag;
use kubewarm_wire::{Failure, Objects};
use parking_lot::Mutex;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// A watch under way. It holds what has not been sent of the state that it began with, and nothing of what
/// happens: that is held once for all.
pub struct Feed {
    /// `None` once there is no more to say than `last`.
    open: Option<Box<OpenWatch>>,
    last: Option<Piece>,
    ended: Option<ClientWatchEnd>,
}

/// How far a watch has come, for those who look on.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The version of the last event or bookmark; `None` before the first.
    pub(super) position: Arc<Mutex<Option<ResourceVersion>>>,
    /// How many changes of its cell it has not looked at; `None` of a watch that cannot be.
    pub(super) lag: Option<Lag>,
}

/// A watch that has not ended.
pub(super) struct OpenWatch {
    pub(super) reads: Arc<Reads>,
    pub(super) asked: Objects,
    pub(super) profile: Option<ProfileRef>,
    pub(super) source: Source,
    pub(super) terms: AccessTerms,
    /// The declared indexes that it selects by.
    pub(super) indexes: Vec<Index>,
    pub(super) cursor: WatchCursor,
    pub(super) timing: Timing,
}

impl Feed {
    pub(super) fn new(open: OpenWatch) -> Self {
        Self { open: Some(Box::new(open)), last: None, ended: None }
    }

    /// A watch that says why it cannot be, and ends.
    pub(super) fn failed(failure: &Failure) -> Self {
        let end = if failure.code() == 504 { ClientWatchEnd::FutureVersion } else { ClientWatchEnd::Expired };
        Self { open: None, last: Some(error(failure)), ended: Some(end) }
    }

    /// From where it is answered, as that stood when it began; `None`: from nowhere.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        self.open.as_ref().map(|open| &open.source)
    }

    /// Whether it still sends what it began with, whose records it holds.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.cursor.is_beginning())
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.open.as_ref().map(|open| open.cursor.progress()).unwrap_or_default()
    }

    /// Why it has ended, or ends with the next piece.
    #[must_use]
    pub fn ended(&self) -> Option<ClientWatchEnd> {
        self.ended
    }

    /// The next piece; `None` at the end. May be dropped and asked again, and nothing is lost.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            let Some(open) = &mut self.open else { return self.last.take() };
            open.cursor.take_turns().await;
            // Before the last look at what there is, so that nothing comes in between.
            let news = open.cursor.news_signal();
            let mut news = pin!(news.notified());
            news.as_mut().enable();
            match open.step(Instant::now()) {
                WatchStep::Piece(piece) if piece.events > 0 => return Some(piece),
                WatchStep::Piece(_) => tokio::task::yield_now().await,
                WatchStep::Quiet(_) => {
                    let until = open.timing.next();
                    select! {
                        () = news => {}
                        () = sleep_until(until) => {}
                    }
                }
                WatchStep::End(end, last) => {
                    (self.open, self.last, self.ended) = (None, last, Some(end));
                }
            }
        }
    }
}

impl Serialize for Progress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let position = self.position.lock().as_ref().map(ToString::to_string);
        let mut shown = to.serialize_struct("Progress", 2)?;
        shown.serialize_field("position", &position)?;
        shown.serialize_field("behind", &self.lag.as_ref().map_or(0, Lag::changes))?;
        shown.end()
    }
}

impl OpenWatch {
    fn step(&mut self, now: Instant) -> WatchStep {
        let gone = WatchStep::End(ClientWatchEnd::InformerGone, None);
        if now >= self.timing.look {
            self.timing.look = now + LOOK;
            let Some(policy) = self.policy() else { return gone };
            self.terms.policy = policy;
        }
        // The state that it begins with may be gone if access was lost and is back; of later events the past knows.
        if !self.cursor.is_beginning() {
            self.terms.losses = None;
        }
        if !self.terms.permit(self.reads.from.reports.glance(&self.source.cell).as_ref()) {
            return gone;
        }
        if now >= self.timing.end {
            return WatchStep::End(ClientWatchEnd::Timeout, None);
        }
        let step = self.cursor.next(&self.reads.shared);
        let WatchStep::Quiet(version) = step else { return step };
        if self.timing.bookmark.is_none_or(|at| now < at) {
            return WatchStep::Quiet(version);
        }
        // Nothing is new, and it is time to say so.
        self.timing.bookmark = self.timing.bookmark_after(now);
        let bookmark = version.and_then(|version| self.cursor.bookmark_at(version));
        bookmark.map_or(WatchStep::Quiet(None), WatchStep::Piece)
    }

    /// What the profiles that let the cell answer say about a loss of access; `None`: none lets it any more.
    fn policy(&self) -> Option<OnAccessLost> {
        let offers = self.reads.offers().ok()?;
        let home = &self.reads.from.home;
        let coverage = Coverage::of(&offers, &self.asked, self.profile.as_ref(), home).ok()?;
        coverage.policy(&self.source.cell, &self.indexes)
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_that_cannot_begin_says_why_and_ends_for_that() {
        for (failure, end) in [
            (Failure::watch_lost(), ClientWatchEnd::Expired),
            (Failure::too_large_version(&9.into(), Some(&7.into())), ClientWatchEnd::FutureVersion),
        ] {
            let code = format!("\"code\":{}}}", failure.code());
            let mut feed = Feed::failed(&failure);
            let piece = feed.next().await.expect("it says why");
            let line = String::from_utf8_lossy(&piece.lines);
            assert!(line.contains(&code), "{line}");
            assert_eq!(feed.ended(), Some(end));
            assert!(feed.next().await.is_none());
        }
    }
}
