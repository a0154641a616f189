//! Selects objects as of an earlier version: the current rows, with later changes undone.

use super::{ROWS_A_PIECE, Selected, Span, Wanted};
use crate::store::{
    contents::Contents,
    follow::Forgotten,
    past::Change,
    piece::Piece,
    query::{Reader, is_behind, key, key_order},
    record::PackedRecord,
};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use std::{collections::BTreeMap, sync::Arc};

/// The objects that changed since a version, in key order: of each its newest change, and its record before the oldest one.
#[derive(Default)]
struct EarlierRecords<'a>(BTreeMap<ObjectKey, (&'a Change, Option<&'a PackedRecord>)>);

impl Reader {
    /// Whether [`Reader::select_at`] can answer for this version now.
    #[must_use]
    pub fn remembers(&self, version: &ResourceVersion) -> bool {
        self.table.contents.read().first_since(version).is_some()
    }

    /// What may meet `wanted` behind `after`, as [`Reader::select`], but as it was at `version`: after the last change
    /// at or before it.
    ///
    /// # Errors
    ///
    /// [`Forgotten`] if the table has not reached `version`, a list has found a change and is not done, or the event log
    /// does not reach back.
    ///
    /// # Cost
    ///
    /// As [`Reader::select`], and by estimate 0.5 µs for each change since `version`; the lock is held for 20 ns of that.
    pub fn select_at(
        &self,
        version: &ResourceVersion,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Result<Selected, Forgotten> {
        let contents = self.table.contents.read();
        let forgotten = || Forgotten { oldest: contents.past.since.clone() };
        let first = contents.first_since(version).ok_or_else(forgotten)?;
        let changes = contents.past.from(first, usize::MAX).ok_or_else(forgotten)?;
        let epoch = contents.past.epoch;
        drop(contents);
        // There may be many: they are sorted while others have the lock.
        let mut earlier = EarlierRecords::default();
        earlier.add(&changes, (wanted, after));
        let contents = self.table.contents.read();
        let is_same = contents.past.epoch == epoch && contents.past.is_complete();
        let next = first + changes.len() as u64;
        let newer = contents.past.from(next, usize::MAX).filter(|_| is_same);
        let newer = newer.ok_or_else(|| Forgotten { oldest: contents.past.since.clone() })?;
        earlier.add(&newer, (wanted, after));
        if earlier.0.is_empty() {
            let selected = self.select_of(&contents, wanted, after, limit);
            return Ok(Selected { version: Some(version.clone()), ..selected });
        }
        let span = contents.span(wanted.namespace.as_deref(), after);
        let rows = earlier.rows(span.rows);
        let last = limit.and_then(|_| earlier.last(&contents, &span));
        let most = limit.filter(|_| wanted.tests.is_empty()).unwrap_or(usize::MAX);
        let pieces = earlier.pieces(&contents, (wanted, &span), most);
        Ok(Selected {
            table: Arc::clone(&self.table),
            pieces: pieces.into_iter().map(Arc::new).collect(),
            version: Some(version.clone()),
            rows,
            last,
            is_earlier: true,
        })
    }
}

impl Contents {
    /// The number of the first change since `version`; `None` if not all are known, or the table has not reached it.
    fn first_since(&self, version: &ResourceVersion) -> Option<u64> {
        let held = self.version.as_ref().filter(|_| self.past.is_complete())?;
        if held == version {
            return Some(self.past.next());
        }
        if version.is_older_than(held) { self.past.behind(version) } else { None }
    }
}

impl<'a> EarlierRecords<'a> {
    /// Adds changes that are newer than those before, as far as they are about objects in the namespace behind `after`.
    fn add(&mut self, changes: &'a [Arc<Change>], (wanted, after): (&Wanted, Option<&ObjectKey>)) {
        for change in changes {
            let object = (change.namespace(), change.name());
            let is_within = wanted.namespace.as_deref().is_none_or(|it| it == object.0)
                && after.is_none_or(|after| is_behind(object, after));
            if is_within {
                let key = key(object.0, object.1);
                let (newest, _) = self.0.entry(key).or_insert((&**change, change.before.as_ref()));
                *newest = &**change;
            }
        }
    }

