//! How cells stand, read at each scrape and added up by resource and scope.

use super::{
    descriptor::{self, Descriptor},
    engine::EngineMetrics,
    series::ResourceLabels,
    snapshot::CellSnapshot,
};
use crate::{
    informer::{CellReport, Phase},
    model::{Extent, ResourceVersion},
};
use jiff::Timestamp;
use prometheus::{
    GaugeVec, IntGaugeVec,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
};

/// Digits of a resource version that a double holds exactly, rounded down; client-go keeps as many.
const VERSION_DIGITS: usize = 15;

/// Reads `cells` at each scrape, and ends what `engine` counted of resources that have none.
pub(super) struct CellCollector<F> {
    engine: Arc<EngineMetrics>,
    cells: F,
    descs: Vec<Desc>,
}

/// All cells of one resource.
#[derive(Debug, Default)]
struct OfResource {
    by_scope: BTreeMap<&'static str, OfScope>,
    cells: u32,
    progress: f64,
    watching: i64,
    backoff: f64,
    version: Option<ResourceVersion>,
}

/// All cells of one resource and scope.
#[derive(Debug, Default)]
struct OfScope {
    objects: u64,
    bytes: u64,
    undecodable: u64,
    /// Of the synced ones, the first.
    declared: Option<Timestamp>,
    /// The last; `unsynced` says whether it counts.
    synced: Option<Timestamp>,
    unsynced: bool,
    last_event: Option<Timestamp>,
    oldest_bookmark: Option<Timestamp>,
    oldest_progress: Option<Timestamp>,
}

impl<F: Fn() -> Vec<CellSnapshot>> CellCollector<F> {
    pub(super) fn new(engine: Arc<EngineMetrics>, cells: F) -> prometheus::Result<Self> {
        use descriptor::Keyed;
        let descs = descriptor::all()
            .iter()
            .filter(|descriptor| matches!(descriptor.keyed, Keyed::Resource | Keyed::Scope))
            // Of those who watch, not of cells.
            .filter(|descriptor| descriptor.name != descriptor::HTTP_WATCH_CLIENTS.name)
            .map(Descriptor::desc)
            .collect::<Result<_, _>>()?;
        Ok(Self { engine, cells, descs })
    }
}

impl<F: Fn() -> Vec<CellSnapshot> + Send + Sync> Collector for CellCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let cells = (self.cells)();
        self.engine.retain(&cells.iter().map(|cell| &cell.key.resource).collect::<HashSet<_>>());
        let mut resources = BTreeMap::<ResourceLabels, OfResource>::new();
        for cell in &cells {
            if let Some(series) = self.engine.series(&cell.key.resource) {
                resources.entry(series.labels().clone()).or_default().add(cell);
            }
        }
        let mut families = families(&resources).unwrap_or_else(|error| {
            tracing::error!(%error, "cells not measured");
            Vec::new()
        });
        for series in self.engine.all() {
            families.extend(series.collect());
        }
        families
    }
}

impl OfResource {
    fn add(&mut self, cell: &CellSnapshot) {
        let report = &*cell.report;
        self.cells = self.cells.saturating_add(1);
        self.progress += progress(report);
        self.watching += i64::from(matches!(report.phase, Phase::Watching | Phase::Silent));
        self.backoff = self.backoff.max(wait(report));
        if let Some(version) = report.version.as_ref().filter(|version| !version.is_opaque())
            && self.version.as_ref().is_none_or(|newest| newest.is_older_than(version))
        {
            self.version = Some(version.clone());
        }
        self.by_scope.entry(scope(&cell.key.extent)).or_default().add(cell);
    }
}

impl OfScope {
    fn add(&mut self, cell: &CellSnapshot) {
        let report = &*cell.report;
        self.objects = self.objects.saturating_add(cell.objects);
        self.bytes = self.bytes.saturating_add(cell.bytes);
        self.undecodable = self.undecodable.saturating_add(cell.undecodable);
        match report.warmed {
            Some(warmed) => {
                self.declared = earlier(self.declared, Some(warmed.started));
                self.synced = self.synced.max(Some(warmed.synced));
            }
            None => self.unsynced = true,
        }
        self.last_event = self.last_event.max(report.event_time);
        // A paused or fenced cell opens no watch, on purpose: its age is no sign of trouble.
        if !matches!(report.phase, Phase::Paused | Phase::Fenced) {
            self.oldest_bookmark = earlier(self.oldest_bookmark, report.bookmark_time);
            self.oldest_progress = earlier(self.oldest_progress, report.current_time);
        }
    }
}

