//! What is known of a kind beside what is held of it.

use kubewarm_api::model::ResourceInfo;
use kubewarm_client::SelectableFields;
use kubewarm_wire::{
    ItemTypes,
    tables::{Column, Printer},
};
use std::sync::Arc;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// As discovery has it.
    pub(super) document: ResourceInfo,
    /// Of an object, such as `apps/v1`.
    pub(super) api_version: Arc<str>,
    /// Of a list of them, such as `DeploymentList`.
    pub(super) list_kind: Arc<str>,
    /// Who serves it.
    pub(super) origin: Origin,
    /// What a definition has its objects be printed in; empty for others.
    pub(super) columns: Arc<[Column]>,
}

/// Who serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The API server itself.
    BuiltIn,
    /// The API server, from a `CustomResourceDefinition`.
    Custom(SelectableFields),
    /// Another API server, which the administrator says hides nothing from anybody.
    Aggregated,
}

impl Kind {
    /// How its objects are printed as rows.
    pub(super) fn printer(&self) -> Printer {
        let of = &self.document.resource;
        match self.origin {
            Origin::BuiltIn => Printer::built_in(of.group(), of.version(), of.resource()),
            Origin::Custom(_) => Printer::custom(&self.columns),
            Origin::Aggregated => Printer::unknown(),
        }
    }

    /// Whether the items of a list of them say what they are.
    pub(super) fn items(&self) -> ItemTypes {
        match self.origin {
            Origin::Custom(_) => ItemTypes::Written,
            Origin::BuiltIn | Origin::Aggregated => ItemTypes::Bare,
        }
    }
}
