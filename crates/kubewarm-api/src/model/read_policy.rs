use super::ReadConsistency;
use std::time::Duration;

/// `spec.reads` of a profile, without `onAccessLost`. If stores of several profiles answer one
/// read, the strictest consistency and the shortest timeout apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Value of `reads.consistency`.
    pub consistency: ReadConsistency,
    /// Longest time that a read waits until the informer is warm, from
    /// `reads.coldReadTimeoutSeconds`, at most 1 minute. Zero: kubewarm immediately rejects reads
    /// of an informer that is not warm.
    pub cold_read_timeout: Duration,
}

impl Default for ReadPolicy {
    fn default() -> Self {
        Self { consistency: ReadConsistency::default(), cold_read_timeout: Duration::from_secs(5) }
    }
}
