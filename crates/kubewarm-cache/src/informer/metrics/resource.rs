//! Metrics of one resource.

use crate::informer::{Comparison, EventKind, RelistReason, Stage, Strategy, WatchEnd};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
    proto::MetricFamily, register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
};
use std::{collections::HashMap, fmt, time::Duration};
use strum::VariantArray;

/// Names of the labels that identify a resource.
pub const RESOURCE_LABELS: [&str; 3] = ["group", "version", "resource"];

/// Values of the label `outcome`. A list or page succeeds if it was received and applied
/// completely.
pub const LIST_OUTCOMES: [&str; 2] = ["success", "failure"];

/// Buckets of request durations, in seconds. client-go's `rest_client_request_duration_seconds` has
/// the same buckets, so dashboards can compare both.
pub const REQUEST_BUCKETS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// In seconds. The API server's metric of its own watch cache initialization has the same buckets.
const WARMUP: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// In seconds. Watches request 5 to 10 minutes; shorter ones are failures.
const WATCH: &[f64] = &[1.0, 5.0, 15.0, 60.0, 180.0, 300.0, 420.0, 600.0, 1800.0];
/// In seconds: from the lag of an idle machine to delays that users notice.
const LAG: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// In seconds: from a recent event to the largest staleness limit of a profile.
const FRESH: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 3600.0];

/// The metrics of one resource. Dropping them ends the series.
///
/// The fields have the names of the metrics; `docs/metrics.md` describes each.
#[derive(Debug)]
#[expect(missing_docs, reason = "each help text is below, and would only be repeated")]
pub struct ResourceMetrics {
    labels: [String; 3],
    registry: Registry,
    pub warmup_duration: HistogramVec,
    pub list_duration: HistogramVec,
    pub list_pages: IntCounter,
    pub list_items: IntCounter,
    pub list_bytes: IntCounter,
    pub relists: IntCounterVec,
    pub replaced_objects: IntCounter,
    pub gap_deletes: IntCounter,
    pub watch_starts: IntCounter,
    pub watch_ends: IntCounterVec,
    pub watch_duration: Histogram,
    pub watch_events: IntCounterVec,
    pub event_lag: Histogram,
    /// The series begins with the first read.
    pub freshness: HistogramVec,
    pub watch_errors: IntCounterVec,
    pub decode_errors: IntCounterVec,
    pub rv_rollbacks: IntCounter,
    pub consistency_checks: IntCounterVec,
}

/// Creates metrics with the labels of one resource, and registers them.
struct Factory {
    registry: Registry,
    key: HashMap<String, String>,
}

impl Factory {
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

