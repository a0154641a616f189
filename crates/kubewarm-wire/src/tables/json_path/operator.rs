//! Compares two values in a filter.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonPathOperator {
    Equal,
    Different,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl JsonPathOperator {
    /// Compares the values of a filter. Returns `None` if their types differ, so that the operator
    /// cannot compare them.
    pub(super) fn holds(self, left: &Value, right: &Value) -> Option<bool> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.partial_cmp(right),
            (Value::Bool(left), Value::Bool(right)) => match self {
                Self::Equal | Self::Different => left.partial_cmp(right),
                Self::Less | Self::AtMost | Self::Greater | Self::AtLeast => None,
            },
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                (None, None) => left.as_f64().partial_cmp(&right.as_f64()),
                _ => None,
            },
            _ => None,
        };
        let order = order?;
        Some(match self {
            Self::Equal => order.is_eq(),
            Self::Different => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        })
    }
}
