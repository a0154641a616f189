//! Selects the objects of an earlier version: the rows of now, with the changes since then taken back.

use super::{ROWS_A_PIECE, Selected, Span, Wanted};
use crate::store::{
    contents::Contents,
    follow::Forgotten,
    past::Change,
    piece::Piece,
    query::{Reader, key, key_order},
    record::PackedRecord,
};
use kubewarm_api::model::{ObjectKey, ResourceVersion};
use std::{collections::BTreeMap, sync::Arc};

/// What the changes since a version have replaced, in key order.
#[derive(Default)]
struct Replaced<'a>(BTreeMap<ObjectKey, (&'a Change, Option<&'a PackedRecord>)>);

impl Reader {
    /// Whether [`Reader::select_at`] can answer for this version now.
    #[must_use]
    pub fn remembers(&self, version: &ResourceVersion) -> bool {
        self.table.contents.read().changes_since(version).is_some()
    }

    /// What may meet `wanted` behind `after`, as [`Reader::select`], but as it was at `version`: after the last change
    /// at or before it.
    ///
    /// # Errors
    ///
    /// [`Forgotten`] if the table has not reached `version`, is being listed, or its event log begins later.
    ///
    /// # Cost
    ///
    /// As [`Reader::select`], and about 0.5 µs for each change since `version`, while the lock is held.
    pub fn select_at(
        &self,
        version: &ResourceVersion,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Result<Selected, Forgotten> {
        let contents = self.table.contents.read();
        let changes = contents
            .changes_since(version)
            .ok_or_else(|| Forgotten { oldest: contents.past.since.clone() })?;
        if changes.is_empty() {
            let selected = self.select_of(&contents, wanted, after, limit);
            return Ok(Selected { version: Some(version.clone()), ..selected });
        }
        let span = contents.span(wanted.namespace.as_deref(), after);
        let replaced = Replaced::of(&changes, &span);
        let rows = replaced.rows(span.rows);
        let last = limit.and_then(|_| replaced.last(&contents, &span));
        // The indexes know the labels of now alone.
        let is_index_enough = wanted.tests.is_empty() && wanted.labels.is_empty();
        let most = limit.filter(|_| is_index_enough).unwrap_or(usize::MAX);
        let pieces = replaced.pieces(&contents, (wanted, &span), most);
        Ok(Selected {
            table: Arc::clone(&self.table),
            pieces: pieces.into_iter().map(Arc::new).collect(),
            version: Some(version.clone()),
            after: after.cloned(),
            rows,
            last,
            is_earlier: true,
        })
    }
}

impl Contents {
    /// The changes since `version`; `None` if they are not all known, or the table has not reached it.
    fn changes_since(&self, version: &ResourceVersion) -> Option<Vec<Arc<Change>>> {
        let held = self.version.as_ref().filter(|_| self.past.is_settled())?;
        if held == version {
            return Some(Vec::new());
        }
        if !version.is_older_than(held) {
            return None;
        }
        self.past.from(self.past.behind(version)?, usize::MAX)
    }
}

impl<'a> Replaced<'a> {
    /// Of each object in `span`: its newest change, and its record before its oldest one.
    fn of(changes: &'a [Arc<Change>], span: &Span<'_>) -> Self {
        let mut replaced = BTreeMap::new();
        for change in changes.iter().rev() {
            let key = key(change.namespace(), change.name());
            let is_within = span.namespace.is_none_or(|namespace| *namespace == *key.namespace)
                && span.after.is_none_or(|after| key > *after);
            if is_within {
                let (_, before) = replaced.entry(key).or_insert((&**change, None));
                *before = change.before.as_ref();
            }
        }
        Self(replaced)
    }

    /// How many objects there were, where there are `now` ones.
    fn rows(&self, now: usize) -> usize {
        let were = self.0.values().filter(|(_, before)| before.is_some()).count();
        let are = self.0.values().filter(|(newest, _)| newest.is_there()).count();
        (now + were).saturating_sub(are)
    }

    /// The key of the last object that there was.
    fn last(&self, contents: &Contents, span: &Span<'_>) -> Option<ObjectKey> {
        let numbers: Vec<u32> = contents.order.from(span.from).take(span.rows).collect();
        let keys = numbers.iter().rev().filter_map(|number| contents.key(*number));
        let unchanged = keys.into_iter().find(|key| !self.0.contains_key(key));
        let replaced = self.0.iter().rev().find(|(_, (_, before))| before.is_some());
        unchanged.max(replaced.map(|(key, _)| key.clone()))
    }

    /// Up to `most` objects in key order: of what there is now, what `wanted` selects; of what there was, all.
    fn pieces(
        self,
        contents: &Contents,
        (wanted, span): (&Wanted, &Span<'_>),
        most: usize,
    ) -> Vec<Piece> {
        let mut pieces = Pieces { full: Vec::new(), last: Piece::default(), left: most };
        let is_named = |key: &ObjectKey| wanted.name.as_ref().is_none_or(|name| *name == key.name);
        let mut replaced = self.0.into_iter().filter(|(key, _)| is_named(key)).peekable();
        for number in contents.numbers(wanted, span) {
            let Some(row) = contents.slab.get(number) else { continue };
            let object = (contents.namespaces.name(row.namespace), row.record.name());
            let mut is_replaced = false;
            while let Some((key, (change, before))) =
                replaced.next_if(|(key, _)| key_order(object, key).is_ge())
            {
                is_replaced = key_order(object, &key).is_eq();
                pieces.push_before(change, before);
            }
            if pieces.left == 0 {
                break;
            }
            if !is_replaced {
                pieces.push(|piece| piece.take(contents, number));
            }
        }
        for (_, (change, before)) in replaced {
            pieces.push_before(change, before);
        }
        pieces.full.push(pieces.last);
        pieces.full
    }
}

/// Pieces that are filled one after the other.
struct Pieces {
    full: Vec<Piece>,
    last: Piece,
    left: usize,
}

impl Pieces {
    fn push_before(&mut self, change: &Change, before: Option<&PackedRecord>) {
        let Some(PackedRecord { record, dictionary }) = before else { return };
        let namespace = (change.namespace(), || Arc::clone(&change.namespace));
        self.push(|piece| piece.push(namespace, record, dictionary.as_ref()));
    }

    fn push(&mut self, take: impl FnOnce(&mut Piece)) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.last.len() >= ROWS_A_PIECE {
            self.full.push(std::mem::take(&mut self.last));
        }
        take(&mut self.last);
    }
}
