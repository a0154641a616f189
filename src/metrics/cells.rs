//! How cells stand, read at each scrape and added up by resource and scope.

use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Extent, ResourceVersion};
use kubewarm_cache::informer::{CellReport, InformerMetrics, Phase, RESOURCE_LABELS};
use prometheus::{
    GaugeVec, IntGaugeVec, Registry, proto::MetricFamily, register_gauge_vec_with_registry,
    register_int_gauge_vec_with_registry,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Digits of a resource version that a double holds exactly, rounded down; client-go keeps as many.
const VERSION_DIGITS: usize = 15;

/// A cell as it stands now, for scrapes and `/debug/cells`.
#[derive(Clone, Debug)]
pub struct CellSnapshot {
    /// Which cell.
    pub key: CellKey,
    /// What its informer reports.
    pub report: Arc<CellReport>,
    /// Objects in its table.
    pub objects: u64,
    /// Bytes of its table, indexes included.
    pub bytes: u64,
    /// Times that a record of it did not decode.
    pub undecodable: u64,
}

/// The gauges of resources, and of resources by scope.
struct Gauges {
    registry: Registry,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    undecodable: IntGaugeVec,
    progress: GaugeVec,
    started: GaugeVec,
    synced: GaugeVec,
    watching: IntGaugeVec,
    backoff: GaugeVec,
    event: GaugeVec,
    bookmark: GaugeVec,
    current: GaugeVec,
    version: IntGaugeVec,
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

/// How `cells` stand, and what their informers have counted. Ends the series of resources that have
/// no cell.
pub(super) fn cell_families(
    engine: &InformerMetrics,
    cells: &[CellSnapshot],
) -> prometheus::Result<Vec<MetricFamily>> {
    engine.retain(&cells.iter().map(|cell| &cell.key.resource).collect::<HashSet<_>>());
    let mut resources = BTreeMap::<[String; 3], OfResource>::new();
    for cell in cells {
        let labels = engine.of(&cell.key.resource).labels().clone();
        resources.entry(labels).or_default().add(cell);
    }
    let gauges = Gauges::new()?;
    for (labels, of) in &resources {
        gauges.set(labels.each_ref().map(String::as_str), of);
    }
    let mut families = gauges.registry.gather();
    families.extend(engine.all().iter().flat_map(|metrics| metrics.gather()));
    Ok(families)
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

impl Gauges {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let resource = &RESOURCE_LABELS[..];
        let scope = &[resource, &["scope"]].concat()[..];
        let ints = |name: &str, labels: &[&str], help: &str| {
            register_int_gauge_vec_with_registry!(name, help, labels, registry)
        };
        let reals = |name: &str, labels: &[&str], help: &str| {
            register_gauge_vec_with_registry!(name, help, labels, registry)
        };
        Ok(Self {
            objects: ints("kubewarm_objects", scope, "Objects in memory.")?,
            bytes: ints(
                "kubewarm_store_bytes",
                scope,
                "Bytes of memory that their tables take, indexes included.",
            )?,
            undecodable: ints(
                "kubewarm_store_decode_errors",
                scope,
                "Times that a stored object could not be read back from a table that is open, and was left out; each is a bug of kubewarm.",
            )?,
            progress: reals(
                "kubewarm_warmup_progress_ratio",
                resource,
                "How far the first lists are, 0 to 1: the mean over the cells. A list whose end the server does not foretell counts as 0 until it is done.",
            )?,
            started: reals(
                "kubewarm_warmup_start_timestamp_seconds",
                scope,
                "When the first of the synced cells was declared.",
            )?,
            synced: reals(
                "kubewarm_warmup_synced_timestamp_seconds",
                scope,
                "When the last of the cells was first synced; absent while one is not.",
            )?,
            watching: ints("kubewarm_watch_active", resource, "Watches that are open.")?,
            backoff: reals(
                "kubewarm_watch_backoff_seconds",
                resource,
                "The longest wait between two attempts that a cell is in; 0 if none waits.",
            )?,
            event: reals(
                "kubewarm_last_event_timestamp_seconds",
                scope,
                "When the last event came, in any cell.",
            )?,
            bookmark: reals(
                "kubewarm_last_bookmark_timestamp_seconds",
                scope,
                "When the last bookmark came, in the cell where that is longest ago. Paused and fenced cells are left out.",
            )?,
            current: reals(
                "kubewarm_last_progress_timestamp_seconds",
                scope,
                "When a list, an event, a bookmark or a probe last proved the cell current, in the cell where that is longest ago. Paused and fenced cells are left out.",
            )?,
            version: ints(
                "kubewarm_resource_version",
                resource,
                "The newest resource version seen, its last 15 digits; compare with apiserver_watch_cache_resource_version.",
            )?,
            registry: registry.clone(),
        })
    }

    fn set(&self, [group, version, resource]: [&str; 3], of: &OfResource) {
        let key = [group, version, resource];
        self.progress.with_label_values(&key).set(of.progress / f64::from(of.cells.max(1)));
        self.watching.with_label_values(&key).set(of.watching);
        self.backoff.with_label_values(&key).set(of.backoff);
        if let Some(newest) = of.version.as_ref().and_then(last_digits) {
            self.version.with_label_values(&key).set(newest);
        }
        for (scope, of) in &of.by_scope {
            let key = [group, version, resource, scope];
            self.objects.with_label_values(&key).set(count(of.objects));
            self.bytes.with_label_values(&key).set(count(of.bytes));
            self.undecodable.with_label_values(&key).set(count(of.undecodable));
            let times = [
                (&self.started, of.declared),
                (&self.synced, of.synced.filter(|_| !of.unsynced)),
                (&self.event, of.last_event),
                (&self.bookmark, of.oldest_bookmark),
                (&self.current, of.oldest_progress),
            ];
            for (gauge, time) in times {
                if let Some(time) = time {
                    gauge.with_label_values(&key).set(time.as_duration().as_secs_f64());
                }
            }
        }
    }
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
