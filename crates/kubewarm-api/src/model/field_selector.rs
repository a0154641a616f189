//! Field selectors, checked, and in one canonical form so that equal selectors are equal.

use super::{Invalid, canonical::Canonical};
use std::{fmt, sync::Arc};

/// Longer operators first: `!=` and `==` contain `=`.
const OPERATORS: [(&str, bool); 3] = [("!=", false), ("==", true), ("=", true)];

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

/// Limits for the text of a field selector.
#[derive(Clone, Copy, Debug)]
pub struct FieldSelectorLimits {
    /// The largest number of requirements.
    pub requirements: usize,
    /// The largest length of a value, without escapes, in bytes.
    pub value_bytes: usize,
}

/// The text of a field selector is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// There are more requirements than the limit.
    #[error("there are {found} requirements; give it at most {limit}")]
    Count {
        /// The number of requirements.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// This term has no operator.
    #[error("{0:?} has no operator (=, == or !=)")]
    Operator(String),
    /// Only a backslash, a comma and an equals sign can be escaped.
    #[error("{0} is not an escape sequence; write a backslash as \\\\")]
    Escape(String),
    /// This character of a value must be escaped.
    #[error("a value has an unescaped {0}; write \\{0}")]
    Character(char),
    /// A value is longer than the limit.
    #[error("a value has more than {limit} bytes")]
    Length {
        /// The limit, in bytes.
        limit: usize,
    },
    /// This field or its value is not valid.
    #[error("{invalid}")]
    Requirement {
        /// The field.
        field: String,
        /// From [`FieldRequirement::new`].
        invalid: Invalid,
    },
}

impl FieldSelector {
    /// Parses the text as the API server does: terms such as `a=b`, `a==b` or `a!=b` between
    /// commas. Empty terms and `=` alone select everything.
    ///
    /// # Errors
    ///
    /// [`FieldSelectorError`], where the API server refuses the text, and beyond `limits`.
    pub fn parse(text: &str, limits: FieldSelectorLimits) -> Result<Self, FieldSelectorError> {
        let mut all: Vec<&str> = terms(text).filter(|term| !term.is_empty()).collect();
        if all.len() > limits.requirements {
            let (found, limit) = (all.len(), limits.requirements);
            return Err(FieldSelectorError::Count { found, limit });
        }
        // The API server sorts, too: of several faults it names the same one.
        all.sort_unstable();
        let mut parts = Vec::new();
        for term in all {
            let (field, equals, value) =
                split(term).ok_or_else(|| FieldSelectorError::Operator(term.to_owned()))?;
            let value = unescaped(value)?;
            if value.len() > limits.value_bytes {
                return Err(FieldSelectorError::Length { limit: limits.value_bytes });
            }
            if !field.is_empty() || !value.is_empty() {
                parts.push((field, equals, value));
            }
        }
        let requirements = parts.into_iter().map(|(field, equals, value)| {
            let checked = FieldRequirement::new(field, equals, &value);
            checked.map_err(|invalid| {
                FieldSelectorError::Requirement { field: field.to_owned(), invalid }
            })
        });
        Ok(Self { requirements: requirements.collect::<Result<_, _>>()? })
    }

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

/// The terms between commas that are not escaped.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |c| {
        let ends = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })
}

/// A term at its first operator.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = term.get(at..)?;
        OPERATORS.into_iter().find(|(operator, _)| rest.starts_with(operator)).map(|it| (at, it))
    });
    let (at, (operator, equals)) = at?;
    Some((term.get(..at)?, equals, term.get(at + operator.len()..)?))
}

fn unescaped(value: &str) -> Result<String, FieldSelectorError> {
    let invalid = |sequence: &str| FieldSelectorError::Escape(sequence.to_owned());
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => escaped,
                Some(other) => return Err(invalid(&format!("\\{other}"))),
                None => return Err(invalid("\\")),
            },
            ',' | '=' => return Err(FieldSelectorError::Character(c)),
            c => c,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_beyond_the_limits_or_without_a_meaning_is_refused() {
        let limits = FieldSelectorLimits { requirements: 2, value_bytes: 3 };
        for (text, expected) in [
            (r"b!=\\,a==y", r"a=y,b!=\\"),
            (",=,", ""),
            ("a=1,b=2,c=3", "there are 3 requirements; give it at most 2"),
            ("a=1234", "a value has more than 3 bytes"),
            ("a", r#""a" has no operator (=, == or !=)"#),
            (r"a=\x", r"\x is not an escape sequence; write a backslash as \\"),
            ("a=b=c", r"a value has an unescaped =; write \="),
            ("a b=c", "field \"a b\" is not a field path such as \"status.phase\""),
        ] {
            let found = match FieldSelector::parse(text, limits) {
                Ok(selector) => selector.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{text}");
        }
    }

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
