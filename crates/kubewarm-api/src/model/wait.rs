//! What a read waits for, and how that ends.

/// What a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WaitFor {
    /// A cell that is not warm.
    Warmth,
    /// A version.
    Version,
    /// A proof that the cell is current.
    Proof,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WaitOutcome {
    /// With an answer.
    Met,
    /// With a refusal.
    Refused,
}
