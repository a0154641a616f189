/// Limits that the operator's command-line flags set for all profiles together, and for the
/// profiles of one namespace. The namespace limits do not apply to the operator namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorLimits {
    /// Maximum memory of all stores and informers, in bytes; `None` means no limit.
    pub bytes: Option<u64>,
    /// Maximum memory of the stores and informers that the profiles of one namespace need, in
    /// bytes; `None` means no limit.
    pub namespace_bytes: Option<u64>,
    /// Maximum number of informers of all profiles. Each informer keeps a watch on the API server
    /// open, so without a limit a tenant could declare thousands of watches.
    pub informers: usize,
    /// Maximum number of informers that the profiles of one namespace declare.
    pub namespace_informers: usize,
}

impl Default for OperatorLimits {
    /// Returns the flags' default limits for the number of informers, without memory limits. Only
    /// tests use this function.
    fn default() -> Self {
        Self { bytes: None, namespace_bytes: None, informers: 10_000, namespace_informers: 1_000 }
    }
}
