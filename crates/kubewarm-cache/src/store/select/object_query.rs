//! Queries on a store, and the tests that check the bodies of objects.

use crate::store::{packed_object::BodyEncoding, reader::ObjectKeyRef};
use kubewarm_api::model::{FieldPath, LabelComparison, LabelSelector, ObjectKey};
use kubewarm_wire::json::FieldPathSet;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

/// A query on a store. The default selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectQuery {
    /// Only objects in this namespace.
    pub namespace: Option<Box<str>>,
    /// Only objects with this name.
    pub name: Option<Box<str>>,
    /// Label selector, which lists resolve with the label index.
    pub labels: LabelSelector,
    /// Tests that need the body of an object.
    pub tests: BodyPredicates,
}

/// Tests that a body must all pass. The paths of their fields are collected once, for all bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyPredicates {
    all: Vec<BodyPredicate>,
    paths: FieldPathSet,
}

/// Estimated bytes of a text in addition to its characters: pointer, length, and entry in a collection.
const TEXT: usize = 64;

type LabelMap = BTreeMap<Box<str>, Box<str>>;

/// Caches the labels and field values of one body, so that all queries on this body together read each path once.
///
/// Its size is bounded by the body, plus about 50 bytes for each label and path. The paths are the selectable fields
/// of the resource and at most [`INDEXES_PER_STORE`] indexes.
///
/// [`INDEXES_PER_STORE`]: crate::store::INDEXES_PER_STORE
#[derive(Default)]
pub struct BodyFieldCache {
    labels: Option<LabelMap>,
    values: BTreeMap<FieldPath, Vec<Box<str>>>,
    bytes: usize,
}

/// A test of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPredicate {
    /// Tests the values at a path. At most 64 different values of an object count.
    Field {
        /// Path of the field.
        path: FieldPath,
        /// Value of the field in an object that does not have it.
        absent: Arc<str>,
        /// `true`: one of the values equals `value`. `false`: none of the values equals `value`.
        is_equality: bool,
        /// The value to compare with.
        value: Arc<str>,
    },
    /// Compares a label as a number. An object without the label, or with another text there, fails.
    Label(LabelComparison),
}

impl ObjectQuery {
    /// Returns the estimated memory of the query, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let names = [&self.namespace, &self.name].into_iter().flatten().map(|name| name.len());
        let labels = self.labels.requirements().map(|it| {
            let values = it.values().map(|value| TEXT + value.len());
            TEXT + 2 * it.key().len() + values.sum::<usize>()
        });
        let tests = self.tests.all().iter().map(|test| match test {
            BodyPredicate::Field { value, .. } => TEXT + value.len(),
            BodyPredicate::Label(it) => TEXT + it.key().len(),
        });
        size_of::<Self>() + names.chain(labels).chain(tests).sum::<usize>()
    }

    /// Whether the query has neither labels nor tests. It can still have a namespace and a name.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.tests.all.is_empty()
    }

    /// Whether an object is in the queried namespace and comes after `after`.
    pub(super) fn is_in_span(&self, object: ObjectKeyRef<'_>, after: Option<&ObjectKey>) -> bool {
        self.namespace.as_deref().is_none_or(|it| it == object.namespace)
            && after.is_none_or(|after| object > ObjectKeyRef::from(after))
    }

    /// Whether the query selects objects with this name.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_deref().is_none_or(|it| it.as_bytes() == name)
    }

    /// Whether a body matches the labels and passes the tests. `fields` caches values of this body.
    ///
    /// # Cost
    ///
    /// At most two passes over the body: one for its labels and one for all paths. Each test then takes about 0.1 µs.
    pub(in crate::store) fn selects(
        &self,
        encoding: BodyEncoding,
        body: &[u8],
        fields: &mut BodyFieldCache,
    ) -> bool {
        let is_about_labels = |test: &BodyPredicate| matches!(test, BodyPredicate::Label(_));
        if !self.labels.is_empty() || self.tests.all.iter().any(is_about_labels) {
            fields.read_labels(encoding, body);
        }
        let label = |key: &str| fields.labels.as_ref()?.get(key).map(|value| &**value);
        if !self.labels.requirements().all(|it| it.matches(label(it.key()))) {
            return false;
        }
        fields.read_values(encoding, body, &self.tests.paths);
        self.tests.all.iter().all(|test| test.is_met(fields))
    }
}

impl BodyPredicates {
    /// Returns the tests, without duplicates.
    #[must_use]
    pub fn all(&self) -> &[BodyPredicate] {
        &self.all
    }

    /// Whether every body passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl FromIterator<BodyPredicate> for BodyPredicates {
    /// Removes duplicates.
    fn from_iter<I: IntoIterator<Item = BodyPredicate>>(tests: I) -> Self {
        let mut all: Vec<BodyPredicate> = Vec::new();
        for test in tests {
            if !all.contains(&test) {
                all.push(test);
            }
        }
        let paths = all.iter().filter_map(BodyPredicate::path).cloned().collect();
        Self { all, paths }
    }
}

impl BodyPredicate {
    fn path(&self) -> Option<&FieldPath> {
        match self {
            Self::Field { path, .. } => Some(path),
            Self::Label(_) => None,
        }
    }

    /// Whether the body passes the test. `fields` must contain every value of the body that the test needs.
    fn is_met(&self, fields: &BodyFieldCache) -> bool {
        match self {
            Self::Field { path, absent, is_equality, value } => {
                let values = fields.values.get(path).map_or(&[] as &[_], Vec::as_slice);
                let found = values.binary_search_by(|held| (**held).cmp(&**value));
                let is_there = found.is_ok() || (values.is_empty() && absent == value);
                is_there == *is_equality
            }
            Self::Label(comparison) => {
                let value = fields.labels.as_ref().and_then(|it| it.get(comparison.key()));
                comparison.matches(value.map(|value| &**value))
            }
        }
    }
}

impl BodyFieldCache {
    /// Returns the estimated memory of the cached values, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the labels, unless they are cached. For a duplicate key, the last value counts.
    fn read_labels(&mut self, encoding: BodyEncoding, body: &[u8]) {
        if self.labels.is_some() {
            return;
        }
        let mut labels = LabelMap::new();
        encoding.for_each_label(body, |key, value| {
            self.bytes += size_of::<[Box<str>; 2]>() + key.len() + value.len();
            labels.insert(key.into(), value.into());
        });
        self.labels = Some(labels);
    }

    /// Reads the values at all paths in one pass, unless they are cached.
    fn read_values(&mut self, encoding: BodyEncoding, body: &[u8], paths: &FieldPathSet) {
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

impl fmt::Debug for BodyFieldCache {
    /// Prints the size only, because the body can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFieldCache").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
