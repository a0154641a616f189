//! The event log of a store: its latest changes, for watches and for lists of earlier versions.

use super::{
    contents::StoreContents,
    dictionary::DictionarySet,
    packed_object::{BodyPacking, DetachedObject, taken},
};
use kubewarm_api::model::ResourceVersion;
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Age at which a change is dropped, unless [`KEPT_CHANGES`] keeps it. The API server's watch cache uses the same
/// age: its bookmark period of 60 s and a quarter more.
pub(super) const WINDOW: Duration = Duration::from_secs(75);

/// Maximum number of changes in a log, as in the API server's watch cache.
const MAX_CHANGES: usize = 102_400;

/// Range of the limit on packed bytes that only the log holds. Within the range, the limit is half of the store's
/// packed bytes.
///
/// So a store that changes completely grows by half, and a small store keeps some hundred changes.
const MAX_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(32 << 20);

/// Number of changes that stay at any age, as in the API server's watch cache. Clients of a resource that rarely
/// changes return with old versions.
const KEPT_CHANGES: usize = 100;

/// Packed bytes up to which [`KEPT_CHANGES`] applies, so that an idle store takes little memory.
const KEPT_BYTES: usize = 32 << 10;

/// One change of one object: the packed object before and after it, and its resource version.
pub struct StoreChange {
    pub(super) arrived: Option<Instant>,
    pub(super) namespace: Arc<str>,
    pub(super) version: ResourceVersion,
    /// `None` if the change created the object.
    pub(super) before: Option<DetachedObject>,
    /// `None` if the change deleted the object.
    pub(super) now: Option<DetachedObject>,
    /// Whether the UID changed: the object was deleted and created again with the same name.
    pub(super) is_replacement: bool,
}

/// The latest changes of a store, oldest first. No change after the version `since` is missing.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    changes: VecDeque<Arc<StoreChange>>,
    /// The number of the next change. No number is used twice.
    next: u64,
    /// Increases when changes are lost, so that followers notice the loss.
    pub(super) epoch: u64,
    /// The log contains all changes after this version. `None` until the first list ends, and after a purge.
    pub(super) since: Option<ResourceVersion>,
    /// The log can lack changes between these two versions. A list after them found no change, but an object can have
    /// been created and deleted in between.
    gap: Option<(ResourceVersion, ResourceVersion)>,
    /// Whether the rows match the store's version. A list that finds a change clears this flag, and the end of the
    /// list sets it.
    is_complete: bool,
    /// Whether a full list is running. A list shows neither the order nor the time of changes.
    is_listing: bool,
    object_bytes: usize,
    dictionaries: DictionarySet,
}

/// Bytes of a change, without the packed objects.
const CHANGE_BYTES: usize = taken(size_of::<StoreChange>() + 2 * size_of::<usize>());

