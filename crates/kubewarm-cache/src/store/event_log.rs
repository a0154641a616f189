//! The event log of a table: its latest changes. Watches go on from it, and lists of earlier versions are made with it.

use super::{
    contents::Contents,
    dictionary::Dictionaries,
    record::{PackedRecord, Packing, taken},
};
use kubewarm_api::model::ResourceVersion;
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Age at which a change is dropped, unless it is kept by [`KEPT_CHANGES`]: as in the API server, the time between two
/// bookmarks and a quarter more.
pub(super) const WINDOW: Duration = Duration::from_secs(75);

/// Changes in a log: the API server's limit.
const MAX_CHANGES: usize = 102_400;

/// Limits of the bytes of a log's records, which may be half of what the table itself has. So a table that changes
/// completely is half as large again, and a small table has some hundred changes in its log.
const MAX_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(32 << 20);

/// Changes that stay whatever their age is, as in the API server: clients of a kind that hardly ever changes come back
/// with old versions.
const KEPT_CHANGES: usize = 100;

/// Bytes of records up to which [`KEPT_CHANGES`] stay, so that an idle cell weighs next to nothing.
const KEPT_BYTES: usize = 32 << 10;

/// One change of one object: before, after, and the version that it made. Its records are packed.
pub struct Change {
    pub(super) arrived: Option<Instant>,
    pub(super) namespace: Arc<str>,
    pub(super) version: ResourceVersion,
    /// `None`: there was no object.
    pub(super) before: Option<PackedRecord>,
    /// `None`: there is no object any more.
    pub(super) now: Option<PackedRecord>,
    /// Whether the change replaced the object by another one of the same name.
    pub(super) is_other: bool,
}

/// The latest changes of a table, oldest first. It is complete from one version on.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    changes: VecDeque<Arc<Change>>,
    /// The number of the next change. No number is used twice.
    next: u64,
    /// Grows when the log begins again after changes were lost.
    pub(super) epoch: u64,
    /// The log has all changes after this version. `None`: of no version.
    pub(super) since: Option<ResourceVersion>,
    /// The log lacks what happened between these versions, and that left no trace: a list found no change.
    gap: Option<(ResourceVersion, ResourceVersion)>,
    /// Whether the rows match the table's version. They stop matching when a list finds a change, and match again when
    /// the list is done.
    is_complete: bool,
    /// Whether a list is under way. A list says neither the order nor the time of changes.
    is_listing: bool,
    record_bytes: usize,
    dictionaries: Dictionaries,
}

/// Bytes of a change besides its records.
const CHANGE_BYTES: usize = taken(size_of::<Change>() + 2 * size_of::<usize>());

impl Change {
    /// The namespace of the object; empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the object, as its bytes.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        let packed = self.now.as_ref().or(self.before.as_ref());
        packed.map_or(b"", |packed| packed.record.name())
    }

    /// The version that the change gave the object; for a deletion, the version of the deletion.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Whether the object existed before the change.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the object exists after the change.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.now.is_some()
    }

    /// Whether the change replaced the object by another one of the same name.
    #[must_use]
    pub fn is_other(&self) -> bool {
        self.is_other
    }

    /// Whether the change has the payload of a Secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.records().any(|packed| packed.record.packing() == Packing::Secret)
    }

    fn records(&self) -> impl Iterator<Item = &PackedRecord> {
        self.before.iter().chain(&self.now)
    }

    /// Bytes of the record that only the log holds. The record after the change is the table's own or the next change's
    /// record before, unless the table has packed it again.
    fn record_bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |packed| packed.record.bytes())
    }
}