    /// How many objects there were at the version; there are `now` at present.
    fn rows(&self, now: usize) -> usize {
        let were = self.0.values().filter(|(_, before)| before.is_some()).count();
        let are = self.0.values().filter(|(newest, _)| newest.is_there()).count();
        (now + were).saturating_sub(are)
    }

    /// The key of the last object at the version.
    fn last(&self, contents: &Contents, span: &Span<'_>) -> Option<ObjectKey> {
        let numbers: Vec<u32> = contents.order.from(span.from).take(span.rows).collect();
        let mut earlier = self.0.iter().rev().peekable();
        for number in numbers.into_iter().rev() {
            let Some(row) = contents.slab.get(number) else { continue };
            let object = (contents.namespaces.name(row.namespace), row.record.name());
            let mut is_replaced = false;
            while let Some((key, (_, before))) =
                earlier.next_if(|(key, _)| key_order(object, key).is_le())
            {
                if before.is_some() {
                    return Some(key.clone());
                }
                is_replaced = key_order(object, key).is_eq();
            }
            if !is_replaced {
                return contents.key(number);
            }
        }
        earlier.find(|(_, (_, before))| before.is_some()).map(|(key, _)| key.clone())
    }

    /// Objects in key order: of what there is now, what `wanted` selects; of what there was, all. No more than `most` that
    /// are certainly selected: the index knows the labels of now alone.
    fn pieces(
        self,
        contents: &Contents,
        (wanted, span): (&Wanted, &Span<'_>),
        most: usize,
    ) -> Vec<Piece> {
        let mut pieces = Pieces::new(most);
        let cost = usize::from(wanted.labels.is_empty());
        let is_named = |key: &ObjectKey| wanted.name.as_ref().is_none_or(|name| *name == key.name);
        let mut earlier = self.0.into_iter().filter(|(key, _)| is_named(key)).peekable();
        for number in contents.numbers(wanted, span) {
            let Some(row) = contents.slab.get(number) else { continue };
            let object = (contents.namespaces.name(row.namespace), row.record.name());
            let mut is_replaced = false;
            while let Some((key, (change, before))) =
                earlier.next_if(|(key, _)| key_order(object, key).is_ge())
            {
                is_replaced = key_order(object, &key).is_eq();
                pieces.push_before((change, before), cost);
            }
            if pieces.left == 0 {
                break;
            }
            if !is_replaced {
                pieces.push(1, |piece| piece.take(contents, number));
            }
        }
        for (_, (change, before)) in earlier {
            pieces.push_before((change, before), cost);
        }
        pieces.full.push(pieces.last);
        pieces.full
    }
}

/// Pieces that are filled one after the other.
struct Pieces {
    full: Vec<Piece>,
    last: Piece,
    /// How many may follow.
    left: usize,
}

impl Pieces {
    fn new(left: usize) -> Self {
        Self { full: Vec::new(), last: Piece::default(), left }
    }

    fn push_before(&mut self, (change, before): (&Change, Option<&PackedRecord>), cost: usize) {
        let Some(PackedRecord { record, dictionary }) = before else { return };
        let namespace = (change.namespace(), || Arc::clone(&change.namespace));
        self.push(cost, |piece| piece.push(namespace, record, dictionary.as_ref()));
    }

    /// Takes one more, which counts as `cost` of those that may follow.
    fn push(&mut self, cost: usize, take: impl FnOnce(&mut Piece)) {
        if self.left == 0 {
            return;
        }
        self.left -= cost;
        if self.last.len() >= ROWS_A_PIECE {
            self.full.push(std::mem::take(&mut self.last));
        }
        take(&mut self.last);
    }
}
