//! The limits for all profiles that the operator's flags set.

/// Limits for all profiles together, and for the profiles of one namespace. The namespace limits do
/// not apply to the operator namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorLimits {
    /// Maximum bytes of all stores and informers; `None` means no limit.
    pub bytes: Option<u64>,
    /// Maximum bytes of the stores and informers that one namespace declares; `None` means no
    /// limit.
    pub namespace_bytes: Option<u64>,
    /// Maximum number of informers. Each one is a watch on the API server, and a tenant can create
    /// thousands.
    pub informers: usize,
    /// Maximum number of informers of one namespace.
    pub namespace_informers: usize,
}

impl Default for OperatorLimits {
    /// Defaults of the flags without memory limits, for tests.
    fn default() -> Self {
        Self { bytes: None, namespace_bytes: None, informers: 10_000, namespace_informers: 1_000 }
    }
}
