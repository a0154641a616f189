//! Selects the objects of a list response at one moment, and decompresses each object when the
//! response is written.

mod earlier_objects;
mod object_query;
#[cfg(test)]
mod tests;

pub(super) use self::earlier_objects::EarlierObjects;
pub use self::object_query::{BodyFieldCache, BodyPredicate, BodyPredicates, ObjectQuery};

use super::{
    contents::StoreContents,
    object_store::ObjectStore,
    packed_object::MANY_VALUES,
    reader::{StoreReader, StoredObjectView},
    row_order::RowPosition,
    row_snapshot::RowSnapshot,
    scan_budget::ScanBudget,
};
use kubewarm_api::model::{ObjectEncoding, ObjectKey, ResourceVersion};
use roaring::RoaringBitmap;
use std::{fmt, ops::ControlFlow, sync::Arc};

/// Maximum number of objects whose JSON one `filter_next` call tests. A [`ScanBudget`] counts only
/// bytes, so it does not limit the number of small objects.
const ROWS_A_STEP: usize = 128;

/// Objects from one moment, in key order. All of them match the query once
/// [`ObjectSnapshot::filter_next`] has returned `false`.
///
/// Selecting an object takes about 0.1 µs and 16 bytes, because the snapshot only clones a pointer
/// to the stored object. The snapshot drops each object after it was visited.
pub struct ObjectSnapshot {
    store: Arc<ObjectStore>,
    rows: RowSnapshot,
    version: Option<ResourceVersion>,
    /// Number of objects in the queried namespace whose keys come after the key where the list
    /// starts. Includes objects that the query does not select.
    span_rows: usize,
    /// Last key in the queried namespace, including objects that the query does not select. With
    /// this key, `has_more` decides whether a page needs a continue token. `None` if the list has
    /// no limit.
    last: Option<ObjectKey>,
    /// The label and field conditions with which `filter_next` must check the JSON of the selected
    /// objects.
    untested: ObjectQuery,
    limit: usize,
    /// Number of objects, at the front of `rows`, that meet all conditions of the query.
    met: usize,
    next: usize,
    is_damaged: bool,
}

impl StoreReader {
    /// Selects up to `limit` objects whose keys come after `after`, all from the same moment. The
    /// selection can include objects that fail a condition of `query`. To drop these, the caller
    /// then calls [`ObjectSnapshot::filter_next`].
    ///
    /// # Cost
    ///
    /// Holds the store's lock for the search in the label index, and for about 0.1 µs for each
    /// selected object.
    pub fn select(
        &self,
        query: &ObjectQuery,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> ObjectSnapshot {
        let contents = self.store.contents.read();
        self.select_of(&contents, query, after, limit, EarlierObjects::default())
    }

    /// Selects objects as [`StoreReader::select`] does, but the caller holds the store's lock.
    /// `earlier` contains the objects that have changed since the queried version.
    pub(super) fn select_of(
        &self,
        contents: &StoreContents,
        query: &ObjectQuery,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
        earlier: EarlierObjects<'_>,
    ) -> ObjectSnapshot {
        let span = contents.span(query, after);
        let mut untested = ObjectQuery { tests: query.tests.clone(), ..ObjectQuery::default() };
        // `filter_next` checks the conditions in `query.tests` later and can drop selected objects.
        // So the selection ignores the limit if the query has such conditions.
        let most = limit.filter(|_| query.tests.is_empty()).unwrap_or(usize::MAX);
        let span_rows = earlier.rows(span.rows);
        let last = limit.and_then(|_| earlier.last(contents, &span));
        let numbers = contents.numbers(query, after, &span);
        let rows = if earlier.is_empty() {
            RowSnapshot::of(contents, numbers.take(most))
        } else {
            // The label index covers only the labels of current objects. For objects at a previous
            // version, `filter_next` reads the labels from each object's JSON instead.
            untested.labels = query.labels.clone();
            earlier.select(contents, query, numbers, most)
        };
        ObjectSnapshot {
            store: Arc::clone(&self.store),
            rows,
            version: contents.consistent_version().cloned(),
            span_rows,
            last,
            untested,
            limit: limit.unwrap_or(usize::MAX),
            met: 0,
            next: 0,
            is_damaged: false,
        }
    }
}

struct RowSpan {
    from: RowPosition,
    to: RowPosition,
    rows: usize,
}

impl StoreContents {
    /// Returns the range of rows in the queried namespace whose keys come after `after`.
    fn span(&self, query: &ObjectQuery, after: Option<&ObjectKey>) -> RowSpan {
        let all = [RowPosition::default(), self.order.end()];
        let [begin, to] =
            query.namespace.as_deref().map_or(all, |namespace| self.bounds(namespace));
        let from = begin.max(self.position_after(after));
        let rows = self.order.rank(to).saturating_sub(self.order.rank(from));
        RowSpan { from, to, rows }
    }

