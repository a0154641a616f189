//! What profiles may take, by the operator's flags.

/// What all profiles may take together, and those of one namespace. The limits of one namespace do not hold for the
/// operator's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorLimits {
    /// Bytes of all stores and informers; `None` is no limit.
    pub bytes: Option<u64>,
    /// Bytes of those that one namespace declares; `None` is no limit.
    pub namespace_bytes: Option<u64>,
    /// Informers. Each is a watch of the API server, and profiles are easily made by the thousand.
    pub informers: usize,
    /// Informers of one namespace.
    pub namespace_informers: usize,
}

impl Default for OperatorLimits {
    /// For tests: the defaults of the flags, without a limit of memory.
    fn default() -> Self {
        Self { bytes: None, namespace_bytes: None, informers: 10_000, namespace_informers: 1_000 }
    }
}
