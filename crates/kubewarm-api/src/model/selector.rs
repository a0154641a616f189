//! Validated label selectors in a canonical form, so that selectors with equal meaning compare as
//! equal and their targets can share an informer.

use super::{
    LabelSelectorOperator, ValidationError, canonical_set::CanonicalSet, resource::is_dns_subdomain,
};
use std::{cmp::Ordering, collections::BTreeSet, fmt, sync::Arc};

/// One valid requirement of a [`LabelSelector`]: a key, an operator and values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelRequirement {
    key: Arc<str>,
    operator: LabelSelectorOperator,
    values: BTreeSet<Arc<str>>,
}

/// A numeric comparison of a label's value with a number, such as `weight>2`.
///
/// Selectors in requests of clients can contain such a comparison; selectors in a `CacheProfile`
/// cannot. The indexes of a store do not support comparisons, so the store scans its objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NumericLabelRequirement {
    key: Arc<str>,
    order: Ordering,
    bound: i64,
}

/// A label selector. The empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector {
    requirements: CanonicalSet<LabelRequirement>,
    comparisons: CanonicalSet<NumericLabelRequirement>,
}

impl LabelRequirement {
    /// Creates a requirement, after it has checked the key, the values and their number.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] if the API server would reject the requirement. The field `part` of the
    /// error is `key` or `values`.
    pub fn new<'a>(
        key: &str,
        operator: LabelSelectorOperator,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ValidationError> {
        if !is_label_key(key) {
            return Err(invalid_key(key));
        }
        let values: BTreeSet<Arc<str>> = values.into_iter().map(Arc::from).collect();
        if let Some(bad) = values.iter().find(|value| !is_label_value(value)) {
            let rule = "must be empty or at most 63 letters, digits, '-', '_' or '.', beginning and \
                        ending with a letter or digit";
            return Err(ValidationError::part("values", format!("label value {bad:?} {rule}")));
        }
        match operator {
            LabelSelectorOperator::In | LabelSelectorOperator::NotIn if values.is_empty() => {
                let message = format!("operator {operator} needs at least one value");
                Err(ValidationError::part("values", message))
            }
            LabelSelectorOperator::Exists | LabelSelectorOperator::DoesNotExist
                if !values.is_empty() =>
            {
                Err(ValidationError::part("values", format!("operator {operator} takes no values")))
            }
            LabelSelectorOperator::In
            | LabelSelectorOperator::NotIn
            | LabelSelectorOperator::Exists
            | LabelSelectorOperator::DoesNotExist => Ok(Self { key: key.into(), operator, values }),
        }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label's value is compared with `values`.
    pub fn operator(&self) -> LabelSelectorOperator {
        self.operator
    }

    /// The values in order; empty for `Exists` and `DoesNotExist`.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(AsRef::as_ref)
    }

    /// Whether the requirement matches an object whose label has this value. `None`: the object
    /// does not have the label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelSelectorOperator::In => listed,
            LabelSelectorOperator::NotIn => !listed,
            LabelSelectorOperator::Exists => value.is_some(),
            LabelSelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

impl NumericLabelRequirement {
    /// Creates a comparison of a label with `bound`. `order` is [`Ordering::Greater`] for `>` and
    /// [`Ordering::Less`] for `<`.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] if `key` is not a valid label key. The error's `part` is `key`.
    pub fn new(key: &str, order: Ordering, bound: i64) -> Result<Self, ValidationError> {
        if !is_label_key(key) {
            return Err(invalid_key(key));
        }
        Ok(Self { key: key.into(), order, bound })
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether the comparison matches an object whose label has this value. The comparison does not
    /// match an object without the label, or with a value that is not an `i64`.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let number = value.and_then(|value| value.parse::<i64>().ok());
        number.is_some_and(|number| number.cmp(&self.bound) == self.order)
    }
}

impl LabelSelector {
    /// Creates a selector that matches objects with all `requirements`. Duplicate requirements are
    /// removed.
    pub fn new(requirements: impl IntoIterator<Item = LabelRequirement>) -> Self {
        Self {
            requirements: requirements.into_iter().collect(),
            comparisons: CanonicalSet::default(),
        }
    }

    /// Replaces the selector's numeric comparisons by `comparisons`. Duplicates are removed.
    pub fn with_comparisons(
        self,
        comparisons: impl IntoIterator<Item = NumericLabelRequirement>,
    ) -> Self {
        Self { comparisons: comparisons.into_iter().collect(), ..self }
    }

    /// Whether the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && self.comparisons.is_empty()
    }

    /// Iterates over the requirements, sorted by key. A store finds the objects that match a
    /// requirement in its label index.
    pub fn requirements(&self) -> impl Iterator<Item = &LabelRequirement> {
        self.requirements.items()
    }