fn families(
    resources: &BTreeMap<ResourceLabels, OfResource>,
) -> prometheus::Result<Vec<MetricFamily>> {
    let objects: IntGaugeVec = descriptor::OBJECTS.int_gauges()?;
    let bytes = descriptor::STORE_BYTES.int_gauges()?;
    let undecodable = descriptor::STORE_DECODE_ERRORS.int_gauges()?;
    let progress: GaugeVec = descriptor::WARMUP_PROGRESS.gauges()?;
    let start = descriptor::WARMUP_START.gauges()?;
    let synced = descriptor::WARMUP_SYNCED.gauges()?;
    let watching = descriptor::WATCH_ACTIVE.int_gauges()?;
    let backoff = descriptor::WATCH_BACKOFF.gauges()?;
    let event = descriptor::LAST_EVENT.gauges()?;
    let bookmark = descriptor::LAST_BOOKMARK.gauges()?;
    let current = descriptor::LAST_PROGRESS.gauges()?;
    let version = descriptor::RESOURCE_VERSION.int_gauges()?;
    for (labels, of) in resources {
        let [group, api_version, resource] = labels.each_ref().map(String::as_str);
        let key = [group, api_version, resource];
        progress.get_metric_with_label_values(&key)?.set(of.progress / f64::from(of.cells.max(1)));
        watching.get_metric_with_label_values(&key)?.set(of.watching);
        backoff.get_metric_with_label_values(&key)?.set(of.backoff);
        if let Some(newest) = of.version.as_ref().and_then(last_digits) {
            version.get_metric_with_label_values(&key)?.set(newest);
        }
        for (scope, of) in &of.by_scope {
            let key = [group, api_version, resource, scope];
            objects.get_metric_with_label_values(&key)?.set(count(of.objects));
            bytes.get_metric_with_label_values(&key)?.set(count(of.bytes));
            undecodable.get_metric_with_label_values(&key)?.set(count(of.undecodable));
            let times = [
                (&start, of.declared),
                (&synced, of.synced.filter(|_| !of.unsynced)),
                (&event, of.last_event),
                (&bookmark, of.oldest_bookmark),
                (&current, of.oldest_progress),
            ];
            for (gauge, time) in times {
                if let Some(time) = time {
                    gauge.get_metric_with_label_values(&key)?.set(time.as_duration().as_secs_f64());
                }
            }
        }
    }
    let int = [objects, bytes, undecodable, watching, version];
    let real = [progress, start, synced, backoff, event, bookmark, current];
    Ok(int
        .iter()
        .flat_map(Collector::collect)
        .chain(real.iter().flat_map(Collector::collect))
        .collect())
}

/// How far the first list is, 0 to 1.
fn progress(report: &CellReport) -> f64 {
    match (report.warmed, report.expected) {
        (Some(_), _) => 1.0,
        (None, None | Some(0)) => 0.0,
        (None, Some(expected)) => ratio(report.listed.min(expected), expected),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a progress bar needs no 53 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Seconds from the last failure to the next attempt, if the cell is waiting for it.
fn wait(report: &CellReport) -> f64 {
    let fault = report.fault.as_ref();
    let wait = fault.and_then(|fault| Some(fault.next_retry?.duration_since(fault.at)));
    wait.map_or(0.0, |wait| wait.as_secs_f64().max(0.0))
}

fn scope(extent: &Extent) -> &'static str {
    match extent {
        Extent::Namespace(_) => "namespaced",
        Extent::AllNamespaces | Extent::Cluster => "cluster",
    }
}

/// The last 15 digits.
fn last_digits(version: &ResourceVersion) -> Option<i64> {
    let text = version.to_string();
    text.get(text.len().saturating_sub(VERSION_DIGITS)..)?.parse().ok()
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl<F> fmt::Debug for CellCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellCollector").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fifteen_digits_of_a_version_are_shown() {
        let digits = |text: &str| last_digits(&ResourceVersion::parse(text).unwrap());
        assert_eq!(digits("42"), Some(42));
        assert_eq!(digits("7000000000000042"), Some(42));
        assert_eq!(digits("123456789012345678901234567890"), Some(678_901_234_567_890));
    }
}
