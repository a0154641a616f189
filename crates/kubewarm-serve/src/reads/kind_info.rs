//! Describes a kind, with data from discovery and from the kind's `CustomResourceDefinition`.

use super::row_printer::RowPrinter;
use crate::metrics::ReadMetrics;
use kubewarm_api::model::ResourceInfo;
use kubewarm_client::{CrdInfo, SelectableFields};
use kubewarm_wire::tables::TablePrinter;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindInfo {
    /// The kind's entry in discovery.
    pub(super) document: ResourceInfo,
    /// The kind's `CustomResourceDefinition`. `None` for built-in kinds, and for kinds of the
    /// aggregated APIs in the flag `--serve-aggregated-groups`. With this flag the administrator
    /// confirms that these APIs hide no object from any caller, so kubewarm may serve them.
    pub(super) definition: Option<Arc<CrdInfo>>,
}

impl KindInfo {
    pub(super) fn api_version(&self) -> Arc<str> {
        self.document.resource.api_version().into()
    }

    /// The kind of a list response for this kind, such as `DeploymentList`.
    pub(super) fn list_kind(&self) -> Arc<str> {
        match &self.definition {
            Some(definition) => Arc::clone(&definition.list_kind),
            None => format!("{}List", self.document.kind).into(),
        }
    }

    /// The selectable fields that the `CustomResourceDefinition` declares for this API version of
    /// the kind.
    pub(super) fn selectable_fields(&self) -> Option<&SelectableFields> {
        self.definition.as_ref()?.fields.get(self.document.resource.version())
    }

    /// Prints `Table` rows for objects of this kind, and counts rows with a cell that could not be
    /// computed.
    pub(super) fn row_printer(&self, metrics: &ReadMetrics) -> RowPrinter {
        RowPrinter::new(self.printer(), &self.document.resource, metrics)
    }

    /// The printer that prints `Table` rows for objects of this kind. The printer uses the columns
    /// of the `CustomResourceDefinition`, or the API server's columns for a built-in kind.
    pub(super) fn printer(&self) -> TablePrinter {
        let resource = &self.document.resource;
        match &self.definition {
            Some(definition) => TablePrinter::custom(
                definition.columns.get(resource.version()).cloned().unwrap_or_default(),
            ),
            None => {
                TablePrinter::built_in(resource.group(), resource.version(), resource.resource())
            }
        }
    }
}
