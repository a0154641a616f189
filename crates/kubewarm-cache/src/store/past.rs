//! What happened to a table lately: what watches go on from where they broke off.

use super::{
    contents::Contents,
    heap::taken,
    record::{PackedRecord, Packing, Record},
};
use kubewarm_api::model::ResourceVersion;
use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a change is remembered where there is room: as by the API server, the time between two
/// bookmarks and a quarter more.
pub(super) const WINDOW: Duration = Duration::from_secs(75);

/// Changes that are remembered at the most: the API server's bound.
const MAX_CHANGES: usize = 102_400;

/// Bytes of their records: half of what the table itself has, but within these. So a table that changes
/// all over is half as large again, and a small one remembers some hundred changes.
const MAX_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(32 << 20);

/// So many stay however old they are, as with the API server: clients of what hardly ever changes come
/// back with versions of long ago.
const KEPT_CHANGES: usize = 100;

/// As long as they take no more than this, so that an idle cell weighs next to nothing.
const KEPT_BYTES: usize = 32 << 10;

/// One change of one object: before, after, and the version that it made. Its records are packed.
pub struct Change {
    pub(super) number: u64,
    at: Option<Instant>,
    pub(super) namespace: Arc<str>,
    pub(super) version: ResourceVersion,
    /// `None`: it was not there.
    pub(super) before: Option<PackedRecord>,
    /// `None`: it is gone.
    pub(super) now: Option<PackedRecord>,
    /// Whether what there was and what there is are two objects of one name.
    pub(super) is_other: bool,
}

/// The changes of a table, oldest first: complete from a version on, or of no use.
#[derive(Debug, Default)]
pub(super) struct Past {
    changes: VecDeque<Arc<Change>>,
    /// The number of the next change. Numbers are never given twice.
    next: u64,
    /// Which past this is: another one since something was lost.
    pub(super) epoch: u64,
    /// Whoever knows the table at this version, or at a later one, misses nothing that is not here;
    /// `None`: nobody.
    pub(super) since: Option<ResourceVersion>,
    /// What happened between these two versions is not known, except that nothing was left of it: a list found no change.
    gap: Option<(ResourceVersion, ResourceVersion)>,
    stage: Stage,
    record_bytes: usize,
    aside_bytes: usize,
}

/// What is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing: the table is empty, or goes back to what it was.
    #[default]
    Shut,
    /// Every change.
    Open,
    /// Only whether there is any: a list says neither in which order things happened, nor when.
    Listing {
        /// Whether there was.
        is_changed: bool,
    },
}

impl Change {
    /// The namespace of the object; empty if it is in none.
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

    /// The version that it made of the object; of one that is gone, that of its deletion.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Its place among the changes of the table: ascending, and never given twice.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether an object was there before it.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.before.is_some()
    }

    /// Whether an object is there after it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.now.is_some()
    }

    /// Whether an object went and another one of the same name came, in one step.
    #[must_use]
    pub fn is_other(&self) -> bool {
        self.is_other
    }

    /// Whether it is about the payload of a secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.records().any(|packed| packed.record.packing() == Packing::Secret)
    }

    fn records(&self) -> impl Iterator<Item = &PackedRecord> {
        self.before.iter().chain(&self.now)
    }

    /// The record that is there only to be remembered. What there is now is the table's own, or the next
    /// change's before, unless it is packed anew meanwhile.
    fn own(&self) -> Option<&Record> {
        self.before.as_ref().map(|packed| &packed.record)
    }
}

/// What a change weighs beside its records.
const ASIDE: usize = taken(size_of::<Change>() + 2 * size_of::<usize>());

impl Past {
    /// Bytes allocated, without the records.
    pub(super) fn bytes(&self) -> usize {
        self.changes.capacity() * size_of::<Arc<Change>>() + self.aside_bytes
    }

    /// The number that the next change will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether changes are noted: not while a list is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the rows match the table's version. They stop matching when a list finds a change, and match again when the
    /// list is done.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Listing { is_changed: false })
    }

    /// Up to `most` changes from number `from` on; `None` if some of them are forgotten.
    pub(super) fn from(&self, from: u64, most: usize) -> Option<Vec<Arc<Change>>> {
        let first = self.next - self.changes.len() as u64;
        let skipped = usize::try_from(from.checked_sub(first)?).ok()?;
        Some(self.changes.iter().skip(skipped).take(most).map(Arc::clone).collect())
    }

    /// The number of the first change that whoever knows the table at `version` does not know; `None`
    /// if that is forgotten.
    pub(super) fn behind(&self, version: &ResourceVersion) -> Option<u64> {
        let since = self.since.as_ref()?;
        let first = self.next - self.changes.len() as u64;
        if version.is_opaque() || since.is_opaque() {
            // Without an order only what is known by name is known.
            let at = self.changes.iter().rposition(|change| change.version == *version);
            let at = at.map(|at| first + at as u64 + 1);
            return at.or_else(|| (version == since).then_some(first));
        }
        let is_in = |(from, to): &(ResourceVersion, ResourceVersion)| {
            from.is_older_than(version) && version.is_older_than(to)
        };
        if version.is_older_than(since) || self.gap.as_ref().is_some_and(is_in) {
            return None;
        }
        let known = self.changes.partition_point(|change| change.version <= *version);
        Some(first + known as u64)
    }

    /// One of an empty table.
    pub(super) fn renewed(&self) -> Self {
        let stage = match self.stage {
            Stage::Shut | Stage::Open => Stage::Shut,
            Stage::Listing { .. } => Stage::Listing { is_changed: true },
        };
        Self { next: self.next, epoch: self.epoch + 1, stage, ..Self::default() }
    }

    /// A list begins.
    pub(super) fn list(&mut self) {
        self.stage = match self.stage {
            Stage::Shut => Stage::Listing { is_changed: true },
            Stage::Open => Stage::Listing { is_changed: false },
            listing @ Stage::Listing { .. } => listing,
        };
    }
}

