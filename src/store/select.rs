//! What a list selects: at one moment, kept packed, and unpacked a few at a time while it is written.

use super::{
    contents::Contents,
    index::Building,
    order::Place,
    piece::Piece,
    query::{Reader, Seen, is_behind},
    record::Encoding,
    table::Table,
};
use crate::model::{FieldPath, LabelSelector, ObjectKey, ResourceVersion};
use roaring::RoaringBitmap;
use std::{collections::VecDeque, fmt, mem, ops::ControlFlow, sync::Arc, vec};

/// Rows that are looked into together, and let go of together: some 100 KiB of pods, packed.
const ROWS_A_PIECE: usize = 128;

/// What is asked of a table; the default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of one namespace.
    pub namespace: Option<Box<str>>,
    /// Of one name.
    pub name: Option<Box<str>>,
    /// Met from the label index.
    pub labels: LabelSelector,
    /// Met by looking into bodies.
    pub tests: Vec<Test>,
}

/// What a body must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The values at a path, of which each object has the first 64 that differ.
    Field {
        /// Where.
        path: FieldPath,
        /// What an object says that has nothing there.
        absent: Arc<str>,
        /// Whether one of them must be `value`, or none may be.
        is: Is,
        /// What it is compared with.
        value: Arc<str>,
    },
    /// The value of a label, which must be there and a number.
    Label {
        /// The label.
        key: Arc<str>,
        /// On which side of `number`.
        than: Than,
        /// What it is compared with.
        number: i64,
    },
}

/// Whether a value must be another one, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// `=`
    Equal,
    /// `!=`
    Different,
}

/// On which side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Than {
    /// `>`
    Greater,
    /// `<`
    Less,
}

/// Objects of one moment, in key order: all that may meet what was wanted. Cheap to clone.
///
/// Their records are the table's, as packed as there: about 0.1 µs and 16 bytes an object. Those of secrets
/// are copies.
#[derive(Clone)]
pub struct Selected {
    table: Arc<Table>,
    pieces: Arc<[Arc<Piece>]>,
    version: Option<ResourceVersion>,
    /// Behind which key it begins.
    after: Option<ObjectKey>,
    /// Objects of the namespace behind that, selected or not.
    rows: usize,
    /// The last of these; only where there is a limit.
    last: Option<ObjectKey>,
}

/// Those of [`Selected`] that are answered: looked for a piece at a time, as bodies are looked into.
#[derive(Debug)]
pub struct Choosing {
    from: Selected,
    tests: Vec<Test>,
    after: Option<ObjectKey>,
    left: usize,
    at: usize,
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
            after: after.cloned(),
            rows: span.rows,
            last: last.and_then(|number| contents.key(number)),
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
        for test in &wanted.tests {
            let Test::Field { path, absent, is: Is::Equal, value } = test else { continue };
            let index = self.declared.iter().find(|index| {
                index.path == *path && index.state == Building::Complete && absent != value
            });
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

    /// Bytes that it keeps from being given back, those that the table still holds included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes()).sum()
    }

