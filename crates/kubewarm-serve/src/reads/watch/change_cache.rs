//! Decompresses and encodes each change of an object only once for all client watches.

use super::event_encoder::EventEncoder;
use crate::reads::{DamagedObjectError, item_position::ItemPosition};
use bytes::Bytes;
use kubewarm_cache::store::{BodyFieldCache, EventLogFollower, ObjectQuery, StoreChange};
use kubewarm_wire::{EventType, JsonBuffer, ObjectBody};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The maximum number of changes in the cache. All watches of clients read a change at about the
/// same time, so watches rarely need an earlier change.
const MAX_CHANGES: usize = 256;

/// Recent changes of stores. kubewarm decompresses each change once for all client watches. The
/// cache never keeps changes of Secrets, so that no more copies of their contents stay in memory.
pub(crate) struct ChangeCache {
    state: Mutex<ChangeCacheState>,
    /// The maximum size of the cache in bytes. Decompressed objects, parsed fields and encoded
    /// event lines count.
    max_bytes: usize,
}

#[derive(Default)]
struct ChangeCacheState {
    /// The key is the memory address of the `StoreChange`. The entry keeps the `StoreChange` in
    /// memory, so no other change can get the same address.
    by_change: HashMap<usize, Arc<UnpackedChange>>,
    order: VecDeque<usize>,
    bytes: usize,
}

/// A change in the cache. It contains the decompressed objects, the parsed fields and the encoded
/// event lines that watches have needed so far.
pub(super) struct UnpackedChange {
    change: Arc<StoreChange>,
    before: ChangedObject,
    now: ChangedObject,
    written: Mutex<Vec<EncodedEvent>>,
    /// The part of this change's size, in bytes, that the cache's total size already includes. A
    /// watch that decompresses or encodes more of the change increases both.
    weighed: AtomicUsize,
}

/// The object before or after a change. kubewarm decompresses the object when a watch first needs
/// it.
#[derive(Default)]
struct ChangedObject {
    bytes: OnceLock<Option<Bytes>>,
    /// The fields of this object that the field selectors of all watches have read so far.
    fields: Mutex<BodyFieldCache>,
}

struct EncodedEvent {
    event_type: EventType,
    position: ItemPosition,
    by: Arc<EventEncoder>,
    line: Bytes,
}

/// The events that a change causes in one watch. A change causes two events if it deleted an object
/// and created a new object with the same name.
pub(super) type ChangeEventTypes = [Option<EventType>; 2];

