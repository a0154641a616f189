//! What a caller was allowed: whatever is selected, or happens, nothing is told of anything else.

use kubewarm_wire::Objects;
use std::sync::Arc;

/// The namespace and the name that were reviewed; `None`: all.
pub(super) struct Allowed {
    namespace: Option<Arc<str>>,
    name: Option<Box<str>>,
}

impl Allowed {
    /// By a request that was let through.
    pub(super) fn of(asked: &Objects) -> Self {
        Self { namespace: asked.namespace.clone(), name: asked.only_name().map(Into::into) }
    }

    /// Whether this object is among them.
    pub(super) fn has(&self, namespace: &str, name: &[u8]) -> bool {
        self.namespace.as_deref().is_none_or(|allowed| allowed == namespace)
            && self.name.as_deref().is_none_or(|allowed| allowed.as_bytes() == name)
    }
}
