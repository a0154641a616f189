//! Prints the rows of `Table`s, and counts rows with a cell that could not be computed.

use crate::metrics::ReadMetrics;
use jiff::Timestamp;
use kubewarm_api::model::Resource;
use kubewarm_wire::{json::JsonCursor, tables::TablePrinter};
use std::borrow::Cow;

/// Prints the objects of one kind as rows of a `Table`.
#[derive(Clone, Debug)]
pub(super) struct RowPrinter {
    pub(super) printer: TablePrinter,
    resource: Resource,
    metrics: ReadMetrics,
}

impl PartialEq for RowPrinter {
    /// Whether both print the same rows. The comparison ignores the metrics, because the process
    /// has only one set of metrics.
    fn eq(&self, other: &Self) -> bool {
        self.printer == other.printer && self.resource == other.resource
    }
}

impl Eq for RowPrinter {}

impl RowPrinter {
    pub(super) fn new(printer: TablePrinter, resource: &Resource, metrics: &ReadMetrics) -> Self {
        Self { printer, resource: resource.clone(), metrics: metrics.clone() }
    }

    /// Returns the members of the row of the object with the JSON `stored`. If a cell cannot be
    /// computed, counts the row. Logs only the first such row of a resource, because anyone who can
    /// write an object could fill the log.
    pub(super) fn row(
        &self,
        api_version: &str,
        kind: &str,
        stored: &[u8],
        now: Timestamp,
    ) -> String {
        let row = self.printer.row(api_version, kind, stored, now);
        if row.has_uncomputed_cell && self.metrics.count_incomplete_row(&self.resource) {
            let object = metadata(stored, "name").unwrap_or_default();
            let namespace = metadata(stored, "namespace").unwrap_or_default();
            tracing::warn!(
                resource = %self.resource, ?namespace, ?object,
                "a cell of a Table is empty, because kubewarm cannot compute it from the object; further such rows of \
                 this resource are only counted"
            );
        }
        row.members
    }
}

fn metadata<'a>(stored: &'a [u8], field: &str) -> Option<Cow<'a, str>> {
    let mut at = JsonCursor::new(stored);
    (at.seek("metadata")? && at.seek(field)?).then(|| at.text())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::core;
    use kubewarm_wire::tables::CustomColumn;
    use prometheus::Registry;

    #[test]
    fn a_row_with_an_uncomputed_cell_is_counted() {
        let registry = Registry::new();
        let metrics = ReadMetrics::register(&registry).unwrap();
        let columns = CustomColumn::age().into_iter().collect();
        let printer = RowPrinter::new(TablePrinter::custom(columns), &core("pods"), &metrics);
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let deep = "[".repeat(128) + &"]".repeat(128);
        for (created, expected) in [("\"2026-01-01T00:00:00Z\"", "60s"), (&deep, "")] {
            let stored = format!(r#"{{"metadata":{{"name":"a","creationTimestamp":{created}}}}}"#);
            for _ in 0..2 {
                let members = printer.row("v1", "Pod", stored.as_bytes(), now);
                let row: serde_json::Value =
                    serde_json::from_str(&format!("{{{members}}}")).unwrap();
                assert_eq!(row["cells"][1].as_str().unwrap_or_default(), expected);
            }
        }
        assert!(!metrics.count_incomplete_row(&core("pods")), "two rows were counted");
        let families = registry.gather();
        let counted =
            families.iter().find(|family| family.name() == "kubewarm_read_incomplete_rows_total");
        let counted = counted.unwrap().get_metric()[0].get_counter().get_value();
        assert_eq!(counted.to_string(), "3");
    }
}
