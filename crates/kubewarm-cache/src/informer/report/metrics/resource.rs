//! Metrics of the informers of one resource, such as their requests, their watch events and the
//! reads by clients.

use crate::informer::{
    ConsistencyResult, DecodeStage, FirstSyncMethod, RelistReason, UpstreamWatchEnd,
};
use kubewarm_api::model::{MetricOutcome, Verb};
use kubewarm_wire::upstream::UpstreamEventType;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
    proto::MetricFamily, register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
};
use std::{collections::HashMap, fmt, time::Duration};
use strum::VariantArray;

/// Names of the labels that identify a resource.
pub const RESOURCE_LABELS: [&str; 3] = ["group", "version", "resource"];

/// Values of the label `outcome` for a list or a page. `success` means that kubewarm received and
/// applied the whole list or page.
pub const LIST_OUTCOMES: [MetricOutcome; 2] = [MetricOutcome::Success, MetricOutcome::Error];

/// Values of the label `outcome` for a consistency check.
pub const CONSISTENCY_OUTCOMES: [MetricOutcome; 3] =
    [MetricOutcome::Success, MetricOutcome::Error, MetricOutcome::Cancelled];

/// Buckets of request durations, in seconds. client-go's `rest_client_request_duration_seconds` has
/// the same buckets, so dashboards can compare both.
pub const REQUEST_BUCKETS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Buckets of warm-up durations, in seconds. The API server's metric for the initialization of its
/// watch cache has the same buckets.
const WARMUP_BUCKETS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets of watch durations, in seconds. An informer requests watches of 5 to 10 minutes, so a
/// shorter watch ended early.
const WATCH_DURATION_BUCKETS: &[f64] = &[1.0, 5.0, 15.0, 60.0, 180.0, 300.0, 420.0, 600.0, 1800.0];
/// Buckets of event processing times, in seconds: from the delay on an idle machine to delays that
/// users notice.
const EVENT_PROCESSING_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets of a store's age (the time since the store was last confirmed to contain every earlier
/// change), in seconds. They range from the time after a recent event to the largest
/// `maxStalenessSeconds` of a profile.
const STALENESS_BUCKETS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 3600.0];

/// The metrics of one resource. Dropping the struct removes the resource's Prometheus series.
///
/// Each field has the name of its metric; `docs/metrics.md` describes the metrics.
#[derive(Debug)]
#[expect(missing_docs, reason = "each help text is below, and would only be repeated")]
pub struct ResourceMetrics {
    labels: [String; 3],
    registry: Registry,
    pub warmup_duration: HistogramVec,
    pub upstream_list_duration: HistogramVec,
    pub upstream_list_pages: IntCounter,
    pub upstream_list_items: IntCounter,
    pub upstream_list_bytes: IntCounter,
    pub upstream_relists: IntCounterVec,
    pub upstream_relist_replaced_objects: IntCounter,
    pub upstream_relist_deleted_objects: IntCounter,
    pub upstream_watch_starts: IntCounter,
    pub upstream_watch_ends: IntCounterVec,
    pub upstream_watch_duration: Histogram,
    pub upstream_watch_events: IntCounterVec,
    pub event_processing: Histogram,
    /// Time since the store was last confirmed to contain every earlier change, measured when a
    /// client reads the store. This metric has no series before a client reads.
    pub read_staleness: HistogramVec,
    pub upstream_request_errors: IntCounterVec,
    pub upstream_decode_errors: IntCounterVec,
    pub protobuf_fallbacks: IntCounter,
    pub store_decode_errors: IntCounter,
    pub resource_version_rollbacks: IntCounter,
    pub upstream_freshness_requests: IntCounterVec,
    pub consistency_checks: IntCounterVec,
    pub consistency_differences: IntCounter,
}

struct MetricFactory {
    registry: Registry,
    key: HashMap<String, String>,
}

impl MetricFactory {
    fn new(labels: &[String; 3]) -> Self {
        let key = RESOURCE_LABELS.map(str::to_owned).into_iter().zip(labels.iter().cloned());
        Self { registry: Registry::new(), key: key.collect() }
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.key.clone())
    }

    fn timed(&self, name: &str, buckets: &[f64], help: &str) -> HistogramOpts {
        HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec())
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        register_int_counter_with_registry!(self.opts(name, help), self.registry)
    }

    fn counters(
        &self,
        name: &str,
        labels: &[&str],
        help: &str,
    ) -> prometheus::Result<IntCounterVec> {
        let opts = self.opts(name, help);
        register_int_counter_vec_with_registry!(opts, labels, self.registry)
    }

    fn histogram(&self, name: &str, buckets: &[f64], help: &str) -> prometheus::Result<Histogram> {
        register_histogram_with_registry!(self.timed(name, buckets, help), self.registry)
    }

    fn histograms(
        &self,
        name: &str,
        buckets: &[f64],
        labels: &[&str],
        help: &str,
    ) -> prometheus::Result<HistogramVec> {
        let opts = self.timed(name, buckets, help);
        register_histogram_vec_with_registry!(opts, labels, self.registry)
    }
}

