//! Produces the events of one watch: the initial objects, and then the changes after them.

use super::{change_cache::ChangeCache, event_encoder::EventEncoder, feed::WatchProgress};
use crate::{
    callers::UserPermits,
    metrics::ClientWatchEnd,
    reads::{
        DamagedObjectError,
        authorized_scope::AuthorizedScope,
        item_position::ItemPosition,
        large_objects::{LargeObjectPermits, ObjectPermit, encoded_with_permit, with_permit},
        read_response::PIECE_BYTES,
    },
};
use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, FutureExt as _};
use kubewarm_api::model::ResourceVersion;
use kubewarm_cache::store::{
    EventLogFollower, FollowerEvent, ObjectQuery, ObjectSnapshot, ScanBudget, StoreChange,
};
use kubewarm_wire::{BookmarkKind, EventType, JsonBuffer, MediaType, ObjectRequest, StatusError};
use parking_lot::Mutex;
use std::{ops::ControlFlow, sync::Arc};
use tokio::sync::Notify;

/// The bytes that each examined change counts at least against the watch's scan budget of 1 MiB. So
/// other tasks of the thread can run after at most 256 changes, even if no selector reads an
/// object.
const MIN_CHANGE_BYTES: usize = 4 << 10;

/// A client watch's position in the event log of its informer, and the encoding of the watch's
/// events.
pub(super) struct WatchCursor {
    allowed: AuthorizedScope,
    query: ObjectQuery,
    lines: Arc<EventEncoder>,
    pub(super) media_type: MediaType,
    follower: EventLogFollower,
    permits: LargeObjectPermits,
    /// The permit for the next object, after [`WatchCursor::acquire`]; `None` before, and if this
    /// object is not large.
    permit: Option<ObjectPermit>,
    /// The unfinished wait for `permit`, which keeps its place in the queue; `None` if the watch
    /// waits for no permit.
    permit_wait: Option<BoxFuture<'static, Option<ObjectPermit>>>,
    /// The initial objects that the watch has not sent yet, and the resource version at which the
    /// watch selected them.
    initial: Option<(ObjectSnapshot, ResourceVersion)>,
    /// Whether the watch must still send the bookmark that marks the end of the initial objects.
    is_initial_bookmark_due: bool,
    /// The position of the next event that the watch writes. In a watch of `Table`s, only the first
    /// event contains the columns.
    next_event: ItemPosition,
    /// The resource version of the last event or bookmark that the watch sent. It is shared with
    /// the list of open watches.
    position: Arc<Mutex<Option<ResourceVersion>>>,
    scan_budget: ScanBudget,
}

/// Events of one watch that kubewarm sends to the client together.
#[derive(Clone, Debug)]
pub struct WatchChunk {
    /// Complete events: lines of JSON, or messages of protobuf.
    pub lines: Bytes,
    /// The number of events in `lines`.
    pub events: u64,
}

/// The result of one call of [`WatchCursor::next`].
#[derive(Debug)]
pub(super) enum WatchStep {
    /// The next object is large. Its stored length is this number of bytes. Call
    /// [`WatchCursor::acquire`] before the next step.
    NeedsMemory(usize),
    /// Events to send to the client. The chunk has no events if none of the examined changes
    /// matches the watch.
    Piece(WatchChunk),
    /// The watch has examined all changes. The store is complete at this resource version, so a
    /// bookmark can contain it. `None` if the informer relists and has already found a change,
    /// because the store then mixes two states.
    Quiet(Option<ResourceVersion>),
    /// The watch ends. If there is a last chunk of events, the client receives it first.
    End(ClientWatchEnd, Option<WatchChunk>),
}

impl WatchCursor {
    pub(super) fn new(
        lines: EventEncoder,
        request: &ObjectRequest,
        allowed: AuthorizedScope,
        query: ObjectQuery,
        follower: EventLogFollower,
        initial: Option<(ObjectSnapshot, ResourceVersion)>,
        permits: &UserPermits,
    ) -> Self {
        let permits = LargeObjectPermits::new(permits, follower.encoding(), lines.media_type);
        let is_initial_bookmark_due =
            initial.is_some() && request.watch.as_ref().is_some_and(|watch| watch.has_bookmarks);
        Self {
            allowed,
            follower: follower.narrow_to(&query),
            query,
            media_type: lines.media_type,
            lines: Arc::new(lines),
            permits,
            permit: None,
            permit_wait: None,
            initial,
            is_initial_bookmark_due,
            next_event: ItemPosition::First,
            position: Arc::default(),
            scan_budget: ScanBudget::default(),
        }
    }

