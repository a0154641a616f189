//! Field paths of declared indexes: `spec.nodeName`, `spec.containers[*].image`.

use super::Invalid;
use std::{fmt, sync::Arc};

/// A checked path from the root of an object, as `targets[].indexes[].fieldPath` writes it.
///
/// Each step is a field name, optionally followed by `[*]` for every element of a list. Two equal
/// paths are one index, whatever the profiles call it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    text: Arc<str>,
}

impl FieldPath {
    /// Checks `text`: 1 to 128 bytes, steps `[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?` between dots.
    ///
    /// # Errors
    ///
    /// [`Invalid`], with the path as the user wrote it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = || {
            let examples = r#""spec.nodeName" or "spec.containers[*].image""#;
            Invalid::new(format!("{text:?} is not a field path such as {examples}"))
        };
        let valid = text.split('.').all(|step| {
            let field = step.strip_suffix("[*]").unwrap_or(step);
            let mut bytes = field.bytes();
            bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        });
        if !valid || text.len() > 128 {
            return Err(invalid());
        }
        Ok(Self { text: text.into() })
    }

    /// The steps from the root: the name of a field, and whether the path goes on into every element of the list
    /// that the field holds.
    pub fn steps(&self) -> impl Iterator<Item = (&str, bool)> {
        self.text.split('.').map(|step| match step.strip_suffix("[*]") {
            Some(field) => (field, true),
            None => (step, false),
        })
    }

    /// Whether the path is below `metadata`, the only part that a metadata-only cell holds.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.text.starts_with("metadata.")
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_steps() {
        let path = FieldPath::parse("spec.containers[*].image").unwrap();
        let steps: Vec<_> = path.steps().collect();
        assert_eq!(steps, [("spec", false), ("containers", true), ("image", false)]);
    }

    #[test]
    fn what_the_schema_refuses_is_refused_here_too() {
        let long = "a".repeat(129);
        for text in ["", ".", ".spec", "spec.", "a..b", "a[0]", "a[*][*]", "1a", "a b", &long] {
            assert!(FieldPath::parse(text).is_err(), "{text:?}");
        }
    }
}
