//! Prints the columns that a `CustomResourceDefinition` declares.

use super::{
    age,
    go_text::{self, GoNumber},
    json_path::JsonPath,
    row_budget::RowBudget,
};
use crate::json::has_unread_part;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

/// A printer column of a `CustomResourceDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomColumn {
    definition: Value,
    /// The `type` in the column's definition. kubewarm prints the values of a column with an
    /// unknown type as strings.
    type_: String,
    path: JsonPath,
}

impl CustomColumn {
    /// Creates a column from its definition in a `CustomResourceDefinition`. Returns `None` if the
    /// column's `jsonPath` is invalid: the caller then omits this column and all columns after it,
    /// as the API server does.
    pub fn new(written: &CustomResourceColumnDefinition) -> Option<Self> {
        let path = JsonPath::parse(&written.json_path)?;
        let description = match written.description.as_deref() {
            None | Some("") => format!(
                "Custom resource definition column (in JSONPath format): {}",
                written.json_path
            ),
            Some(given) => given.to_owned(),
        };
        let definition = json!({
            "name": written.name, "type": written.type_,
            "format": written.format.as_deref().unwrap_or_default(),
            "description": description, "priority": written.priority.unwrap_or_default(),
        });
        Some(Self { definition, type_: written.type_.clone(), path })
    }

    /// Returns the column `Age`. The API server uses this column for a `CustomResourceDefinition`
    /// without columns.
    pub fn age() -> Option<Self> {
        Self::new(&CustomResourceColumnDefinition {
            name: "Age".to_owned(),
            type_: "date".to_owned(),
            description: Some(super::described("creationTimestamp")),
            json_path: ".metadata.creationTimestamp".to_owned(),
            ..CustomResourceColumnDefinition::default()
        })
    }

    pub(super) fn definition(&self) -> &Value {
        &self.definition
    }

    pub(super) fn is_of_metadata(&self) -> bool {
        self.path.is_of_metadata()
    }

    /// Whether the column's value can depend on a part of the object that `LenientValue` has
    /// replaced, or the row exceeds `budget`, so that the cell could be wrong.
    pub(super) fn has_unread_part(&self, object: &Value, budget: &RowBudget) -> bool {
        if budget.charge_whole_search().is_none() {
            return true;
        }
        let is_everywhere = self.path.has_descent();
        let searched = if is_everywhere { Some(object) } else { self.path.first(object, budget) };
        searched.is_some_and(has_unread_part)
    }

    /// Returns the value of the column for an object. Returns null if the column's `jsonPath` finds
    /// nothing, or finds a value whose type differs from the column's type. Also returns null if
    /// the row exceeds `budget`.
    pub(super) fn cell(&self, object: &Value, now: Timestamp, budget: &RowBudget) -> Value {
        let Some(value) = self.path.first(object, budget) else { return Value::Null };
        let number = || value.as_number().map(GoNumber::of);
        let typed = match self.type_.as_str() {
            "integer" => number().map(|number| number.as_int().into()),
            "number" => number().map(|number| number.as_float().into()),
            "boolean" => value.as_bool().map(Value::from),
            "date" => value.as_str().map(|time| age::since_date(time, now).into()),
            _ => {
                let text = go_text::printed(value);
                budget.charge_text(text.len()).map(|()| text.into())
            }
        };
        typed.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_type_of_its_column_or_is_null() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let object = json!({"a": {
            "text": "x", "n": 3, "f": 1.5, "half": 2.7, "yes": true, "list": [1, "<", 3], "none": null,
            "million": 1e6, "large": 1e21, "when": "2025-12-31T23:59:00Z", "never": "soon",
        }});
        for (kind, field, expected) in [
            ("string", "text", json!("x")),
            ("string", "n", json!("3")),
            ("string", "f", json!("1.5")),
            ("string", "yes", json!("true")),
            ("string", "list", json!("[1,\"\\u003c\",3]")),
            ("string", "none", json!("<no value>")),
            ("string", "million", json!("1e+06")),
            ("string", "large", json!("1e+21")),
            ("string", "missing", json!(null)),
            ("integer", "n", json!(3)),
            ("integer", "half", json!(2)),
            ("integer", "large", json!(i64::MIN)),
            ("integer", "text", json!(null)),
            ("integer", "none", json!(null)),
            ("number", "n", json!(3.0)),
            ("number", "f", json!(1.5)),
            ("number", "text", json!(null)),
            ("boolean", "yes", json!(true)),
            ("boolean", "n", json!(null)),
            ("date", "when", json!("60s")),
            ("date", "never", json!("<invalid>")),
            ("date", "n", json!(null)),
        ] {
            let written = CustomResourceColumnDefinition {
                type_: kind.to_owned(),
                json_path: format!(".a.{field}"),
                ..CustomResourceColumnDefinition::default()
            };
            let column = CustomColumn::new(&written).unwrap();
            assert_eq!(
                column.cell(&object, now, &RowBudget::default()),
                expected,
                "{kind} {field}"
            );
        }
    }
}