    /// Whether the watch has not sent all initial objects yet. A watch keeps its unsent initial
    /// objects in memory.
    pub(super) fn is_beginning(&self) -> bool {
        self.initial.is_some()
    }

    pub(super) fn change_notifier(&self) -> Arc<Notify> {
        self.follower.change_notifier()
    }

    pub(super) fn progress(&self) -> WatchProgress {
        WatchProgress { position: Arc::clone(&self.position), lag: Some(self.follower.lag()) }
    }

    /// Yields to other tasks of this thread if the watch has decompressed about 1 MiB of objects
    /// since its last yield. Call this function before [`WatchCursor::next`]. Cancel safe.
    pub(super) async fn yield_if_over(&mut self) {
        self.scan_budget.yield_if_over().await;
    }

    /// Waits until the memory for an object of `length` bytes is free. Cancel safe: a further call
    /// continues the wait.
    pub(super) async fn acquire(&mut self, length: usize) {
        let wait = self.permit_wait.get_or_insert_with(|| self.permits.acquire(length).boxed());
        self.permit = wait.await;
        self.permit_wait = None;
    }

    /// Releases the permit of [`WatchCursor::acquire`], and leaves the queue of its wait.
    pub(super) fn release(&mut self) {
        (self.permit, self.permit_wait) = (None, None);
    }

    /// Produces the next events of the watch. Stops after about 1 MiB of decompressed objects.
    pub(super) fn next(&mut self, shared: &ChangeCache) -> WatchStep {
        let permit = self.permit.take();
        if let Some((snapshot, version)) = self.initial.take() {
            return self.next_initial_objects(snapshot, version, permit);
        }
        let complete =
            if self.is_initial_bookmark_due { self.position.lock().clone() } else { None };
        if let Some(version) = complete {
            self.is_initial_bookmark_due = false;
            return WatchStep::Piece(self.bookmark(&version, BookmarkKind::InitialEnd));
        }
        self.next_changes(shared, permit)
    }

