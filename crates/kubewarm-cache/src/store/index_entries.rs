//! The index entries of one object: read outside the lock, applied to the indexes under the write lock.

use super::{
    contents::{IndexedValues, StoreContents},
    packed_object::BodyEncoding,
};
use kubewarm_wire::json::FieldPathSet;

#[derive(Debug, Default)]
pub(super) struct IndexEntries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: IndexedValues,
}

impl IndexEntries {
    /// Reads the labels and the values at `paths` from a body.
    pub(super) fn read(encoding: BodyEncoding, body: &[u8], paths: &FieldPathSet) -> Self {
        let mut labels = Vec::new();
        encoding.for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, ..Self::read_fields(encoding, body, paths) }
    }

    /// Reads only the values at `paths`, for a change that keeps the labels.
    pub(super) fn read_fields(encoding: BodyEncoding, body: &[u8], paths: &FieldPathSet) -> Self {
        Self { labels: Vec::new(), values: encoding.field_values(body, paths) }
    }

    /// Adds row `number` to the indexes.
    pub(super) fn add_to(&self, number: u32, contents: &mut StoreContents) {
        for (key, value) in &self.labels {
            contents.labels.insert(key, value, number);
        }
        contents.index(number, &self.values);
    }

    /// Removes row `number` from the indexes.
    pub(super) fn remove_from(&self, number: u32, contents: &mut StoreContents) {
        for (key, value) in &self.labels {
            contents.labels.remove(key, value, number);
        }
        contents.unindex(number, &self.values);
    }
}
