//! What is asked of a table, and what its bodies must say for that.

use crate::{
    model::{FieldPath, LabelSelector},
    store::record::Encoding,
};
use std::sync::Arc;

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
    pub tests: Vec<Test>,
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
    Label {
        /// The label.
        key: Arc<str>,
        /// On which side of `number`.
        than: Than,
        /// What it is compared with.
        number: i64,
    },
}

/// Whether a value must be another one, or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// `=`
    Equal,
    /// `!=`
    Different,
}

/// On which side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Than {
    /// `>`
    Greater,
    /// `<`
    Less,
}

impl Wanted {
    /// Whether an object with this body is among them, its namespace and name aside.
    pub(in crate::store) fn selects(&self, encoding: Encoding, body: &[u8]) -> bool {
        let mut left: Vec<_> =
            self.labels.requirements().map(|it| (it, it.matches(None))).collect();
        if !left.is_empty() {
            encoding.for_each_label(body, |key, value| {
                for (requirement, is_met) in &mut left {
                    if requirement.key() == key {
                        *is_met = requirement.matches(Some(value));
                    }
                }
            });
        }
        left.iter().all(|(_, is_met)| *is_met)
            && self.tests.iter().all(|test| test.is_met(encoding, body))
    }
}

impl Test {
    pub(super) fn is_met(&self, encoding: Encoding, body: &[u8]) -> bool {
        match self {
            Self::Field { path, absent, is, value } => {
                let values = encoding.values(body, path);
                let is_there = values.iter().any(|found| **found == **value)
                    || (values.is_empty() && absent == value);
                is_there == (*is == Is::Equal)
            }
            Self::Label { key, than, number } => {
                let mut found = None;
                encoding.for_each_label(body, |name, value| {
                    if *name == **key {
                        found = value.parse::<i64>().ok();
                    }
                });
                found.is_some_and(|found| match than {
                    Than::Greater => found > *number,
                    Than::Less => found < *number,
                })
            }
        }
    }
}
