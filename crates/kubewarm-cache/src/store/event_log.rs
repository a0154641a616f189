//! The event log of a store: its latest changes, for watches and for lists of previous resource
//! versions.

use super::{
    allocation::taken,
    compression_contexts::body_length,
    contents::StoreContents,
    dictionary::DictionarySet,
    index_entries::IndexEntries,
    packed_object::{BodyCompression, DetachedObject},
};
use kubewarm_api::model::{ObjectEncoding, ResourceVersion};
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Age above which an event log drops a change, except the last changes that [`KEPT_CHANGES`] and
/// [`KEPT_BYTES`] permit it to keep. The API server's watch cache uses the same age: its bookmark
/// period of 60 s, plus a quarter.
pub(super) const WINDOW: Duration = Duration::from_secs(75);

/// Maximum number of changes in an event log. The API server's watch cache has the same limit.
const MAX_CHANGES: usize = 102_400;

/// Range for the limit on the bytes of objects that only the event log keeps. Within this range,
/// the limit is half the bytes of the objects in the store.
///
/// So a store whose objects all change grows by at most half. The log of a small store keeps some
/// hundred changes.
const MAX_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(32 << 20);

/// Number of changes that an event log keeps at any age, as the API server's watch cache does. With
/// these changes, clients of a rarely changing resource can resume watches from old versions. The
/// log does not keep changes of Secrets with their payload longer than [`WINDOW`]. After a copy
/// from another replica, the window begins again.
const KEPT_CHANGES: usize = 100;

/// [`KEPT_CHANGES`] applies only while the objects in the event log take at most this number of
/// bytes. So an idle store takes little memory.
const KEPT_BYTES: usize = 32 << 10;

/// Limits the memory of an event log whose store is often compared, but seldom changes. Beyond this
/// number, the two oldest gaps become one, and a list at a version between them gets 410.
const MAX_GAPS: usize = 32;

/// One change of one object: the object before the change, the object after the change, and the
/// resource version of the change.
pub struct StoreChange {
    pub(super) arrived: Option<Instant>,
    pub(super) namespace: Arc<str>,
    pub(super) version: ResourceVersion,
    pub(super) before: Option<DetachedObject>,
    pub(super) now: Option<DetachedObject>,
    pub(super) is_replacement: bool,
}

/// The latest changes of a store, oldest first. The log contains every change after the version
/// `since`.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    changes: VecDeque<Arc<StoreChange>>,
    /// Number that the event log assigns to its next change. The log never reuses a number, because
    /// followers remember the number of the next change that they read.
    next: u64,
    /// Number of times that the log has dropped all its changes, for example because a list showed
    /// a change without its time. An `EventLogFollower` ends when this number changes, because it
    /// cannot read the dropped changes.
    pub(super) epoch: u64,
    /// The event log contains all changes after this resource version. `None` until the first list
    /// of the store ends, and after a purge until the next list ends.
    pub(super) since: Option<ResourceVersion>,
    /// Between the two resource versions of a gap, the event log can lack changes, so it serves no
    /// watch from a version in between. A list of the API server found equal objects at both
    /// versions, but an object can have been created and deleted in between. The gaps are in
    /// ascending order, and at most [`MAX_GAPS`].
    gaps: Vec<(ResourceVersion, ResourceVersion)>,
    /// Whether the store's objects match its version. The flag is cleared when a running list finds
    /// a change, because the store then mixes old and new objects, and at the beginning of a list
    /// if kubewarm could not read an object before. It is set when the list ends.
    is_complete: bool,
    /// Whether the store is receiving a full list. A list shows neither the order nor the time of
    /// changes, so the log does not store changes from a list.
    is_listing: bool,
    object_bytes: usize,
    dictionaries: DictionarySet,
}

/// Bytes that one change takes in memory, without the objects before and after the change.
const CHANGE_BYTES: usize = taken(size_of::<StoreChange>() + 2 * size_of::<usize>());

impl StoreChange {
    /// Namespace of the changed object; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the changed object, as UTF-8.
    pub fn name(&self) -> &[u8] {
        let packed = self.now.as_ref().or(self.before.as_ref());
        packed.map_or(b"", |packed| packed.record.name())
    }