    fn counters(&self, name: &str, label: &str, help: &str) -> prometheus::Result<IntCounterVec> {
        let opts = self.opts(name, help);
        register_int_counter_vec_with_registry!(opts, &[label], self.registry)
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
    /// Creates all metrics. Counters with a closed set of labels start at zero, so that
    /// `increase()` counts the first event.
    ///
    /// The histogram per strategy and the errors per code start with their first value.
    pub(super) fn new(labels: [String; 3]) -> prometheus::Result<Self> {
        let new = Factory::new(&labels);
        let metrics = Self {
            warmup_duration: new.histograms(
                "kubewarm_warmup_duration_seconds",
                WARMUP,
                &["strategy"],
                "Seconds from the declaration of a cell to its first complete list.",
            )?,
            list_duration: new.histograms(
                "kubewarm_list_duration_seconds",
                REQUEST_BUCKETS,
                &["outcome"],
                "Seconds from the request to the last byte of a list, or of a page of it.",
            )?,
            list_pages: new.counter("kubewarm_list_pages_total", "Lists and pages received.")?,
            list_items: new.counter("kubewarm_list_items_total", "Objects received in lists.")?,
            list_bytes: new.counter(
                "kubewarm_list_bytes_total",
                "Bytes received in lists, as sent by the API server.",
            )?,
            relists: new.counters(
                "kubewarm_relists_total",
                "reason",
                "Complete lists of cells that were already synced.",
            )?,
            replaced_objects: new.counter(
                "kubewarm_replaced_objects_total",
                "Objects that a relist found under the same name with another UID: deleted and created anew unseen.",
            )?,
            gap_deletes: new.counter(
                "kubewarm_gap_deletes_total",
                "Objects that a relist found gone; replaced ones are not counted.",
            )?,
            watch_starts: new.counter(
                "kubewarm_watch_starts_total",
                "Watches that the API server began to answer.",
            )?,
            watch_ends: new.counters("kubewarm_watch_ends_total", "reason", "Watches that ended.")?,
            watch_duration: new.histogram(
                "kubewarm_watch_duration_seconds",
                WATCH,
                "Seconds that a watch was open.",
            )?,
            watch_events: new.counters("kubewarm_watch_events_total", "type", "Events of watches.")?,
            event_lag: new.histogram(
                "kubewarm_event_lag_seconds",
                LAG,
                "Seconds from the bytes of an event read to the event processed by every observer.",
            )?,
            freshness: new.histograms(
                "kubewarm_freshness_seconds",
                FRESH,
                &[],
                "Seconds since a table was last proved current, at each read that it answered; absent until there is one.",
            )?,
            watch_errors: new.counters(
                "kubewarm_watch_errors_total",
                "code",
                "Lists and watches that failed, by HTTP status; none if there was no answer.",
            )?,
            decode_errors: new.counters(
                "kubewarm_decode_errors_total",
                "stage",
                "Bytes from the API server that made no sense.",
            )?,
            rv_rollbacks: new.counter(
                "kubewarm_rv_rollbacks_total",
                "Times that resource versions went back: an etcd restore.",
            )?,
            consistency_checks: new.counters(
                "kubewarm_consistency_checks_total",
                "result",
                "Comparisons of a table with a list of its version (freshness.verifyIntervalSeconds).",
            )?,
            registry: new.registry,
            labels,
        };
        begin::<RelistReason>(&metrics.relists);
        begin::<WatchEnd>(&metrics.watch_ends);
        begin::<EventKind>(&metrics.watch_events);
        begin::<Comparison>(&metrics.consistency_checks);
        begin::<Stage>(&metrics.decode_errors);
        for outcome in LIST_OUTCOMES {
            let _begun = metrics.list_duration.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Values of [`RESOURCE_LABELS`], in this order.
    #[must_use]
    pub fn labels(&self) -> &[String; 3] {
        &self.labels
    }

    /// Collects the current values of all series.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Records a completed or failed list, or one page. Objects and bytes are counted separately
    /// while they arrive.
    pub fn listed(&self, is_complete: bool, took: Duration) {
        let [success, failure] = LIST_OUTCOMES;
        let outcome = if is_complete { success } else { failure };
        self.list_duration.with_label_values(&[outcome]).observe(took.as_secs_f64());
        self.list_pages.inc();
    }

    /// Records a completed first list.
    pub fn warmed(&self, strategy: Strategy, took: Duration) {
        self.warmup_duration.with_label_values(&[strategy]).observe(took.as_secs_f64());
    }

    /// Records a relist, and the changes that it found but no event had delivered.
    pub fn relisted(&self, reason: RelistReason, replaced: u64, deleted_in_gap: u64) {
        self.relists.with_label_values(&[reason]).inc();
        self.replaced_objects.inc_by(replaced);
        self.gap_deletes.inc_by(deleted_in_gap);
    }

    /// Records a failed request with its HTTP status, or `None` if there was no response.
    pub fn failed(&self, code: Option<u16>) {
        self.watch_errors.with_label_values(&[code_label(code)]).inc();
    }

    /// Records a watch event. `lag` is the time from its bytes to the end of its processing;
    /// bookmarks and errors have none.
    pub fn event(&self, kind: EventKind, lag: Option<Duration>) {
        self.watch_events.with_label_values(&[kind]).inc();
        if let Some(lag) = lag {
            self.event_lag.observe(lag.as_secs_f64());
        }
    }

    /// Records data that could not be decoded.
    pub fn undecodable(&self, stage: Stage) {
        self.decode_errors.with_label_values(&[stage]).inc();
    }

    /// Records the end of a watch.
    pub fn watch_ended(&self, reason: WatchEnd, lasted: Duration) {
        self.watch_ends.with_label_values(&[reason]).inc();
        self.watch_duration.observe(lasted.as_secs_f64());
    }

    /// Records the result of a consistency check.
    pub fn compared(&self, result: Comparison) {
        self.consistency_checks.with_label_values(&[result]).inc();
    }

    /// Records a read. `age` is the time since the store was last confirmed.
    pub fn read(&self, age: Duration) {
        self.freshness.with_label_values::<&str>(&[]).observe(age.as_secs_f64());
    }
}

fn begin<L: AsRef<str> + fmt::Debug + VariantArray>(counters: &IntCounterVec) {
    for label in L::VARIANTS {
        let _begun = counters.with_label_values(&[label]);
    }
}

/// Returns the label of an HTTP status: the code if API servers send it, otherwise its class. So a
/// proxy with unusual codes adds no series.
#[must_use]
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
