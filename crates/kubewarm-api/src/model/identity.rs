//! Who a cell is read as.

use std::{fmt, sync::Arc};

/// Whose permissions upstream reads have. Part of what a cell is, so that data never crosses from
/// one identity to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// The operator itself.
    #[default]
    Operator,
    /// A ServiceAccount that a profile of its namespace names.
    ServiceAccount {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
}

impl fmt::Display for Identity {
    /// For people: `the operator`, or `ServiceAccount shop/reader`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the operator"),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {namespace}/{name}")
            }
        }
    }
}
