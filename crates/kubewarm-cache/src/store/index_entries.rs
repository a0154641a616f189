//! The index entries of one object. The writer reads the entries from the object's body outside the store's lock, and
//! applies them under the write lock.

use super::{
    contents::{IndexedValues, StoreContents},
    packed_object::BodyFormat,
};
use kubewarm_wire::json::FieldPathSet;

#[derive(Debug, Default)]
pub(super) struct IndexEntries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: IndexedValues,
}

impl IndexEntries {
    /// Reads the labels of an object's body, and the values at `paths` in the body.
    pub(super) fn read(encoding: BodyFormat, body: &[u8], paths: &FieldPathSet) -> Self {
        let mut labels = Vec::new();
        encoding.for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, ..Self::read_fields(encoding, body, paths) }
    }

    /// Reads only the values at `paths` in an object's body. For a change that keeps the labels, the label index needs
    /// no update.
    pub(super) fn read_fields(encoding: BodyFormat, body: &[u8], paths: &FieldPathSet) -> Self {
        Self { labels: Vec::new(), values: encoding.field_values(body, paths) }
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
