//! What is decided about a caller, and who says so.

/// Who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecidedBy {
    /// What the API server said a moment ago: it is not asked.
    Cache,
    /// The API server, asked now.
    Api,
}

/// What is decided about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Decision {
    /// It may.
    Allow,
    /// Nobody knows it, or it may not.
    Deny,
    /// Nobody can say.
    Error,
}