    /// Resource version of the object after the change. For a deletion, this is the version of the
    /// delete event.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Whether the object existed before the change.
    pub fn has_previous(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the object exists after the change.
    pub fn exists(&self) -> bool {
        self.now.is_some()
    }

    /// Returns the encoding of the object before and after the change.
    pub fn encoding(&self) -> ObjectEncoding {
        self.records().next().map_or(ObjectEncoding::Json, |packed| packed.encoding)
    }

    /// Number of bytes of the object before or after the change, whichever is larger.
    pub fn object_length(&self) -> usize {
        self.records()
            .filter_map(|packed| body_length(&packed.record).ok())
            .max()
            .unwrap_or_default()
    }

    /// Whether the UID changed, because the object was deleted and created again with the same
    /// name.
    pub fn is_replacement(&self) -> bool {
        self.is_replacement
    }

    /// Whether the changed object is a Secret whose payload the store contains.
    pub fn is_secret(&self) -> bool {
        self.records().any(|packed| packed.record.packing() == BodyCompression::Secret)
    }

    fn records(&self) -> impl Iterator<Item = &DetachedObject> {
        self.before.iter().chain(&self.now)
    }

    /// Returns the bytes of the object before the change, because only the event log keeps that
    /// object.
    ///
    /// The method does not count the object after the change, because the store's rows or the next
    /// change already count it.
    fn object_bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |packed| packed.record.bytes())
    }
}

