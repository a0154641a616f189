//! Prints objects as rows of a `Table`, with the API server's columns and formats.
//!
//! The module is pure: the current time is a parameter. The code for built-in kinds is a port of
//! the API server's printers. Custom resources have the columns of their
//! `CustomResourceDefinition`. kubewarm never stores rows, because ages depend on the current time.

mod age;
mod cluster;
mod custom_column;
mod go_text;
mod json_path;
mod json_view;
mod network;
mod pods;
mod printers;
mod row_budget;
mod selectors;
mod storage;
mod workloads;

pub use self::custom_column::CustomColumn;

use self::{
    json_view::{JsonView, PrintInput},
    printers::BuiltInPrinter,
    row_budget::RowBudget,
};
use super::{
    json::{JsonCursor, LenientValue},
    status_error::qualified,
};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

/// Prints objects of one kind as rows of a `Table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePrinter(PrinterKind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PrinterKind {
    BuiltIn(&'static BuiltInPrinter),
    /// Prints the name and the creation time, for the kinds in `CREATED_AT`.
    CreatedAt,
    Age,
    Custom(Arc<[CustomColumn]>),
}

/// The row of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Members of a JSON object: `"cells":[…]`, and `"conditions":[…]` for a pod that succeeded or
    /// failed.
    pub members: String,
    /// Whether a cell is empty because the parser skipped or rejected the part of the object that
    /// the cell shows.
    pub has_uncomputed_cell: bool,
}

/// The API server's `columnDefinitions` by resource, such as `deployments.apps`.
/// `tests/e2e/cases/reads/tables.rs` compares these definitions with the definitions that a running
/// API server sends.
static COLUMNS: LazyLock<BTreeMap<&'static str, &'static RawValue>> =
    LazyLock::new(|| serde_json::from_str(include_str!("columns.json")).unwrap_or_default());

/// Go's zero time in the format of a timestamp, which the API server prints for objects without a
/// creation time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Resources for which the API server prints the name and the creation time, because it has no
/// printer for them.
const CREATED_AT: &[&str] = &[
    "limitranges",
    "roles.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "csistoragecapacities.storage.k8s.io",
];

impl TablePrinter {
    /// Returns the printer of a kind without a `CustomResourceDefinition`. If this module has no
    /// code for the kind, the columns are name and age, for example for a kind of an aggregated
    /// API.
    pub fn built_in(group: &str, version: &str, resource: &str) -> Self {
        let name = qualified(group, resource);
        let known = printers::find(&name, version).filter(|_| COLUMNS.contains_key(&*name));
        Self(match known {
            Some(known) => PrinterKind::BuiltIn(known),
            None if CREATED_AT.contains(&&*name) => PrinterKind::CreatedAt,
            None => PrinterKind::Age,
        })
    }

    /// Returns the printer of a custom resource. `columns` are from the resource's
    /// `CustomResourceDefinition`.
    pub fn custom(columns: Arc<[CustomColumn]>) -> Self {
        Self(PrinterKind::Custom(columns))
    }

    /// Returns whether all columns show metadata. If so, [`Self::row`] needs only an object's
    /// metadata.
    pub fn is_of_metadata(&self) -> bool {
        match &self.0 {
            PrinterKind::BuiltIn(known) => known.is_of_metadata(),
            PrinterKind::CreatedAt | PrinterKind::Age => true,
            PrinterKind::Custom(columns) => columns.iter().all(CustomColumn::is_of_metadata),
        }
    }

    /// Returns whether a table without rows has `"rows":[]`. For kinds in `CREATED_AT`, the API
    /// server writes `"rows":null` instead.
    pub fn has_rows_if_empty(&self) -> bool {
        !matches!(self.0, PrinterKind::CreatedAt)
    }

