//! Consistency and cold-read timeout of a profile's reads.

use super::ReadConsistency;
use std::time::Duration;

/// `spec.reads` of a profile. With several profiles, the strictest consistency and the shortest
/// timeout apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPolicy {
    /// `reads.consistency`.
    pub consistency: ReadConsistency,
    /// `reads.coldReadTimeoutSeconds`, at most 1 minute. With zero, kubewarm rejects reads of an
    /// informer that is not warm at once.
    pub cold_read_timeout: Duration,
}

impl Default for ReadPolicy {
    fn default() -> Self {
        Self { consistency: ReadConsistency::default(), cold_read_timeout: Duration::from_secs(5) }
    }
}
