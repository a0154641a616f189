//! Changes, unpacked and written once for all who watch.

use super::lines::Lines;
use bytes::Bytes;
use kubewarm_cache::store::{Change, Follower, Said, Wanted};
use kubewarm_wire::{EventType, ended};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fmt, ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Changes that are kept open: those who follow are woken together, and are rarely further apart.
const MAX_CHANGES: usize = 256;
/// Bytes of what was unpacked, read and written of them, whatever it was written for.
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
    before: Side,
    now: Side,
    written: Mutex<Vec<Written>>,
    /// Bytes of all that, as far as they were weighed.
    weighed: AtomicUsize,
}

/// The object before a change or after it, as far as anybody has looked.
#[derive(Default)]
struct Side {
    body: OnceLock<Option<Bytes>>,
    /// What was read of it: once, however many watches select by it.
    said: Mutex<Said>,
}

/// A line, and for whom it was written.
struct Written {
    of: EventType,
    is_first: bool,
    by: Arc<Lines>,
    line: Bytes,
}

/// What a change is for someone: of two events, an object went and another of its name came.
pub(super) type Events = [Option<EventType>; 2];

impl Shared {
    /// The change, opened.
    pub(super) fn open(&self, change: Arc<Change>) -> Arc<Opened> {
        let opened = |change| {
            let (before, now) = (Side::default(), Side::default());
            let (written, weighed) = (Mutex::default(), AtomicUsize::default());
            Arc::new(Opened { change, before, now, written, weighed })
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
        (by, is_first): (&Arc<Lines>, bool),
        follower: &Follower,
    ) -> Option<Bytes> {
        let mut written = opened.written.lock();
        let is_same = |it: &&Written| (it.of, it.is_first) == (of, is_first) && it.by == *by;
        if let Some(known) = written.iter().find(is_same) {
            return Some(known.line.clone());
        }
        let stored = match of {
            EventType::Added | EventType::Modified => Cow::Borrowed(&**opened.now(follower)?),
            EventType::Deleted => ended(opened.before(follower)?, opened.change.version()),
        };
        let mut line = Vec::with_capacity(stored.len() + 128);
        if !by.event(of, &stored, is_first, &mut line) {
            return None;
        }
        let line = Bytes::from(line);
        written.push(Written { of, is_first, by: Arc::clone(by), line: line.clone() });
        drop(written);
        self.weigh(opened);
        Some(line)
    }

    /// What the change is for someone who wants that: an object that comes to be selected is added, and one
    /// that ceases to be is deleted, as with the API server.
    ///
    /// # Cost
    ///
    /// The first watch of all walks both bodies, and another one only for paths that no watch has asked for
    /// before it; a watch that finds everything read takes about 0.1 µs a requirement.
    pub(super) fn events(&self, opened: &Opened, wanted: &Wanted, follower: &Follower) -> Events {
        let held = || [opened.before.bytes(), opened.now.bytes()];
        let known = held();
        let events = opened.events(wanted, follower);
        if held() != known {
            self.weigh(opened);
        }
        events
    }

    /// Counts what has been unpacked, read and written of a change, if it is kept here.
    fn weigh(&self, opened: &Opened) {
        // Before anything is locked: who walks one of its bodies is waited for, and only by whoever asks for this
        // change. What one holds grows, so of two who weigh it at once the larger is right.
        let bytes = opened.bytes();
        let mut kept = self.0.lock();
        let known = kept.by_change.get(&Arc::as_ptr(&opened.change).addr());
        if !known.is_some_and(|known| ptr::eq(Arc::as_ptr(known), opened)) {
            return;
        }
        let weighed = opened.weighed.fetch_max(bytes, Ordering::Relaxed);
        kept.bytes += bytes.saturating_sub(weighed);
        let gone = kept.shrink();
        drop(kept);
        drop(gone);
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
                let weighed = oldest.weighed.load(Ordering::Relaxed);
                self.bytes = self.bytes.saturating_sub(weighed);
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
        self.before.body.get_or_init(|| follower.body_before(&self.change)).as_ref()
    }

    fn now(&self, follower: &Follower) -> Option<&Bytes> {
        self.now.body.get_or_init(|| follower.body_after(&self.change)).as_ref()
    }

    /// Bytes of the bodies that anybody has looked into.
    pub(super) fn unpacked(&self) -> usize {
        self.before.unpacked() + self.now.unpacked()
    }

    fn bytes(&self) -> usize {
        let lines = self.written.lock().iter().map(|it| it.line.len()).sum::<usize>();
        self.before.bytes() + self.now.bytes() + lines
    }

    fn events(&self, wanted: &Wanted, follower: &Follower) -> Events {
        let is_whole = wanted.is_everything();
        let change = &self.change;
        let is_selected = |body: Option<&Bytes>, side: &Side| {
            body.is_some_and(|body| follower.selects(wanted, body, &mut side.said.lock()))
        };
        let (was, is) = if is_whole {
            (change.was_there(), change.is_there())
        } else {
            let was = is_selected(self.before(follower), &self.before);
            (was, is_selected(self.now(follower), &self.now))
        };
        events((was, is), change.is_other())
    }
}

impl Side {
    fn unpacked(&self) -> usize {
        self.body.get().and_then(Option::as_ref).map_or(0, Bytes::len)
    }