    /// Returns the numbers of the rows in `span`, in key order. Leaves out objects without the
    /// queried name, and objects that an index excludes.
    fn numbers<'a>(
        &'a self,
        query: &'a ObjectQuery,
        after: Option<&'a ObjectKey>,
        span: &RowSpan,
    ) -> Box<dyn Iterator<Item = u32> + 'a> {
        let narrowed = self.narrowed(query);
        if let (Some(namespace), Some(name)) = (&query.namespace, &query.name) {
            let position = self.find(namespace, name, RowPosition::default()).ok();
            let position = position.filter(|position| *position >= span.from);
            let number = position.and_then(|position| self.order.get(position));
            let is_left = |number: &u32| narrowed.is_none_or(|left| left.contains(*number));
            return Box::new(number.filter(is_left).into_iter());
        }
        let is_named = |number: u32| {
            let object = query.name.as_ref().and_then(|_| self.object(number));
            object.is_none_or(|object| query.is_named(object.name))
        };
        match narrowed {
            // If the indexes select at most an eighth of the rows in `span`, sorting the selected
            // rows is faster than passing over `span`.
            Some(left) if left.len() <= span.rows as u64 / 8 => {
                let is_in_span = |number: &u32| {
                    self.object(*number).is_some_and(|object| query.is_in_span(object, after))
                };
                let left = left.iter().filter(is_in_span).filter(|number| is_named(*number));
                let mut numbers: Vec<_> = left.collect();
                numbers.sort_by(|&a, &b| self.compare(a, b));
                Box::new(numbers.into_iter())
            }
            narrowed => Box::new(self.order.range(span.from, span.to).filter(move |&number| {
                narrowed.as_ref().is_none_or(|left| left.contains(number)) && is_named(number)
            })),
        }
    }

    /// Returns the rows that the indexes select for the query: by labels, and by equality of
    /// indexed fields. Returns `None` if no index applies to the query.
    fn narrowed(&self, query: &ObjectQuery) -> Option<RoaringBitmap> {
        let mut narrowed =
            (!query.labels.is_empty()).then(|| self.labels.select(&query.labels, || self.all()));
        for test in query.tests.all() {
            let BodyPredicate::Field { path, absent, is_equality: true, value } = test else {
                continue;
            };
            let index = self
                .declared
                .iter()
                .find(|index| index.path == *path && index.is_complete && absent != value);
            if let Some(index) = index {
                let rows = index.values.get(value) | index.values.get(MANY_VALUES);
                narrowed = Some(narrowed.map_or_else(|| rows.clone(), |earlier| earlier & &rows));
            }
        }
        narrowed
    }
}

impl ObjectSnapshot {
    /// Returns the resource version of the selected objects. `None` if the store had no version
    /// when the objects were selected, or mixed objects of two versions, as during a list.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Returns the number of objects in the queried namespace whose keys come after the key where
    /// the list starts. Includes objects that the query does not select.
    pub fn rows(&self) -> usize {
        self.span_rows
    }

    /// Returns the number of selected objects that [`ObjectSnapshot::visit_next`] has not visited.
    pub fn objects(&self) -> usize {
        self.rows.len()
    }

    /// Returns the key of the last selected object. A continue token contains this key.
    pub fn last_key(&self) -> Option<ObjectKey> {
        self.rows.key_of(self.rows.len().checked_sub(1)?)
    }

    /// Whether the queried namespace has objects after the last selected object, even if the query
    /// does not select them. Always `false` without a limit.
    pub fn has_more(&self) -> bool {
        let last = self.last_key();
        last.is_some() && self.last.is_some() && last != self.last
    }