impl ChangeCache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { state: Mutex::default(), max_bytes }
    }

    /// Returns the cached entry of the change, and creates the entry if necessary. For a Secret,
    /// returns a new entry each time and does not cache it.
    pub(super) fn get_or_insert(&self, change: Arc<StoreChange>) -> Arc<UnpackedChange> {
        let opened = |change| {
            let (before, now) = (ChangedObject::default(), ChangedObject::default());
            let (written, weighed) = (Mutex::default(), AtomicUsize::default());
            Arc::new(UnpackedChange { change, before, now, written, weighed })
        };
        if change.is_secret() {
            return opened(change);
        }
        let address = Arc::as_ptr(&change).addr();
        let mut kept = self.state.lock();
        if let Some(known) = kept.by_change.get(&address) {
            return Arc::clone(known);
        }
        let opened = opened(change);
        kept.by_change.insert(address, Arc::clone(&opened));
        kept.order.push_back(address);
        let gone = kept.shrink(self.max_bytes);
        drop(kept);
        drop(gone);
        opened
    }

    /// Returns the encoded line of one event. The first watch that needs the line encodes it for
    /// all watches with an equal encoder.
    ///
    /// # Errors
    ///
    /// [`DamagedObjectError`] if the event cannot be encoded.
    pub(super) fn line(
        &self,
        opened: &UnpackedChange,
        event_type: EventType,
        by: &Arc<EventEncoder>,
        position: ItemPosition,
        follower: &EventLogFollower,
    ) -> Result<Bytes, DamagedObjectError> {
        let mut written = opened.written.lock();
        let is_same = |event: &&EncodedEvent| {
            (event.event_type, event.position) == (event_type, position) && event.by == *by
        };
        if let Some(known) = written.iter().find(is_same) {
            return Ok(known.line.clone());
        }
        let body = match event_type {
            EventType::Added | EventType::Modified => opened.now(follower),
            EventType::Deleted => opened.before(follower),
        };
        let body = body.ok_or(DamagedObjectError)?;
        let bytes = match event_type {
            EventType::Added | EventType::Modified => Cow::Borrowed(body.bytes),
            EventType::Deleted => body.with_end_version(opened.change.version()),
        };
        let stored = ObjectBody { encoding: opened.change.encoding(), bytes: &bytes };
        let mut line = Vec::with_capacity(bytes.len() + 128);
        by.event(event_type, stored, position, &mut JsonBuffer::default(), &mut line)?;
        let line = Bytes::from(line);
        written.push(EncodedEvent { event_type, position, by: Arc::clone(by), line: line.clone() });
        drop(written);
        self.weigh(opened);
        Ok(line)
    }

    /// Returns the events that the change causes in a watch with the selectors of `query`. As in
    /// the API server, an object that starts to match causes the event `ADDED`, and an object that
    /// stops matching causes `DELETED`.
    ///
    /// # Cost
    ///
    /// The first watch that reads the change parses the object before and after it. A later watch
    /// parses the objects only for field paths that no earlier watch has read. Otherwise a watch
    /// takes about 0.1 µs per requirement of its selectors.
    pub(super) fn events(
        &self,
        opened: &UnpackedChange,
        query: &ObjectQuery,
        follower: &EventLogFollower,
    ) -> ChangeEventTypes {
        if query.is_everything() {
            // Such a query reads no object, so `opened` does not grow, and the cache's total size
            // stays correct.
            return opened.events(query, follower);
        }
        let measure = || [opened.before.bytes(), opened.now.bytes()];
        let known = measure();
        let events = opened.events(query, follower);
        if measure() != known {
            self.weigh(opened);
        }
        events
    }

    /// Adds to the cache's total size the number of bytes by which `opened` has grown since the
    /// last call. Ignores a change that is no longer in the cache.
    fn weigh(&self, opened: &UnpackedChange) {
        // `opened.bytes()` can block while a watch parses an object of this change, so this line
        // stands before the lock of the cache. The size only grows, so of two concurrent results
        // the larger one is correct.
        let bytes = opened.bytes();
        let mut kept = self.state.lock();
        let known = kept.by_change.get(&Arc::as_ptr(&opened.change).addr());
        if !known.is_some_and(|known| ptr::eq(Arc::as_ptr(known), opened)) {
            return;
        }
        let weighed = opened.weighed.fetch_max(bytes, Ordering::Relaxed);
        kept.bytes += bytes.saturating_sub(weighed);
        let gone = kept.shrink(self.max_bytes);
        drop(kept);
        drop(gone);
    }

    /// Removes all changes from the cache. A watch that still needs a change adds it to the cache
    /// again.
    pub(crate) fn clear(&self) {
        let kept = std::mem::take(&mut *self.state.lock());
        drop(kept);
    }
}

