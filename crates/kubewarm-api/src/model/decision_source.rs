//! Result of authentication and authorization of a client, and its source. Metrics use both as
//! labels.

/// Source of a [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecisionSource {
    /// A cached answer of the API server; kubewarm sends no request.
    Cache,
    /// A review that kubewarm sent for this decision.
    ApiServer,
}