impl EventLog {
    pub(super) fn bytes(&self) -> usize {
        self.changes.capacity() * size_of::<Arc<StoreChange>>()
            + self.changes.len() * CHANGE_BYTES
            + self.object_bytes
            + self.dictionaries.bytes()
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the changes whose number is `from` or higher, or `None` if the log has dropped some
    /// of these changes.
    pub(super) fn from(&self, from: u64) -> Option<impl Iterator<Item = &Arc<StoreChange>>> {
        let skipped = usize::try_from(from.checked_sub(self.first())?).ok()?;
        Some(self.changes.iter().skip(skipped))
    }

    /// Returns the number of the first change after resource version `version`, or `None` if the
    /// log lacks changes after `version`.
    pub(super) fn first_after(&self, version: &ResourceVersion) -> Option<u64> {
        let since = self.since.as_ref()?;
        if version.is_opaque() || since.is_opaque() {
            // Resource versions that are not numbers have no order, so the log can only search for
            // an equal version.
            let at = self.changes.iter().rposition(|change| change.version == *version);
            let at = at.map(|at| self.first() + at as u64 + 1);
            return at.or_else(|| (version == since).then(|| self.first()));
        }
        if version.is_older_than(since) || self.is_in_gap(version) {
            return None;
        }
        let known = self.changes.partition_point(|change| change.version <= *version);
        Some(self.first() + known as u64)
    }

    /// Returns the oldest version after which the log lacks no change. It lies behind all gaps.
    /// `None` until a list of the store is complete.
    pub(super) fn start(&self) -> Option<&ResourceVersion> {
        self.gaps.last().map(|(_, to)| to).or(self.since.as_ref())
    }

    fn is_in_gap(&self, version: &ResourceVersion) -> bool {
        let mut gaps = self.gaps.iter();
        gaps.any(|(from, to)| from.is_older_than(version) && version.is_older_than(to))
    }

    /// Number of the log's oldest change, or of its next change if the log is empty.
    pub(super) fn first(&self) -> u64 {
        self.next - self.changes.len() as u64
    }

    /// Returns an empty event log for a purged store. Its `epoch` is one higher than in `self`,
    /// which ends all followers. The number of its next change is the same as in `self`, because
    /// numbers are never reused.
    pub(super) fn emptied(&self) -> Self {
        let Self { next, epoch, is_listing, .. } = *self;
        Self { next, epoch: epoch + 1, is_listing, ..Self::default() }
    }

    pub(super) fn begin_list(&mut self) {
        self.is_listing = true;
    }

    /// Ends a list that has raised the store's version from `before` to `now`. Returns the changes
    /// that the log drops.
    ///
    /// If the list found no change, the log keeps its changes, and clients can still watch from
    /// `before`. Otherwise, the log drops all its changes, because a list does not show the order
    /// of the changes that it found.
    pub(super) fn end_list(
        &mut self,
        before: Option<ResourceVersion>,
        now: Option<ResourceVersion>,
    ) -> Vec<Arc<StoreChange>> {
        if !mem::take(&mut self.is_listing) || !self.is_complete {
            return self.restart(now);
        }
        self.record_gap(before, now);
        Vec::new()
    }

    /// Records that the log can lack changes between the versions `before` and `now`, at which the
    /// objects are equal.
    pub(super) fn record_gap(
        &mut self,
        before: Option<ResourceVersion>,
        now: Option<ResourceVersion>,
    ) {
        let gap = before.zip(now).filter(|(from, to)| from != to);
        self.gaps.extend(gap);
        if self.gaps.len() > MAX_GAPS {
            let (oldest_from, _) = self.gaps.remove(0);
            if let Some((from, _)) = self.gaps.first_mut() {
                *from = oldest_from;
            }
        }
    }

    pub(super) fn list_changed(&mut self) {
        self.is_complete = false;
    }

    /// Drops and returns all changes in the event log. From now on, the log records all changes
    /// after version `since`. If `since` is `None`, the log has no version to start from, and
    /// ignores changes until the next list ends.
    fn restart(&mut self, since: Option<ResourceVersion>) -> Vec<Arc<StoreChange>> {
        let gone = mem::take(&mut self.changes).into();
        self.epoch += 1;
        self.is_complete = since.is_some();
        (self.since, self.gaps) = (since, Vec::new());
        (self.object_bytes, self.dictionaries) = (0, DictionarySet::default());
        gone
    }

    fn push(&mut self, change: StoreChange) {
        change.records().for_each(|packed| self.dictionaries.enter(packed));
        self.object_bytes += change.object_bytes();
        self.next += 1;
        self.changes.push_back(Arc::new(change));
    }

    fn pop(&mut self) -> Option<Arc<StoreChange>> {
        let oldest = self.changes.pop_front()?;
        oldest.records().for_each(|packed| self.dictionaries.leave(&packed.record));
        self.object_bytes -= oldest.object_bytes();
        self.since = Some(oldest.version.clone());
        Some(oldest)
    }

    /// Drops the oldest changes until the log's objects take at most `max_bytes` and the log has at
    /// most [`MAX_CHANGES`]. Also drops changes that are older than [`WINDOW`] at `now`, except
    /// [`KEPT_CHANGES`]. Returns the dropped changes.
    fn trim(&mut self, now: Option<Instant>, max_bytes: usize) -> Vec<Arc<StoreChange>> {
        let mut gone = Vec::new();
        while let Some(oldest) = self.changes.front() {
            let is_old = now
                .zip(oldest.arrived)
                .is_some_and(|(now, at)| now.saturating_duration_since(at) > WINDOW);
            let count = self.changes.len();
            let is_kept =
                count <= KEPT_CHANGES && self.object_bytes <= KEPT_BYTES && !oldest.is_secret();
            let is_much = count > MAX_CHANGES || self.object_bytes > max_bytes;
            if !is_much && (!is_old || is_kept) {
                break;
            }
            gone.extend(self.pop());
        }
        let since = self.since.as_ref();
        if let Some(since) = since {
            self.gaps.retain(|(_, to)| !to.is_older_than(since));
        }
        if self.changes.is_empty() {
            self.changes = VecDeque::new();
        }
        gone
    }
}

impl StoreContents {
    /// Adds a change to the event log, and dispatches it: [`DispatchIndex::dispatch`] describes
    /// `sides`. If `version` is `None` or not newer than the store's version, the log cannot order
    /// the change, and drops all its changes. So the caller must raise the store's version only
    /// afterwards. Returns the changes that the log drops, which the caller must free outside the
    /// store's lock.
    ///
    /// [`DispatchIndex::dispatch`]: super::dispatch::DispatchIndex::dispatch
    pub(super) fn log_change(
        &mut self,
        version: Option<&ResourceVersion>,
        sides: &[Option<&IndexEntries>],
        change: impl FnOnce(ResourceVersion) -> StoreChange,
    ) -> Vec<Arc<StoreChange>> {
        if self.log.is_listing {
            self.log.list_changed();
        }
        if !self.log.is_complete {
            return Vec::new();
        }
        let is_next = |version: &&ResourceVersion| {
            self.version.as_ref().is_none_or(|current| {
                if version.is_opaque() || current.is_opaque() {
                    *version != current
                } else {
                    current.is_older_than(version)
                }
            })
        };
        let Some(version) = version.filter(is_next).cloned() else {
            return self.log.restart(self.version.clone());
        };
        let change = change(version);
        let arrived = change.arrived;
        self.dispatch.dispatch(self.log.next(), &change, sides, &self.paths);
        self.log.push(change);
        self.trim_log(arrived)
    }

    /// Records that the store lacks a change, so that followers of the event log end. Returns the
    /// changes that the log drops, which the caller must free outside the store's lock.
    pub(super) fn lose_change(&mut self) -> Vec<Arc<StoreChange>> {
        if self.log.is_listing {
            // When the list ends, the log drops its changes.
            self.log.list_changed();
        }
        if self.log.is_complete { self.log.restart(self.version.clone()) } else { Vec::new() }
    }

    /// Drops the changes that are too old at `now` or exceed the event log's limits. Returns these
    /// changes, which the caller must free outside the store's lock.
    pub(super) fn trim_log(&mut self, now: Option<Instant>) -> Vec<Arc<StoreChange>> {
        let max_bytes = (self.object_bytes / 2).clamp(*MAX_BYTES.start(), *MAX_BYTES.end());
        self.log.trim(now, max_bytes)
    }
}

impl fmt::Debug for StoreChange {
    /// Does not print the objects' bodies, because an object can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, version, before, now, .. } = self;
        write!(f, "change at {version:?} in {namespace:?}: {before:?} to {now:?}")
    }
}