    /// Bytes of the body, and of what was read of it.
    fn bytes(&self) -> usize {
        self.unpacked() + self.said.lock().bytes()
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
    use crate::reads::sample::{asked, cell};
    use kubewarm_api::model::{
        Delta, DeltaSink as _, FieldPath, Item, Reread, ResourceVersion, Uid,
    };
    use kubewarm_cache::store::{Catalog, News, Test, Writer};
    use std::{collections::BTreeSet, thread, time::Duration};

    fn say(writer: &mut Writer, version: u64, text: &str) {
        let body = format!(r#"{{"metadata":{{"name":"x"}},"version":{version},"text":"{text}"}}"#);
        writer.apply(Delta::Upsert(Item {
            namespace: "a".into(),
            name: "x".into(),
            uid: Uid::parse("u"),
            version: Some(ResourceVersion::from(version)),
            body: body.as_bytes(),
        }));
    }

    #[test]
    fn what_is_unpacked_for_those_who_watch_is_bounded_whether_or_not_it_is_sent() {
        let (catalog, key) = (Catalog::new(), cell("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(Reread::Changed));
        let text = "x".repeat(1 << 20);
        say(&mut writer, 4, &text);
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        let shared = Shared::default();
        let labels = asked("/api/v1/pods", "labelSelector=app").0.labels;
        let none = Wanted { labels, ..Wanted::default() };
        for version in 6..60 {
            say(&mut writer, version, &text);
            let News::Change(change) = follower.take() else { panic!("a change") };
            let opened = shared.open(change);
            assert_eq!(shared.events(&opened, &none, &follower), [None, None]);
            let kept = shared.0.lock();
            let held: usize = kept.by_change.values().map(|opened| opened.bytes()).sum();
            assert_eq!(kept.bytes, held, "what is counted is what is held");
            assert!((2 << 20..=MAX_BYTES).contains(&held), "{held} at {version}");
        }
    }

    #[test]
    fn what_one_watch_has_read_of_a_change_is_there_for_all_and_counts() {
        let (catalog, key) = (Catalog::new(), cell("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(Reread::Changed));
        say(&mut writer, 4, "one");
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        say(&mut writer, 6, "two");
        let News::Change(change) = follower.take() else { panic!("a change") };
        let shared = Shared::default();
        let opened = shared.open(Arc::clone(&change));
        let wanted = |path: &str, value: &str| {
            let path = FieldPath::parse(path).unwrap();
            let test =
                Test::Field { path, absent: "".into(), is_equality: true, value: value.into() };
            Wanted { tests: [test].into_iter().collect(), ..Wanted::default() }
        };
        let read = || [&opened.before, &opened.now].map(|side| side.said.lock().bytes());
        assert_eq!(read(), [0, 0]);
        for (path, value, expected) in [
            ("text", "one", [Some(EventType::Deleted), None]),
            ("text", "two", [Some(EventType::Added), None]),
            ("text", "three", [None, None]),
            ("version", "6", [Some(EventType::Added), None]),
        ] {
            let before = read();
            assert_eq!(shared.events(&opened, &wanted(path, value), &follower), expected);
            let is_new = matches!(value, "one" | "6");
            assert_eq!(read() != before, is_new, "each path is read by the first who asks");
            assert_eq!(shared.0.lock().bytes, opened.bytes(), "and weighed");
        }
    }

    #[test]
    fn nobody_else_waits_while_a_change_is_read_that_is_to_be_weighed() {
        let (catalog, key) = (Catalog::new(), cell("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(Reread::Changed));
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        say(&mut writer, 6, "one");
        let News::Change(change) = follower.take() else { panic!("a change") };
        let shared = Shared::default();
        let opened = shared.open(Arc::clone(&change));
        assert!(opened.now(&follower).is_some());
        thread::scope(|scope| {
            let read = opened.now.said.lock();
            let weighing = scope.spawn(|| shared.weigh(&opened));
            for _ in 0..50 {
                thread::sleep(Duration::from_millis(1));
                assert!(shared.0.try_lock_for(Duration::from_secs(10)).is_some());
            }
            assert!(!weighing.is_finished(), "it waits itself");
            drop(read);
        });
        assert_eq!(shared.0.lock().bytes, opened.bytes());
    }

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
