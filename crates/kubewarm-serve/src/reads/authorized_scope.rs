//! Checks that each object in a response is in the namespace, and has the name, of the request's access review.

use kubewarm_wire::ObjectRequest;
use std::sync::Arc;

/// The namespace and the name for which the request passed its access review. `None` means all namespaces or all
/// names.
pub(super) struct AuthorizedScope {
    namespace: Option<Arc<str>>,
    name: Option<Box<str>>,
}

impl AuthorizedScope {
    pub(super) fn of(request: &ObjectRequest) -> Self {
        Self { namespace: request.namespace.clone(), name: request.single_name().map(Into::into) }
    }

    /// Whether the access review covers this object.
    pub(super) fn has(&self, namespace: &str, name: &[u8]) -> bool {
        self.namespace.as_deref().is_none_or(|allowed| allowed == namespace)
            && self.name.as_deref().is_none_or(|allowed| allowed.as_bytes() == name)
    }
}
