//! What is counted of one resource.

use crate::informer::{Comparison, EventKind, RelistReason, Stage, Strategy, WatchEnd};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
    proto::MetricFamily, register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
};
use std::{collections::HashMap, fmt, time::Duration};
use strum::VariantArray;

/// The labels of a resource.
pub const RESOURCE_LABELS: [&str; 3] = ["group", "version", "resource"];

/// How a list or a page of it ended: it was received and applied completely, or it failed.
pub const LIST_OUTCOMES: [&str; 2] = ["success", "failure"];

/// The buckets of client-go's `rest_client_request_duration_seconds`, so that dashboards compare.
pub const REQUEST_BUCKETS: &[f64] =
    &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The range of the API server's own cache initialisation.
const WARMUP: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Watches are asked to last 5 to 10 minutes; the low end shows trouble.
const WATCH: &[f64] = &[1.0, 5.0, 15.0, 60.0, 180.0, 300.0, 420.0, 600.0, 1800.0];
/// From what a quiet machine does to what a person notices.
const LAG: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// From an event just now to the largest bound that a profile sets.
const FRESH: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 3600.0];

/// The handles of one resource. Its series end when it is dropped.
///
/// Its fields are called after the metrics; `docs/metrics.md` says what each is.
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
    /// Begins with the first read.
    pub freshness: HistogramVec,
    pub watch_errors: IntCounterVec,
    pub decode_errors: IntCounterVec,
    pub rv_rollbacks: IntCounter,
    pub consistency_checks: IntCounterVec,
}

/// Makes metrics of one resource, and registers them.
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
    /// Everything at zero. Closed label sets begin at zero too, so that `increase()` sees the first
    /// one; histograms by strategy and errors by code begin when there is one.
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
                "Comparisons of a table with a list of its version (freshness.consistencyCheckPeriodSeconds).",
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

    /// The values of [`RESOURCE_LABELS`].
    #[must_use]
    pub fn labels(&self) -> &[String; 3] {
        &self.labels
    }

    /// All series.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Counts a list or a page of it that has ended. Its objects and bytes are counted as they arrive.
    pub fn listed(&self, is_complete: bool, took: Duration) {
        let [success, failure] = LIST_OUTCOMES;
        let outcome = if is_complete { success } else { failure };
        self.list_duration.with_label_values(&[outcome]).observe(took.as_secs_f64());
        self.list_pages.inc();
    }

    /// Counts a first list that was completed.
    pub fn warmed(&self, strategy: Strategy, took: Duration) {
        self.warmup_duration.with_label_values(&[strategy]).observe(took.as_secs_f64());
    }

    /// Counts a relist, and what it found that no event had told.
    pub fn relisted(&self, reason: RelistReason, replaced: u64, deleted_objects: u64) {
        self.relists.with_label_values(&[reason]).inc();
        self.replaced_objects.inc_by(replaced);
        self.gap_deletes.inc_by(deleted_objects);
    }

    /// Counts a request that failed with this HTTP status, or without any answer.
    pub fn failed(&self, code: Option<u16>) {
        self.watch_errors.with_label_values(&[code_label(code)]).inc();
    }

    /// Counts an event of a watch; `lag` is the time from its bytes read to it being processed, which
    /// bookmarks and errors do not have.
    pub fn event(&self, kind: EventKind, lag: Option<Duration>) {
        self.watch_events.with_label_values(&[kind]).inc();
        if let Some(lag) = lag {
            self.event_lag.observe(lag.as_secs_f64());
        }
    }

    /// Counts bytes that made no sense.
    pub fn undecodable(&self, stage: Stage) {
        self.decode_errors.with_label_values(&[stage]).inc();
    }

    /// Counts a watch that ended.
    pub fn watch_ended(&self, reason: WatchEnd, lasted: Duration) {
        self.watch_ends.with_label_values(&[reason]).inc();
        self.watch_duration.observe(lasted.as_secs_f64());
    }

    /// Counts a comparison of a table with a list.
    pub fn compared(&self, result: Comparison) {
        self.consistency_checks.with_label_values(&[result]).inc();
    }

    /// Counts a read that a table answered which had been proved current so long before.
    pub fn read(&self, age: Duration) {
        self.freshness.with_label_values::<&str>(&[]).observe(age.as_secs_f64());
    }
}

fn begin<L: AsRef<str> + fmt::Debug + VariantArray>(counters: &IntCounterVec) {
    for label in L::VARIANTS {
        let _begun = counters.with_label_values(&[label]);
    }
}

/// The label of an HTTP status: those that API servers send by themselves, else their class, so
/// that a proxy with odd numbers makes no new series.
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
