//! The labels and field values of one object, as entries for the store's indexes. The writer reads
//! them from the object without the store's lock, and adds them to the indexes under the write
//! lock.

use super::{
    contents::{IndexedValues, StoreContents},
    packed_object::{MANY_VALUES, for_each_label, indexed_values},
};
use kubewarm_api::model::FieldPath;
use kubewarm_wire::{ObjectBody, json::FieldPathSet};

#[derive(Debug, Default)]
pub(super) struct IndexEntries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: IndexedValues,
    /// Whether the object is malformed, so that `labels` can lack labels.
    has_unread_labels: bool,
}

impl IndexEntries {
    /// Reads the labels from an object, and the values at the field paths `paths`.
    pub(super) fn read(body: ObjectBody<'_>, paths: &FieldPathSet) -> Self {
        let values = indexed_values(body, paths);
        Self { values, ..Self::read_labels(body) }
    }

    /// Reads only the labels from an object.
    pub(super) fn read_labels(body: ObjectBody<'_>) -> Self {
        let mut labels = Vec::new();
        let is_readable =
            for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, values: Vec::new(), has_unread_labels: !is_readable }
    }

    /// Reads only the values at the field paths `paths` from an object. Used for a change that
    /// keeps the object's labels, because the label index then needs no update.
    pub(super) fn read_fields(body: ObjectBody<'_>, paths: &FieldPathSet) -> Self {
        Self { values: indexed_values(body, paths), ..Self::default() }
    }

    /// Whether the entries contain all labels and values that were to be read. If not, the object
    /// can have any label or value. An object with too many values at a field path has none of them
    /// here.
    pub(super) fn is_whole(&self) -> bool {
        let has_many = |values: &Vec<Box<str>>| values.iter().any(|value| **value == *MANY_VALUES);
        !self.has_unread_labels && !self.values.iter().any(has_many)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns each value with its field path. `paths` must be the paths of the entries.
    pub(super) fn values<'a>(
        &'a self,
        paths: &'a FieldPathSet,
    ) -> impl Iterator<Item = (&'a FieldPath, &'a str)> {
        let paths = paths.all().iter().zip(&self.values);
        paths.flat_map(|(path, values)| values.iter().map(move |value| (path, &**value)))
    }

    pub(super) fn add_to(&self, number: u32, contents: &mut StoreContents) {
        for (key, value) in &self.labels {
            contents.labels.insert(key, value, number);
        }
        contents.index(number, &self.values);
    }

    pub(super) fn remove_from(&self, number: u32, contents: &mut StoreContents) {
        for (key, value) in &self.labels {
            contents.labels.remove(key, value, number);
        }
        contents.unindex(number, &self.values);
    }
}
