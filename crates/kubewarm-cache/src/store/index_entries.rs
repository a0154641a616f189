//! The labels and field values of one object, as entries for the store's indexes. The writer reads
//! them from the object without the store's lock, and adds them to the indexes under the write
//! lock.

use super::{
    contents::{IndexedValues, StoreContents},
    packed_object::{for_each_label, indexed_values},
};
use kubewarm_wire::{ObjectBody, json::FieldPathSet};

#[derive(Debug, Default)]
pub(super) struct IndexEntries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: IndexedValues,
}

impl IndexEntries {
    /// Reads the labels from an object, and the values at the field paths `paths`.
    pub(super) fn read(body: ObjectBody<'_>, paths: &FieldPathSet) -> Self {
        let mut labels = Vec::new();
        for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, ..Self::read_fields(body, paths) }
    }

    /// Reads only the values at the field paths `paths` from an object. Used for a change that
    /// keeps the object's labels, because the label index then needs no update.
    pub(super) fn read_fields(body: ObjectBody<'_>, paths: &FieldPathSet) -> Self {
        Self { labels: Vec::new(), values: indexed_values(body, paths) }
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
