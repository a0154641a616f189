//! Where the indexes have an object: found in its body outside the lock, changed under it.

use super::{
    contents::{Contents, FieldValues},
    paths::Paths,
    record::Encoding,
};

/// Where the indexes have one object.
#[derive(Debug, Default)]
pub(super) struct Entries {
    labels: Vec<(Box<str>, Box<str>)>,
    values: FieldValues,
}

/// Whether the labels of a body are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// They are.
    All,
    /// They did not change.
    None,
}

impl Entries {
    /// Of a body; the values at `paths`.
    pub(super) fn of(encoding: Encoding, body: &[u8], paths: &Paths, which: Labels) -> Self {
        let mut labels = Vec::new();
        if which == Labels::All {
            encoding.for_each_label(body, |key, value| labels.push((key.into(), value.into())));
        }
        Self { labels, values: encoding.field_values(body, paths) }
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