    /// Begins to choose those behind `after` that meet the tests of `wanted`, up to `limit`.
    #[must_use]
    pub fn choose(
        &self,
        wanted: &Wanted,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Choosing {
        let table = Arc::clone(&self.table);
        Choosing {
            from: self.clone(),
            tests: wanted.tests.clone(),
            after: after.cloned(),
            left: limit.unwrap_or(usize::MAX),
            at: 0,
            chosen: Chosen { table, parts: VecDeque::new(), objects: 0, last: None },
        }
    }

    /// Whether it was selected in the table that `reader` reads.
    #[must_use]
    pub fn is_of(&self, reader: &Reader) -> bool {
        Arc::ptr_eq(&self.table, &reader.table)
    }

    /// Whether objects stand behind the last of `chosen`, selected or not.
    #[must_use]
    pub fn has_more(&self, chosen: &Chosen) -> bool {
        chosen.last.is_some() && self.last.is_some() && chosen.last != self.last
    }

    /// How many objects stood where the selection begins, selected or not.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the objects behind `after` are among those that it was selected from.
    #[must_use]
    pub fn reaches(&self, after: Option<&ObjectKey>) -> bool {
        self.after.is_none() || self.after.as_ref() <= after
    }

    /// How many objects stood behind `after`, where nothing is asked but a namespace.
    #[must_use]
    pub fn behind(&self, after: Option<&ObjectKey>) -> usize {
        let Some(after) = after.filter(|_| self.after.as_ref() != after) else { return self.rows };
        let is_behind = |piece: &Piece, row| piece.is_behind(row, after);
        let of_piece = |piece: &Arc<Piece>| {
            let first = (0..piece.len()).position(|row| is_behind(piece, row));
            first.map_or(0, |first| piece.len() - first)
        };
        self.pieces.iter().map(of_piece).sum()
    }
}

impl Choosing {
    /// Goes through one more piece; answers whether there is another. Cost: about 2 µs an object if
    /// bodies must be looked into, 10 ns otherwise.
    pub fn step(&mut self) -> bool {
        let Some(piece) = self.from.pieces.get(self.at).map(Arc::clone) else { return false };
        self.at += 1;
        let after = self.after.as_ref();
        let behind =
            (0..piece.len()).filter(|&row| after.is_none_or(|after| piece.is_behind(row, after)));
        let mut rows: Vec<usize> = behind.collect();
        if !self.tests.is_empty() {
            let table = &self.from.table;
            table.codec.with(|context| {
                let mut body = mem::take(&mut context.body);
                rows.retain(|&row| {
                    let seen = piece.seen(row, table, context, &mut body);
                    let is_met =
                        |test: &Test, seen: Seen<'_>| test.is_met(table.encoding, seen.body);
                    seen.is_some_and(|seen| self.tests.iter().all(|test| is_met(test, seen)))
                });
                context.body = body;
            });
        }
        rows.truncate(self.left);
        self.left -= rows.len();
        if let Some(&last) = rows.last() {
            self.chosen.objects += rows.len();
            self.chosen.last = piece.key_of(last);
            self.chosen.parts.push_back((piece, rows.into_iter()));
        }
        self.left > 0 && self.at < self.from.pieces.len()
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
        table.codec.with(|context| {
            let mut body = mem::take(&mut context.body);
            let mut flow = ControlFlow::Continue(());
            while flow.is_continue()
                && let Some((piece, rows)) = parts.front_mut()
            {
                flow = rows.try_for_each(|row| match piece.seen(row, table, context, &mut body) {
                    Some(seen) => see(seen),
                    None => ControlFlow::Continue(()),
                });
                if rows.len() == 0 {
                    parts.pop_front();
                }
            }
            context.body = body;
        });
        !self.parts.is_empty()
    }
}

impl Wanted {
    /// Whether an object with this body is among them, its namespace and name aside.
    pub(super) fn selects(&self, encoding: Encoding, body: &[u8]) -> bool {
        let mut left: Vec<_> =
            self.labels.requirements().map(|it| (it, it.matches(None))).collect();
        if !left.is_empty() {
            encoding.for_each_label(body, |key, value| {
                for (requirement, is_met) in &mut left {
                    if requirement.key() == key {
                        *is_met = requirement.matches(Some(value));
                    }
                }
            });
        }
        left.iter().all(|(_, is_met)| *is_met)
            && self.tests.iter().all(|test| test.is_met(encoding, body))
    }
}

impl Test {
    fn is_met(&self, encoding: Encoding, body: &[u8]) -> bool {
        match self {
            Self::Field { path, absent, is, value } => {
                let values = encoding.values(body, path);
                let is_there = values.iter().any(|found| **found == **value)
                    || (values.is_empty() && absent == value);
                is_there == (*is == Is::Equal)
            }
            Self::Label { key, than, number } => {
                let mut found = None;
                encoding.for_each_label(body, |name, value| {
                    if *name == **key {
                        found = value.parse::<i64>().ok();
                    }
                });
                found.is_some_and(|found| match than {
                    Than::Greater => found > *number,
                    Than::Less => found < *number,
                })
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{DeltaSink as _, LabelRequirement, Operator},
        store::{
            Catalog,
            record::VALUES_PER_OBJECT,
            samples::{body, cell, remove, upsert, version},
        },
    };
    use std::collections::BTreeSet;

    fn key(text: &str) -> ObjectKey {
        let (namespace, name) = text.split_once('/').unwrap();
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    fn phase(is: Is, value: &str) -> Test {
        let path = FieldPath::parse(".phase").unwrap();
        Test::Field { path, absent: "".into(), is, value: value.into() }
    }

    fn label(key: &str, operator: Operator, values: &[&str]) -> LabelSelector {
        let values = values.iter().copied();
        LabelSelector::new([LabelRequirement::new(key, operator, values).unwrap()])
    }

    fn all(selected: &Selected, wanted: &Wanted, after: Option<&ObjectKey>) -> Chosen {
        let mut choosing = selected.choose(wanted, after, None);
        while choosing.step() {}
        choosing.chosen()
    }

    /// Names and bodies, in parts of 7 objects.
    fn shown(mut chosen: Chosen) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        let mut goes_on = true;
        while goes_on {
            let most = all.len() + 7;
            goes_on = chosen.show(|it| {
                let name = format!("{}/{}", it.namespace, it.name.escape_ascii());
                all.push((name, it.body.to_vec()));
                if all.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        all
    }

    fn names(chosen: Chosen) -> Vec<String> {
        shown(chosen).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_is_selected_is_what_each_object_says_of_itself() {
        let path = FieldPath::parse(".phase").unwrap();
        for declared in [BTreeSet::from([path]), BTreeSet::new()] {
            let catalog = Catalog::new();
            let mut writer = catalog.open(&cell("pods"), &declared);
            let mut objects = Vec::new();
            for n in 0..600_u32 {
                // Namespaces of which one is the beginning of the others.
                let namespace = ["a", "aa", "a-a"][n as usize % 3];
                let app = (n % 5 > 0).then(|| format!(r#""app":"v{}","n":"{n}""#, n % 5));
                let phase = ["", r#","phase":"up""#, r#","phase":"down""#][n as usize % 7 % 3];
                let name = format!("{namespace}/x{:03}", n * 7 % 600);
                let text = body(&format!("{{{}}}", app.unwrap_or_default()), phase);
                objects.push((key(&name), n, text.clone()));
                writer.apply(upsert(&name, 1, "5", &text));
            }
            objects.sort_by(|one, other| one.0.cmp(&other.0));
            let reader = catalog.reader(&cell("pods")).unwrap();
            let selectors = [
                LabelSelector::default(),
                label("app", Operator::In, &["v1", "v2"]),
                label("app", Operator::NotIn, &["v1"]),
                label("app", Operator::DoesNotExist, &[]),
                label("app", Operator::In, &["none"]),
            ];
            let tests = [
                vec![],
                vec![phase(Is::Equal, "up")],
                vec![phase(Is::Different, "up")],
                vec![phase(Is::Equal, "")],
                vec![Test::Label { key: "n".into(), than: Than::Greater, number: 300 }],
                vec![
                    Test::Label { key: "n".into(), than: Than::Less, number: 300 },
                    phase(Is::Equal, "down"),
                ],
            ];
            let afters = [
                None,
                Some(key("a/x100")),
                Some(key("aa/x999")),
                Some(key("a-a/x100")),
                Some(key("c/x")),
            ];
            for (labels, tests) in
                selectors.iter().flat_map(|it| tests.iter().map(move |t| (it, t)))
            {
                for namespace in [None, Some("a"), Some("aa"), Some("a-a"), Some("ab")] {
                    for after in &afters {
                        let wanted = Wanted {
                            namespace: namespace.map(Into::into),
                            name: None,
                            labels: labels.clone(),
                            tests: tests.clone(),
                        };
                        let selected = reader.select(&wanted, after.as_ref(), None);
                        let found = names(all(&selected, &wanted, after.as_ref()));
                        let expected = objects.iter().filter(|(key, n, text)| {
                            let app = (n % 5 > 0).then(|| format!("v{}", n % 5));
                            let number = (n % 5 > 0).then_some(*n);
                            let is_label =
                                labels.requirements().all(|it| it.matches(app.as_deref()));
                            let is_test = tests.iter().all(|test| match test {
                                Test::Field { is, value, .. } => {
                                    let own = ["up", "down"].into_iter().find(|phase| {
                                        text.ends_with(&format!(r#""phase":"{phase}"}}"#))
                                    });
                                    (own.unwrap_or_default() == &**value) == (*is == Is::Equal)
                                }
                                Test::Label { than: Than::Greater, .. } => number > Some(300),
                                Test::Label { than: Than::Less, .. } => {
                                    number.is_some_and(|n| n < 300)
                                }
                            });
                            namespace.is_none_or(|namespace| *key.namespace == *namespace)
                                && after.as_ref().is_none_or(|after| key > after)
                                && is_label
                                && is_test
                        });
                        let expected =
                            expected.map(|(key, ..)| format!("{}/{}", key.namespace, key.name));
                        assert_eq!(found, expected.collect::<Vec<_>>(), "{wanted:?} {after:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn of_several_values_any_counts_with_an_index_and_without() {
        let path = FieldPath::parse(".ports[*].name").unwrap();
        for declared in [BTreeSet::from([path.clone()]), BTreeSet::new()] {
            let catalog = Catalog::new();
            let mut writer = catalog.open(&cell("services"), &declared);
            // Of more values than one object may have in an index, the first count.
            let many = (0..=VALUES_PER_OBJECT).map(|n| format!("p{n}")).collect::<Vec<_>>();
            for (name, ports) in [
                ("a/both", vec!["web".to_owned(), "admin".to_owned()]),
                ("a/many", many),
                ("a/none", vec![]),
                ("a/one", vec!["web".to_owned()]),
            ] {
                let ports: Vec<_> =
                    ports.iter().map(|port| format!(r#"{{"name":"{port}"}}"#)).collect();
                let ports = format!(r#","ports":[{}]"#, ports.join(","));
                writer.apply(upsert(name, 1, "5", &body("{}", &ports)));
            }
            let reader = catalog.reader(&cell("services")).unwrap();
            for (is, value, expected) in [
                (Is::Equal, "web", &["a/both", "a/one"] as &[_]),
                (Is::Different, "web", &["a/many", "a/none"]),
                (Is::Equal, "admin", &["a/both"]),
                (Is::Different, "admin", &["a/many", "a/none", "a/one"]),
                (Is::Equal, "", &["a/none"]),
                (Is::Different, "", &["a/both", "a/many", "a/one"]),
                (Is::Equal, "p63", &["a/many"]),
                (Is::Equal, "p64", &[]),
                (Is::Different, "p64", &["a/both", "a/many", "a/none", "a/one"]),
            ] {
                let (path, value) = (path.clone(), value.into());
                let test = Test::Field { path, absent: "".into(), is, value };
                let wanted = Wanted { tests: vec![test], ..Wanted::default() };
                assert_eq!(names_of(&reader, &wanted, None), expected, "{wanted:?}");
            }
        }
    }

    #[test]
    fn lists_and_their_pages_are_in_the_order_of_etcds_keys() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&cell("pods"), &BTreeSet::new());
        let names = [
            "team-a/b",
            "team-a/x",
            "team/a",
            "team/b",
            "team/b-a",
            "team/b.a",
            "team/b0",
            "team0-a/a",
            "team0/a",
        ];
        for (number, _) in names.iter().enumerate() {
            let name = names[number * 5 % names.len()];
            writer.apply(upsert(name, 1, "5", &body("{}", "")));
        }
        let reader = catalog.reader(&cell("pods")).unwrap();
        let wanted = Wanted::default();
        assert_eq!(names_of(&reader, &wanted, None), names);
        for (at, name) in names.iter().enumerate() {
            let after = key(name);
            assert_eq!(names_of(&reader, &wanted, Some(&after)), names[at + 1..], "behind {name}");
        }
        for (namespace, expected) in [("team", &names[2..7]), ("team-a", &names[..2]), ("tea", &[])]
        {
            let wanted = Wanted { namespace: Some(namespace.into()), ..Wanted::default() };
            assert_eq!(names_of(&reader, &wanted, None), expected, "{namespace}");
        }
        assert_eq!(reader.page(None, 100).objects.len(), names.len());
        let mut keys: Vec<_> = names.iter().rev().map(|name| key(name)).collect();
        keys.sort();
        assert_eq!(keys, names.map(key));
    }

    fn names_of(reader: &Reader, wanted: &Wanted, after: Option<&ObjectKey>) -> Vec<String> {
        names(all(&reader.select(wanted, after, None), wanted, after))
    }

    #[test]
    fn a_name_is_found_in_one_namespace_and_in_all() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&cell("pods"), &BTreeSet::new());
        for name in ["a/x", "a/y", "b/x"] {
            writer.apply(upsert(name, 1, "5", &body(r#"{"app":"web"}"#, "")));
        }
        let reader = catalog.reader(&cell("pods")).unwrap();
        let found = |namespace: Option<&str>, labels: LabelSelector, after: Option<&str>| {
            let (namespace, name) = (namespace.map(Into::into), Some("x".into()));
            let wanted = Wanted { namespace, name, labels, tests: Vec::new() };
            let after = after.map(key);
            let selected = reader.select(&wanted, after.as_ref(), None);
            names(all(&selected, &wanted, after.as_ref()))
        };
        let any = LabelSelector::default;
        assert_eq!(found(None, any(), None), ["a/x", "b/x"]);
        assert_eq!(found(Some("b"), any(), None), ["b/x"]);
        assert_eq!(found(Some("b"), label("app", Operator::DoesNotExist, &[]), None), [""; 0]);
        assert_eq!(found(Some("a"), any(), Some("a/x")), [""; 0]);
        assert_eq!(found(Some("c"), any(), None), [""; 0]);
    }

    #[test]
    fn pages_say_whether_anything_stands_behind_them() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&cell("pods"), &BTreeSet::new());
        for n in 0..300 {
            let labels = if n < 200 { r#"{"app":"web"}"# } else { "{}" };
            writer.apply(upsert(&format!("a/x{n:03}"), 1, "5", &body(labels, "")));
        }
        let reader = catalog.reader(&cell("pods")).unwrap();
        let page = |wanted: &Wanted, after: Option<&ObjectKey>, limit: usize| {
            let selected = reader.select(wanted, after, Some(limit));
            let mut choosing = selected.choose(wanted, after, Some(limit));
            while choosing.step() {}
            let chosen = choosing.chosen();
            (chosen.objects(), selected.has_more(&chosen), selected.behind(after))
        };
        let (everything, last) = (Wanted::default(), key("a/x299"));
        assert_eq!(page(&everything, None, 100), (100, true, 300));
        assert_eq!(page(&everything, Some(&key("a/x199")), 100), (100, false, 100));
        assert_eq!(page(&everything, Some(&last), 100), (0, false, 0));
        // As the API server has it: whatever stands behind may be selected.
        let labels = label("app", Operator::Exists, &[]);
        let web = Wanted { labels, ..Wanted::default() };
        assert_eq!((page(&web, None, 200).0, page(&web, None, 200).1), (200, true));
        let tested = Wanted { tests: vec![phase(Is::Equal, "")], ..Wanted::default() };
        assert_eq!(page(&tested, None, 10), (10, true, 300));
    }

    #[test]
    fn all_of_it_is_of_one_moment_whatever_happens_meanwhile() {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&cell("pods"), &BTreeSet::new());
        for n in 0..300 {
            writer.apply(upsert(&format!("a/x{n:03}"), 1, "5", &body("{}", r#","n":1"#)));
        }
        writer.apply(crate::model::Delta::Progress(version("5")));
        let reader = catalog.reader(&cell("pods")).unwrap();
        let wanted = Wanted::default();
        let selected = reader.select(&wanted, None, Some(usize::MAX));
        for n in 100..300 {
            writer.apply(upsert(&format!("a/x{n:03}"), 1, "6", &body("{}", r#","n":2"#)));
        }
        writer.apply(remove("a/x050", "7"));
        let after = key("a/x039");
        let found = shown(all(&selected, &wanted, Some(&after)));
        assert_eq!((found.len(), selected.behind(Some(&after))), (260, 260));
        assert!(found.iter().all(|(_, body)| body.ends_with(br#""n":1}"#)));
        assert_eq!(selected.version(), Some(&version("5")));
    }
}
