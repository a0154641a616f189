//! How new a profile wants answers to be, and for how long what is not warm is waited for.

use super::Consistency;
use std::time::Duration;

/// What a profile wants of answers from its cells. Of several the strictest of each counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTerms {
    /// `serving.consistency`.
    pub consistency: Consistency,
    /// `serving.coldReadWaitSeconds`, up to a minute; zero where `serving.coldReads` is `Reject`.
    pub cold_wait: Duration,
}

impl Default for ReadTerms {
    fn default() -> Self {
        Self { consistency: Consistency::default(), cold_wait: Duration::from_secs(5) }
    }
}
