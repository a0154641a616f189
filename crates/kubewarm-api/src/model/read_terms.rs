//! A profile's requirements of reads: how new answers must be, and how long reads of cold data wait.

use super::Consistency;
use std::time::Duration;

/// What a profile wants of answers from its cells. Of several the strictest of each counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTerms {
    /// `reads.consistency`.
    pub consistency: Consistency,
    /// `reads.coldReadTimeoutSeconds`, up to a minute. With zero, reads of cold data are rejected at once.
    pub cold_read_timeout: Duration,
}

impl Default for ReadTerms {
    fn default() -> Self {
        Self { consistency: Consistency::default(), cold_read_timeout: Duration::from_secs(5) }
    }
}
