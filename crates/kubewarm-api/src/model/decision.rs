//! Result of authentication and authorization of a client, and its source. Metrics use both as
//! labels.

/// Source of a [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecidedBy {
    /// A cached answer of the API server; kubewarm sends no request.
    Cache,
    /// A new request to the API server.
    Api,
}

/// Result of authenticating and authorizing one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Decision {
    /// The client is authenticated, and RBAC permits the request.
    Allow,
    /// The client is not authenticated, or RBAC does not permit the request.
    Deny,
    /// kubewarm could not decide: too many reviews in progress, or no answer from the API server.
    Error,
}