    /// Encodes the next initial objects. The first one can be large, and then needs `permit`.
    fn next_initial_objects(
        &mut self,
        mut snapshot: ObjectSnapshot,
        version: ResourceVersion,
        permit: Option<ObjectPermit>,
    ) -> WatchStep {
        let (length, small_length) = (snapshot.next_length(), self.permits.small_length());
        if !self.permits.suffices(permit.as_ref(), length) {
            self.initial = Some((snapshot, version));
            return WatchStep::NeedsMemory(length);
        }
        let Self { allowed, lines: by, next_event, scan_budget, .. } = self;
        // The watch does not keep this buffer, which has the size of its largest object.
        let mut buffer = JsonBuffer::default();
        let (mut lines, mut events) = (Vec::with_capacity(PIECE_BYTES), 0);
        let mut written = Ok(());
        let has_more = snapshot.visit_next_up_to(small_length, |seen| {
            // The access review covers only this scope, so the caller may not see an object outside
            // it.
            if allowed.has(seen.namespace, seen.name) {
                written =
                    by.event(EventType::Added, seen.body, *next_event, &mut buffer, &mut lines);
                *next_event = ItemPosition::Next;
                events += 1;
            }
            scan_budget.charge(seen.body.bytes.len());
            let has_more = written.is_ok() && lines.len() < PIECE_BYTES && !scan_budget.is_over();
            if has_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if snapshot.is_damaged() {
            written = Err(DamagedObjectError);
        }
        if let Err(damaged) = written {
            return self.end_with(damaged, &[]);
        }
        if has_more {
            self.initial = Some((snapshot, version));
        } else {
            *self.position.lock() = Some(version);
        }
        WatchStep::Piece(WatchChunk { lines: encoded_with_permit(lines, permit), events })
    }

    /// Ends the watch after the lines `piece`, because of a damaged object. Otherwise the client
    /// would miss the event about this object.
    fn end_with(&self, damaged: DamagedObjectError, piece: &[Bytes]) -> WatchStep {
        let failure = error(&damaged.into(), self.media_type);
        let last = joined(&[piece, &[failure.lines]].concat());
        WatchStep::End(ClientWatchEnd::Expired, Some(last))
    }

    /// Encodes the next changes. The first one can be large, and then needs `permit`.
    fn next_changes(&mut self, shared: &ChangeCache, permit: Option<ObjectPermit>) -> WatchStep {
        let mut piece: Vec<Bytes> = Vec::new();
        while piece.iter().map(Bytes::len).sum::<usize>() < PIECE_BYTES
            && !self.scan_budget.is_over()
        {
            match self.follower.next_event() {
                FollowerEvent::Change(change) => {
                    self.scan_budget.charge(MIN_CHANGE_BYTES);
                    if !self.allowed.has(change.namespace(), change.name()) {
                        continue;
                    }
                    let length = change.object_length();
                    // A piece contains only one large object, because the permit is for one.
                    let suffices = match &piece[..] {
                        [] => self.permits.suffices(permit.as_ref(), length),
                        [_, ..] => length <= self.permits.small_length(),
                    };
                    if !suffices {
                        // kubewarm keeps only the watch's position in memory while it waits.
                        self.follower.unread();
                        if piece.is_empty() {
                            return WatchStep::NeedsMemory(length);
                        }
                        break;
                    }
                    if let Err(damaged) = self.add(change, shared, &mut piece) {
                        return self.end_with(damaged, &piece);
                    }
                }
                // The watch first sends the event lines that it has collected. The next call of
                // `next_event` returns the same result again.
                _ if !piece.is_empty() => break,
                FollowerEvent::None(version) => return WatchStep::Quiet(version),
                FollowerEvent::Overtaken => return WatchStep::End(ClientWatchEnd::Slow, None),
                FollowerEvent::Lost => return self.expire(ClientWatchEnd::Expired),
                FollowerEvent::Closed => return self.expire(ClientWatchEnd::InformerGone),
            }
        }
        let WatchChunk { lines, events } = joined(&piece);
        WatchStep::Piece(WatchChunk { lines: with_permit(lines, permit), events })
    }

    /// Ends the watch because the event log has dropped its changes, or because nothing fills the
    /// store any more. The last event is an error, after which the client lists again. Without the
    /// error event, the client would resume from its resource version, which might never come again
    /// after an etcd restore.
    pub(super) fn expire(&self, reason: ClientWatchEnd) -> WatchStep {
        let failure = if reason == ClientWatchEnd::InformerGone {
            StatusError::watch_undeclared()
        } else {
            StatusError::watch_lost()
        };
        WatchStep::End(reason, Some(error(&failure, self.media_type)))
    }

    /// Appends to `piece`, the lines to send next, the events that `change` causes in this watch.
    fn add(
        &mut self,
        change: Arc<StoreChange>,
        shared: &ChangeCache,
        piece: &mut Vec<Bytes>,
    ) -> Result<(), DamagedObjectError> {
        let opened = shared.get_or_insert(change);
        let events = shared.events(&opened, &self.query, &self.follower);
        if opened.is_damaged() {
            return Err(DamagedObjectError);
        }
        for event in events.into_iter().flatten() {
            piece.push(shared.line(
                &opened,
                event,
                &self.lines,
                self.next_event,
                &self.follower,
            )?);
            self.next_event = ItemPosition::Next;
            *self.position.lock() = Some(opened.change().version().clone());
        }
        // The objects before and after the change count against this watch's scan budget, even if
        // another watch has already decompressed them.
        self.scan_budget.charge(opened.unpacked());
        Ok(())
    }

    /// Writes a bookmark for `version`, a resource version at which the store is complete. Returns
    /// `None` if the client already has a newer resource version, because a watch's versions must
    /// not go back.
    pub(super) fn bookmark_at(&mut self, version: ResourceVersion) -> Option<WatchChunk> {
        let is_behind =
            self.position.lock().as_ref().is_some_and(|sent| version.is_older_than(sent));
        if is_behind || self.follower.is_ahead_of_store(&version) {
            return None;
        }
        let bookmark = self.bookmark(&version, BookmarkKind::Progress);
        *self.position.lock() = Some(version);
        Some(bookmark)
    }

    fn bookmark(&mut self, version: &ResourceVersion, kind: BookmarkKind) -> WatchChunk {
        let mut out = Vec::new();
        self.lines.bookmark(version, kind, self.next_event, &mut out);
        self.next_event = ItemPosition::Next;
        WatchChunk { lines: out.into(), events: 1 }
    }
}

fn joined(lines: &[Bytes]) -> WatchChunk {
    let events = lines.len() as u64;
    if let [line] = lines {
        return WatchChunk { lines: line.clone(), events };
    }
    let mut piece = BytesMut::with_capacity(lines.iter().map(Bytes::len).sum());
    for line in lines {
        piece.extend_from_slice(line);
    }
    WatchChunk { lines: piece.freeze(), events }
}

/// Creates a chunk with one error event. The error event is the last event of a watch.
pub(super) fn error(failure: &StatusError, media_type: MediaType) -> WatchChunk {
    let mut out = Vec::new();
    match media_type {
        MediaType::Json => kubewarm_wire::write_error_event(failure, &mut out),
        MediaType::Protobuf => kubewarm_wire::write_error_message(failure, &mut out),
    }
    WatchChunk { lines: out.into(), events: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        callers::fixtures::user_permits,
        reads::fixtures::{authorized_scope, informer, kind, metrics, parse_request},
    };
    use kubewarm_api::model::{
        DecodedObject, Delta, DeltaSink as _, InformerKey, ReplacePolicy, Uid,
    };
    use kubewarm_cache::store::{StoreCatalog, StoreWriter};
    use kubewarm_wire::{MetaVersion, ObjectPart, ResponseForm, ResponseFormat};
    use std::collections::BTreeSet;

    /// Enough permits for one object of 256 KiB.
    const PERMITS: usize = 300;

    /// Adds or changes an object of 256 KiB, which is a large object. Four such objects use up the
    /// scan budget of 1 MiB.
    fn upsert(writer: &mut StoreWriter, name: &str, version: u64) {
        upsert_with(&"x".repeat(256 << 10), writer, name, version);
    }

    fn upsert_with(text: &str, writer: &mut StoreWriter, name: &str, version: u64) {
        let body =
            format!(r#"{{"metadata":{{"name":"{name}"}},"version":{version},"text":"{text}"}}"#);
        writer.apply(Delta::Upsert(DecodedObject {
            namespace: "a".into(),
            name: name.into(),
            uid: Uid::parse(name),
            version: Some(ResourceVersion::from(version)),
            body: body.as_bytes(),
        }));
    }

    fn store(objects: usize) -> (StoreCatalog, InformerKey, StoreWriter) {
        let (catalog, key) = (StoreCatalog::new(), informer("all", "", ""));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        // 18 such objects use up the scan budget.
        let text = "x".repeat(60 << 10);
        for n in 0..objects {
            upsert_with(&text, &mut writer, &format!("x{n}"), 4);
        }
        writer.apply(Delta::ListDone(ResourceVersion::from(5)));
        (catalog, key, writer)
    }

    fn cursor(
        request: &ObjectRequest,
        query: ObjectQuery,
        follower: EventLogFollower,
        initial: Option<(ObjectSnapshot, ResourceVersion)>,
    ) -> WatchCursor {
        let [jane] = user_permits(4 * PERMITS, ["jane"]);
        cursor_with(&jane, request, query, follower, initial)
    }

    fn cursor_with(
        permits: &UserPermits,
        request: &ObjectRequest,
        query: ObjectQuery,
        follower: EventLogFollower,
        initial: Option<(ObjectSnapshot, ResourceVersion)>,
    ) -> WatchCursor {
        let format = ResponseFormat::json(request.form);
        let lines = EventEncoder::new(&kind(""), format, &metrics());
        let scope = authorized_scope(request);
        WatchCursor::new(lines, request, scope, query, follower, initial, permits)
    }

    /// The result of the next step, after the wait for a permit.
    async fn step(cursor: &mut WatchCursor, shared: &ChangeCache) -> WatchStep {
        let first = cursor.next(shared);
        let WatchStep::NeedsMemory(length) = first else { return first };
        cursor.acquire(length).await;
        cursor.next(shared)
    }

    #[tokio::test]
    async fn an_initial_state_of_large_objects_is_sent_one_scan_budget_at_a_time() {
        let (catalog, key, _writer) = store(40);
        let reader = catalog.reader(&key).unwrap();
        let (selected, follower) = reader.select_and_follow(&ObjectQuery::default());
        let initial = Some((selected, ResourceVersion::from(5)));
        let (mut request, _) = parse_request("/api/v1/pods", "watch=1");
        // The events contain only metadata. So the events of all objects would fit into one chunk
        // if the watch did not stop after 1 MiB of decompressed objects.
        request.form = ResponseForm::Object(ObjectPart::Metadata(MetaVersion::V1));
        let mut cursor = cursor(&request, ObjectQuery::default(), follower, initial);
        let shared = ChangeCache::new(1 << 20);
        for (events, has_more) in [(18, true), (18, true), (4, false)] {
            let WatchStep::Piece(piece) = cursor.next(&shared) else { panic!("objects") };
            assert_eq!((piece.events, cursor.is_beginning()), (events, has_more));
            let is_over = cursor.yield_if_over().now_or_never().is_none();
            assert_eq!(is_over, has_more);
            cursor.yield_if_over().await;
        }
        assert!(
            matches!(cursor.next(&shared), WatchStep::Quiet(Some(at)) if at == ResourceVersion::from(5))
        );
    }

    #[tokio::test]
    async fn the_last_event_of_an_expired_watch_says_why() {
        for (is_closed, why) in [(true, "CacheProfile"), (false, "listed again")] {
            let (catalog, key, mut writer) = store(1);
            let follower = catalog.reader(&key).unwrap().follow_from_now();
            let (request, _) = parse_request("/api/v1/pods", "watch=1");
            let mut cursor = cursor(&request, ObjectQuery::default(), follower, None);
            if is_closed {
                catalog.close(&key);
            } else {
                writer.apply(Delta::Purge);
            }
            let WatchStep::End(_, Some(last)) = cursor.next(&ChangeCache::new(1 << 20)) else {
                panic!("no event");
            };
            let line = String::from_utf8_lossy(&last.lines).into_owned();
            assert!(line.contains("\"code\":410") && line.contains(why), "{line}");
        }
    }

    #[tokio::test]
    async fn large_changes_are_examined_one_scan_budget_at_a_time() {
        let (catalog, key, mut writer) = store(1);
        let follower = catalog.reader(&key).unwrap().follow_from_now();
        let (request, _) = parse_request("/api/v1/pods", "watch=1&labelSelector=app");
        let labels = request.labels.clone();
        let query = ObjectQuery { labels, ..ObjectQuery::default() };
        let mut cursor = cursor(&request, query, follower, None);
        let shared = ChangeCache::new(1 << 20);
        for version in 6..11 {
            upsert(&mut writer, "x0", version);
        }
        // For each change, the watch decompresses two objects: the object before and after the
        // change. The first object before a change is small.
        for left in [2, 0, 0] {
            let step = step(&mut cursor, &shared).await;
            let is_empty = matches!(&step, WatchStep::Piece(piece) if piece.events == 0);
            assert!(is_empty || matches!(step, WatchStep::Quiet(_)), "{step:?}");
            assert_eq!(cursor.follower.lag().changes(), left);
            cursor.yield_if_over().await;
        }
    }

    #[tokio::test]
    async fn a_large_event_waits_until_the_earlier_one_is_written_and_is_not_copied() {
        let (catalog, key, mut writer) = store(0);
        let (request, _) = parse_request("/api/v1/pods", "watch=1");
        let shared = ChangeCache::new(1 << 20);
        let [jane] = user_permits(4 * PERMITS, ["jane"]);
        let new_cursor = || {
            let follower = catalog.reader(&key).unwrap().follow_from_now();
            cursor_with(&jane, &request, ObjectQuery::default(), follower, None)
        };
        let (mut first, mut second) = (new_cursor(), new_cursor());
        upsert_with("", &mut writer, "small", 6);
        upsert(&mut writer, "large", 7);
        upsert_with("", &mut writer, "small", 8);
        for cursor in [&mut first, &mut second] {
            let WatchStep::Piece(small) = cursor.next(&shared) else { panic!("an event") };
            assert_eq!(small.events, 1);
        }
        let WatchStep::Piece(sent) = step(&mut first, &shared).await else { panic!("an event") };
        let line = sent.lines.as_ptr();
        assert_eq!(sent.events, 1);
        let WatchStep::NeedsMemory(length) = second.next(&shared) else {
            panic!("no permit is needed")
        };
        assert!(second.acquire(length).now_or_never().is_none(), "two large events are unwritten");
        assert_eq!(second.follower.lag().changes(), 2, "the waiting watch has read the change");
        second.release();
        drop(sent);
        assert!(jane.acquire_now(1).is_ok(), "the released wait has got the permits");
        let WatchStep::Piece(sent) = step(&mut second, &shared).await else { panic!("an event") };
        assert_eq!((sent.events, sent.lines.as_ptr()), (1, line), "the shared event was copied");
        for cursor in [&mut first, &mut second] {
            let WatchStep::Piece(small) = cursor.next(&shared) else { panic!("an event") };
            assert_eq!(small.events, 1);
        }
    }
}
