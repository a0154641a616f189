//! Edits of YAML and JSON as text, which keep comments and formatting.
//!
//! An addition is one line in block style, or an item in flow style. Its value is JSON, which is
//! also YAML. Each edit parses its text again, so positions are always right. Callers compare
//! the values of the edited text with the values that they wanted, so unusual YAML, such as an
//! alias, cannot lead to another change.

mod edit;
mod lines;
mod tree;

pub use self::tree::ManifestTextError;
pub(crate) use self::{
    edit::{add, remove},
    tree::{ObjectText, documents, items, kind},
};
