//! What is asked of a table, and what its bodies must say for that.

use crate::store::{query::is_behind, record::Encoding};
use kubewarm_api::model::{FieldPath, LabelComparison, LabelSelector, ObjectKey};
use kubewarm_wire::json::Paths;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

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
    pub tests: Tests,
}

/// Tests that a body must all meet. The paths of their fields are put together once, for all bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    all: Vec<Test>,
    paths: Paths,
}

/// What a text takes besides its bytes: where it is, how long, and its place among others.
const TEXT: usize = 64;

/// Labels, by their keys.
type Labels = BTreeMap<Box<str>, Box<str>>;

/// What a body says, as far as anybody has asked: each path is read once, whoever asks and however often.
///
/// It holds no more than the body does, but for some 50 bytes a label and a path; of paths there are no more
/// than kinds have fields to be selected by, and [`INDEXES_PER_TABLE`].
///
/// [`INDEXES_PER_TABLE`]: crate::store::INDEXES_PER_TABLE
#[derive(Default)]
pub struct Said {
    labels: Option<Labels>,
    values: BTreeMap<FieldPath, Vec<Box<str>>>,
    bytes: usize,
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
        /// Whether one of them must be `value`; else none may be.
        is_equality: bool,
        /// What it is compared with.
        value: Arc<str>,
    },
    /// The value of a label, which must be there and a number.
    Label(LabelComparison),
}

impl Wanted {
    /// Memory that it takes: its texts, and some 64 bytes for each.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let names = [&self.namespace, &self.name].into_iter().flatten().map(|name| name.len());
        let labels = self.labels.requirements().map(|it| {
            let values = it.values().map(|value| TEXT + value.len());
            TEXT + 2 * it.key().len() + values.sum::<usize>()
        });
        let tests = self.tests.all().iter().map(|test| match test {
            Test::Field { value, .. } => TEXT + value.len(),
            Test::Label(it) => TEXT + it.key().len(),
        });
        size_of::<Self>() + names.chain(labels).chain(tests).sum::<usize>()
    }

    /// Whether no body must be looked into, namespace and name aside.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.tests.all.is_empty()
    }

    /// Whether an object, by its namespace and its name, is in the wanted namespace behind `after`.
    pub(super) fn is_in_span(&self, object: (&str, &[u8]), after: Option<&ObjectKey>) -> bool {
        self.namespace.as_deref().is_none_or(|it| it == object.0)
            && after.is_none_or(|after| is_behind(object, after))
    }

    /// Whether an object of this name is wanted.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_deref().is_none_or(|it| it.as_bytes() == name)
    }

    /// Whether a body meets labels and tests; `said` is of this body.
    ///
    /// # Cost
    ///
    /// Two walks of the body at the most, one for its labels and one for all paths; and about 0.1 µs a test.
    pub(in crate::store) fn selects(
        &self,
        encoding: Encoding,
        body: &[u8],
        said: &mut Said,
    ) -> bool {
        let is_about_labels = |test: &Test| matches!(test, Test::Label(_));
        if !self.labels.is_empty() || self.tests.all.iter().any(is_about_labels) {
            said.read_labels(encoding, body);
        }
        let label = |key: &str| said.labels.as_ref()?.get(key).map(|value| &**value);
        if !self.labels.requirements().all(|it| it.matches(label(it.key()))) {
            return false;
        }
        said.read_values(encoding, body, &self.tests.paths);
        self.tests.all.iter().all(|test| test.is_met(said))
    }
}

impl Tests {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Test] {
        &self.all
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl FromIterator<Test> for Tests {
    /// All of these; repeated ones count once.
    fn from_iter<I: IntoIterator<Item = Test>>(tests: I) -> Self {
        let mut all: Vec<Test> = Vec::new();
        for test in tests {
            if !all.contains(&test) {
                all.push(test);
            }
        }
        let paths = all.iter().filter_map(Test::path).cloned().collect();
        Self { all, paths }
    }
}

impl Test {
    fn path(&self) -> Option<&FieldPath> {
        match self {
            Self::Field { path, .. } => Some(path),
            Self::Label(_) => None,
        }
    }

    /// Whether the body passes the test. `said` holds every value of the body that the test needs.
    fn is_met(&self, said: &Said) -> bool {
        match self {
            Self::Field { path, absent, is_equality, value } => {
                let values = said.values.get(path).map_or(&[] as &[_], Vec::as_slice);
                let found = values.binary_search_by(|held| (**held).cmp(&**value));
                let is_there = found.is_ok() || (values.is_empty() && absent == value);
                is_there == *is_equality
            }
            Self::Label(comparison) => {
                let value = said.labels.as_ref().and_then(|it| it.get(comparison.key()));
                comparison.matches(value.map(|value| &**value))
            }
        }
    }
}

impl Said {
    /// Bytes that it holds, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the labels, if they have not been read; of a key that is there twice, the last value.
    fn read_labels(&mut self, encoding: Encoding, body: &[u8]) {
        if self.labels.is_some() {
            return;
        }
        let mut labels = Labels::new();
        encoding.for_each_label(body, |key, value| {
            self.bytes += size_of::<[Box<str>; 2]>() + key.len() + value.len();
            labels.insert(key.into(), value.into());
        });
        self.labels = Some(labels);
    }

    /// Reads the values at these paths, if they have not been read: all of them at once.
    fn read_values(&mut self, encoding: Encoding, body: &[u8], paths: &Paths) {
        if paths.all().iter().all(|path| self.values.contains_key(path)) {
            return;
        }
        for (path, values) in paths.all().iter().zip(encoding.field_values(body, paths)) {
            if let Entry::Vacant(vacant) = self.values.entry(path.clone()) {
                let texts = values.iter().map(|value| size_of::<Box<str>>() + value.len());
                self.bytes += size_of::<(FieldPath, Vec<Box<str>>)>() + texts.sum::<usize>();
                vacant.insert(values);
            }
        }
    }
}

impl fmt::Debug for Said {
    /// How much, never what: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