impl Contents {
    /// The record of a row, for a change that is noted. `None` during a list, which notes none.
    pub(super) fn noted(&self, number: u32) -> Option<PackedRecord> {
        if self.past.is_settled() { self.packed(number) } else { None }
    }

    /// Notes a change, before the table's version is raised to that of the change; answers what is
    /// forgotten for that, to be dropped outside the lock.
    pub(super) fn note(
        &mut self,
        namespace: Arc<str>,
        version: Option<&ResourceVersion>,
        (before, now): (Option<PackedRecord>, Option<PackedRecord>),
        (at, is_other): (Option<Instant>, bool),
    ) -> Vec<Arc<Change>> {
        match &mut self.past.stage {
            Stage::Shut => return Vec::new(),
            Stage::Listing { is_changed } => {
                *is_changed = true;
                return Vec::new();
            }
            Stage::Open => {}
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
            // What has no place in the order cannot be told to those who go by it.
            return self.cut(self.version.clone());
        };
        let number = self.past.next;
        let change = Arc::new(Change { number, at, namespace, version, before, now, is_other });
        for packed in change.records() {
            self.enter(packed);
        }
        let bytes: usize = change.own().map_or(0, Record::bytes);
        self.record_bytes += bytes;
        self.past.next += 1;
        self.past.record_bytes += bytes;
        self.past.aside_bytes += ASIDE;
        self.past.changes.push_back(change);
        self.tidy(at)
    }

    /// Forgets what is old at `now`, and what there is no room for; answers it, to be dropped outside the
    /// lock.
    pub(super) fn tidy(&mut self, now: Option<Instant>) -> Vec<Arc<Change>> {
        let room = (self.record_bytes - self.past.record_bytes) / 2;
        let room = room.clamp(*MAX_BYTES.start(), *MAX_BYTES.end());
        let mut gone = Vec::new();
        while let Some(oldest) = self.past.changes.front() {
            let is_old = now
                .zip(oldest.at)
                .is_some_and(|(now, at)| now.saturating_duration_since(at) > WINDOW);
            let count = self.past.changes.len();
            let is_kept = count <= KEPT_CHANGES
                && self.past.record_bytes <= KEPT_BYTES
                && !oldest.is_secret();
            let is_much = count > MAX_CHANGES || self.past.record_bytes > room;
            if !is_much && (!is_old || is_kept) {
                break;
            }
            self.past.since = Some(oldest.version.clone());
            gone.extend(self.drop_oldest());
        }
        let since = self.past.since.as_ref();
        self.past.gap.take_if(|(_, to)| since.is_some_and(|since| to.is_older_than(since)));
        if self.past.changes.is_empty() {
            self.past.changes = VecDeque::new();
        }
        gone
    }

    fn drop_oldest(&mut self) -> Option<Arc<Change>> {
        let oldest = self.past.changes.pop_front()?;
        let bytes: usize = oldest.own().map_or(0, Record::bytes);
        self.record_bytes -= bytes;
        self.past.record_bytes -= bytes;
        self.past.aside_bytes -= ASIDE;
        oldest.records().for_each(|packed| self.leave(&packed.record));
        Some(oldest)
    }

    /// Begins another past, of a table that is known at `since`; at no version, if there is none.
    pub(super) fn cut(&mut self, since: Option<ResourceVersion>) -> Vec<Arc<Change>> {
        let mut gone = Vec::with_capacity(self.past.changes.len());
        while let Some(oldest) = self.drop_oldest() {
            gone.push(oldest);
        }
        self.past.changes = VecDeque::new();
        self.past.epoch += 1;
        self.past.stage = if since.is_some() { Stage::Open } else { Stage::Shut };
        (self.past.since, self.past.gap) = (since, None);
        gone
    }

    /// A list is complete, and true at the table's version; it was true at `before` until then. If the list found no
    /// change, those who know the table at `before` have missed nothing.
    pub(super) fn listed(&mut self, before: Option<ResourceVersion>) -> Vec<Arc<Change>> {
        match self.past.stage {
            Stage::Listing { is_changed: false } => {
                self.past.stage = Stage::Open;
                if let Some((from, to)) = before.zip(self.version.clone())
                    && from != to
                {
                    // One gap is enough: the second begins where the first did.
                    let from = self.past.gap.take().map_or(from, |(first, _)| first);
                    self.past.gap = Some((from, to));
                }
                Vec::new()
            }
            Stage::Shut | Stage::Open | Stage::Listing { is_changed: true } => {
                self.cut(self.version.clone())
            }
        }
    }
}

impl fmt::Debug for Change {
    /// Which, never what it says: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, namespace, version, before, now, .. } = self;
        write!(f, "change {number} at {version:?} in {namespace:?}: {before:?} to {now:?}")
    }
}
