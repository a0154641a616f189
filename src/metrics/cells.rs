//! How cells stand, read at each scrape and added up by resource and scope.

use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Extent, ResourceVersion};
use kubewarm_cache::informer::{CellReport, InformerMetrics, Phase, RESOURCE_LABELS};
use prometheus::{Registry, proto::MetricFamily, register_gauge_vec_with_registry};
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

/// A gauge of a resource, or of a resource by scope: its name, its help, and its value if it has one.
type GaugeRow<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

const OF_RESOURCE: &[GaugeRow<OfResource>] = &[
    (
        "kubewarm_warmup_progress_ratio",
        "How far the first lists are, 0 to 1: the mean over the cells. A list whose end the server does not foretell counts as 0 until it is done.",
        |of| Some(of.progress / f64::from(of.cells.max(1))),
    ),
    ("kubewarm_watch_active", "Watches that are open.", |of| Some(f64::from(of.watching))),
    (
        "kubewarm_watch_backoff_seconds",
        "The longest wait between two attempts that a cell is in; 0 if none waits.",
        |of| Some(of.backoff),
    ),
    (
        "kubewarm_resource_version",
        "The newest resource version seen, its last 15 digits; compare with apiserver_watch_cache_resource_version.",
        |of| of.version.as_ref().and_then(last_digits).map(real),
    ),
];

const OF_SCOPE: &[GaugeRow<OfScope>] = &[
    ("kubewarm_objects", "Objects in memory.", |of| Some(real(of.objects))),
    ("kubewarm_store_bytes", "Bytes of memory that their tables take, indexes included.", |of| {
        Some(real(of.bytes))
    }),
    (
        "kubewarm_store_decode_errors",
        "Times that a stored object could not be read back from a table that is open, and was left out; each is a bug of kubewarm.",
        |of| Some(real(of.undecodable)),
    ),
    (
        "kubewarm_warmup_start_timestamp_seconds",
        "When the first of the synced cells was declared.",
        |of| of.declared.map(seconds),
    ),
    (
        "kubewarm_warmup_synced_timestamp_seconds",
        "When the last of the cells was first synced; absent while one is not.",
        |of| of.synced.filter(|_| !of.unsynced).map(seconds),
    ),
    ("kubewarm_last_event_timestamp_seconds", "When the last event came, in any cell.", |of| {
        of.last_event.map(seconds)
    }),
    (
        "kubewarm_last_bookmark_timestamp_seconds",
        "When the last bookmark came, in the cell where that is longest ago. Paused and fenced cells are left out.",
        |of| of.oldest_bookmark.map(seconds),
    ),
    (
        "kubewarm_last_progress_timestamp_seconds",
        "When a list, an event, a bookmark or a probe last proved the cell current, in the cell where that is longest ago. Paused and fenced cells are left out.",
        |of| of.oldest_progress.map(seconds),
    ),
];

/// All cells of one resource.
#[derive(Debug, Default)]
struct OfResource {
    by_scope: BTreeMap<&'static str, OfScope>,
    cells: u32,
    progress: f64,
    watching: u32,
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
    let registry = Registry::new();
    for (name, help, value) in OF_RESOURCE {
        let gauge = register_gauge_vec_with_registry!(*name, *help, &RESOURCE_LABELS, registry)?;
        for (labels, of) in &resources {
            if let Some(value) = value(of) {
                gauge.with_label_values(labels).set(value);
            }
        }
    }
    let scoped = resources.iter().flat_map(|(labels, of)| {
        of.by_scope.iter().map(move |(scope, of)| {
            let [group, version, resource] = labels.each_ref().map(String::as_str);
            ([group, version, resource, *scope], of)
        })
    });
    let labels = [&RESOURCE_LABELS[..], &["scope"]].concat();
    for (name, help, value) in OF_SCOPE {
        let gauge = register_gauge_vec_with_registry!(*name, *help, &labels, registry)?;
        for (labels, of) in scoped.clone() {
            if let Some(value) = value(of) {
                gauge.with_label_values(&labels).set(value);
            }
        }
    }
    let mut families = registry.gather();
    families.extend(engine.all().iter().flat_map(|metrics| metrics.gather()));
    Ok(families)
}

impl OfResource {
    fn add(&mut self, cell: &CellSnapshot) {
        let report = &*cell.report;
        self.cells = self.cells.saturating_add(1);
        self.progress += progress(report);
        self.watching += u32::from(matches!(report.phase, Phase::Watching | Phase::Silent));
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

/// How far the first list is, 0 to 1.
fn progress(report: &CellReport) -> f64 {
    match (report.warmed, report.expected) {
        (Some(_), _) => 1.0,
        (None, None | Some(0)) => 0.0,
        (None, Some(expected)) => real(report.listed.min(expected)) / real(expected),
    }
}

#[expect(clippy::cast_precision_loss, reason = "every sample of Prometheus is a double")]
fn real(number: u64) -> f64 {
    number as f64
}

fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
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
fn last_digits(version: &ResourceVersion) -> Option<u64> {
    let text = version.to_string();
    text.get(text.len().saturating_sub(VERSION_DIGITS)..)?.parse().ok()
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
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
