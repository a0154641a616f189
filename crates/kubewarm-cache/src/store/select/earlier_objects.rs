//! Selects objects as they were at a previous resource version. The selection takes the current
//! objects, and undoes the changes after the previous version.

use super::{ObjectQuery, ObjectSnapshot, RowSpan};
use crate::store::{
    contents::StoreContents,
    event_log::StoreChange,
    reader::{ObjectKeyRef, StoreReader},
    row_snapshot::RowSnapshot,
};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

/// The objects that changed after a queried resource version, in key order. Each key maps to the
/// object's first change and newest change after that version.
#[derive(Default)]
pub(in crate::store) struct EarlierObjects<'a>(BTreeMap<ObjectKey, [&'a StoreChange; 2]>);

impl StoreReader {
    /// Whether [`StoreReader::select_at`] can return the objects at resource version `version` now.
    pub fn remembers(&self, version: &ResourceVersion) -> bool {
        self.store.contents.read().first_since(version).is_some()
    }

    /// Selects objects as [`StoreReader::select`] does, but in their state at `version`.
    ///
    /// Returns `None` in these cases:
    ///
    /// - The store has not reached `version`.
    /// - The event log lacks changes after `version`.
    /// - The informer is listing again, and this list has found a change.
    ///
    /// # Cost
    ///
    /// The cost of [`StoreReader::select`]. Each change after `version` adds about 0.5 µs,
    /// including 20 ns under the store's lock.
    pub fn select_at(
        &self,
        version: &ResourceVersion,
        query: &ObjectQuery,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Option<ObjectSnapshot> {
        let contents = self.store.contents.read();
        let first = contents.first_since(version)?;
        let changes: Vec<_> = contents.log.from(first)?.map(Arc::clone).collect();
        let epoch = contents.log.epoch;
        drop(contents);
        // The event log can contain thousands of changes, so `select_at` sorts them by key without
        // the store's lock.
        let mut earlier = EarlierObjects::default();
        earlier.add(&changes, query, after);
        let contents = self.store.contents.read();
        if contents.log.epoch != epoch || !contents.log.is_complete() {
            return None;
        }
        let newer = contents.log.from(first + changes.len() as u64)?;
        earlier.add(newer, query, after);
        let selected = self.select_of(&contents, query, after, limit, earlier);
        Some(ObjectSnapshot { version: Some(version.clone()), ..selected })
    }
}

impl StoreContents {
    /// Returns the number, within the event log, of the first change after `version`. Returns
    /// `None` if the event log lacks changes after `version`, or if the store has not reached
    /// `version`.
    fn first_since(&self, version: &ResourceVersion) -> Option<u64> {
        let current = self.consistent_version()?;
        if current == version {
            return Some(self.log.next());
        }
        if version.is_older_than(current) { self.log.first_after(version) } else { None }
    }
}

impl<'a> EarlierObjects<'a> {
    /// Adds the changes of objects in the queried namespace whose keys come after the key `after`.
    /// Each call must pass newer changes than the previous call.
    pub(in crate::store) fn add(
        &mut self,
        changes: impl IntoIterator<Item = &'a Arc<StoreChange>>,
        query: &ObjectQuery,
        after: Option<&ObjectKey>,
    ) {
        for change in changes {
            let object = ObjectKeyRef { namespace: change.namespace(), name: change.name() };
            if query.is_in_span(object, after) {
                let [_, newest] = self.0.entry(object.to_key()).or_insert([change, change]);
                *newest = change;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of objects at the queried version. `now` is the number of objects at the
    /// store's current version.
    pub(super) fn rows(&self, now: usize) -> usize {
        let were = self.0.values().filter(|[first, _]| first.before.is_some()).count();
        let are = self.0.values().filter(|[_, newest]| newest.exists()).count();
        (now + were).saturating_sub(are)
    }

    /// Returns the last key, in key order, of the objects that existed at the queried version.
    pub(super) fn last(&self, contents: &StoreContents, span: &RowSpan) -> Option<ObjectKey> {
        let numbers = contents.order.range(span.from, span.to).rev();
        let mut unchanged = numbers
            .filter_map(|number| contents.key(number))
            .filter(|key| !self.0.contains_key(key));
        let changed = self.0.iter().rev().find(|(_, [first, _])| first.before.is_some());
        unchanged.next().max(changed.map(|(key, _)| key.clone()))
    }

    /// Returns the objects of the queried version in key order. The result contains the unchanged
    /// objects of the rows `numbers`. It contains changed objects in their state at the queried
    /// version.
    ///
    /// The function stops after `most` objects. If the query has a label selector, changed objects
    /// do not count as part of `most`. The label index covers only current labels, so a changed
    /// object's labels at the queried version might not match.
    pub(super) fn select(
        self,
        contents: &StoreContents,
        query: &ObjectQuery,
        numbers: impl Iterator<Item = u32>,
        most: usize,
    ) -> RowSnapshot {
        let mut rows = RowSnapshot::of(contents, std::iter::empty());
        let (mut left, is_certain) = (most, query.labels.is_empty());
        let objects = self.0.into_iter().filter(|(key, _)| query.is_named(key.name.as_bytes()));
        let mut earlier = objects.peekable();
        let mut numbers = numbers.peekable();
        while left > 0 {
            let row = numbers.peek().and_then(|&number| Some((number, contents.object(number)?)));
            let order = match (earlier.peek(), row) {
                (Some((key, _)), Some((_, object))) => object.cmp(&ObjectKeyRef::from(key)),
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
