//! Changes, unpacked and written once for all who watch.

use super::lines::{Columns, Lines};
use crate::{
    store::{Change, Follower, Wanted},
    wire::{EventType, ended},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, OnceLock},
};

/// Changes that are kept open: those who follow are woken together, and are rarely further apart.
const MAX_CHANGES: usize = 256;
/// Bytes of what was written of them, whatever it was written for.
const MAX_BYTES: usize = 32 << 20;

/// What was opened lately. Changes of secrets are not kept here.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// By address, which nothing else has while the change is held.
    by_change: HashMap<usize, Arc<Opened>>,
    order: VecDeque<usize>,
    bytes: usize,
}

/// A change, as far as anybody has looked into it.
pub(super) struct Opened {
    change: Arc<Change>,
    before: OnceLock<Option<Bytes>>,
    now: OnceLock<Option<Bytes>>,
    written: Mutex<Vec<Written>>,
}

/// A line, and for whom it was written.
struct Written {
    of: EventType,
    columns: Columns,
    by: Arc<Lines>,
    line: Bytes,
}

/// What a change is for someone: of two events, an object went and another of its name came.
pub(super) type Events = [Option<EventType>; 2];

impl Shared {
    /// The change, opened.
    pub(super) fn open(&self, change: Arc<Change>) -> Arc<Opened> {
        let opened = |change| {
            let (before, now) = (OnceLock::new(), OnceLock::new());
            Arc::new(Opened { change, before, now, written: Mutex::default() })
        };
        if change.is_secret() {
            return opened(change);
        }
        let address = Arc::as_ptr(&change).addr();
        let mut kept = self.0.lock();
        if let Some(known) = kept.by_change.get(&address) {
            return Arc::clone(known);
        }
        let opened = opened(change);
        kept.by_change.insert(address, Arc::clone(&opened));
        kept.order.push_back(address);
        let gone = kept.shrink();
        drop(kept);
        drop(gone);
        opened
    }

    /// The line for one event, written by whoever needs it first of all whose lines are the same; `None` if
    /// it cannot be written.
    pub(super) fn line(
        &self,
        opened: &Opened,
        of: EventType,
        (by, columns): (&Arc<Lines>, Columns),
        follower: &Follower,
    ) -> Option<Bytes> {
        let mut written = opened.written.lock();
        let is_same = |it: &&Written| (it.of, it.columns) == (of, columns) && it.by == *by;
        if let Some(known) = written.iter().find(is_same) {
            return Some(known.line.clone());
        }
        let stored = match of {
            EventType::Added | EventType::Modified => Cow::Borrowed(&**opened.now(follower)?),
            EventType::Deleted => ended(opened.before(follower)?, opened.change.version()),
        };
        let mut line = Vec::with_capacity(stored.len() + 128);
        if !by.event(of, &stored, columns, &mut line) {
            return None;
        }
        let line = Bytes::from(line);
        written.push(Written { of, columns, by: Arc::clone(by), line: line.clone() });
        drop(written);
        let mut kept = self.0.lock();
        kept.bytes += line.len();
        let gone = kept.shrink();
        drop(kept);
        drop(gone);
        Some(line)
    }

    /// Lets go of everything: who still needs it opens it again.
    pub(crate) fn clear(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        drop(kept);
    }
}

impl Kept {
    fn shrink(&mut self) -> Vec<Arc<Opened>> {
        let mut gone = Vec::new();
        while self.order.len() > MAX_CHANGES || (self.bytes > MAX_BYTES && self.order.len() > 1) {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(oldest) = self.by_change.remove(&oldest) {
                let lines = oldest.written.lock().iter().map(|it| it.line.len()).sum();
                self.bytes = self.bytes.saturating_sub(lines);
                gone.push(oldest);
            }
        }
        gone
    }
}

impl Opened {
    /// The change itself.
    pub(super) fn change(&self) -> &Change {
        &self.change
    }

    fn before(&self, follower: &Follower) -> Option<&Bytes> {
        self.before.get_or_init(|| follower.body_before(&self.change)).as_ref()
    }

    fn now(&self, follower: &Follower) -> Option<&Bytes> {
        self.now.get_or_init(|| follower.body_after(&self.change)).as_ref()
    }

    /// What the change is for someone who wants that: an object that comes to be selected is added, and one
    /// that ceases to be is deleted, as with the API server.
    pub(super) fn events(&self, wanted: &Wanted, follower: &Follower) -> Events {
        let is_whole = wanted.labels.is_empty() && wanted.tests.is_empty();
        let change = &self.change;
        let is_selected =
            |body: Option<&Bytes>| body.is_some_and(|body| follower.selects(wanted, body));
        let was = if is_whole { change.was_there() } else { is_selected(self.before(follower)) };
        let is = if is_whole { change.is_there() } else { is_selected(self.now(follower)) };
        events((was, is), change.is_other())
    }
}

fn events((was, is): (bool, bool), is_other: bool) -> Events {
    match (was, is) {
        (false, false) => [None, None],
        (false, true) => [Some(EventType::Added), None],
        (true, false) => [Some(EventType::Deleted), None],
        (true, true) if is_other => [Some(EventType::Deleted), Some(EventType::Added)],
        (true, true) => [Some(EventType::Modified), None],
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.0.lock().order.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_be_selected_is_added_and_what_ceases_to_be_is_deleted() {
        use EventType::{Added, Deleted, Modified};
        for (selected, is_other, expected) in [
            ((false, false), false, [None, None]),
            ((false, true), false, [Some(Added), None]),
            ((true, true), false, [Some(Modified), None]),
            ((true, false), false, [Some(Deleted), None]),
            ((true, true), true, [Some(Deleted), Some(Added)]),
            ((true, false), true, [Some(Deleted), None]),
            ((false, true), true, [Some(Added), None]),
        ] {
            assert_eq!(events(selected, is_other), expected, "{selected:?} {is_other}");
        }
    }
}