    /// Returns `columnDefinitions` as JSON in one line.
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
            PrinterKind::BuiltIn(known) => {
                let columns =
                    COLUMNS.get(known.name).map(|column| column.get()).unwrap_or_default();
                // No string in `columns.json` contains a line feed, so this code removes only white
                // space between JSON tokens.
                columns.lines().map(str::trim_start).collect()
            }
            PrinterKind::CreatedAt => json!([name(), time("Created At", "date")]).to_string(),
            PrinterKind::Age => json!([name(), time("Age", "string")]).to_string(),
            PrinterKind::Custom(columns) => {
                let all = columns.iter().map(|column| column.definition().clone());
                [name()].into_iter().chain(all).collect::<Value>().to_string()
            }
        }
    }

    /// Prints the row of an object. Every object has a row. A cell is `null` if it shows a part of
    /// the object below 100 nested lists and objects, or if the cells before it have used up the
    /// row's budget: 1 MiB of text, or 65,536 values. If the parsed object would take more than
    /// 16 MiB, all cells except the name are `null`.
    ///
    /// # Cost
    ///
    /// The function parses the complete object: about 20 µs for a pod of 5 KB.
    pub fn row(&self, api_version: &str, kind: &str, stored: &[u8], now: Timestamp) -> TableRow {
        let parsed = LenientValue::parse(stored);
        let Some(LenientValue { value: mut object, is_repaired }) = parsed else {
            return self.row_of_name(stored);
        };
        let mut has_uncomputed_cell = false;
        let input = PrintInput { object: JsonView(Some(&object)), now };
        let cells: Value = match &self.0 {
            PrinterKind::BuiltIn(known) => {
                let cells = Value::from((known.print)(&input));
                let phase = input.at("status.phase").text();
                if let Some(conditions) = pods::conditions(phase).filter(|_| known.name == "pods") {
                    let cells = go_text::json(&cells);
                    let members = format!(r#""cells":{cells},"conditions":{conditions}"#);
                    return TableRow { members, has_uncomputed_cell };
                }
                cells
            }
            PrinterKind::CreatedAt => {
                let created = input.at("metadata.creationTimestamp").text();
                // The object in a bookmark event has no creation time. The API server then prints
                // Go's zero time.
                json!([input.name(), if created.is_empty() { NEVER } else { created }])
            }
            PrinterKind::Age => json!([input.name(), input.age()]),
            PrinterKind::Custom(columns) => {
                let name = input.name();
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("apiVersion".to_owned(), api_version.into());
                    fields.insert("kind".to_owned(), kind.into());
                }
                let budget = RowBudget::default();
                let cell = |column: &CustomColumn| {
                    if is_repaired && column.has_unread_part(&object, &budget) {
                        has_uncomputed_cell = true;
                        return Value::Null;
                    }
                    column.cell(&object, now, &budget)
                };
                let cells = [name].into_iter().chain(columns.iter().map(cell)).collect();
                has_uncomputed_cell |= budget.is_exceeded();
                cells
            }
        };
        let members = format!(r#""cells":{}"#, go_text::json(&cells));
        TableRow { members, has_uncomputed_cell }
    }

    /// Returns a row with only the name, for an object that is not JSON or too large to parse. All
    /// other cells are `null`, so that the table still has a row for the object.
    fn row_of_name(&self, stored: &[u8]) -> TableRow {
        let mut at = JsonCursor::new(stored);
        let is_found = at.seek("metadata") == Some(true) && at.seek("name") == Some(true);
        let name = if is_found { at.text() } else { None };
        let columns = serde_json::from_str::<Vec<IgnoredAny>>(&self.columns());
        let mut cells = vec![Value::Null; columns.map_or(1, |columns| columns.len())];
        if let (Some(first), Some(name)) = (cells.first_mut(), name) {
            *first = name.into();
        }
        let members = format!(r#""cells":{}"#, go_text::json(&cells.into()));
        TableRow { members, has_uncomputed_cell: true }
    }
}

fn described(field: &str) -> String {
    let all = COLUMNS.get("metadata").map(|column| column.get()).unwrap_or_default();
    let all: Value = serde_json::from_str(all).unwrap_or_default();
    all[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
