//! Queries that select the objects of a store by namespace, name, labels and conditions on fields.

use crate::store::{
    packed_object::{field_values, for_each_label},
    reader::ObjectKeyRef,
};
use kubewarm_api::model::{FieldPath, LabelSelector, NumericLabelRequirement, ObjectKey};
use kubewarm_wire::{ObjectBody, json::FieldPathSet};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

/// A query that selects objects of a store. The default query selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectQuery {
    /// The query selects only objects in this namespace. `None` selects all namespaces.
    pub namespace: Option<Box<str>>,
    /// The query selects only objects with this name. `None` selects all names.
    pub name: Option<Box<str>>,
    /// The query selects only objects whose labels match. To find these objects, a list uses the
    /// store's label index.
    pub labels: LabelSelector,
    /// The query selects only objects whose JSON meets all of these conditions.
    pub tests: BodyPredicates,
}

/// Conditions that an object's JSON must all meet, with the set of field paths that the conditions
/// compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyPredicates {
    all: Vec<BodyPredicate>,
    paths: FieldPathSet,
}

type LabelMap = BTreeMap<Box<str>, Box<str>>;

/// Caches the labels and field values of one object. If several queries test the object, each label
/// and field path is read only once.
///
/// The cache takes at most as many bytes as the object's JSON, plus about 50 bytes for each label
/// and path. The paths are the selectable fields of the resource, and at most [`INDEXES_PER_STORE`]
/// fields for which profiles declare an index.
///
/// [`INDEXES_PER_STORE`]: crate::store::INDEXES_PER_STORE
#[derive(Default)]
pub struct BodyFieldCache {
    labels: Option<LabelMap>,
    values: BTreeMap<FieldPath, Vec<Box<str>>>,
    bytes: usize,
    is_malformed: bool,
}

/// A condition that the JSON of one object can meet or fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPredicate {
    /// Compares all values of the object at a field path with `value`. Unlike in an index, the
    /// number of values is not limited.
    Field {
        /// Path of the field to compare.
        path: FieldPath,
        /// Value that the comparison uses for an object without a value at the field path.
        absent: Arc<str>,
        /// If `true`, an object meets the condition if one of its values equals `value`. If
        /// `false`, an object meets the condition if none of its values equals `value`.
        is_equality: bool,
        /// Value with which kubewarm compares the object's values.
        value: Arc<str>,
    },
    /// Compares the number in a label. An object fails the condition if it lacks the label, or if
    /// the label's value is not a number.
    Label(NumericLabelRequirement),
}

impl ObjectQuery {
    /// Whether the query has no label selector and no field conditions. Such a query can still have
    /// a namespace and a name.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.tests.all.is_empty()
    }

    /// Whether an object is in the queried namespace and its key comes after the key `after`.
    pub(super) fn is_in_span(&self, object: ObjectKeyRef<'_>, after: Option<&ObjectKey>) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace)
            && after.is_none_or(|after| object > ObjectKeyRef::from(after))
    }

    /// Whether `name` is the name that the query selects. Always true if the query has no name.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        self.name.as_deref().is_none_or(|expected| expected.as_bytes() == name)
    }

    /// Whether an object has the queried labels and meets all conditions. `fields` caches the
    /// labels and field values of this object. The result is unknown if the object is malformed:
    /// [`BodyFieldCache::is_malformed`].
    ///
    /// # Cost
    ///
    /// At most two passes over the body: one for its labels, and one for all field paths. Each
    /// condition then takes about 0.1 µs.
    pub(in crate::store) fn selects(
        &self,
        body: ObjectBody<'_>,
        fields: &mut BodyFieldCache,
    ) -> bool {
        let is_about_labels = |test: &BodyPredicate| matches!(test, BodyPredicate::Label(_));
        if !self.labels.is_empty() || self.tests.all.iter().any(is_about_labels) {
            fields.read_labels(body);
        }
        let label = |key: &str| fields.labels.as_ref()?.get(key).map(|value| &**value);
        if !self
            .labels
            .requirements()
            .all(|requirement| requirement.matches(label(requirement.key())))
        {
            return false;
        }
        fields.read_values(body, &self.tests.paths);
        self.tests.all.iter().all(|test| test.is_met(fields))
    }
}

impl BodyPredicates {
    /// Returns the tests, without duplicates.
    pub fn all(&self) -> &[BodyPredicate] {
        &self.all
    }

    /// Whether the set of conditions is empty, so that every object passes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl FromIterator<BodyPredicate> for BodyPredicates {
    /// Collects the tests, without duplicates.
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

    /// Whether an object meets the condition. `fields` must already contain the object's values
    /// that the condition compares.
    fn is_met(&self, fields: &BodyFieldCache) -> bool {
        match self {
            Self::Field { path, absent, is_equality, value } => {
                let values = fields.values.get(path).map_or(&[] as &[_], Vec::as_slice);
                let position = values.binary_search_by(|other| (**other).cmp(&**value));
                let is_there = position.is_ok() || (values.is_empty() && absent == value);
                is_there == *is_equality
            }
            Self::Label(comparison) => {
                let value = fields.labels.as_ref().and_then(|labels| labels.get(comparison.key()));
                comparison.matches(value.map(|value| &**value))
            }
        }
    }
}

impl BodyFieldCache {
    /// Returns the estimated memory of the cached labels and values, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the object is malformed. Then kubewarm cannot decide whether a query selects the
    /// object, and the response must fail.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Caches the labels of the object `body`, unless they are already cached. If a label key
    /// occurs twice, the last value counts.
    fn read_labels(&mut self, body: ObjectBody<'_>) {
        if self.labels.is_some() {
            return;
        }
        let mut labels = LabelMap::new();
        let is_readable = for_each_label(body, |key, value| {
            self.bytes += size_of::<[Box<str>; 2]>() + key.len() + value.len();
            labels.insert(key.into(), value.into());
        });
        self.labels = Some(labels);
        self.is_malformed |= !is_readable;
    }

    /// Caches the values at all field paths `paths` in one pass over `body`, unless these values
    /// are already cached.
    fn read_values(&mut self, body: ObjectBody<'_>, paths: &FieldPathSet) {
        if paths.all().iter().all(|path| self.values.contains_key(path)) {
            return;
        }
        let Some(all) = field_values(body, paths) else {
            self.is_malformed = true;
            return;
        };
        for (path, values) in paths.all().iter().zip(all) {
            if let Entry::Vacant(vacant) = self.values.entry(path.clone()) {
                let texts = values.iter().map(|value| size_of::<Box<str>>() + value.len());
                self.bytes += size_of::<(FieldPath, Vec<Box<str>>)>() + texts.sum::<usize>();
                vacant.insert(values);
            }
        }
    }
}

impl fmt::Debug for BodyFieldCache {
    /// Does not print the values, because the object can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFieldCache").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
