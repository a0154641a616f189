//! A watch under way: the lines that it sends, one piece after another, until it ends.

use super::{
    super::Reads,
    Beginning,
    lines::{Columns, Lines},
    timing::{LOOK, Timing},
};
use crate::{
    model::{CellKey, Index, OnAccessLost, ProfileRef, Resource, ResourceVersion},
    store::{Change, Chosen, Follower, Lag, News, Wanted},
    wire::{EventFrame, EventType, Failure, Objects},
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::{fmt, ops::ControlFlow, pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// From here on a piece is sent as it is.
const PIECE_BYTES: usize = 64 << 10;
/// Changes that are looked at in one go: others are answered by this thread, too.
const CHANGES: usize = 64;

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Its time was over.
    Timeout,
    /// What happened is not known, or not remembered: the client was told to list anew.
    Expired,
    /// It was too slow: what came next is forgotten.
    Slow,
    /// The cell went, or may not answer any more.
    CellGone,
}

/// A watch under way. It holds what has not been sent of the state that it began with, and nothing of what
/// happens: that is held once for all.
pub struct Feed {
    of: Resource,
    stage: Stage,
    ended: Option<End>,
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
    key: CellKey,
    /// What the profiles say that let it answer.
    policies: Vec<OnAccessLost>,
    wanted: Wanted,
    /// The declared indexes that it selects by.
    indexes: Vec<Index>,
    lines: Arc<Lines>,
    /// Of a table: whether its client knows them.
    columns: Columns,
    follower: Follower,
    start: Start,
    timing: Timing,
    /// The version of the last event or bookmark.
    sent: Option<ResourceVersion>,
    /// Whether the state that it began with has to be marked as complete.
    is_unmarked: bool,
}

/// What a watch begins with.
#[derive(Default)]
pub(super) struct Start {
    /// The objects, if any are asked for.
    pub(super) initial: Option<Chosen>,
    /// The version at which they are all.
    pub(super) version: Option<ResourceVersion>,
}

/// What comes next.
enum Next {
    Send(Piece),
    /// Nothing for this watch, but there may be more.
    Again,
    Wait,
    /// After this, if there is anything left to say.
    End(End, Option<Piece>),
}

impl Feed {
    pub(super) fn new(
        reads: Arc<Reads>,
        (asked, profile): (Objects, Option<ProfileRef>),
        beginning: Beginning,
        timing: Timing,
    ) -> Self {
        let Beginning { kind, key, policies, wanted, indexes, follower, start } = beginning;
        let lines = Arc::new(Lines::new(&kind, asked.form));
        let is_unmarked =
            start.initial.is_some() && asked.watch.as_ref().is_some_and(|it| it.bookmarks);
        let of = asked.resource.clone();
        let following = Following {
            reads,
            asked,
            profile,
            key,
            policies,
            wanted,
            indexes,
            lines,
            columns: Columns::Said,
            follower,
            start,
            timing,
            sent: None,
            is_unmarked,
        };
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

    /// The cell that it is answered from; `None`: from none.
    #[must_use]
    pub fn cell(&self) -> Option<&CellKey> {
        match &self.stage {
            Stage::Following(following) => Some(&following.key),
            Stage::Failing(_) | Stage::Done => None,
        }
    }

    /// Whether it still sends what it began with, whose records it holds.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        matches!(&self.stage, Stage::Following(following) if following.start.initial.is_some())
    }

    /// How far it has come, whoever asks; `None` if there is no way to go.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        match &self.stage {
            Stage::Following(following) => Some(Progress {
                position: Arc::clone(&self.position),
                lag: following.follower.lag(),
            }),
            Stage::Failing(_) | Stage::Done => None,
        }
    }

    /// Why it has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// The next piece; `None` at the end. May be dropped and asked again, and nothing is lost.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            let following = match &mut self.stage {
                Stage::Done => return None,
                Stage::Failing(failure) => {
                    let line = error(failure);
                    (self.stage, self.ended) = (Stage::Done, Some(End::Expired));
                    return Some(line);
                }
                Stage::Following(following) => following,
            };
            // Before the last look at what there is, so that nothing comes in between.
            let told = following.follower.told();
            let mut told = pin!(told.notified());
            told.as_mut().enable();
            let next = following.step(Instant::now());
            // Also where nothing is said: what it began with may just have ended.
            (*self.position.lock()).clone_from(&following.sent);
            match next {
                Next::Send(piece) => return Some(piece),
                Next::Again => tokio::task::yield_now().await,
                Next::Wait => {
                    let until = following.timing.next();
                    select! {
                        () = told => {}
                        () = sleep_until(until) => {}
                    }
                }
                Next::End(end, last) => {
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
    fn step(&mut self, now: Instant) -> Next {
        if now >= self.timing.look {
            self.timing.look = now + LOOK;
            let asked = (&self.asked, self.profile.as_ref());
            match self.reads.policies(asked, (&self.key, &self.indexes)) {
                Some(policies) => self.policies = policies,
                None => return Next::End(End::CellGone, None),
            }
        }
        // What was taken back while the cell lost access is not to be seen by anybody.
        if !self.reads.serves(&self.key, &self.policies, now) {
            return Next::End(End::CellGone, None);
        }
        if now >= self.timing.end {
            return Next::End(End::Timeout, None);
        }
        if let Some(piece) = self.state() {
            return if piece.events == 0 { Next::Again } else { Next::Send(piece) };
        }
        if self.is_unmarked
            && let Some(version) = self.sent.clone()
        {
            self.is_unmarked = false;
            return Next::Send(self.bookmark(&version, true));
        }
        self.news(now)
    }

    fn news(&mut self, now: Instant) -> Next {
        let mut piece = Vec::new();
        for _ in 0..CHANGES {
            match self.follower.take(1) {
                News::Changes(changes) => {
                    for change in changes {
                        self.add(change, &mut piece);
                    }
                    if piece.iter().map(Bytes::len).sum::<usize>() < PIECE_BYTES {
                        continue;
                    }
                }
                // What has been written is sent first; the rest is still true then.
                _ if !piece.is_empty() => {}
                News::None(version) => return self.quiet(version, now),
                News::Overtaken => return Next::End(End::Slow, None),
                News::Lost => return Next::End(End::Expired, Some(error(&Failure::watch_lost()))),
                News::Closed => return Next::End(End::CellGone, None),
            }
            return Next::Send(joined(&piece));
        }
        if piece.is_empty() { Next::Again } else { Next::Send(joined(&piece)) }
    }

    /// Part of the state that it begins with; `None` if all has been sent.
    fn state(&mut self) -> Option<Piece> {
        let (by, asked, columns) = (&self.lines, &self.asked, &mut self.columns);
        let initial = self.start.initial.as_mut()?;
        let (mut lines, mut events) = (Vec::with_capacity(PIECE_BYTES), 0);
        let goes_on = initial.show(|seen| {
            if is_allowed(asked, seen.namespace, seen.name)
                && by.event(EventType::Added, seen.body, *columns, &mut lines)
            {
                *columns = Columns::Known;
                events += 1;
            }
            let has_room = lines.len() < PIECE_BYTES;
            if has_room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if !goes_on {
            self.start.initial = None;
            self.sent = self.start.version.take();
        }
        Some(Piece { lines: lines.into(), events })
    }

    /// Writes what a change is for this watch.
    fn add(&mut self, change: Arc<Change>, piece: &mut Vec<Bytes>) {
        if !is_allowed(&self.asked, change.namespace(), change.name()) {
            return;
        }
        let opened = self.reads.shared.open(change);
        let events = self.reads.shared.events(&opened, &self.wanted, &self.follower);
        for event in events.into_iter().flatten() {
            let form = (&self.lines, self.columns);
            let line = self.reads.shared.line(&opened, event, form, &self.follower);
            if let Some(line) = line {
                self.columns = Columns::Known;
                piece.push(line);
                self.sent = Some(opened.change().version().clone());
            }
        }
    }

    /// Nothing is new: perhaps it is time to say so.
    fn quiet(&mut self, version: Option<ResourceVersion>, now: Instant) -> Next {
        let is_due = self.timing.bookmark.is_some_and(|at| now >= at);
        if !is_due {
            return Next::Wait;
        }
        self.timing.bookmark = self.timing.bookmark_after(now);
        // Of a version that the client is behind already nothing is to be said: it would go back.
        let is_ahead = |version: &ResourceVersion| {
            !self.sent.as_ref().is_some_and(|sent| version.is_older_than(sent))
                && !self.follower.awaits(version)
        };
        match version.filter(is_ahead) {
            Some(version) => {
                let bookmark = self.bookmark(&version, false);
                self.sent = Some(version);
                Next::Send(bookmark)
            }
            None => Next::Wait,
        }
    }

    fn bookmark(&mut self, version: &ResourceVersion, is_initial_end: bool) -> Piece {
        let mut out = Vec::new();
        self.lines.bookmark((version, is_initial_end), self.columns, &mut out);
        self.columns = Columns::Known;
        Piece { lines: out.into(), events: 1 }
    }
}

/// Whether the caller was allowed this one: whatever happened, nothing is said of another.
fn is_allowed(asked: &Objects, namespace: &str, name: &[u8]) -> bool {
    asked.namespace.as_ref().is_none_or(|allowed| **allowed == *namespace)
        && asked.fields.name().is_none_or(|allowed| allowed.as_bytes() == name)
}

fn joined(lines: &[Bytes]) -> Piece {
    let events = lines.len() as u64;
    if let [line] = lines {
        return Piece { lines: line.clone(), events };
    }
    let mut piece = BytesMut::with_capacity(lines.iter().map(Bytes::len).sum());
    for line in lines {
        piece.extend_from_slice(line);
    }
    Piece { lines: piece.freeze(), events }
}

fn error(failure: &Failure) -> Piece {
    let mut out = Vec::new();
    EventFrame::error(failure, &mut out);
    Piece { lines: out.into(), events: 1 }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("of", &self.of)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