impl StoreChange {
    /// Namespace of the object; empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the object, as UTF-8.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        let packed = self.now.as_ref().or(self.before.as_ref());
        packed.map_or(b"", |packed| packed.record.name())
    }

    /// Resource version of the object after the change. For a deletion, the version of the deletion.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Whether the object existed before the change.
    #[must_use]
    pub fn has_previous(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the object exists after the change.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.now.is_some()
    }

    /// Whether the UID changed: the object was deleted and created again with the same name.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        self.is_replacement
    }

    /// Whether the change contains a Secret with its payload.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.records().any(|packed| packed.record.packing() == BodyPacking::Secret)
    }

    fn records(&self) -> impl Iterator<Item = &DetachedObject> {
        self.before.iter().chain(&self.now)
    }

    /// Bytes of the packed object before the change, which only the log holds.
    ///
    /// The packed object after the change is counted by the store or the next change. The exception is an object that
    /// the store has packed again.
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

    /// Returns the changes from number `from`, or `None` if the log has dropped some of them.
    pub(super) fn from(&self, from: u64) -> Option<impl Iterator<Item = &Arc<StoreChange>>> {
        let skipped = usize::try_from(from.checked_sub(self.first())?).ok()?;
        Some(self.changes.iter().skip(skipped))
    }

    /// Returns the number of the first change after `version`, or `None` if the log lacks some of those changes.
    pub(super) fn first_after(&self, version: &ResourceVersion) -> Option<u64> {
        let since = self.since.as_ref()?;
        if version.is_opaque() || since.is_opaque() {
            // Versions without an order can only be compared for equality.
            let at = self.changes.iter().rposition(|change| change.version == *version);
            let at = at.map(|at| self.first() + at as u64 + 1);
            return at.or_else(|| (version == since).then(|| self.first()));
        }
        let is_in = |(from, to): &(ResourceVersion, ResourceVersion)| {
            from.is_older_than(version) && version.is_older_than(to)
        };
        if version.is_older_than(since) || self.gap.as_ref().is_some_and(is_in) {
            return None;
        }
        let known = self.changes.partition_point(|change| change.version <= *version);
        Some(self.first() + known as u64)
    }

    fn first(&self) -> u64 {
        self.next - self.changes.len() as u64
    }

    /// Returns the log for a purged store: without changes, in a new epoch, with the same next number.
    pub(super) fn emptied(&self) -> Self {
        let Self { next, epoch, is_listing, .. } = *self;
        Self { next, epoch: epoch + 1, is_listing, ..Self::default() }
    }

    pub(super) fn begin_list(&mut self) {
        self.is_listing = true;
    }

    /// Ends a list. The store had the version `before` and now has the version `now`. Returns the changes that the
    /// log drops.
    ///
    /// If the list found no change, the log keeps its changes, and watches from `before` continue. Otherwise the log
    /// starts again.
    pub(super) fn end_list(
        &mut self,
        before: Option<ResourceVersion>,
        now: Option<ResourceVersion>,
    ) -> Vec<Arc<StoreChange>> {
        if !mem::take(&mut self.is_listing) || !self.is_complete {
            return self.restart(now);
        }
        if let Some((from, to)) = before.zip(now)
            && from != to
        {
            // One gap is enough: it starts where the first gap started.
            let from = self.gap.take().map_or(from, |(first, _)| first);
            self.gap = Some((from, to));
        }
        Vec::new()
    }

    /// Notes that the running list has found a change.
    pub(super) fn list_changed(&mut self) {
        self.is_complete = false;
    }

    /// Drops and returns all changes. The log then contains all changes after `since`. With `None`, it stays empty
    /// until the next list ends.
    fn restart(&mut self, since: Option<ResourceVersion>) -> Vec<Arc<StoreChange>> {
        let gone = mem::take(&mut self.changes).into();
        self.epoch += 1;
        self.is_complete = since.is_some();
        (self.since, self.gap) = (since, None);
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

    /// Drops and returns the changes that are too old at `now` or exceed `max_bytes` or [`MAX_CHANGES`].
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
        self.gap.take_if(|(_, to)| since.is_some_and(|since| to.is_older_than(since)));
        if self.changes.is_empty() {
            self.changes = VecDeque::new();
        }
        gone
    }
}

impl StoreContents {
    /// Adds `change` to the log. The caller raises the store's version afterwards. Returns the changes that the log
    /// drops, which the caller frees outside the lock.
    pub(super) fn log_change(
        &mut self,
        version: Option<&ResourceVersion>,
        change: impl FnOnce(ResourceVersion) -> StoreChange,
    ) -> Vec<Arc<StoreChange>> {
        if self.log.is_listing {
            self.log.list_changed();
        }
        if !self.log.is_complete {
            return Vec::new();
        }
        let is_next = |version: &&ResourceVersion| {
            self.version.as_ref().is_none_or(|held| {
                if version.is_opaque() || held.is_opaque() {
                    *version != held
                } else {
                    held.is_older_than(version)
                }
            })
        };
        let Some(version) = version.filter(is_next).cloned() else {
            // A change that is not newer than the store does not fit into the order of versions.
            return self.log.restart(self.version.clone());
        };
        let change = change(version);
        let arrived = change.arrived;
        self.log.push(change);
        self.trim_log(arrived)
    }

    /// Drops changes that are too old at `now` or exceed the limits. Returns them, and the caller frees them outside
    /// the lock.
    pub(super) fn trim_log(&mut self, now: Option<Instant>) -> Vec<Arc<StoreChange>> {
        let max_bytes = (self.object_bytes / 2).clamp(*MAX_BYTES.start(), *MAX_BYTES.end());
        self.log.trim(now, max_bytes)
    }
}

impl fmt::Debug for StoreChange {
    /// Prints namespace, version and sizes, but not the bodies, which can be Secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, version, before, now, .. } = self;
        write!(f, "change at {version:?} in {namespace:?}: {before:?} to {now:?}")
    }
}