impl ChangeCacheState {
    fn shrink(&mut self, max_bytes: usize) -> Vec<Arc<UnpackedChange>> {
        let mut gone = Vec::new();
        while self.order.len() > MAX_CHANGES || (self.bytes > max_bytes && self.order.len() > 1) {
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

impl UnpackedChange {
    pub(super) fn change(&self) -> &StoreChange {
        &self.change
    }

    fn before(&self, follower: &EventLogFollower) -> Option<ObjectBody<'_>> {
        self.body(self.before.bytes.get_or_init(|| follower.bytes_before(&self.change)).as_ref())
    }

    fn now(&self, follower: &EventLogFollower) -> Option<ObjectBody<'_>> {
        self.body(self.now.bytes.get_or_init(|| follower.bytes_after(&self.change)).as_ref())
    }

    fn body<'a>(&self, bytes: Option<&'a Bytes>) -> Option<ObjectBody<'a>> {
        let encoding = self.change.encoding();
        bytes.map(|bytes| ObjectBody { encoding, bytes })
    }

    /// The size in bytes of the decompressed objects before and after the change.
    pub(super) fn unpacked(&self) -> usize {
        self.before.unpacked() + self.now.unpacked()
    }

    /// Whether an object before or after the change could not be decompressed, or not be compared
    /// with a watch's selectors. The events of the change are then unknown.
    pub(super) fn is_damaged(&self) -> bool {
        let is_lost = |side: &ChangedObject| {
            side.bytes.get().is_some_and(Option::is_none) || side.fields.lock().is_malformed()
        };
        (self.change.has_previous() && is_lost(&self.before))
            || (self.change.exists() && is_lost(&self.now))
    }

    fn bytes(&self) -> usize {
        let lines = self.written.lock().iter().map(|event| event.line.len()).sum::<usize>();
        self.before.bytes() + self.now.bytes() + lines
    }

    /// The events of the change in a watch that selects objects with `query`.
    fn events(&self, query: &ObjectQuery, follower: &EventLogFollower) -> ChangeEventTypes {
        let is_whole = query.is_everything();
        let change = &self.change;
        let is_match = |body: Option<ObjectBody<'_>>, side: &ChangedObject| {
            body.is_some_and(|body| follower.is_selected(query, body, &mut side.fields.lock()))
        };
        let (was_selected, is_selected) = if is_whole {
            (change.has_previous(), change.exists())
        } else {
            let was_selected = is_match(self.before(follower), &self.before);
            (was_selected, is_match(self.now(follower), &self.now))
        };
        let is_replacement = change.is_replacement();
        SelectionChange { was_selected, is_selected, is_replacement }.event_types()
    }
}

impl ChangedObject {
    fn unpacked(&self) -> usize {
        self.bytes.get().and_then(Option::as_ref).map_or(0, Bytes::len)
    }

    /// The size in bytes of the decompressed object, and of the fields that watches have read from
    /// it.
    fn bytes(&self) -> usize {
        self.unpacked() + self.fields.lock().bytes()
    }
}

/// How a change of an object affects a watch with selectors.
#[derive(Clone, Copy, Debug)]
struct SelectionChange {
    /// Whether the object before the change matched the selectors.
    was_selected: bool,
    /// Whether the object after the change matches the selectors.
    is_selected: bool,
    /// Whether the change replaced the object by a new object with the same name.
    is_replacement: bool,
}

