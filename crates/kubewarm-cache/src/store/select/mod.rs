//! What a list selects: at one moment, kept packed, and unpacked a few at a time while it is written.

mod exact;
#[cfg(test)]
mod tests;
mod wanted;

pub use self::wanted::{Is, Said, Test, Tests, Wanted};

use super::{
    contents::Contents,
    order::Place,
    piece::{AHEAD, Piece},
    query::{Reader, Seen, is_behind},
    table::Table,
    turn::Turn,
};
use kubewarm_api::model::{LabelSelector, ObjectKey, ResourceVersion};
use roaring::RoaringBitmap;
use std::{collections::VecDeque, fmt, ops::ControlFlow, sync::Arc, vec};

/// Rows that are looked into together, and let go of together: some 100 KiB of pods, packed.
const ROWS_A_PIECE: usize = 128;

/// Objects of one moment, in key order: all that may meet what was wanted. Cheap to clone.
///
/// Their records are the table's, as packed as there: about 0.1 µs and 16 bytes an object.
#[derive(Clone)]
pub struct Selected {
    table: Arc<Table>,
    pieces: Arc<[Arc<Piece>]>,
    version: Option<ResourceVersion>,
    /// Objects of the namespace behind the start, selected or not.
    rows: usize,
    /// The last of these; only where there is a limit.
    last: Option<ObjectKey>,
    /// Whether some records are of an earlier version. Indexes cover current records only.
    is_earlier: bool,
}

/// Those of [`Selected`] that are answered: looked for a piece at a time, as bodies are looked into.
#[derive(Debug)]
pub struct Choosing {
    from: Selected,
    /// What indexes have not answered.
    labels: LabelSelector,
    tests: Tests,
    left: usize,
    /// The piece that comes next, and the row of it.
    at: (usize, usize),
    chosen: Chosen,
}

/// The objects of an answer, in key order. What has been read is let go of.
pub struct Chosen {
    table: Arc<Table>,
    parts: VecDeque<(Arc<Piece>, vec::IntoIter<usize>)>,
    objects: usize,
    last: Option<ObjectKey>,
}

impl Reader {
    /// What may meet `wanted` behind `after`, all from the same moment. With a `limit` no more than
    /// will be answered at once, unless bodies must be looked into.
    ///
    /// # Cost
    ///
    /// The lock is held for about 0.1 µs an object that is taken, and for what the label index takes.
    #[must_use]
    pub fn select(
        &self,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Selected {
        let contents = self.table.contents.read();
        self.select_of(&contents, wanted, after, limit)
    }

    /// The same of what is locked already.
    pub(super) fn select_of(
        &self,
        contents: &Contents,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Selected {
        let span = contents.span(wanted.namespace.as_deref(), after);
        let most = limit.filter(|_| wanted.tests.is_empty()).unwrap_or(usize::MAX);
        let mut numbers = contents.numbers(wanted, &span).take(most).peekable();
        let mut pieces = Vec::new();
        while numbers.peek().is_some() {
            let piece = Piece::of(contents, numbers.by_ref().take(ROWS_A_PIECE));
            pieces.push(Arc::new(piece));
        }
        drop(numbers);
        let last = limit.and_then(|_| contents.order.from(span.from).take(span.rows).last());
        Selected {
            table: Arc::clone(&self.table),
            pieces: pieces.into(),
            version: contents.version.clone(),
            rows: span.rows,
            last: last.and_then(|number| contents.key(number)),
            is_earlier: false,
        }
    }
}

/// Part of the key order.
struct Span<'a> {
    namespace: Option<&'a str>,
    after: Option<&'a ObjectKey>,
    from: Place,
    rows: usize,
}

impl Contents {
    /// The rows of a namespace behind `after`.
    fn span<'a>(&self, namespace: Option<&'a str>, after: Option<&'a ObjectKey>) -> Span<'a> {
        let bounds = namespace.map(|namespace| self.bounds(namespace));
        let behind = self.behind(after);
        let rank = |place| self.order.rank(place);
        let begin = bounds.map_or_else(Place::default, |[begin, _]| begin);
        let from = if rank(behind) > rank(begin) { behind } else { begin };
        let end = bounds.map_or_else(|| self.order.len(), |[_, end]| rank(end));
        let rows = end.saturating_sub(rank(from));
        Span { namespace, after, from, rows }
    }

