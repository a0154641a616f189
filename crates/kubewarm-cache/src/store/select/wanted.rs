//! What is asked of a table, and what its bodies must say for that.

use crate::store::{paths::Paths, record::Encoding};
use kubewarm_api::model::{FieldPath, LabelComparison, LabelSelector};
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

/// What a body must say: all of it. Which paths that takes is put together once, for all bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    all: Vec<Test>,
    /// Of each that is about a field, which of the paths it is about.
    places: Vec<usize>,
    /// Of those that are about fields.
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
        /// Whether one of them must be `value`, or none may be.
        is: Is,
        /// What it is compared with.
        value: Arc<str>,
    },
    /// The value of a label, which must be there and a number.
    Label(LabelComparison),
}

/// Whether a value must be another one, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// `=`
    Equal,
    /// `!=`
    Different,
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

    /// Whether an object with this body is among them, its namespace and name aside; `said` is of this body.
    pub(in crate::store) fn selects(
        &self,
        encoding: Encoding,
        body: &[u8],
        said: &mut Said,
    ) -> bool {
        let are_labels_met =
            self.labels.is_empty() || are_met(&self.labels, said.labels(encoding, body));
        are_labels_met && self.tests.are_met_by(said, encoding, body)
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

    /// Whether a body says all of it.
    ///
    /// # Cost
    ///
    /// Two walks of the body at the most, one for its labels and one for all paths; and about 0.1 µs a test.
    pub(super) fn are_met(&self, encoding: Encoding, body: &[u8]) -> bool {
        let labels = self.ask_for_labels().then(|| labels(encoding, body));
        let values = encoding.field_values(body, &self.paths);
        let values_at = |place: usize| values.get(place).map(Vec::as_slice);
        let mut tests = self.all.iter().zip(&self.places);
        tests.all(|(test, &place)| test.is_met(labels.as_ref(), |_| values_at(place)))
    }

    /// The same by what has been read of the body, and is read now if it has not been.
    fn are_met_by(&self, said: &mut Said, encoding: Encoding, body: &[u8]) -> bool {
        if self.ask_for_labels() {
            said.labels(encoding, body);
        }
        said.read(encoding, body, &self.paths);
        let values_at = |path: &FieldPath| said.values.get(path).map(Vec::as_slice);
        self.all.iter().all(|test| test.is_met(said.labels.as_ref(), values_at))
    }

    fn ask_for_labels(&self) -> bool {
        self.all.iter().any(|test| matches!(test, Test::Label(_)))
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
        let paths: Paths = all.iter().filter_map(Test::path).cloned().collect();
        let place = |test: &Test| {
            let found = paths.all().iter().position(|path| Some(path) == test.path());
            found.unwrap_or_default()
        };
        let places = all.iter().map(place).collect();
        Self { all, places, paths }
    }
}

impl Test {
    fn path(&self) -> Option<&FieldPath> {
        match self {
            Self::Field { path, .. } => Some(path),
            Self::Label(_) => None,
        }
    }

    /// Whether the labels of a body, and its values at the path, say so.
    fn is_met<'v>(
        &self,
        labels: Option<&Labels>,
        values_at: impl Fn(&FieldPath) -> Option<&'v [Box<str>]>,
    ) -> bool {
        match self {
            Self::Field { path, absent, is, value } => {
                let values = values_at(path).unwrap_or_default();
                let found = values.binary_search_by(|held| (**held).cmp(&**value));
                let is_there = found.is_ok() || (values.is_empty() && absent == value);
                is_there == (*is == Is::Equal)
            }
            Self::Label(comparison) => {
                let value = labels.and_then(|labels| labels.get(comparison.key()));
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

    fn labels(&mut self, encoding: Encoding, body: &[u8]) -> &Labels {
        let bytes = &mut self.bytes;
        self.labels.get_or_insert_with(|| {
            let labels = labels(encoding, body);
            let text: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
            *bytes += labels.len() * size_of::<[Box<str>; 2]>() + text;
            labels
        })
    }

    /// Reads what the body has at these paths, if it has not been read: all of them at once.
    fn read(&mut self, encoding: Encoding, body: &[u8], paths: &Paths) {
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

/// Whether the labels of a body meet a selector. Cost: one walk of the body, unless the selector is empty.
pub(super) fn are_labels_met(selector: &LabelSelector, encoding: Encoding, body: &[u8]) -> bool {
    selector.is_empty() || are_met(selector, &labels(encoding, body))
}

fn are_met(selector: &LabelSelector, labels: &Labels) -> bool {
    let value = |key: &str| labels.get(key).map(|value| &**value);
    selector.requirements().all(|it| it.matches(value(it.key())))
}

/// The labels of a body; of a key that is there twice, the last.
fn labels(encoding: Encoding, body: &[u8]) -> Labels {
    let mut labels = Labels::new();
    encoding.for_each_label(body, |key, value| {
        labels.insert(key.into(), value.into());
    });
    labels
}

impl fmt::Debug for Said {
    /// How much, never what: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