impl EventLog {
    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.changes.capacity() * size_of::<Arc<Change>>()
            + self.changes.len() * CHANGE_BYTES
            + self.record_bytes
            + self.dictionaries.bytes()
    }

    /// The number that the next change will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the rows match the table's version.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The changes from number `from` on; `None` if the log has dropped some of them.
    pub(super) fn from(&self, from: u64) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let skipped = usize::try_from(from.checked_sub(self.first())?).ok()?;
        Some(self.changes.iter().skip(skipped))
    }

    /// The number of the first change after `version`; `None` if the log does not have all of them.
    pub(super) fn behind(&self, version: &ResourceVersion) -> Option<u64> {
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

    /// The log of the same table after it was emptied.
    pub(super) fn emptied(&self) -> Self {
        let Self { next, epoch, is_listing, .. } = *self;
        Self { next, epoch: epoch + 1, is_listing, ..Self::default() }
    }

    /// A list begins.
    pub(super) fn begin_list(&mut self) {
        self.is_listing = true;
    }

    /// A list is done, which was of the version `now`. The table had the version `before` until then. If the list found
    /// no change, a watch from `before` on has missed nothing. Returns what the log drops.
    pub(super) fn end_list(
        &mut self,
        before: Option<ResourceVersion>,
        now: Option<ResourceVersion>,
    ) -> Vec<Arc<Change>> {
        if !mem::take(&mut self.is_listing) || !self.is_complete {
            return self.begin_again(now);
        }
        if let Some((from, to)) = before.zip(now)
            && from != to
        {
            // One gap is enough: it begins where the first one did.
            let from = self.gap.take().map_or(from, |(first, _)| first);
            self.gap = Some((from, to));
        }
        Vec::new()
    }

    /// A list has found a change.
    pub(super) fn list_changed(&mut self) {
        self.is_complete = false;
    }

    /// Drops all changes. The log is complete from `since` on; `None`: it has nothing until the next list is done.
    fn begin_again(&mut self, since: Option<ResourceVersion>) -> Vec<Arc<Change>> {
        let gone = mem::take(&mut self.changes).into();
        self.epoch += 1;
        self.is_complete = since.is_some();
        (self.since, self.gap) = (since, None);
        (self.record_bytes, self.dictionaries) = (0, Dictionaries::default());
        gone
    }

    fn push(&mut self, change: Change) {
        change.records().for_each(|packed| self.dictionaries.enter(packed));
        self.record_bytes += change.record_bytes();
        self.next += 1;
        self.changes.push_back(Arc::new(change));
    }

    fn pop(&mut self) -> Option<Arc<Change>> {
        let oldest = self.changes.pop_front()?;
        oldest.records().for_each(|packed| self.dictionaries.leave(&packed.record));
        self.record_bytes -= oldest.record_bytes();
        self.since = Some(oldest.version.clone());
        Some(oldest)
    }

    /// Drops changes that are too old at `now`, and those beyond `max_bytes` of records. Returns what it drops.
    fn trim(&mut self, now: Option<Instant>, max_bytes: usize) -> Vec<Arc<Change>> {
        let mut gone = Vec::new();
        while let Some(oldest) = self.changes.front() {
            let is_old = now
                .zip(oldest.arrived)
                .is_some_and(|(now, at)| now.saturating_duration_since(at) > WINDOW);
            let count = self.changes.len();
            let is_kept =
                count <= KEPT_CHANGES && self.record_bytes <= KEPT_BYTES && !oldest.is_secret();
            let is_much = count > MAX_CHANGES || self.record_bytes > max_bytes;
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

impl Contents {
    /// Adds `change` to the log, before the table's version is raised to that of the change. Returns what the log drops
    /// for it, for the caller to free outside the lock.
    pub(super) fn log_change(
        &mut self,
        version: Option<&ResourceVersion>,
        change: impl FnOnce(ResourceVersion) -> Change,
    ) -> Vec<Arc<Change>> {
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
            // A change that is not newer than the table has no place in the order of versions.
            return self.log.begin_again(self.version.clone());
        };
        let change = change(version);
        let arrived = change.arrived;
        self.log.push(change);
        self.trim_log(arrived)
    }

    /// Drops changes from the log that are too old at `now`, or too many. Returns them, for the caller to free outside
    /// the lock.
    pub(super) fn trim_log(&mut self, now: Option<Instant>) -> Vec<Arc<Change>> {
        let max_bytes = (self.record_bytes / 2).clamp(*MAX_BYTES.start(), *MAX_BYTES.end());
        self.log.trim(now, max_bytes)
    }
}

impl fmt::Debug for Change {
    /// Which object, never its contents: it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, version, before, now, .. } = self;
        write!(f, "change at {version:?} in {namespace:?}: {before:?} to {now:?}")
    }
}
