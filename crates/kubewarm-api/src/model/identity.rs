use std::{fmt, sync::Arc};

/// Identity with which kubewarm sends requests to the API server. The identity is part of an
/// informer's key, so informers with different identities never share objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The identity with which kubewarm itself runs.
    #[default]
    Operator,
    /// The ServiceAccount that a profile of the same namespace names in `spec.serviceAccountName`.
    ServiceAccount {
        /// Namespace of the ServiceAccount.
        namespace: Arc<str>,
        /// Name of the ServiceAccount.
        name: Arc<str>,
    },
}

impl fmt::Display for Identity {
    /// Writes `the operator` or `ServiceAccount shop/reader`, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the operator"),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {namespace}/{name}")
            }
        }
    }
}
