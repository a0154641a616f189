//! The source of a decision about a caller.

/// The source of a decision about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecisionSource {
    /// A review that kubewarm remembers.
    Cache,
    /// A review that kubewarm sent for this decision.
    ApiServer,
}
