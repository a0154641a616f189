//! Validated field selectors in a canonical form, so that selectors with equal meaning compare as
//! equal and their targets can share an informer.

use super::{ValidationError, canonical_set::CanonicalSet};
use std::{fmt, sync::Arc};

/// The operator between a field and a value. A selector sorts requirements on the same field in
/// this order, so that equal selectors have equal texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum FieldOperator {
    NotEqual,
    Equal,
}

/// The spellings of the operators. `!=` and `==` precede `=`, because the parser uses the first
/// operator in this list that matches.
const OPERATORS: [(&str, FieldOperator); 3] =
    [("!=", FieldOperator::NotEqual), ("==", FieldOperator::Equal), ("=", FieldOperator::Equal)];

/// Prefix of a field that selects by an index that a profile declares, such as
/// `index.kubewarm.io/by-image`. No field of the API server has this prefix, because field paths
/// contain no slash.
const INDEX_PREFIX: &str = "index.kubewarm.io/";

/// One requirement of a [`FieldSelector`]: a field with `=` or `!=` and a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldRequirement {
    field: Arc<str>,
    operator: FieldOperator,
    value: Arc<str>,
}

/// A field selector. The empty selector matches every object. This type accepts every field name,
/// but the API server returns 400 for fields that it does not support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSelector {
    requirements: CanonicalSet<FieldRequirement>,
}

/// Size limits for the text of a field selector.
#[derive(Clone, Copy, Debug)]
pub struct FieldSelectorLimits {
    /// Largest number of requirements.
    pub requirements: usize,
    /// Largest length of an unescaped value, in bytes.
    pub value_bytes: usize,
}

/// Syntax error or exceeded limit of a field selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// The selector has more requirements than the limit.
    #[error("there are {found} requirements; give it at most {limit}")]
    Count {
        /// Number of requirements in the text.
        found: usize,
        /// Largest number of requirements.
        limit: usize,
    },
    /// This term of the selector has no operator.
    #[error("{0:?} has no operator (=, == or !=)")]
    Operator(String),
    /// This text is not one of the escape sequences `\\`, `\,` and `\=`.
    #[error("{0} is not an escape sequence; write a backslash as \\\\")]
    Escape(String),
    /// A value contains this character without an escape. The character is a comma or an equals
    /// sign.
    #[error("a value has an unescaped {0}; write \\{0}")]
    Character(char),
    /// A value is longer than the limit.
    #[error("a value has more than {limit} bytes")]
    Length {
        /// Largest length of a value, in bytes.
        limit: usize,
    },
    /// The name of a field, or its value, contains characters that are not allowed.
    #[error("{invalid}")]
    Requirement {
        /// Name of the field, as in the selector.
        field: String,
        /// Error of [`FieldRequirement::equal`].
        invalid: ValidationError,
    },
}

impl FieldSelector {
    /// Parses the text as the API server does: terms such as `a=b`, `a==b` or `a!=b`, separated by
    /// commas. An empty term and the term `=` match every object.
    ///
    /// # Errors
    ///
    /// [`FieldSelectorError`] for text that the API server rejects, and for text that exceeds
    /// `limits`.
    pub fn parse(text: &str, limits: FieldSelectorLimits) -> Result<Self, FieldSelectorError> {
        let mut all: Vec<&str> = terms(text).filter(|term| !term.is_empty()).collect();
        if all.len() > limits.requirements {
            let (count, limit) = (all.len(), limits.requirements);
            return Err(FieldSelectorError::Count { found: count, limit });
        }
        // The API server also sorts the terms. So if several terms are invalid, kubewarm and the
        // API server report the same term.
        all.sort_unstable();
        let mut parts = Vec::new();
        for term in all {
            let (field, operator, value) =
                split(term).ok_or_else(|| FieldSelectorError::Operator(term.to_owned()))?;
            let value = unescaped(value)?;
            if value.len() > limits.value_bytes {
                return Err(FieldSelectorError::Length { limit: limits.value_bytes });
            }
            if !field.is_empty() || !value.is_empty() {
                parts.push((field, operator, value));
            }
        }
        let requirements = parts.into_iter().map(|(field, operator, value)| {
            let checked = FieldRequirement::new(field, operator, &value);
            checked.map_err(|invalid| FieldSelectorError::Requirement {
                field: field.to_owned(),
                invalid,
            })
        });
        Ok(Self { requirements: requirements.collect::<Result<_, _>>()? })
    }

