//! Metrics about informers, read at each scrape and aggregated by resource and scope.

use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Extent, ResourceVersion};
use kubewarm_cache::informer::{CellReport, InformerMetrics, Phase, RESOURCE_LABELS};
use prometheus::{Registry, proto::MetricFamily, register_gauge_vec_with_registry};
use std::collections::{BTreeMap, HashSet};

/// Number of decimal digits of a resource version that are exported. A double is exact up to 15
/// digits; client-go exports as many.
const VERSION_DIGITS: usize = 15;

/// Name, help text and value of a gauge. The value is computed from all informers of a series.
type GaugeRow = (&'static str, &'static str, fn(&[&CellReport]) -> Option<f64>);

const OF_RESOURCE: &[GaugeRow] = &[
    (
        "kubewarm_warmup_progress_ratio",
        "How far the first lists are, 0 to 1: the mean over the cells. A list whose end the server does not foretell counts as 0 until it is done.",
        |cells| Some(sum(cells, progress) / sum(cells, |_| 1.0)),
    ),
    ("kubewarm_watch_active", "Watches that are open.", |cells| {
        Some(sum(cells, |cell| f64::from(u8::from(is_watching(cell)))))
    }),
    (
        "kubewarm_watch_backoff_seconds",
        "The longest wait between two attempts that a cell is in; 0 if none waits.",
        |cells| Some(cells.iter().map(|cell| wait(cell)).fold(0.0, f64::max)),
    ),
    (
        "kubewarm_resource_version",
        "The newest resource version seen, its last 15 digits; compare with apiserver_watch_cache_resource_version.",
        |cells| newest(cells).and_then(last_digits).map(real),
    ),
];

const OF_SCOPE: &[GaugeRow] = &[
    ("kubewarm_objects", "Objects in memory.", |cells| {
        Some(sum(cells, |cell| real(cell.usage.objects)))
    }),
    (
        "kubewarm_store_bytes",
        "Bytes of memory that their tables take, indexes included.",
        |cells| Some(sum(cells, |cell| real(cell.usage.bytes))),
    ),
    (
        "kubewarm_store_decode_errors",
        "Times that a stored object could not be read back from a table that is open, and was left out; each is a bug of kubewarm.",
        |cells| Some(sum(cells, |cell| real(cell.undecodable_records))),
    ),
    (
        "kubewarm_warmup_start_timestamp_seconds",
        "When the first of the synced cells was declared.",
        |cells| cells.iter().filter_map(|it| Some(it.warmed?.started)).min().map(seconds),
    ),
    (
        "kubewarm_warmup_synced_timestamp_seconds",
        "When the last of the cells was first synced; absent while one is not.",
        |cells| {
            let mut synced = cells.iter().map(|it| Some(it.warmed?.synced));
            synced.try_fold(Timestamp::MIN, |last, synced| Some(last.max(synced?))).map(seconds)
        },
    ),
    ("kubewarm_last_event_timestamp_seconds", "When the last event came, in any cell.", |cells| {
        cells.iter().filter_map(|it| it.event_time).max().map(seconds)
    }),
    (
        "kubewarm_last_bookmark_timestamp_seconds",
        "When the last bookmark came, in the cell where that is longest ago. Paused and fenced cells are left out.",
        |cells| current(cells).filter_map(|it| it.bookmark_time).min().map(seconds),
    ),
    (
        "kubewarm_last_progress_timestamp_seconds",
        "When a list, an event, a bookmark or a probe last proved the cell current, in the cell where that is longest ago. Paused and fenced cells are left out.",
        |cells| current(cells).filter_map(|it| it.current_time).min().map(seconds),
    ),
];

/// Computes the gauges of `cells` and gathers the counters of `engine`. It drops the counters of
/// resources without an informer.
pub(super) fn cell_families(
    engine: &InformerMetrics,
    cells: &[(CellKey, CellReport)],
) -> prometheus::Result<Vec<MetricFamily>> {
    engine.retain(&cells.iter().map(|(key, _)| &key.resource).collect::<HashSet<_>>());
    let (mut by_resource, mut by_scope) = (CellsByLabels::new(), CellsByLabels::new());
    for (key, report) in cells {
        let mut labels = engine.of(&key.resource).labels().to_vec();
        by_resource.entry(labels.clone()).or_default().push(report);
        labels.push(scope(&key.extent).to_owned());
        by_scope.entry(labels).or_default().push(report);
    }
    let registry = Registry::new();
    register_gauges(&registry, OF_RESOURCE, &RESOURCE_LABELS, &by_resource)?;
    let labels = [&RESOURCE_LABELS[..], &["scope"]].concat();
    register_gauges(&registry, OF_SCOPE, &labels, &by_scope)?;
    let mut families = registry.gather();
    families.extend(engine.all().iter().flat_map(|metrics| metrics.gather()));
    Ok(families)
}

/// Informers by the label values of their series.
type CellsByLabels<'c> = BTreeMap<Vec<String>, Vec<&'c CellReport>>;

fn register_gauges(
    registry: &Registry,
    rows: &[GaugeRow],
    labels: &[&str],
    groups: &CellsByLabels<'_>,
) -> prometheus::Result<()> {
    for (name, help, value) in rows {
        let gauge = register_gauge_vec_with_registry!(*name, *help, labels, registry)?;
        for (labels, cells) in groups {
            if let Some(value) = value(cells) {
                gauge.with_label_values(labels).set(value);
            }
        }
    }
    Ok(())
}

fn sum(cells: &[&CellReport], value: fn(&CellReport) -> f64) -> f64 {
    cells.iter().map(|cell| value(cell)).sum()
}

/// Returns the informers that should have an open watch. Paused and blocked informers have none, so
/// their age is no problem.
fn current<'c>(cells: &[&'c CellReport]) -> impl Iterator<Item = &'c CellReport> {
    cells.iter().copied().filter(|report| !matches!(report.phase, Phase::Paused | Phase::Fenced))
}

fn is_watching(report: &CellReport) -> bool {
    matches!(report.phase, Phase::Watching | Phase::Silent)
}

fn newest<'c>(cells: &[&'c CellReport]) -> Option<&'c ResourceVersion> {
    let versions = cells.iter().filter_map(|report| report.version.as_ref());
    let versions = versions.filter(|version| !version.is_opaque());
    versions.reduce(|newest, next| if newest.is_older_than(next) { next } else { newest })
}

/// Progress of the first list, 0 to 1.
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

/// Seconds between the last failure and the next attempt; 0 if the informer does not wait.
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

/// Returns the last `VERSION_DIGITS` digits.
fn last_digits(version: &ResourceVersion) -> Option<u64> {
    let text = version.to_string();
    text.get(text.len().saturating_sub(VERSION_DIGITS)..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fifteen_digits_of_a_version_are_exported() {
        let digits = |text: &str| last_digits(&ResourceVersion::parse(text).unwrap());
        assert_eq!(digits("42"), Some(42));
        assert_eq!(digits("7000000000000042"), Some(42));
        assert_eq!(digits("123456789012345678901234567890"), Some(678_901_234_567_890));
    }
}
