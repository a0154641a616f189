//! Paths of the fields that a profile's target declares as indexes, such as `spec.nodeName` or
//! `spec.containers[*].image`.

use super::ValidationError;
use std::{fmt, sync::Arc};

/// A valid path from the root of an object, as in `targets[].indexes[].fieldPath` of a profile.
///
/// The path consists of steps, which are separated by dots. Each step is a field name. A step with
/// `[*]` selects every element of the list in this field. A store keeps one index for each path,
/// even if a profile declares several indexes with this path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    text: Arc<str>,
}

impl FieldPath {
    /// Parses a path of 1 to 128 bytes. Its steps match `[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?` and are
    /// separated by dots.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] with the invalid path in its message.
    pub fn parse(text: &str) -> Result<Self, ValidationError> {
        let invalid = || {
            let examples = r#""spec.nodeName" or "spec.containers[*].image""#;
            ValidationError::new(format!("{text:?} is not a field path such as {examples}"))
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

    /// Iterates over the steps from the root: the field name, and whether the step ends with `[*]`.
    pub fn steps(&self) -> impl Iterator<Item = (&str, bool)> {
        self.text.split('.').map(|step| match step.strip_suffix("[*]") {
            Some(field) => (field, true),
            None => (step, false),
        })
    }

    /// Whether the path starts with `metadata.`. Informers with projection `Metadata` store only
    /// such fields.
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
    fn a_path_is_split_into_steps() {
        let path = FieldPath::parse("spec.containers[*].image").unwrap();
        let steps: Vec<_> = path.steps().collect();
        assert_eq!(steps, [("spec", false), ("containers", true), ("image", false)]);
    }

    #[test]
    fn paths_that_the_schema_rejects_are_rejected() {
        let long = "a".repeat(129);
        for text in ["", ".", ".spec", "spec.", "a..b", "a[0]", "a[*][*]", "1a", "a b", &long] {
            assert!(FieldPath::parse(text).is_err(), "{text:?}");
        }
    }
}