    /// Checks the conditions in `query.tests` on the JSON of the next objects, until one
    /// [`ScanBudget`] is used up. Drops the objects that fail. Returns whether unchecked objects
    /// are left.
    ///
    /// # Cost
    ///
    /// If the query has no such conditions, the call costs nothing. Otherwise, decompressing and
    /// scanning an object takes 2 ns a byte, for any number of conditions.
    pub fn filter_next(&mut self) -> bool {
        if self.untested.is_everything() {
            return false;
        }
        let Self { store, rows, untested, limit, met, next, is_damaged, .. } = self;
        let end = rows.len().min(*next + ROWS_A_STEP);
        let mut scan_budget = ScanBudget::default();
        store.dictionary_group.contexts.with(|context, body| {
            while *met < *limit && *next < end && !scan_budget.is_over() {
                let seen = rows.seen(*next, store, context, body);
                *is_damaged |= seen.is_none();
                scan_budget.charge(seen.map_or(0, |seen| seen.body.bytes.len()));
                let mut fields = BodyFieldCache::default();
                if seen.is_some_and(|seen| untested.selects(seen.body, &mut fields)) {
                    rows.swap(*met, *next);
                    *met += 1;
                }
                *is_damaged |= fields.is_malformed();
                *next += 1;
            }
        });
        let goes_on = *met < *limit && *next < rows.len();
        if !goes_on {
            rows.truncate(*met);
        }
        goes_on
    }

    /// Whether an object could not be decompressed, or not be compared with the query, so that the
    /// snapshot lacks it. A response must then fail.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns the number of bytes of the object that [`ObjectSnapshot::visit_next`] visits next;
    /// 0 if no object is left, or if this object is damaged. Decompresses nothing.
    pub fn next_length(&self) -> usize {
        self.rows.length(0).map_or(0, |(_, _, bytes)| bytes)
    }

    /// Calls `visit` for each object in key order, until `visit` returns `Break`. Returns whether
    /// objects are left.
    ///
    /// The snapshot decompresses every object into the same buffer, so that the buffer stays in the
    /// processor's cache.
    ///
    /// # Cost
    ///
    /// About 2 µs for each object.
    pub fn visit_next(
        &mut self,
        visit: impl FnMut(StoredObjectView<'_>) -> ControlFlow<()>,
    ) -> bool {
        self.visit_next_up_to(usize::MAX, visit)
    }

    /// As [`ObjectSnapshot::visit_next`], but also stops before an object of more than `most`
    /// bytes, unless the call has visited no object yet.
    pub fn visit_next_up_to(
        &mut self,
        most: usize,
        mut visit: impl FnMut(StoredObjectView<'_>) -> ControlFlow<()>,
    ) -> bool {
        let Self { store, rows, is_damaged, .. } = self;
        store.dictionary_group.contexts.with(|context, body| {
            let mut flow = ControlFlow::Continue(());
            let mut has_visited = false;
            while flow.is_continue() && rows.len() > 0 {
                rows.fetch_ahead();
                if has_visited && rows.length(0).is_some_and(|(_, _, bytes)| bytes > most) {
                    break;
                }
                has_visited = true;
                match rows.seen(0, store, context, body) {
                    Some(seen) => flow = visit(seen),
                    None => *is_damaged = true,
                }
                rows.drop_first();
            }
        });
        rows.len() > 0
    }
}

impl ObjectSnapshot {
    /// Returns the encoding of the selected objects.
    pub fn encoding(&self) -> ObjectEncoding {
        self.rows.encoding()
    }

    /// Calls `visit` for the objects from position `from`, until `visit` returns `Break`. The
    /// objects stay in the snapshot. Returns the position behind the last visited object.
    pub fn visit_from(
        &self,
        from: usize,
        mut visit: impl FnMut(StoredObjectView<'_>) -> ControlFlow<()>,
    ) -> usize {
        self.store.dictionary_group.contexts.with(|context, body| {
            for row in from..self.rows.len() {
                let seen = self.rows.seen(row, &self.store, context, body);
                if seen.is_some_and(|seen| visit(seen).is_break()) {
                    return row + 1;
                }
            }
            self.rows.len()
        })
    }

    /// Calls `visit` with the namespace, the name and the number of bytes of the objects from
    /// position `from`, until `visit` returns `Break`. Decompresses nothing. Returns the position
    /// behind the last visited object.
    ///
    /// # Cost
    ///
    /// About 50 ns for each object that is not in the processor's cache.
    pub fn visit_lengths_from(
        &self,
        from: usize,
        mut visit: impl FnMut(&str, &[u8], usize) -> ControlFlow<()>,
    ) -> usize {
        for row in from..self.rows.len() {
            let length = self.rows.length(row);
            if length
                .is_some_and(|(namespace, name, bytes)| visit(namespace, name, bytes).is_break())
            {
                return row + 1;
            }
        }
        self.rows.len()
    }
}

impl fmt::Debug for ObjectSnapshot {
    /// Does not print the objects, because they can be Secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSnapshot")
            .field("version", &self.version)
            .field("objects", &self.objects())
            .finish_non_exhaustive()
    }
}