    /// Creates a selector that matches objects with all `requirements`. Duplicate requirements are
    /// removed.
    pub fn new(requirements: impl IntoIterator<Item = FieldRequirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// Iterates over the requirements, sorted by field.
    pub fn requirements(&self) -> impl Iterator<Item = &FieldRequirement> {
        self.requirements.items()
    }

    /// Returns the name in a requirement `metadata.name=<name>`, if there is one. RBAC then
    /// authorizes the request as a request for this name, so a rule with `resourceNames` can permit
    /// it. `None` also for text that cannot be a segment of a path, because the API server does not
    /// authorize such a request by name.
    pub fn name(&self) -> Option<&str> {
        let is_name = |requirement: &&FieldRequirement| {
            requirement.operator == FieldOperator::Equal && &*requirement.field == "metadata.name"
        };
        let name = self.requirements.items().find(is_name).map(|requirement| &*requirement.value);
        // As `IsValidPathSegmentName` in https://github.com/kubernetes/apimachinery.
        name.filter(|name| !matches!(*name, "" | "." | "..") && !name.contains(['/', '%']))
    }

    /// Returns the selector without requirements on fields such as `index.kubewarm.io/by-image`.
    /// Only kubewarm supports these fields; the API server does not.
    pub fn without_indexes(&self) -> Self {
        Self::new(
            self.requirements().filter(|requirement| requirement.index_name().is_none()).cloned(),
        )
    }

    /// Whether the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl FieldRequirement {
    /// The field, such as `status.phase`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the index name of a field such as `index.kubewarm.io/by-image`, and `None` for other
    /// fields.
    pub fn index_name(&self) -> Option<&str> {
        self.field.strip_prefix(INDEX_PREFIX)
    }

    /// Whether the operator is `=`. If not, the operator is `!=`, and the field must be absent or
    /// have another value.
    pub fn is_equality(&self) -> bool {
        self.operator == FieldOperator::Equal
    }

    /// The value without escapes.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Creates the requirement `field=value`.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] if `field` is empty or has an invalid character, or if `value` has a
    /// control character. Valid characters in `field` are ASCII letters, digits, `.`, `_`, `-`,
    /// `/`, `[` and `]`. The error's `part` is `field` or `value`.
    pub fn equal(field: &str, value: &str) -> Result<Self, ValidationError> {
        Self::new(field, FieldOperator::Equal, value)
    }

    /// Creates the requirement `field!=value`.
    ///
    /// # Errors
    ///
    /// The errors of [`FieldRequirement::equal`].
    pub fn not_equal(field: &str, value: &str) -> Result<Self, ValidationError> {
        Self::new(field, FieldOperator::NotEqual, value)
    }

    fn new(field: &str, operator: FieldOperator, value: &str) -> Result<Self, ValidationError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/[]".contains(&b);
        if field.is_empty() || !field.bytes().all(plain) {
            let message = format!("field {field:?} is not a field path such as \"status.phase\"");
            return Err(ValidationError::part("field", message));
        }
        if value.contains(char::is_control) {
            let message = format!("field value {value:?} must not contain control characters");
            return Err(ValidationError::part("value", message));
        }
        Ok(Self { field: field.into(), operator, value: value.into() })
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            FieldOperator::NotEqual => "!=",
            FieldOperator::Equal => "=",
        };
        write!(f, "{}{operator}", self.field)?;
        // Escapes the same characters as `fields.EscapeValue` in
        // https://github.com/kubernetes/apimachinery.
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
    /// Writes the value of the query parameter `fieldSelector`, without percent-encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.requirements.text())
    }
}

fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |c| {
        let is_end = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })
}

/// Splits a term at its first operator: the field, the operator and the value.
fn split(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = term.get(at..)?;
        OPERATORS
            .into_iter()
            .find(|(spelling, _)| rest.starts_with(spelling))
            .map(|operator| (at, operator))
    });
    let (at, (spelling, operator)) = at?;
    Some((term.get(..at)?, operator, term.get(at + spelling.len()..)?))
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
    fn invalid_text_and_exceeded_limits_are_rejected() {
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
            let result = match FieldSelector::parse(text, limits) {
                Ok(selector) => selector.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(result, expected, "{text}");
        }
    }

    #[test]
    fn fields_and_values_that_the_api_server_rejects_are_rejected() {
        assert!(FieldRequirement::equal("a,b", "c").is_err());
        for value in ["a\nb", "\u{1b}[31m", "\0", "\u{85}"] {
            let error = FieldRequirement::equal("a", value).unwrap_err();
            assert_eq!(error.part, "value", "{error}");
        }
    }

    #[test]
    fn a_name_that_is_no_segment_of_a_path_is_not_authorized_by_name() {
        let limits = FieldSelectorLimits { requirements: 2, value_bytes: 9 };
        for (text, name) in [
            ("metadata.name=system:a", Some("system:a")),
            ("metadata.name!=a", None),
            ("metadata.name=", None),
            ("metadata.name=..", None),
            ("metadata.name=a/b", None),
            ("metadata.name=a%b", None),
        ] {
            assert_eq!(FieldSelector::parse(text, limits).unwrap().name(), name, "{text}");
        }
    }

    #[test]
    fn values_are_escaped_as_in_apimachinery() {
        let requirement = FieldRequirement::not_equal("status.phase", r"a,b=c\d").unwrap();
        assert_eq!(requirement.to_string(), r"status.phase!=a\,b\=c\\d");
    }
}