impl ResourceMetrics {
    /// Creates all metrics of a resource. Counters with a fixed set of label values start at zero,
    /// so that `increase()` of Prometheus includes the first event.
    ///
    /// The warm-up histogram and the counter of request errors have no series before their first
    /// value.
    pub(super) fn new(labels: [String; 3]) -> prometheus::Result<Self> {
        let new = MetricFactory::new(&labels);
        let metrics = Self {
            warmup_duration: new.histograms(
                "kubewarm_warmup_duration_seconds",
                WARMUP_BUCKETS,
                &["strategy"],
                "Time from an informer's declaration to its first complete list.",
            )?,
            upstream_list_duration: new.histograms(
                "kubewarm_upstream_list_duration_seconds",
                REQUEST_BUCKETS,
                &["outcome"],
                "Time from request to last byte of a list, or of one page.",
            )?,
            upstream_list_pages: new.counter("kubewarm_upstream_list_pages_total", "Lists and list pages received.")?,
            upstream_list_items: new.counter("kubewarm_upstream_list_items_total", "Objects received in lists.")?,
            upstream_list_bytes: new.counter(
                "kubewarm_upstream_list_bytes_total",
                "Bytes received in lists, as sent by the API server.",
            )?,
            upstream_relists: new.counters(
                "kubewarm_upstream_relists_total",
                &["reason"],
                "Complete lists of informers that were already synced.",
            )?,
            upstream_relist_replaced_objects: new.counter(
                "kubewarm_upstream_relist_replaced_objects_total",
                "Objects that a relist found with another UID: deleted and recreated without an event.",
            )?,
            upstream_relist_deleted_objects: new.counter(
                "kubewarm_upstream_relist_deleted_objects_total",
                "Objects that a relist no longer found. Replaced objects are not included.",
            )?,
            upstream_watch_starts: new.counter(
                "kubewarm_upstream_watch_starts_total",
                "Watches that the API server accepted.",
            )?,
            upstream_watch_ends: new.counters("kubewarm_upstream_watch_ends_total", &["reason"], "Watches that ended, by cause.")?,
            upstream_watch_duration: new.histogram(
                "kubewarm_upstream_watch_duration_seconds",
                WATCH_DURATION_BUCKETS,
                "Lifetime of watches.",
            )?,
            upstream_watch_events: new.counters("kubewarm_upstream_watch_events_total", &["type"], "Watch events received.")?,
            event_processing: new.histogram(
                "kubewarm_event_processing_seconds",
                EVENT_PROCESSING_BUCKETS,
                "Time from an event's last byte received to the event stored.",
            )?,
            read_staleness: new.histograms(
                "kubewarm_read_staleness_seconds",
                STALENESS_BUCKETS,
                &[],
                "Age of a store's last confirmation when it answered a read. Absent until the first read.",
            )?,
            upstream_request_errors: new.counters(
                "kubewarm_upstream_request_errors_total",
                &["verb", "code"],
                "Failed lists and watches, by HTTP status. none: no response.",
            )?,
            upstream_decode_errors: new.counters(
                "kubewarm_upstream_decode_errors_total",
                &["stage"],
                "Decode failures of API server responses.",
            )?,
            protobuf_fallbacks: new.counter(
                "kubewarm_upstream_protobuf_fallbacks_total",
                "Times that an informer began to read a built-in kind as JSON because of an unknown field or another difference.",
            )?,
            store_decode_errors: new.counter(
                "kubewarm_store_decode_errors_total",
                "Stored objects that kubewarm could not decode. Each is a bug.",
            )?,
            resource_version_rollbacks: new.counter(
                "kubewarm_resource_version_rollbacks_total",
                "Times that resource versions went back, which an etcd restore causes.",
            )?,
            upstream_freshness_requests: new.counters(
                "kubewarm_upstream_freshness_requests_total",
                &["verb"],
                "Lists of one object or of metadata, and short watches, that only show whether a store is current.",
            )?,
            consistency_checks: new.counters(
                "kubewarm_consistency_checks_total",
                &["outcome"],
                "Comparisons of a store with the API server at the same version. cancelled: not comparable.",
            )?,
            consistency_differences: new.counter(
                "kubewarm_consistency_differences_total",
                "Consistency checks that found a difference.",
            )?,
            registry: new.registry,
            labels,
        };
        metrics.begin_series();
        Ok(metrics)
    }

