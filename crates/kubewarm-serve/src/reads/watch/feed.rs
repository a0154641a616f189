//! A watch under way: the lines that it sends, one piece after another, until it ends.

use super::{
    super::{Reads, Source, lease::Lease},
    Beginning,
    telling::{Telling, Told, error},
    timing::{LOOK, Timing},
};
use crate::metrics::WatchClosed;
use bytes::Bytes;
use kubewarm_api::model::{Index, ProfileRef, Resource, ResourceVersion};
use kubewarm_cache::store::Lag;
use kubewarm_wire::{Failure, Objects};
use parking_lot::Mutex;
use std::{fmt, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// A watch under way. It holds what has not been sent of the state that it began with, and nothing of what
/// happens: that is held once for all.
pub struct Feed {
    of: Resource,
    stage: Stage,
    ended: Option<WatchClosed>,
    position: Arc<Mutex<Option<ResourceVersion>>>,
}

/// How far a watch has come, for those who look on.
#[derive(Clone, Debug)]
pub struct Progress {
    position: Arc<Mutex<Option<ResourceVersion>>>,
    lag: Lag,
}

/// Part of a watch, as it is sent.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Whole lines.
    pub lines: Bytes,
    /// How many they are.
    pub events: u64,
}

enum Stage {
    /// This is all there is to say.
    Failing(Failure),
    Following(Box<Following>),
    Done,
}

struct Following {
    reads: Arc<Reads>,
    asked: Objects,
    profile: Option<ProfileRef>,
    source: Source,
    lease: Lease,
    /// The declared indexes that it selects by.
    indexes: Vec<Index>,
    telling: Telling,
    timing: Timing,
}

impl Feed {
    pub(super) fn new(
        reads: Arc<Reads>,
        (asked, profile): (Objects, Option<ProfileRef>),
        beginning: Beginning,
        timing: Timing,
    ) -> Self {
        let Beginning { kind, source, lease, wanted, indexes, follower, start } = beginning;
        let telling = Telling::new(&kind, &asked, wanted, (follower, start));
        let of = asked.resource.clone();
        let following =
            Following { reads, asked, profile, source, lease, indexes, telling, timing };
        Self {
            of,
            stage: Stage::Following(Box::new(following)),
            ended: None,
            position: Arc::default(),
        }
    }

    /// One that says why it cannot be, and ends.
    pub(super) fn failed(asked: &Objects, failure: Failure) -> Self {
        let (of, stage) = (asked.resource.clone(), Stage::Failing(failure));
        Self { of, stage, ended: None, position: Arc::default() }
    }

    /// What is watched.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.of
    }

    /// From where it is answered, as that stood when it began; `None`: from nowhere.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        match &self.stage {
            Stage::Following(following) => Some(&following.source),
            Stage::Failing(_) | Stage::Done => None,
        }
    }

    /// Whether it still sends what it began with, whose records it holds.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        matches!(&self.stage, Stage::Following(following) if following.telling.is_beginning())
    }

    /// How far it has come, whoever asks; `None` if there is no way to go.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        match &self.stage {
            Stage::Following(following) => Some(Progress {
                position: Arc::clone(&self.position),
                lag: following.telling.lag(),
            }),
            Stage::Failing(_) | Stage::Done => None,
        }
    }

    /// Why it has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<WatchClosed> {
        self.ended
    }

    /// The next piece; `None` at the end. May be dropped and asked again, and nothing is lost.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            let following = match &mut self.stage {
                Stage::Done => return None,
                Stage::Failing(failure) => {
                    let line = error(failure);
                    let end = if failure.code() == 504 {
                        WatchClosed::Future
                    } else {
                        WatchClosed::Expired
                    };
                    (self.stage, self.ended) = (Stage::Done, Some(end));
                    return Some(line);
                }
                Stage::Following(following) => following,
            };
            following.telling.take_turns().await;
            // Before the last look at what there is, so that nothing comes in between.
            let told = following.telling.told();
            let mut told = pin!(told.notified());
            told.as_mut().enable();
            let next = following.step(Instant::now());
            // Also where nothing is said: what it began with may just have ended.
            *self.position.lock() = following.telling.sent().cloned();
            match next {
                Told::Piece(piece) => return Some(piece),
                Told::Again => tokio::task::yield_now().await,
                Told::Quiet(_) => {
                    let until = following.timing.next();
                    select! {
                        () = told => {}
                        () = sleep_until(until) => {}
                    }
                }
                Told::End(end, last) => {
                    (self.stage, self.ended) = (Stage::Done, Some(end));
                    return last;
                }
            }
        }
    }
}

impl Progress {
    /// The version of the last event or bookmark; `None` before the first.
    #[must_use]
    pub fn position(&self) -> Option<ResourceVersion> {
        self.position.lock().clone()
    }

    /// How many changes of its cell it has not looked at.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.lag.changes()
    }
}

impl Following {
    fn step(&mut self, now: Instant) -> Told {
        if now >= self.timing.look {
            self.timing.look = now + LOOK;
            let asked = (&self.asked, self.profile.as_ref());
            match self.reads.policies(asked, (&self.source.cell, &self.indexes)) {
                Some(policies) => self.lease.policies = policies,
                None => return Told::End(WatchClosed::CellGone, None),
            }
        }
        // The state that it begins with may be gone if access was lost and is back; of later events the past knows.
        if !self.telling.is_beginning() {
            self.lease.losses = None;
        }
        if !self.lease.holds(self.reads.from.reports.glance(&self.source.cell).as_ref()) {
            return Told::End(WatchClosed::CellGone, None);
        }
        if now >= self.timing.end {
            return Told::End(WatchClosed::Timeout, None);
        }
        let told = self.telling.next(&self.reads.shared);
        if let Told::Quiet(version) = told { self.quiet(version, now) } else { told }
    }

    /// Nothing is new: perhaps it is time to say so.
    fn quiet(&mut self, version: Option<ResourceVersion>, now: Instant) -> Told {
        let is_due = self.timing.bookmark.is_some_and(|at| now >= at);
        if !is_due {
            return Told::Quiet(version);
        }
        self.timing.bookmark = self.timing.bookmark_after(now);
        let bookmark = version.and_then(|version| self.telling.progress(version));
        bookmark.map_or(Told::Quiet(None), Told::Piece)
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("of", &self.of)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::asked;

    #[tokio::test]
    async fn a_watch_that_cannot_begin_says_why_and_ends_for_that() {
        for (failure, end) in [
            (Failure::watch_lost(), WatchClosed::Expired),
            (Failure::too_large_version(&9.into(), Some(&7.into())), WatchClosed::Future),
        ] {
            let code = format!("\"code\":{}}}", failure.code());
            let mut feed = Feed::failed(&asked("/api/v1/pods", "watch=1").0, failure);
            assert_eq!(feed.ended(), None);
            let piece = feed.next().await.expect("it says why");
            let line = String::from_utf8_lossy(&piece.lines);
            assert!(line.contains(&code), "{line}");
            assert_eq!(feed.ended(), Some(end));
            assert!(feed.next().await.is_none());
        }
    }
}
