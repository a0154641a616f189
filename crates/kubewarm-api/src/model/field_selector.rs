//! Field selectors, checked, and in one canonical form so that equal selectors are equal.

use super::{Invalid, canonical::Canonical};
use std::{fmt, sync::Arc};

/// What a field label of a declared index begins with. The API server has no such label: its labels are paths, and no path
/// has a slash.
const INDEX_PREFIX: &str = "index.kubewarm.io/";

/// One requirement of a [`FieldSelector`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldRequirement {
    field: Arc<str>,
    equals: bool,
    value: Arc<str>,
}

/// A field selector; the empty one selects everything. Which fields can be selected the server
/// decides; it answers 400 for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSelector {
    requirements: Canonical<FieldRequirement>,
}

impl FieldSelector {
    /// All of `requirements`; repeated ones count once.
    #[must_use]
    pub fn new(requirements: impl IntoIterator<Item = FieldRequirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// The requirements, in canonical order.
    pub fn requirements(&self) -> impl Iterator<Item = &FieldRequirement> {
        self.requirements.items()
    }

    /// The one name that is selected by `metadata.name=`, if there is one: such a request is
    /// authorized as one for that name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let is_name = |found: &&FieldRequirement| found.equals && &*found.field == "metadata.name";
        self.requirements.items().find(is_name).map(|found| &*found.value)
    }

    /// The requirements about fields of the API server: all but those about declared indexes.
    #[must_use]
    pub fn without_indexes(&self) -> Self {
        Self::new(self.requirements().filter(|it| it.index_name().is_none()).cloned())
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl FieldRequirement {
    /// The field, such as `status.phase`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The name of the declared index, of a field such as `index.kubewarm.io/by-image`.
    #[must_use]
    pub fn index_name(&self) -> Option<&str> {
        self.field.strip_prefix(INDEX_PREFIX)
    }

    /// Whether the field must have the value; else it must have another one, or none.
    #[must_use]
    pub fn is_equality(&self) -> bool {
        self.equals
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// `field=value` or `field!=value`.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: part `field` for anything except letters, digits, `.`, `_`, `-`, `/`, `[`, `]`; part `value`
    /// for a value with control characters.
    pub fn new(field: &str, equals: bool, value: &str) -> Result<Self, Invalid> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/[]".contains(&b);
        if field.is_empty() || !field.bytes().all(plain) {
            let message = format!("field {field:?} is not a field path such as \"status.phase\"");
            return Err(Invalid::part("field", message));
        }
        if value.contains(char::is_control) {
            let message = format!("field value {value:?} must not contain control characters");
            return Err(Invalid::part("value", message));
        }
        Ok(Self { field: field.into(), equals, value: value.into() })
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, if self.equals { "=" } else { "!=" })?;
        // The server's own escapes: https://github.com/kubernetes/apimachinery fields.EscapeValue.
        for c in self.value.chars() {
            if matches!(c, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldSelector {
    /// The `fieldSelector` query parameter, before percent-encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.requirements.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        assert!(FieldRequirement::new("a,b", true, "c").is_err());
        for value in ["a\nb", "\u{1b}[31m", "\0", "\u{85}"] {
            let refused = FieldRequirement::new("a", true, value).unwrap_err();
            assert_eq!(refused.part, "value", "{refused}");
        }
    }

    #[test]
    fn field_values_are_escaped_as_the_server_reads_them() {
        let requirement = FieldRequirement::new("status.phase", false, r"a,b=c\d").unwrap();
        assert_eq!(requirement.to_string(), r"status.phase!=a\,b\=c\\d");
    }
}