    /// Creates the series whose label values are known, at zero.
    fn begin_series(&self) {
        begin::<RelistReason>(&self.upstream_relists);
        begin::<UpstreamWatchEnd>(&self.upstream_watch_ends);
        begin::<UpstreamEventType>(&self.upstream_watch_events);
        begin::<DecodeStage>(&self.upstream_decode_errors);
        for outcome in LIST_OUTCOMES {
            let _begun = self.upstream_list_duration.with_label_values(&[outcome]);
        }
        for verb in [Verb::List, Verb::Watch] {
            let _begun = self.upstream_freshness_requests.with_label_values(&[verb.as_str()]);
        }
        for outcome in CONSISTENCY_OUTCOMES {
            let _begun = self.consistency_checks.with_label_values(&[outcome]);
        }
    }

    /// The values of the labels in [`RESOURCE_LABELS`], in the same order.
    pub fn labels(&self) -> &[String; 3] {
        &self.labels
    }

    /// Collects the current values of all series.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Records a completed or failed list, or a completed or failed page of a list. `took` is its
    /// duration. The caller counts objects and bytes separately while they arrive.
    pub fn count_list(&self, outcome: MetricOutcome, took: Duration) {
        self.upstream_list_duration.with_label_values(&[outcome]).observe(took.as_secs_f64());
        self.upstream_list_pages.inc();
    }

    /// Records the duration of a warm-up, which ended with a complete first list by `method`.
    pub fn observe_warmup(&self, method: FirstSyncMethod, took: Duration) {
        self.warmup_duration.with_label_values(&[method]).observe(took.as_secs_f64());
    }

    /// Records a relist. `replaced` and `deleted` are the numbers of replaced and deleted objects
    /// that the relist found without a previous watch event.
    pub fn count_relist(&self, reason: RelistReason, replaced: u64, deleted: u64) {
        self.upstream_relists.with_label_values(&[reason]).inc();
        self.upstream_relist_replaced_objects.inc_by(replaced);
        self.upstream_relist_deleted_objects.inc_by(deleted);
    }

    /// Records a failed list or watch. `code` is the HTTP status, or `None` if kubewarm received no
    /// response.
    pub fn count_request_error(&self, verb: Verb, code: Option<u16>) {
        let labels = [verb.as_str(), code_label(code)];
        self.upstream_request_errors.with_label_values(&labels).inc();
    }

    /// Records a watch event. `took` is the time from receipt of the event until it is stored, or
    /// `None` for bookmarks and errors.
    pub fn count_event(&self, kind: UpstreamEventType, took: Option<Duration>) {
        self.upstream_watch_events.with_label_values(&[kind]).inc();
        if let Some(took) = took {
            self.event_processing.observe(took.as_secs_f64());
        }
    }

    /// Counts one list, object or event from the API server that kubewarm could not decode.
    pub fn count_decode_error(&self, stage: DecodeStage) {
        self.upstream_decode_errors.with_label_values(&[stage]).inc();
    }

    /// Records the reason why a watch ended, and the watch's duration.
    pub fn observe_watch_end(&self, reason: UpstreamWatchEnd, lasted: Duration) {
        self.upstream_watch_ends.with_label_values(&[reason]).inc();
        self.upstream_watch_duration.observe(lasted.as_secs_f64());
    }

    /// Records a request that only shows whether a store is current. Callers count the request
    /// before they send it, so failed requests count too.
    pub fn count_freshness_request(&self, verb: Verb) {
        self.upstream_freshness_requests.with_label_values(&[verb.as_str()]).inc();
    }

    /// Records the result of a consistency check.
    pub fn count_consistency_check(&self, result: ConsistencyResult) {
        self.consistency_checks.with_label_values(&[result.outcome()]).inc();
        if result == ConsistencyResult::Different {
            self.consistency_differences.inc();
        }
    }

    /// Records a client's read request that kubewarm answered from a store. `age` is the time since
    /// the store was last confirmed to contain every earlier change.
    pub fn observe_staleness(&self, age: Duration) {
        self.read_staleness.with_label_values::<&str>(&[]).observe(age.as_secs_f64());
    }
}

fn begin<L: AsRef<str> + fmt::Debug + VariantArray>(counters: &IntCounterVec) {
    for label in L::VARIANTS {
        let _begun = counters.with_label_values(&[label]);
    }
}

/// Returns the value of the label `code` for an HTTP status. Statuses that API servers do not send
/// are combined, such as `4xx`, so that a proxy with unusual statuses adds no series.
pub fn code_label(code: Option<u16>) -> &'static str {
    match code {
        None => "none",
        Some(200) => "200",
        Some(304) => "304",
        Some(400) => "400",
        Some(401) => "401",
        Some(403) => "403",
        Some(404) => "404",
        Some(405) => "405",
        Some(406) => "406",
        Some(409) => "409",
        Some(410) => "410",
        Some(421) => "421",
        Some(422) => "422",
        Some(429) => "429",
        Some(500) => "500",
        Some(502) => "502",
        Some(503) => "503",
        Some(504) => "504",
        Some(400..=499) => "4xx",
        Some(500..=599) => "5xx",
        Some(_) => "other",
    }
}
