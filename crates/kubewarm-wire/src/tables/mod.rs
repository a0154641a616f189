//! Objects as rows of a table, in the columns and the words of the API server. Pure: the clock is a
//! parameter.
//!
//! Built-in kinds have its own printers, ported; custom resources the columns of their definition. Nothing
//! of a row is stored: ages are of the moment it is written.

mod age;
mod cluster;
mod custom;
mod network;
mod path;
mod pods;
mod printers;
mod selectors;
mod storage;
mod view;
mod workloads;

pub use self::custom::Column;

use self::{
    printers::BuiltIn,
    view::{Printed, View},
};
use super::failure::qualified;
use jiff::Timestamp;
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

/// How objects of one kind are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printer(Of);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    BuiltIn(&'static BuiltIn),
    /// Kinds for which the API server has no printer, either.
    CreatedAt,
    Age,
    Custom(Arc<[Column]>),
}

/// `columnDefinitions` by `resource.group`, as the API server sends them: `tests/e2e/tables.rs` compares
/// them with a real one's.
static COLUMNS: LazyLock<BTreeMap<&'static str, &'static RawValue>> =
    LazyLock::new(|| serde_json::from_str(include_str!("columns.json")).unwrap_or_default());

/// The moment before all others, as the API server writes it.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// What the API server says of kinds without a printer.
const CREATED_AT: &[&str] = &[
    "limitranges",
    "roles.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "csistoragecapacities.storage.k8s.io",
];

impl Printer {
    /// That of a kind without a definition: of the API server's own, or of an aggregated API. One that is not known here has
    /// name and age.
    #[must_use]
    pub fn built_in(group: &str, version: &str, resource: &str) -> Self {
        let name = qualified(group, resource);
        let known = printers::find(&name, version).filter(|_| COLUMNS.contains_key(&*name));
        Self(match known {
            Some(known) => Of::BuiltIn(known),
            None if CREATED_AT.contains(&&*name) => Of::CreatedAt,
            None => Of::Age,
        })
    }

    /// That of a custom resource, by the columns of its definition.
    #[must_use]
    pub fn custom(columns: Arc<[Column]>) -> Self {
        Self(Of::Custom(columns))
    }

    /// Whether every column shows metadata, so that nothing else of an object is needed.
    #[must_use]
    pub fn is_of_metadata(&self) -> bool {
        match &self.0 {
            Of::BuiltIn(known) => known.is_of_metadata(),
            Of::CreatedAt | Of::Age => true,
            Of::Custom(columns) => columns.iter().all(Column::is_of_metadata),
        }
    }

    /// Whether a table of none of them has a list of rows, which is empty. Where the API server has no
    /// printer, it has null.
    #[must_use]
    pub fn has_rows_if_empty(&self) -> bool {
        !matches!(self.0, Of::CreatedAt)
    }

    /// `columnDefinitions`, as JSON in one line.
    #[must_use]
    pub fn columns(&self) -> String {
        let name = || {
            json!({
                "name": "Name", "type": "string", "format": "name",
                "description": described("name"), "priority": 0,
            })
        };
        let time = |name: &str, kind: &str| {
            json!({
                "name": name, "type": kind, "format": "",
                "description": described("creationTimestamp"), "priority": 0,
            })
        };
        match &self.0 {
            Of::BuiltIn(known) => {
                let columns = COLUMNS.get(known.name).map(|it| it.get()).unwrap_or_default();
                // No string has a line end in it.
                columns.lines().map(str::trim_start).collect()
            }
            Of::CreatedAt => json!([name(), time("Created At", "date")]).to_string(),
            Of::Age => json!([name(), time("Age", "string")]).to_string(),
            Of::Custom(columns) => {
                let all = columns.iter().map(|column| column.definition().clone());
                [name()].into_iter().chain(all).collect::<Value>().to_string()
            }
        }
    }

    /// What stands in the row of an object: `"cells":[…]`, and `"conditions":[…]` where there are any. `None` if
    /// `stored` is not JSON, which is a fault of kubewarm.
    ///
    /// # Cost
    ///
    /// The object is read whole: some 20 µs for a pod of 5 KB.
    #[must_use]
    pub fn row(
        &self,
        (api_version, kind): (&str, &str),
        stored: &[u8],
        now: Timestamp,
    ) -> Option<String> {
        let mut object: Value = serde_json::from_slice(stored).ok()?;
        let of = Printed { object: View(Some(&object)), now };
        let cells = match &self.0 {
            Of::BuiltIn(known) => {
                let cells = Value::from((known.print)(&of));
                let phase = of.at("status.phase").text();
                return Some(match pods::conditions(phase).filter(|_| known.name == "pods") {
                    Some(conditions) => format!(r#""cells":{cells},"conditions":{conditions}"#),
                    None => format!(r#""cells":{cells}"#),
                });
            }
            Of::CreatedAt => {
                let created = of.at("metadata.creationTimestamp").text();
                // A bookmark's row is of an object that was never made.
                json!([of.name(), if created.is_empty() { NEVER } else { created }])
            }
            Of::Age => json!([of.name(), of.age()]),
            Of::Custom(columns) => {
                let name = of.name();
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("apiVersion".to_owned(), api_version.into());
                    fields.insert("kind".to_owned(), kind.into());
                }
                let cells = columns.iter().map(|column| column.cell(&object, now));
                [name].into_iter().chain(cells).collect()
            }
        };
        Some(format!(r#""cells":{cells}"#))
    }
}

/// What the API server says of a field of `metadata`.
fn described(field: &str) -> String {
    let all = COLUMNS.get("metadata").map(|it| it.get()).unwrap_or_default();
    let all: Value = serde_json::from_str(all).unwrap_or_default();
    all[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
