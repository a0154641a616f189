//! Selects objects as of an earlier version: the current rows, with later changes undone.

use super::{Selected, Span, Wanted};
use crate::store::{
    contents::Contents,
    event_log::Change,
    query::{Reader, key, key_order},
    shared_rows::SharedRows,
};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

/// The objects that changed since a version, in key order: the first change of each, and the newest.
#[derive(Default)]
pub(in crate::store) struct EarlierRecords<'a>(BTreeMap<ObjectKey, [&'a Change; 2]>);

impl Reader {
    /// Whether [`Reader::select_at`] can answer for this version now.
    #[must_use]
    pub fn remembers(&self, version: &ResourceVersion) -> bool {
        self.table.contents.read().first_since(version).is_some()
    }

    /// What may meet `wanted` behind `after`, as [`Reader::select`], but as it was at `version`: after the last change
    /// at or before it. `None` if the table has not reached `version`, a list has found a change and is not done, or the
    /// event log does not reach back.
    ///
    /// # Cost
    ///
    /// As [`Reader::select`], and by estimate 0.5 µs for each change since `version`; the lock is held for 20 ns of that.
    #[must_use]
    pub fn select_at(
        &self,
        version: &ResourceVersion,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Option<Selected> {
        let contents = self.table.contents.read();
        let first = contents.first_since(version)?;
        let changes: Vec<_> = contents.log.from(first)?.map(Arc::clone).collect();
        let epoch = contents.log.epoch;
        drop(contents);
        // There may be many: they are sorted while others have the lock.
        let mut earlier = EarlierRecords::default();
        earlier.add(&changes, wanted, after);
        let contents = self.table.contents.read();
        if contents.log.epoch != epoch || !contents.log.is_complete() {
            return None;
        }
        let newer = contents.log.from(first + changes.len() as u64)?;
        earlier.add(newer, wanted, after);
        let selected = self.select_of(&contents, wanted, after, limit, earlier);
        Some(Selected { version: Some(version.clone()), ..selected })
    }
}

impl Contents {
    /// The number of the first change since `version`; `None` if not all are known, or the table has not reached it.
    fn first_since(&self, version: &ResourceVersion) -> Option<u64> {
        let held = self.version.as_ref().filter(|_| self.log.is_complete())?;
        if held == version {
            return Some(self.log.next());
        }
        if version.is_older_than(held) { self.log.behind(version) } else { None }
    }
}

impl<'a> EarlierRecords<'a> {
    /// Adds changes that are newer than those before, as far as they are about objects in the wanted namespace behind
    /// `after`.
    fn add(
        &mut self,
        changes: impl IntoIterator<Item = &'a Arc<Change>>,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
    ) {
        for change in changes {
            let object = (change.namespace(), change.name());
            if wanted.is_in_span(object, after) {
                let [_, newest] = self.0.entry(key(object.0, object.1)).or_insert([change, change]);
                *newest = change;
            }
        }
    }

    /// Whether nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many objects there were at the version; there are `now` at present.
    pub(super) fn rows(&self, now: usize) -> usize {
        let were = self.0.values().filter(|[first, _]| first.before.is_some()).count();
        let are = self.0.values().filter(|[_, newest]| newest.is_there()).count();
        (now + were).saturating_sub(are)
    }

    /// The key of the last object at the version.
    pub(super) fn last(&self, contents: &Contents, span: &Span) -> Option<ObjectKey> {
        let numbers = contents.order.range(span.from, span.to).rev();
        let mut unchanged = numbers
            .filter_map(|number| contents.key(number))
            .filter(|key| !self.0.contains_key(key));
        let changed = self.0.iter().rev().find(|(_, [first, _])| first.before.is_some());
        unchanged.next().max(changed.map(|(key, _)| key.clone()))
    }

    /// Objects in key order: the changed objects as they were, and the rows of `numbers` that have not changed. No more
    /// than `most` that are certainly selected: the index knows the labels of current records only.
    pub(super) fn select(
        self,
        contents: &Contents,
        wanted: &Wanted,
        numbers: impl Iterator<Item = u32>,
        most: usize,
    ) -> SharedRows {
        let mut rows = SharedRows::default();
        let (mut left, is_certain) = (most, wanted.labels.is_empty());
        let named = self.0.into_iter().filter(|(key, _)| wanted.is_named(key.name.as_bytes()));
        let mut earlier = named.peekable();
        let mut numbers = numbers.peekable();
        while left > 0 {
            let row = numbers.peek().and_then(|&number| Some((number, contents.object(number)?)));
            let order = match (earlier.peek(), row) {
                (Some((key, _)), Some((_, object))) => key_order(object, key),
                (Some(_), None) => Ordering::Greater,
                (None, Some(_)) => Ordering::Less,
                (None, None) => break,
            };
            if order.is_le() {
                numbers.next();
            }
            if order.is_ge()
                && let Some((_, [first, _])) = earlier.next()
                && let Some(before) = &first.before
            {
                rows.take_earlier(&first.namespace, before);
                left -= usize::from(is_certain);
            }
            if order.is_lt()
                && let Some((number, _)) = row
            {
                rows.take(contents, number);
                left -= 1;
            }
        }
        rows
    }
}
