//! Consistency and cold-read timeout of a profile's reads.

use super::Consistency;
use std::time::Duration;

/// `spec.reads` of a profile. With several profiles, the strictest consistency and the shortest
/// timeout apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTerms {
    /// `reads.consistency`.
    pub consistency: Consistency,
    /// `reads.coldReadTimeoutSeconds`, at most 1 minute. With zero, kubewarm rejects reads of an
    /// informer that is not warm at once.
    pub cold_read_timeout: Duration,
}

impl Default for ReadTerms {
    fn default() -> Self {
        Self { consistency: Consistency::default(), cold_read_timeout: Duration::from_secs(5) }
    }
}
