//! Reads an object's JSON as Go reads structs: an absent field counts as an empty value.

use jiff::Timestamp;
use serde_json::Value;

use super::age;

/// A JSON value that can be absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonView<'a>(pub(super) Option<&'a Value>);

impl<'a> JsonView<'a> {
    /// Returns the value at `path`, a list of field names with dots between them.
    pub(super) fn at(self, path: &str) -> Self {
        path.split('.').fold(self, Self::field)
    }

    /// Returns the value of one field, whose name can contain dots.
    pub(super) fn field(self, name: &str) -> Self {
        Self(self.0.and_then(|value| value.get(name)))
    }

    pub(super) fn is_set(self) -> bool {
        self.0.is_some_and(|value| !value.is_null())
    }

    pub(super) fn text(self) -> &'a str {
        self.0.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the value's text; `other` if the text is empty or the value is absent.
    pub(super) fn text_or(self, other: &'a str) -> &'a str {
        Some(self.text()).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    pub(super) fn given_or(self, other: &'a str) -> &'a str {
        if self.is_set() { self.text() } else { other }
    }

    pub(super) fn int(self) -> i64 {
        self.0.and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn is_true(self) -> bool {
        self.0.and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn is_true_or_absent(self) -> bool {
        self.0.and_then(Value::as_bool).unwrap_or(true)
    }

    /// Returns a number or a text unchanged, such as a quantity, a port or a percentage.
    pub(super) fn written(self) -> String {
        match self.0 {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    pub(super) fn items(self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let items = self.0.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|item| Self(Some(item)))
    }

    pub(super) fn entries(self) -> impl Iterator<Item = (&'a str, Self)> {
        let fields = self.0.and_then(Value::as_object).into_iter().flatten();
        fields.map(|(key, value)| (key.as_str(), Self(Some(value))))
    }

    pub(super) fn len(self) -> i64 {
        let len = match self.0 {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(fields)) => fields.len(),
            _ => 0,
        };
        i64::try_from(len).unwrap_or(i64::MAX)
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(super) fn joined(self, between: &str) -> String {
        self.items().map(Self::text).collect::<Vec<_>>().join(between)
    }

    /// Returns the first element of a list whose field `type` is `kind`, such as a condition or an
    /// address.
    pub(super) fn of_type(self, kind: &str) -> Self {
        let item = self.items().find(|item| item.at("type").text() == kind);
        item.unwrap_or(Self(None))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PrintInput<'a> {
    pub(super) object: JsonView<'a>,
    pub(super) now: Timestamp,
}

impl<'a> PrintInput<'a> {
    pub(super) fn at(&self, path: &str) -> JsonView<'a> {
        self.object.at(path)
    }

    pub(super) fn name(&self) -> Value {
        self.at("metadata.name").text().into()
    }

    pub(super) fn annotation(&self, name: &str) -> JsonView<'a> {
        self.at("metadata.annotations").field(name)
    }

    pub(super) fn is_going(&self) -> bool {
        self.at("metadata.deletionTimestamp").is_set()
    }

    pub(super) fn age(&self) -> Value {
        self.since("metadata.creationTimestamp").into()
    }

    pub(super) fn since(&self, path: &str) -> String {
        age::since(self.at(path).text(), self.now)
    }
}
