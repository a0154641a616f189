//! What the operator itself does: reconciles, writes status, holds the lease.

use super::{descriptor, label::Label};
use crate::{
    access::{Check, CheckOutcome},
    model::Measure,
};
use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use tokio::time::Instant;

/// The label of the lease, which is also its name.
const LEASE: &str = "kubewarm";

/// How a run over all profiles ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// All was done.
    Ok,
    /// Dropped before it ended, as by shutdown.
    Cancelled,
}

/// How a write of a profile's status ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// The API server took it.
    Written,
    /// It did not, or could not be asked.
    Failed,
}

/// Whether this process writes status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It holds the lease.
    Leading,
    /// Another one does, or none.
    Following,
}

/// Metrics of the process as an operator. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    reconcile: HistogramVec,
    status_writes: IntCounterVec,
    access_checks: IntCounterVec,
    limit_rejections: IntCounterVec,
    leader: IntGauge,
    memory_limit: IntGaugeVec,
}

/// Times one run over all profiles, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping the timer at once records a cancelled run"]
pub struct ReconcileTimer {
    duration: HistogramVec,
    started: Instant,
    outcome: Reconciled,
}

impl OperatorMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let reconcile = descriptor::RECONCILE_DURATION.histograms()?;
        let status_writes = descriptor::STATUS_WRITES.counters()?;
        let access_checks = descriptor::ACCESS_CHECKS.counters()?;
        let leaders = descriptor::LEADER.int_gauges()?;
        let leader = leaders.get_metric_with_label_values(&[LEASE])?;
        for outcome in StatusWrite::ALL {
            let _started = status_writes.with_label_values(&[outcome.as_label()]);
        }
        for check in Check::ALL {
            for outcome in CheckOutcome::ALL {
                let labels = [check.as_label(), outcome.as_label()];
                let _started = access_checks.with_label_values(&labels);
            }
        }
        let limit_rejections = descriptor::LIMIT_REJECTIONS.counters()?;
        for measure in Measure::ALL {
            let _started = limit_rejections.with_label_values(&[measure.as_label()]);
        }
        let memory_limit = descriptor::MEMORY_LIMIT.int_gauges()?;
        registry.register(Box::new(memory_limit.clone()))?;
        registry.register(Box::new(limit_rejections.clone()))?;
        registry.register(Box::new(reconcile.clone()))?;
        registry.register(Box::new(access_checks.clone()))?;
        registry.register(Box::new(status_writes.clone()))?;
        registry.register(Box::new(leaders))?;
        Ok(Self { reconcile, status_writes, access_checks, limit_rejections, leader, memory_limit })
    }

    /// Begins to time a run over all profiles.
    pub fn reconcile(&self) -> ReconcileTimer {
        ReconcileTimer {
            duration: self.reconcile.clone(),
            started: Instant::now(),
            outcome: Reconciled::Cancelled,
        }
    }

    /// Counts a write of a profile's status.
    pub fn status_written(&self, outcome: StatusWrite) {
        self.status_writes.with_label_values(&[outcome.as_label()]).inc();
    }

    /// Counts a check of permissions.
    pub fn access_checked(&self, check: Check, outcome: CheckOutcome) {
        self.access_checks.with_label_values(&[check.as_label(), outcome.as_label()]).inc();
    }

    /// Counts a target that did not fit into a limit.
    pub fn limit_exceeded(&self, measure: Measure) {
        self.limit_rejections.with_label_values(&[measure.as_label()]).inc();
    }

    /// Says how many bytes all tables may take together. Without a limit there is no series.
    pub fn set_memory_limit(&self, bytes: u64) {
        let none: [&str; 0] = [];
        self.memory_limit.with_label_values(&none).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Says whether this process holds the lease. It does not until told so.
    pub fn set_leadership(&self, leadership: Leadership) {
        self.leader.set(i64::from(leadership == Leadership::Leading));
    }
}

impl ReconcileTimer {
    /// Ends the measurement.
    pub fn finish(mut self, outcome: Reconciled) {
        self.outcome = outcome;
    }
}

impl Drop for ReconcileTimer {
    fn drop(&mut self) {
        self.duration
            .with_label_values(&[self.outcome.as_label()])
            .observe(self.started.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_timer_counts_as_cancelled() {
        let metrics = OperatorMetrics::register(&Registry::new()).unwrap();
        drop(metrics.reconcile());
        metrics.reconcile().finish(Reconciled::Ok);
        let count = |outcome: Reconciled| {
            metrics.reconcile.with_label_values(&[outcome.as_label()]).get_sample_count()
        };
        assert_eq!([Reconciled::Cancelled, Reconciled::Ok].map(count), [1, 1]);
    }
}
