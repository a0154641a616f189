//! Metrics about the operator's own work: reconciliations, status writes, the lease and
//! authorization decisions.

use crate::access::AccessCheckKind;
use kubewarm_api::{
    manifests::LEASE,
    model::{DecisionSource, LimitKind, MetricOutcome},
};
use kubewarm_cache::informer::REQUEST_BUCKETS;
use kubewarm_client::LeaseState;
use kubewarm_serve::callers::RbacFallback;
use prometheus::{
    Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};
use std::time::Duration;
use strum::VariantArray as _;

/// Upper bounds of the histogram buckets for the duration of a reconciliation, in seconds. The
/// range covers one profile to thousands of profiles.
const RECONCILE_BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Values of the label `outcome` of `kubewarm_status_writes_total`.
pub const STATUS_WRITE_OUTCOMES: [MetricOutcome; 2] =
    [MetricOutcome::Success, MetricOutcome::Error];

/// Values of the label `outcome` of `kubewarm_access_checks_total`. A rules review that the API
/// server answered counts as `success`.
pub const ACCESS_CHECK_OUTCOMES: [MetricOutcome; 3] =
    [MetricOutcome::Success, MetricOutcome::Rejected, MetricOutcome::Error];

/// Values of the label `outcome` of `kubewarm_read_authorizations_total`.
pub const AUTHORIZATION_OUTCOMES: [MetricOutcome; 3] = ACCESS_CHECK_OUTCOMES;

/// The operator's metrics. Clones share the counters.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    reconcile: Histogram,
    status_writes: IntCounterVec,
    access_checks: IntCounterVec,
    limit_rejections: IntCounterVec,
    authorizations: IntCounterVec,
    authorization_duration: HistogramVec,
    rbac_fallbacks: IntCounterVec,
    leader: IntGauge,
    store_limit: IntGaugeVec,
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
            reconcile: register_histogram_with_registry!(
                "kubewarm_reconcile_duration_seconds",
                "Duration of one reconcile of all profiles.",
                RECONCILE_BUCKETS.to_vec(),
                registry
            )?,
            status_writes: counters(
                "kubewarm_status_writes_total",
                &["outcome"],
                "Writes of profile statuses to the API server.",
            )?,
            access_checks: counters(
                "kubewarm_access_checks_total",
                &["check", "outcome"],
                "Checks of kubewarm's own permissions: list and watch requests, rules reviews, access reviews.",
            )?,
            limit_rejections: counters(
                "kubewarm_limit_rejections_total",
                &["limit"],
                "Targets stopped by a memory or object limit, retries included.",
            )?,
            authorizations: counters(
                "kubewarm_read_authorizations_total",
                &["source", "outcome"],
                "Authentication and authorization results for callers, rechecks of open watches and scrapes included.",
            )?,
            authorization_duration: histograms(
                "kubewarm_read_authorization_duration_seconds",
                REQUEST_BUCKETS,
                &["source"],
                "Time to authenticate and authorize a caller, queueing included.",
            )?,
            rbac_fallbacks: counters(
                "kubewarm_rbac_fallbacks_total",
                &["reason"],
                "Switches from --authorization=rbac to access reviews until the restart: 0 or 1.",
            )?,
            leader: gauges(
                "leader_election_master_status",
                &["name"],
                "Whether this process holds the lease: 1 or 0.",
            )?
            .with_label_values(&[LEASE]),
            store_limit: gauges(
                "kubewarm_store_limit_bytes",
                &[],
                "Limit for the memory of all stores: 75 % of --memory-limit. Absent without a limit.",
            )?,
        };
        metrics.begin();
        Ok(metrics)
    }

    /// Creates each counter series whose label values are known in advance, with the value 0.
    /// Prometheus' `increase()` then includes the first increment.
    fn begin(&self) {
        for outcome in STATUS_WRITE_OUTCOMES {
            let _begun = self.status_writes.with_label_values(&[outcome]);
        }
        for check in AccessCheckKind::VARIANTS {
            for outcome in ACCESS_CHECK_OUTCOMES {
                let labels = [check.as_ref(), outcome.as_ref()];
                let _begun = self.access_checks.with_label_values(&labels);
            }
        }
        for reason in RbacFallback::REASONS {
            let _begun = self.rbac_fallbacks.with_label_values(&[reason]);
        }
        for measure in LimitKind::VARIANTS {
            let _begun = self.limit_rejections.with_label_values(&[measure]);
        }
    }

    /// Records the duration of a reconciliation. The metric has no label `outcome`, because a
    /// reconciliation cannot fail.
    pub fn observe_reconcile(&self, took: Duration) {
        self.reconcile.observe(took.as_secs_f64());
    }

    pub fn count_status_write(&self, outcome: MetricOutcome) {
        self.status_writes.with_label_values(&[outcome]).inc();
    }

    pub fn count_access_check(&self, check: AccessCheckKind, outcome: MetricOutcome) {
        self.access_checks.with_label_values(&[check.as_ref(), outcome.as_ref()]).inc();
    }

    /// Counts a target that the controller stopped because of a limit.
    pub fn count_limit_rejection(&self, measure: LimitKind) {
        self.limit_rejections.with_label_values(&[measure]).inc();
    }

    /// Counts the authentication and authorization of a client, and records how long both took
    /// together.
    pub fn observe_authorization(
        &self,
        source: DecisionSource,
        outcome: MetricOutcome,
        took: Duration,
    ) {
        self.authorizations.with_label_values(&[source.as_ref(), outcome.as_ref()]).inc();
        self.authorization_duration.with_label_values(&[source]).observe(took.as_secs_f64());
    }

    /// Counts the switch from RBAC rules to access reviews.
    pub fn count_rbac_fallback(&self, reason: &str) {
        self.rbac_fallbacks.with_label_values(&[reason]).inc();
    }

    /// Sets the metric for the memory limit of all stores and informers. Before the first call,
    /// scrapes do not contain the metric.
    pub fn set_store_limit(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.store_limit.with_label_values::<&str>(&[]).set(bytes);
    }

    /// Sets the metric for whether this process holds the lease. Before the first call, the value
    /// is 0.
    pub fn set_leader(&self, state: &LeaseState) {
        self.leader.set(i64::from(matches!(state, LeaseState::Leader { .. })));
    }
}
