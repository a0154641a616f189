//! The source of a decision about a caller, as a label of metrics.

/// Source of the authentication or authorization of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecisionSource {
    /// A cached answer of the API server; kubewarm sends no request.
    Cache,
    /// A review that kubewarm sent for this decision.
    ApiServer,
}
