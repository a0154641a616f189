//! What is known of a kind beside what is held of it.

use futures::future::BoxFuture;
use kubewarm_api::model::{Fault, Resource, ResourceInfo};
use kubewarm_client::SelectableFields;
use kubewarm_wire::tables::{Column, Printer};
use std::sync::Arc;

/// Says what a kind is; `None` for one that is not served to readers: it is not known, or an aggregated
/// API's, which may hide some objects from some callers.
pub type LookUp =
    Box<dyn Fn(Resource) -> BoxFuture<'static, Result<Option<Arc<Kind>>, Fault>> + Send + Sync>;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// As discovery has it.
    pub document: ResourceInfo,
    /// Of an object, such as `apps/v1`.
    pub api_version: Arc<str>,
    /// Of a list of them, such as `DeploymentList`.
    pub list_kind: Arc<str>,
    /// Who serves it.
    pub origin: Origin,
    /// What a definition has its objects be printed in; empty for others.
    pub columns: Arc<[Column]>,
}

/// Who serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The API server itself.
    BuiltIn,
    /// The API server, from a `CustomResourceDefinition`.
    Custom(SelectableFields),
    /// Another API server, which the administrator says hides nothing from anybody.
    Aggregated,
}

impl Kind {
    /// How its objects are printed as rows.
    #[must_use]
    pub fn printer(&self) -> Printer {
        let of = &self.document.resource;
        match self.origin {
            Origin::BuiltIn => Printer::built_in(of.group(), of.version(), of.resource()),
            Origin::Custom(_) => Printer::custom(&self.columns),
            Origin::Aggregated => Printer::unknown(),
        }
    }
}
