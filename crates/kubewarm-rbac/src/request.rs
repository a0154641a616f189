//! A request in which numbers replace the texts, so that rules compare numbers. Only a path stays a
//! text.

use crate::{
    grants::RbacScope,
    symbols::{Symbol, SymbolTable},
};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReviewSpec};

/// What a request does, and where: its verb, its namespace and its target.
#[derive(Debug)]
pub(crate) struct RequestSymbols<'a> {
    pub(crate) verb: Symbol,
    /// `None` for a request that is in no namespace.
    namespace: Option<Symbol>,
    pub(crate) target: TargetSymbols<'a>,
}

/// What a request reads or changes.
#[derive(Debug)]
pub(crate) enum TargetSymbols<'a> {
    /// Objects of a resource.
    Resource {
        api_group: Symbol,
        /// `RESOURCE`, or `RESOURCE/SUBRESOURCE`.
        resource: Symbol,
        /// `*/SUBRESOURCE`, which a rule can contain for this subresource of all resources. For a
        /// request without a subresource, [`Symbol::UNKNOWN`], which matches no rule.
        subresource_of_all: Symbol,
        /// The number of the empty text for a request that names no object.
        name: Symbol,
    },
    /// A path that belongs to no resource.
    Path(&'a str),
}

impl<'a> RequestSymbols<'a> {
    /// Looks up the texts of a request. `None` if `access` does not have exactly one of both kinds
    /// of attributes, because the API server rejects such a review.
    pub(crate) fn find(
        access: &'a SelfSubjectAccessReviewSpec,
        symbols: &SymbolTable,
    ) -> Option<Self> {
        let find = |text: &Option<String>| symbols.find(text.as_deref().unwrap_or_default());
        match (&access.resource_attributes, &access.non_resource_attributes) {
            (Some(resource), None) => {
                let namespace = resource.namespace.as_deref().unwrap_or_default();
                Some(Self {
                    verb: find(&resource.verb),
                    namespace: (!namespace.is_empty()).then(|| symbols.find(namespace)),
                    target: TargetSymbols::of_resource(resource, symbols),
                })
            }
            (None, Some(path)) => {
                let target = TargetSymbols::Path(path.path.as_deref().unwrap_or_default());
                Some(Self { verb: find(&path.verb), namespace: None, target })
            }
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// The scopes of the grants that apply to this request.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = RbacScope> {
        let namespace = self.namespace.map(RbacScope::Namespace);
        [RbacScope::Cluster].into_iter().chain(namespace)
    }
}

impl TargetSymbols<'_> {
    fn of_resource(attributes: &ResourceAttributes, symbols: &SymbolTable) -> Self {
        let ResourceAttributes { group, resource, subresource, name, .. } = attributes;
        let [group, resource, subresource, name] =
            [group, resource, subresource, name].map(|text| text.as_deref().unwrap_or_default());
        let (resource, subresource_of_all) = if subresource.is_empty() {
            (symbols.find(resource), Symbol::UNKNOWN)
        } else {
            let whole = symbols.find(&format!("{resource}/{subresource}"));
            (whole, symbols.find(&format!("*/{subresource}")))
        };
        Self::Resource {
            api_group: symbols.find(group),
            resource,
            subresource_of_all,
            name: symbols.find(name),
        }
    }
}
