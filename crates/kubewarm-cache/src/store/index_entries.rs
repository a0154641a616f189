//! The labels and field values of one object, as entries for the store's indexes. The writer reads them from the
//! object's JSON without the store's lock, and adds them to the indexes under the write lock.

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
    /// Reads the labels from an object's JSON `body`, and the values at the field paths `paths`.
    pub(super) fn read(encoding: BodyFormat, body: &[u8], paths: &FieldPathSet) -> Self {
        let mut labels = Vec::new();
        encoding.for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, ..Self::read_fields(encoding, body, paths) }
    }

    /// Reads only the values at the field paths `paths` from an object's JSON. Used for a change that keeps the
    /// object's labels, because the label index then needs no update.
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
