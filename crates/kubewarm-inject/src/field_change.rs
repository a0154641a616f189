//! Changes of an object that can be undone.

use crate::manifest_path::ManifestPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An addition to an object. It replaces nothing, so that removing it restores the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FieldChange {
    /// The mapping that gets a key, or the list that gets an item.
    pub(crate) at: ManifestPath,
    /// The new key of the mapping. `None` for a new first item of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<String>,
    pub(crate) value: Value,
    /// Whether the mapping had the key with the value null.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) was_null: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What the removal of a change does to an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Removal {
    pub(crate) at: ManifestPath,
    pub(crate) what: RemovedPart,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RemovedPart {
    Key(String),
    /// The key's value becomes null.
    Value(String),
    /// The item at this position.
    Item(usize),
}

/// A field of an injection that somebody has changed since.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} was changed since the injection; remove it yourself")]
pub struct ChangedField {
    /// The field's path, such as `spec.template.spec.hostAliases`.
    pub field: String,
}

impl FieldChange {
    /// The change that adds `value` to the list `key` of the mapping at `at`, or creates the list.
    pub(crate) fn of_list(
        object: &Value,
        at: &ManifestPath,
        key: &str,
        values: Vec<Value>,
    ) -> Vec<Self> {
        let list = at.key(key);
        let present = list.find(object);
        if present.is_some_and(Value::is_array) {
            let add = |value| Self { at: list.clone(), set: None, value, was_null: false };
            // Each becomes the first item, so the last one is added first.
            return values.into_iter().rev().map(add).collect();
        }
        if values.is_empty() {
            return Vec::new();
        }
        vec![Self {
            at: at.clone(),
            set: Some(key.to_owned()),
            value: values.into(),
            was_null: present.is_some(),
        }]
    }

    /// Each field that this change adds, with its value or values.
    pub(crate) fn additions(&self) -> (Option<&str>, &[Value]) {
        let field = self.set.as_deref().or_else(|| self.at.last_key());
        match (&self.set, &self.value) {
            (Some(_), Value::Array(values)) => (field, values),
            (Some(_), _) => (None, &[]),
            (None, value) => (field, std::slice::from_ref(value)),
        }
    }

    pub(crate) fn apply(&self, object: &mut Value) {
        let place = self.at.find_mut(object);
        match (place, &self.set) {
            (Some(Value::Object(mapping)), Some(key)) => {
                mapping.insert(key.clone(), self.value.clone());
            }
            (Some(Value::Array(list)), None) => list.insert(0, self.value.clone()),
            _ => {}
        }
    }

    /// What to remove from `object`, so that it no longer contains the addition. If a user added
    /// items to a list that the injection created, only the items of the injection.
    ///
    /// # Errors
    ///
    /// [`ChangedField`] if the object contains another value.
    pub(crate) fn removals(&self, object: &Value) -> Result<Vec<Removal>, ChangedField> {
        let changed = |field: &ManifestPath| ChangedField { field: field.to_string() };
        let Some(key) = &self.set else {
            let position = position_of(self.at.find(object), &self.value);
            let position = position.ok_or_else(|| changed(&self.at))?;
            return Ok(vec![Removal { at: self.at.clone(), what: RemovedPart::Item(position) }]);
        };
        let list = self.at.key(key);
        let present = list.find(object).ok_or_else(|| changed(&list))?;
        if *present == self.value {
            let key = key.clone();
            let what = if self.was_null { RemovedPart::Value(key) } else { RemovedPart::Key(key) };
            return Ok(vec![Removal { at: self.at.clone(), what }]);
        }
        let values = self.value.as_array().ok_or_else(|| changed(&list))?;
        let positions = values.iter().map(|value| position_of(Some(present), value));
        let mut positions = positions.collect::<Option<Vec<_>>>().ok_or_else(|| changed(&list))?;
        // The last item first, so that the positions of the others stay.
        positions.sort_unstable_by(|a, b| b.cmp(a));
        let removal = |item| Removal { at: list.clone(), what: RemovedPart::Item(item) };
        Ok(positions.into_iter().map(removal).collect())
    }
}

fn position_of(list: Option<&Value>, value: &Value) -> Option<usize> {
    list?.as_array()?.iter().position(|item| item == value)
}

impl Removal {
    pub(crate) fn apply(&self, object: &mut Value) {
        match (self.at.find_mut(object), &self.what) {
            (Some(Value::Object(mapping)), RemovedPart::Key(key)) => drop(mapping.remove(key)),
            (Some(Value::Object(mapping)), RemovedPart::Value(key)) => {
                mapping.insert(key.clone(), Value::Null);
            }
            (Some(Value::Array(list)), RemovedPart::Item(position)) if *position < list.len() => {
                list.remove(*position);
            }
            _ => {}
        }
    }
}
