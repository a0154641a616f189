//! What is decided about callers, by whom, and how long that takes.

use super::{descriptor, label::Label};
use crate::model::{DecidedBy, Decision};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Counts decisions about callers. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct CallerMetrics {
    decisions: IntCounterVec,
    duration: HistogramVec,
}

impl CallerMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let decisions = descriptor::AUTHZ_DECISIONS.counters()?;
        let duration = descriptor::AUTHZ_DURATION.histograms()?;
        registry.register(Box::new(decisions.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { decisions, duration })
    }

    /// Counts a decision that took so long.
    pub fn decided(&self, by: DecidedBy, decision: Decision, took: Duration) {
        self.decisions.with_label_values(&[by.as_label(), decision.as_label()]).inc();
        self.duration.with_label_values(&[by.as_label()]).observe(took.as_secs_f64());
    }
}
