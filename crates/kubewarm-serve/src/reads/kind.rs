//! What is known of a kind beside what is held of it.

use kubewarm_api::model::ResourceInfo;
use kubewarm_client::{Definition, SelectableFields};
use kubewarm_wire::tables::Printer;
use std::sync::Arc;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// As discovery has it.
    pub(super) document: ResourceInfo,
    /// Its `CustomResourceDefinition`. `None` if the API server itself serves the kind, or another API server, which the
    /// administrator says hides nothing from anybody.
    pub(super) definition: Option<Arc<Definition>>,
}

impl Kind {
    /// The `apiVersion` of an object, such as `apps/v1`.
    pub(super) fn api_version(&self) -> Arc<str> {
        self.document.resource.api_version().into()
    }

    /// The kind of a list, such as `DeploymentList`.
    pub(super) fn list_kind(&self) -> Arc<str> {
        match &self.definition {
            Some(definition) => Arc::clone(&definition.list_kind),
            None => format!("{}List", self.document.kind).into(),
        }
    }

    /// The fields that the definition lets its objects be selected by.
    pub(super) fn selectable_fields(&self) -> Option<&SelectableFields> {
        self.definition.as_ref()?.fields.get(self.document.resource.version())
    }

    /// How its objects are printed as rows.
    pub(super) fn printer(&self) -> Printer {
        let of = &self.document.resource;
        match &self.definition {
            Some(definition) => {
                Printer::custom(definition.columns.get(of.version()).cloned().unwrap_or_default())
            }
            None => Printer::built_in(of.group(), of.version(), of.resource()),
        }
    }
}