impl SelectionChange {
    fn event_types(self) -> ChangeEventTypes {
        match (self.was_selected, self.is_selected) {
            (false, false) => [None, None],
            (false, true) => [Some(EventType::Added), None],
            (true, false) => [Some(EventType::Deleted), None],
            (true, true) if self.is_replacement => {
                [Some(EventType::Deleted), Some(EventType::Added)]
            }
            (true, true) => [Some(EventType::Modified), None],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::{informer, parse_request};
    use kubewarm_api::model::{
        DecodedObject, Delta, DeltaSink as _, FieldPath, ReplacePolicy, ResourceVersion, Uid,
    };
    use kubewarm_cache::store::{BodyPredicate, FollowerEvent, StoreCatalog, StoreWriter};
    use std::{collections::BTreeSet, thread, time::Duration};

    const MAX_BYTES: usize = 32 << 20;

    fn upsert(writer: &mut StoreWriter, version: u64, text: &str) {
        let body = format!(r#"{{"metadata":{{"name":"x"}},"version":{version},"text":"{text}"}}"#);
        writer.apply(Delta::Upsert(DecodedObject {
            namespace: "a".into(),
            name: "x".into(),
            uid: Uid::parse("u"),
            version: Some(ResourceVersion::from(version)),
            body: body.as_bytes(),
        }));
    }

    #[test]
    fn memory_of_shared_changes_is_bounded_even_if_none_is_sent() {
        let (catalog, key) = (StoreCatalog::new(), informer("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        let text = "x".repeat(1 << 20);
        upsert(&mut writer, 4, &text);
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        let shared = ChangeCache::new(MAX_BYTES);
        let labels = parse_request("/api/v1/pods", "labelSelector=app").0.labels;
        let none = ObjectQuery { labels, ..ObjectQuery::default() };
        for version in 6..60 {
            upsert(&mut writer, version, &text);
            let FollowerEvent::Change(change) = follower.next_event() else { panic!("a change") };
            let opened = shared.get_or_insert(change);
            assert_eq!(shared.events(&opened, &none, &follower), [None, None]);
            let kept = shared.state.lock();
            let total: usize = kept.by_change.values().map(|opened| opened.bytes()).sum();
            assert_eq!(kept.bytes, total, "the count equals the memory in use");
            assert!((2 << 20..=MAX_BYTES).contains(&total), "{total} at {version}");
        }
    }

    #[test]
    fn watches_share_parsed_fields_and_their_memory_is_counted() {
        let (catalog, key) = (StoreCatalog::new(), informer("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        upsert(&mut writer, 4, "one");
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        upsert(&mut writer, 6, "two");
        let FollowerEvent::Change(change) = follower.next_event() else { panic!("a change") };
        let shared = ChangeCache::new(MAX_BYTES);
        let opened = shared.get_or_insert(Arc::clone(&change));
        let query = |path: &str, value: &str| {
            let path = FieldPath::parse(path).unwrap();
            let test = BodyPredicate::Field {
                path,
                absent: "".into(),
                is_equality: true,
                value: value.into(),
            };
            ObjectQuery { tests: [test].into_iter().collect(), ..ObjectQuery::default() }
        };
        let read = || [&opened.before, &opened.now].map(|side| side.fields.lock().bytes());
        assert_eq!(read(), [0, 0]);
        for (path, value, expected) in [
            ("text", "one", [Some(EventType::Deleted), None]),
            ("text", "two", [Some(EventType::Added), None]),
            ("text", "three", [None, None]),
            ("version", "6", [Some(EventType::Added), None]),
        ] {
            let before = read();
            assert_eq!(shared.events(&opened, &query(path, value), &follower), expected);
            let is_new = matches!(value, "one" | "6");
            assert_eq!(read() != before, is_new, "only the first watch parses a path");
            assert_eq!(
                shared.state.lock().bytes,
                opened.bytes(),
                "the cache counts the parsed fields"
            );
        }
    }

    #[test]
    fn measuring_a_change_blocks_no_other_watch() {
        let (catalog, key) = (StoreCatalog::new(), informer("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        let mut follower = catalog.reader(&key).unwrap().follow(&5.into()).unwrap();
        upsert(&mut writer, 6, "one");
        let FollowerEvent::Change(change) = follower.next_event() else { panic!("a change") };
        let shared = ChangeCache::new(MAX_BYTES);
        let opened = shared.get_or_insert(Arc::clone(&change));
        assert!(opened.now(&follower).is_some());
        thread::scope(|scope| {
            let read = opened.now.fields.lock();
            let weighing = scope.spawn(|| shared.weigh(&opened));
            for _ in 0..50 {
                thread::sleep(Duration::from_millis(1));
                assert!(shared.state.try_lock_for(Duration::from_secs(10)).is_some());
            }
            assert!(!weighing.is_finished(), "`weigh` waits for the watch that parses a body");
            drop(read);
        });
        assert_eq!(shared.state.lock().bytes, opened.bytes());
    }

    #[test]
    fn an_object_is_added_when_it_starts_to_match_and_deleted_when_it_stops() {
        use EventType::{Added, Deleted, Modified};
        for ((was_selected, is_selected), is_replacement, expected) in [
            ((false, false), false, [None, None]),
            ((false, true), false, [Some(Added), None]),
            ((true, true), false, [Some(Modified), None]),
            ((true, false), false, [Some(Deleted), None]),
            ((true, true), true, [Some(Deleted), Some(Added)]),
            ((true, false), true, [Some(Deleted), None]),
            ((false, true), true, [Some(Added), None]),
        ] {
            let change = SelectionChange { was_selected, is_selected, is_replacement };
            assert_eq!(change.event_types(), expected, "{change:?}");
        }
    }
}
