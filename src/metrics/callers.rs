//! What is decided about callers, by whom, and how long that takes.

use kubewarm_api::model::{DecidedBy, Decision};
use kubewarm_cache::informer::REQUEST_BUCKETS;
use prometheus::{
    HistogramVec, IntCounterVec, Registry, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry,
};
use std::time::Duration;

/// Counts decisions about callers. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct CallerMetrics {
    decisions: IntCounterVec,
    duration: HistogramVec,
}

impl CallerMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            decisions: register_int_counter_vec_with_registry!(
                "kubewarm_authz_decisions_total",
                "Decisions on whether a caller may, who it is included, and each check of an open watch; by who said so: the API server now (api), or what it had said a moment ago (cache).",
                &["source", "decision"],
                registry
            )?,
            duration: register_histogram_vec_with_registry!(
                "kubewarm_authz_duration_seconds",
                "Seconds until that was decided, the wait for a turn to ask included.",
                &["source"],
                REQUEST_BUCKETS.to_vec(),
                registry
            )?,
        })
    }

    /// Counts a decision that took so long.
    pub fn decided(&self, by: DecidedBy, decision: Decision, took: Duration) {
        self.decisions.with_label_values(&[by.as_ref(), decision.as_ref()]).inc();
        self.duration.with_label_values(&[by]).observe(took.as_secs_f64());
    }
}