    fn numbers<'a>(
        &'a self,
        wanted: &'a Wanted,
        span: &'a Span<'_>,
    ) -> Box<dyn Iterator<Item = u32> + 'a> {
        let is_named = move |number: &u32| {
            let name = wanted.name.as_deref().map(str::as_bytes);
            name.is_none_or(|name| self.slab.get(*number).is_some_and(|r| r.record.name() == name))
        };
        if let (Some(namespace), Some(name)) = (&wanted.namespace, &wanted.name) {
            let found = self.find(namespace, name, Place::default()).ok();
            let found = found.and_then(|place| self.order.get(place));
            let found = found.filter(|number| self.is_within(*number, span));
            let selected = self.narrowed(wanted);
            let is_selected = move |number: &u32| {
                selected.as_ref().is_none_or(|selected| selected.contains(*number))
            };
            return Box::new(found.into_iter().filter(is_selected));
        }
        let all = self.order.from(span.from).take(span.rows);
        match self.narrowed(wanted) {
            None => Box::new(all.filter(is_named)),
            Some(selected) if selected.len() > span.rows as u64 / 8 => {
                Box::new(all.filter(move |number| selected.contains(*number)).filter(is_named))
            }
            Some(selected) => {
                let within = selected.iter().filter(|number| self.is_within(*number, span));
                let mut numbers: Vec<_> = within.filter(is_named).collect();
                numbers.sort_by(|&a, &b| self.compare(a, b));
                Box::new(numbers.into_iter())
            }
        }
    }

    /// The rows that indexes leave; `None` if no index says anything.
    fn narrowed(&self, wanted: &Wanted) -> Option<RoaringBitmap> {
        let mut narrowed =
            (!wanted.labels.is_empty()).then(|| self.labels.select(&wanted.labels, || self.all()));
        for test in wanted.tests.all() {
            let Test::Field { path, absent, is: Is::Equal, value } = test else { continue };
            let index = self
                .declared
                .iter()
                .find(|index| index.path == *path && index.is_complete && absent != value);
            if let Some(index) = index {
                let rows = index.values.get(value);
                narrowed = Some(narrowed.map_or_else(|| rows.clone(), |held| held & &rows));
            }
        }
        narrowed
    }

    fn is_within(&self, number: u32, span: &Span<'_>) -> bool {
        let Some(row) = self.slab.get(number) else { return false };
        let namespace = self.namespaces.name(row.namespace);
        span.namespace.is_none_or(|wanted| wanted == namespace)
            && span.after.is_none_or(|after| is_behind((namespace, row.record.name()), after))
    }
}

impl Selected {
    /// The table's version at that moment.
    #[must_use]
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Begins to choose those that meet the tests of `wanted`, up to `limit`.
    #[must_use]
    pub fn choose(&self, wanted: &Wanted, limit: Option<usize>) -> Choosing {
        let table = Arc::clone(&self.table);
        Choosing {
            from: self.clone(),
            labels: if self.is_earlier { wanted.labels.clone() } else { LabelSelector::default() },
            tests: wanted.tests.clone(),
            left: limit.unwrap_or(usize::MAX),
            at: (0, 0),
            chosen: Chosen { table, parts: VecDeque::new(), objects: 0, last: None },
        }
    }

    /// Whether objects stand behind the last of `chosen`, selected or not.
    #[must_use]
    pub fn has_more(&self, chosen: &Chosen) -> bool {
        chosen.last.is_some() && self.last.is_some() && chosen.last != self.last
    }

    /// How many objects of the namespace stand behind the start, selected or not.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
}

impl Choosing {
    /// Whether bodies must be looked into.
    #[must_use]
    pub fn unpacks(&self) -> bool {
        !self.tests.is_empty() || !self.labels.is_empty()
    }

    /// Goes through one more piece, or through what one turn allows of it; answers whether anything is left.
    ///
    /// # Cost
    ///
    /// About 10 ns an object, and if bodies must be looked into 2 ns a byte of theirs, whatever the number of
    /// tests: to unpack it and to walk it. No more of that than a [`Turn`].
    pub fn step(&mut self) -> bool {
        let (at, first) = self.at;
        let Some(piece) = self.from.pieces.get(at).map(Arc::clone) else { return false };
        let mut next = first..piece.len();
        let mut rows: Vec<usize> = Vec::new();
        self.at = (at + 1, 0);
        if self.unpacks() {
            let (table, mut turn) = (&self.from.table, Turn::default());
            let encoding = table.encoding;
            table.codec.with(|context, body| {
                while rows.len() < self.left
                    && let Some(row) = next.next()
                {
                    if turn.is_over() {
                        self.at = (at, row);
                        break;
                    }
                    let Some(seen) = piece.seen(row, table, context, body) else { continue };
                    turn.count(seen.body.len());
                    let is_met = self.tests.are_met(encoding, seen.body)
                        && wanted::are_labels_met(&self.labels, encoding, seen.body);
                    if is_met {
                        rows.push(row);
                    }
                }
            });
        } else {
            rows.extend(next.take(self.left));
        }
        self.left -= rows.len();
        if let Some(&last) = rows.last() {
            self.chosen.objects += rows.len();
            self.chosen.last = piece.key_of(last);
            self.chosen.parts.push_back((piece, rows.into_iter()));
        }
        self.left > 0 && self.at.0 < self.from.pieces.len()
    }

    /// What was chosen.
    #[must_use]
    pub fn chosen(self) -> Chosen {
        self.chosen
    }
}

impl Chosen {
    /// How many objects there are, those that were read included.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// The key of the last.
    #[must_use]
    pub fn last_key(&self) -> Option<&ObjectKey> {
        self.last.as_ref()
    }

    /// Shows the objects that come next, one after the other, until `see` has seen enough; answers whether
    /// any may be left. Each is unpacked into the same memory, which stays in the processor's cache.
    ///
    /// # Cost
    ///
    /// About 2 µs an object.
    pub fn show(&mut self, mut see: impl FnMut(Seen<'_>) -> ControlFlow<()>) -> bool {
        let (table, parts) = (&self.table, &mut self.parts);
        table.codec.with(|context, body| {
            let mut flow = ControlFlow::Continue(());
            while flow.is_continue()
                && let Some((piece, rows)) = parts.front_mut()
            {
                if rows.len().is_multiple_of(AHEAD) {
                    piece.fetch(rows.as_slice());
                }
                if let Some(row) = rows.next()
                    && let Some(seen) = piece.seen(row, table, context, body)
                {
                    flow = see(seen);
                }
                if rows.len() == 0 {
                    parts.pop_front();
                }
            }
        });
        !self.parts.is_empty()
    }
}

impl fmt::Debug for Selected {
    /// How much, never what: it may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected")
            .field("version", &self.version)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("objects", &self.objects).finish_non_exhaustive()
    }
}
