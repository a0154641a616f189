//! Metrics about the operator's own work: reconciliations, status writes, the lease and
//! authorization decisions.

use crate::access::{Check, CheckOutcome};
use kubewarm_api::{
    manifests::LEASE,
    model::{DecidedBy, Decision, Measure},
};
use kubewarm_cache::informer::REQUEST_BUCKETS;
use kubewarm_client::LeaseState;
use prometheus::{
    HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};
use std::time::Duration;
use strum::VariantArray as _;

/// Buckets in seconds, for a reconciliation of one to thousands of profiles.
const RECONCILE: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Values of the label `outcome` of status writes.
pub const STATUS_WRITES: [&str; 2] = ["written", "failed"];

/// The operator's metrics. Clones share the counters.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    reconcile: HistogramVec,
    status_writes: IntCounterVec,
    access_checks: IntCounterVec,
    limit_rejections: IntCounterVec,
    decisions: IntCounterVec,
    decision_duration: HistogramVec,
    leader: IntGauge,
    memory_limit: IntGaugeVec,
}

impl OperatorMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, labels: &[&str], help: &str| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let gauges = |name: &str, labels: &[&str], help: &str| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        let histograms = |name: &str, buckets: &[f64], labels: &[&str], help: &str| {
            register_histogram_vec_with_registry!(name, help, labels, buckets.to_vec(), registry)
        };
        let metrics = Self {
            reconcile: histograms(
                "kubewarm_reconcile_duration_seconds",
                RECONCILE,
                &["outcome"],
                "Seconds of one run over all profiles.",
            )?,
            status_writes: counters(
                "kubewarm_status_writes_total",
                &["outcome"],
                "Writes of a profile's status.",
            )?,
            access_checks: counters(
                "kubewarm_access_checks_total",
                &["check", "outcome"],
                "Checks of permissions: the real list and watch of a cell, and reviews. A review of rules counts as allowed when it was answered.",
            )?,
            limit_rejections: counters(
                "kubewarm_limit_rejections_total",
                &["limit"],
                "Targets that were stopped because of a limit, tries included.",
            )?,
            decisions: counters(
                "kubewarm_authz_decisions_total",
                &["source", "decision"],
                "Decisions on whether a caller may, who it is included, and each check of an open watch; by who said so: the API server now (api), or what it had said a moment ago (cache).",
            )?,
            decision_duration: histograms(
                "kubewarm_authz_duration_seconds",
                REQUEST_BUCKETS,
                &["source"],
                "Seconds until that was decided, the wait for a turn to ask included.",
            )?,
            leader: gauges(
                "leader_election_master_status",
                &["name"],
                "Whether this process holds the lease: 1 or 0.",
            )?
            .with_label_values(&[LEASE]),
            memory_limit: gauges(
                "kubewarm_memory_limit_bytes",
                &[],
                "Bytes that all stores and informers may take together (75 % of --memory-limit); absent without a limit.",
            )?,
        };
        metrics.begin();
        Ok(metrics)
    }

    /// Creates all series with fixed label values at 0, so that `increase()` includes their first
    /// event.
    fn begin(&self) {
        for outcome in STATUS_WRITES {
            let _begun = self.status_writes.with_label_values(&[outcome]);
        }
        for check in Check::VARIANTS {
            for outcome in CheckOutcome::VARIANTS {
                let labels = [check.as_ref(), outcome.as_ref()];
                let _begun = self.access_checks.with_label_values(&labels);
            }
        }
        for measure in Measure::VARIANTS {
            let _begun = self.limit_rejections.with_label_values(&[measure]);
        }
    }

    /// Records the duration of a reconciliation. Its `outcome` is always `ok`, because a
    /// reconciliation cannot fail.
    pub fn reconciled(&self, took: Duration) {
        self.reconcile.with_label_values(&["ok"]).observe(took.as_secs_f64());
    }

    /// Counts a write of a profile's status, by success.
    pub fn status_written(&self, is_written: bool) {
        let [written, failed] = STATUS_WRITES;
        let outcome = if is_written { written } else { failed };
        self.status_writes.with_label_values(&[outcome]).inc();
    }

    pub fn access_checked(&self, check: Check, outcome: CheckOutcome) {
        self.access_checks.with_label_values(&[check.as_ref(), outcome.as_ref()]).inc();
    }

    /// Counts a target that exceeded a limit.
    pub fn limit_exceeded(&self, measure: Measure) {
        self.limit_rejections.with_label_values(&[measure]).inc();
    }

    /// Counts a decision about a caller, and records its duration.
    pub fn decided(&self, by: DecidedBy, decision: Decision, took: Duration) {
        self.decisions.with_label_values(&[by.as_ref(), decision.as_ref()]).inc();
        self.decision_duration.with_label_values(&[by]).observe(took.as_secs_f64());
    }

    /// Sets the limit for all stores and informers. Without a limit the series does not exist.
    pub fn set_memory_limit(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.memory_limit.with_label_values::<&str>(&[]).set(bytes);
    }

    /// Sets whether this process holds the lease. The initial value is 0.
    pub fn set_lease(&self, state: &LeaseState) {
        self.leader.set(i64::from(matches!(state, LeaseState::Leader { .. })));
    }
}
