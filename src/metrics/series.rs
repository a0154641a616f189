//! What is counted of one resource. Dropping it ends its series.

use super::{
    descriptor::{self, Key},
    label::{Label, code_label},
};
use crate::informer::{
    Comparison, EventKind, ListOutcome, Measured, RelistReason, Stage, WatchEnd,
};
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, core::Collector, proto::MetricFamily,
};
use std::time::Duration;

/// The labels of a resource, in the order of the descriptors: group, version, resource.
pub(super) type ResourceLabels = [String; 3];

/// The pushed metrics of one resource.
#[derive(Debug)]
pub(super) struct ResourceSeries {
    labels: ResourceLabels,
    warmup: HistogramVec,
    list: HistogramVec,
    pages: IntCounter,
    items: IntCounter,
    bytes: IntCounter,
    relists: IntCounterVec,
    replaced: IntCounter,
    gap_deletes: IntCounter,
    watch_starts: IntCounter,
    watch_ends: IntCounterVec,
    watch: Histogram,
    events: IntCounterVec,
    lag: Histogram,
    /// Begins with the first read.
    freshness: HistogramVec,
    errors: IntCounterVec,
    undecodable: IntCounterVec,
    rollbacks: IntCounter,
    comparisons: IntCounterVec,
}

impl ResourceSeries {
    /// Everything at zero. Closed label sets begin at zero too, so that `increase()` sees the first
    /// one; histograms by strategy and errors by code begin when there is one.
    pub(super) fn new(labels: ResourceLabels) -> prometheus::Result<Self> {
        let names = descriptor::Keyed::Resource.labels();
        let key: &Key =
            &names.iter().map(ToString::to_string).zip(labels.iter().cloned()).collect();
        let series = Self {
            warmup: descriptor::WARMUP_DURATION.histograms_of(key)?,
            list: descriptor::LIST_DURATION.histograms_of(key)?,
            pages: descriptor::LIST_PAGES.counter_of(key)?,
            items: descriptor::LIST_ITEMS.counter_of(key)?,
            bytes: descriptor::LIST_BYTES.counter_of(key)?,
            relists: descriptor::RELISTS.counters_of(key)?,
            replaced: descriptor::REPLACED_OBJECTS.counter_of(key)?,
            gap_deletes: descriptor::GAP_DELETES.counter_of(key)?,
            watch_starts: descriptor::WATCH_STARTS.counter_of(key)?,
            watch_ends: descriptor::WATCH_ENDS.counters_of(key)?,
            watch: descriptor::WATCH_DURATION.histogram_of(key)?,
            events: descriptor::WATCH_EVENTS.counters_of(key)?,
            lag: descriptor::EVENT_LAG.histogram_of(key)?,
            freshness: descriptor::FRESHNESS.histograms_of(key)?,
            errors: descriptor::WATCH_ERRORS.counters_of(key)?,
            undecodable: descriptor::DECODE_ERRORS.counters_of(key)?,
            rollbacks: descriptor::RV_ROLLBACKS.counter_of(key)?,
            comparisons: descriptor::CONSISTENCY_CHECKS.counters_of(key)?,
            labels,
        };
        begin::<RelistReason>(&series.relists);
        begin::<WatchEnd>(&series.watch_ends);
        begin::<EventKind>(&series.events);
        begin::<Comparison>(&series.comparisons);
        begin::<Stage>(&series.undecodable);
        for outcome in ListOutcome::ALL {
            let _started = series.list.with_label_values(&[outcome.as_label()]);
        }
        Ok(series)
    }

    /// The labels all its series have.
    pub(super) fn labels(&self) -> &ResourceLabels {
        &self.labels
    }

    /// Counts `what`.
    pub(super) fn record(&self, what: Measured) {
        match what {
            Measured::List { outcome, took, items, bytes } => {
                self.list.with_label_values(&[outcome.as_label()]).observe(took.as_secs_f64());
                self.pages.inc();
                self.items.inc_by(items);
                self.bytes.inc_by(bytes);
            }
            Measured::Warmed { strategy, took } => {
                self.warmup.with_label_values(&[strategy.as_label()]).observe(took.as_secs_f64());
            }
            Measured::Relisted { reason, replaced, deleted_in_gap } => {
                self.relists.with_label_values(&[reason.as_label()]).inc();
                self.replaced.inc_by(replaced);
                self.gap_deletes.inc_by(deleted_in_gap);
            }
            Measured::WatchStarted => self.watch_starts.inc(),
            Measured::WatchEnded { reason, lasted } => {
                self.watch_ends.with_label_values(&[reason.as_label()]).inc();
                self.watch.observe(lasted.as_secs_f64());
            }
            Measured::Failed { code } => {
                self.errors.with_label_values(&[code_label(code)]).inc();
            }
            Measured::Event { kind, lag } => {
                self.events.with_label_values(&[kind.as_label()]).inc();
                if let Some(seconds) = lag.as_ref().map(Duration::as_secs_f64) {
                    self.lag.observe(seconds);
                }
            }
            Measured::Undecodable { stage } => {
                self.undecodable.with_label_values(&[stage.as_label()]).inc();
            }
            Measured::Compared(result) => {
                self.comparisons.with_label_values(&[result.as_label()]).inc();
            }
            Measured::Read { age } => {
                self.freshness.with_label_values::<&str>(&[]).observe(age.as_secs_f64());
            }
            Measured::RolledBack => self.rollbacks.inc(),
            // A gauge that several cells set would show whoever was last; kubewarm_watch_backoff_seconds
            // is read from their reports instead.
            Measured::Backoff { .. } => {}
        }
    }

    /// All of it, family by family.
    pub(super) fn collect(&self) -> impl Iterator<Item = MetricFamily> {
        let all: [&dyn Collector; 18] = [
            &self.warmup,
            &self.list,
            &self.pages,
            &self.items,
            &self.bytes,
            &self.relists,
            &self.replaced,
            &self.gap_deletes,
            &self.watch_starts,
            &self.watch_ends,
            &self.watch,
            &self.events,
            &self.lag,
            &self.freshness,
            &self.errors,
            &self.undecodable,
            &self.rollbacks,
            &self.comparisons,
        ];
        all.into_iter().flat_map(Collector::collect)
    }
}

fn begin<L: Label>(counters: &IntCounterVec) {
    for label in L::ALL {
        let _started = counters.with_label_values(&[label.as_label()]);
    }
}
