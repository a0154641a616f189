//! The outcomes that metrics count.

/// The label `outcome` of metrics. Each metric has those of the values that can occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MetricOutcome {
    /// Done or answered.
    Success,
    /// kubewarm or the API server failed.
    Error,
    /// Rejected: a caller lacks permission or has reached its own limit, or the API server rejects kubewarm.
    Rejected,
    /// Ended without a result.
    Cancelled,
}