    /// Iterates over the numeric comparisons, sorted by key. Indexes of a store do not support
    /// comparisons, so the store scans its objects.
    pub fn comparisons(&self) -> impl Iterator<Item = &NumericLabelRequirement> {
        self.comparisons.items()
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match self.operator {
            LabelSelectorOperator::Exists => f.write_str(key),
            LabelSelectorOperator::DoesNotExist => write!(f, "!{key}"),
            LabelSelectorOperator::In | LabelSelectorOperator::NotIn => {
                let word = if self.operator == LabelSelectorOperator::In { "in" } else { "notin" };
                write!(f, "{key} {word} (")?;
                join(f, self.values.iter())?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for NumericLabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.order == Ordering::Greater { '>' } else { '<' };
        write!(f, "{}{sign}{}", self.key, self.bound)
    }
}

impl fmt::Display for LabelSelector {
    /// Writes the value of the query parameter `labelSelector`, without percent-encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [self.requirements.text(), self.comparisons.text()];
        join(f, texts.into_iter().filter(|text| !text.is_empty()))
    }
}

fn join<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = T>,
) -> fmt::Result {
    for (at, part) in parts.enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        write!(f, "{part}")?;
    }
    Ok(())
}

fn invalid_key(key: &str) -> ValidationError {
    let rule = "must be [prefix/]name: a DNS subdomain, a slash, and at most 63 letters, digits, '-', '_' or \
                '.', beginning and ending with a letter or digit";
    ValidationError::part("key", format!("label key {key:?} {rule}"))
}

/// Whether `text` is a valid key of a label, by the rules of `validation.IsQualifiedName` in
/// apimachinery.
fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name)
        }
        None => !text.is_empty() && is_label_value(text),
    }
}

/// Whether `text` is a valid value of a label, by the rules of `validation.IsValidLabelValue` in
/// apimachinery.
fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_duplicates_do_not_change_a_selector() {
        let a = LabelRequirement::new("app", LabelSelectorOperator::In, ["web", "api"]).unwrap();
        let b =
            LabelRequirement::new("app", LabelSelectorOperator::In, ["api", "web", "api"]).unwrap();
        let tier = LabelRequirement::new("x.io/tier", LabelSelectorOperator::Exists, []).unwrap();
        let first = LabelSelector::new([a, tier.clone()]);
        let other = LabelSelector::new([tier, b]);
        assert_eq!(first, other);
        assert_eq!(first.to_string(), "app in (api,web),x.io/tier");
    }

    #[test]
    fn keys_and_values_that_the_api_server_rejects_are_rejected() {
        for key in ["", "/a", "a/", "a b", "A B", "-a", "x/y/z", "UP.io/a", "a,b", "a=b"] {
            assert!(
                LabelRequirement::new(key, LabelSelectorOperator::Exists, []).is_err(),
                "key {key:?}"
            );
        }
        for value in ["-", "a b", "a,b", "a/b", &"a".repeat(64)] {
            assert!(
                LabelRequirement::new("a", LabelSelectorOperator::In, [value]).is_err(),
                "value {value:?}"
            );
        }
        assert!(LabelRequirement::new("a", LabelSelectorOperator::NotIn, []).is_err());
        assert!(LabelRequirement::new("a", LabelSelectorOperator::Exists, ["b"]).is_err());
    }

    #[test]
    fn comparisons_match_numbers_and_follow_the_requirements() {
        let above = NumericLabelRequirement::new("n", Ordering::Greater, 5).unwrap();
        let below = NumericLabelRequirement::new("n", Ordering::Less, 5).unwrap();
        for (value, expected) in [
            (None, [false, false]),
            (Some("5"), [false, false]),
            (Some("10"), [true, false]),
            (Some("-6"), [false, true]),
            (Some("x"), [false, false]),
        ] {
            assert_eq!([above.matches(value), below.matches(value)], expected, "{value:?}");
        }
        let app = LabelRequirement::new("app", LabelSelectorOperator::Exists, []).unwrap();
        let selector = LabelSelector::new([app]).with_comparisons([above.clone(), below, above]);
        assert_eq!(selector.to_string(), "app,n<5,n>5");
        assert!(NumericLabelRequirement::new("-n", Ordering::Less, 5).is_err());
    }

    #[test]
    fn requirements_match_as_in_kubernetes() {
        let not_in = LabelRequirement::new("a", LabelSelectorOperator::NotIn, ["x"]).unwrap();
        assert!(not_in.matches(None) && not_in.matches(Some("y")) && !not_in.matches(Some("x")));
        let absent = LabelRequirement::new("a", LabelSelectorOperator::DoesNotExist, []).unwrap();
        assert!(absent.matches(None) && !absent.matches(Some("")));
    }
}
