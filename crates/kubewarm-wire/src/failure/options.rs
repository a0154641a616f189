//! Options of a list that are refused.

use super::quoted;

/// A list option that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidOption {
    pub(crate) field: &'static str,
    pub(crate) kind: Wrong,
    pub(crate) detail: String,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It may not be given here.
    Forbidden,
    /// It has no such value.
    Unsupported {
        /// The value.
        value: String,
    },
}

impl InvalidOption {
    pub(super) fn body(&self) -> String {
        let detail = &self.detail;
        match &self.kind {
            Wrong::Forbidden => format!("Forbidden: {detail}"),
            Wrong::Unsupported { value } => {
                format!("Unsupported value: {}: {detail}", quoted(value))
            }
        }
    }
}

impl Wrong {
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden => "FieldValueForbidden",
            Self::Unsupported { .. } => "FieldValueNotSupported",
        }
    }
}
