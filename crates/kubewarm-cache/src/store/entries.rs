//! Where the indexes have an object: found in its body outside the lock, changed under it.

use super::{
    contents::{Contents, FieldValues},
    record::Encoding,
};
use kubewarm_wire::json::Paths;

/// Where the indexes have one object.
#[derive(Debug, Default)]
pub(super) struct Entries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: FieldValues,
}

impl Entries {
    /// Of a body: its labels, and its values at `paths`.
    pub(super) fn of(encoding: Encoding, body: &[u8], paths: &Paths) -> Self {
        let mut labels = Vec::new();
        encoding.for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        Self { labels, ..Self::of_fields(encoding, body, paths) }
    }

    /// The same without labels, for a change that keeps them.
    pub(super) fn of_fields(encoding: Encoding, body: &[u8], paths: &Paths) -> Self {
        Self { labels: Vec::new(), values: encoding.field_values(body, paths) }
    }

    /// Puts them into the indexes.
    pub(super) fn put_in(&self, number: u32, contents: &mut Contents) {
        for (key, value) in &self.labels {
            contents.labels.insert(key, value, number);
        }
        contents.index(number, &self.values);
    }

    /// Takes them out of the indexes.
    pub(super) fn take_out(&self, number: u32, contents: &mut Contents) {
        for (key, value) in &self.labels {
            contents.labels.remove(key, value, number);
        }
        contents.unindex(number, &self.values);
    }
}
