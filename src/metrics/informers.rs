//! The gauges of informers, computed at each scrape. A gauge has one series for each resource, or
//! one for each resource and value of the label `scope`.

use jiff::Timestamp;
use kubewarm_api::model::{InformerKey, InformerScope, ResourceVersion};
use kubewarm_cache::informer::{InformerMetrics, InformerPhase, InformerReport, RESOURCE_LABELS};
use prometheus::{Registry, proto::MetricFamily, register_gauge_vec_with_registry};
use std::collections::{BTreeMap, HashSet};

/// Maximum number of decimal digits of a resource version in a gauge. A gauge is a double, which
/// represents 15 digits exactly. client-go's metrics keep 15 digits too.
const VERSION_DIGITS: usize = 15;

/// The definition of a gauge: its name, its help text, and a function that computes its value. The
/// function receives all reports of one resource, or of one resource and one value of the label
/// `scope`. The function returns `None` if the gauge has no value.
type GaugeDefinition = (&'static str, &'static str, fn(&[&InformerReport]) -> Option<f64>);

const RESOURCE_GAUGES: &[GaugeDefinition] = &[
    (
        "kubewarm_warmup_progress_ratio",
        "Mean progress of the first lists, 0 to 1. A list of unknown length counts as 0 until it is complete.",
        |reports| Some(sum(reports, progress) / sum(reports, |_| 1.0)),
    ),
    ("kubewarm_upstream_watches", "Open watches at the API server.", |reports| {
        Some(sum(reports, |report| f64::from(u8::from(is_watching(report)))))
    }),
    (
        "kubewarm_upstream_backoff_seconds",
        "Longest current wait before a retry. 0 if no informer waits.",
        |reports| Some(reports.iter().map(|report| wait(report)).fold(0.0, f64::max)),
    ),
    (
        "kubewarm_resource_version",
        "Newest resource version seen, its last 15 digits. Compare with apiserver_watch_cache_resource_version.",
        |reports| newest(reports).and_then(last_digits).map(real),
    ),
];

const SCOPED_GAUGES: &[GaugeDefinition] = &[
    ("kubewarm_objects", "Objects in memory.", |reports| {
        Some(sum(reports, |report| real(report.usage.objects)))
    }),
    ("kubewarm_store_bytes", "Memory of the stores, indexes included.", |reports| {
        Some(sum(reports, |report| real(report.usage.bytes)))
    }),
    (
        "kubewarm_warmup_start_timestamp_seconds",
        "Time at which the first synced informer was declared.",
        |reports| {
            reports.iter().filter_map(|report| Some(report.warmed?.started)).min().map(seconds)
        },
    ),
    (
        "kubewarm_warmup_synced_timestamp_seconds",
        "Time at which the last informer was first synced. Absent until all are synced.",
        |reports| {
            let mut synced = reports.iter().map(|report| Some(report.warmed?.synced));
            synced.try_fold(Timestamp::MIN, |last, synced| Some(last.max(synced?))).map(seconds)
        },
    ),
    (
        "kubewarm_last_event_timestamp_seconds",
        "Time of the last watch event of any informer.",
        |reports| reports.iter().filter_map(|report| report.event_time).max().map(seconds),
    ),
    (
        "kubewarm_last_bookmark_timestamp_seconds",
        "Time of the last bookmark, for the informer where it is oldest. Paused and blocked informers are not included.",
        |reports| current(reports).filter_map(|report| report.bookmark_time).min().map(seconds),
    ),
    (
        "kubewarm_last_confirmed_timestamp_seconds",
        "Latest time at which the store is known to have contained all changes, for the informer where this is oldest. Paused and blocked informers are not included.",
        |reports| current(reports).filter_map(|report| report.current_time).min().map(seconds),
    ),
];

/// Returns the informers' gauges and the counters in `counted`. Removes from `counted` the series
/// of resources that have no informer.
pub(super) fn informer_families(
    counted: &InformerMetrics,
    informers: &[(InformerKey, InformerReport)],
) -> prometheus::Result<Vec<MetricFamily>> {
    counted.retain(&informers.iter().map(|(key, _)| &key.resource).collect::<HashSet<_>>());
    let (mut by_resource, mut by_scope) = (ReportsByLabels::new(), ReportsByLabels::new());
    for (key, report) in informers {
        let mut labels = counted.for_resource(&key.resource).labels().to_vec();
        by_resource.entry(labels.clone()).or_default().push(report);
        labels.push(scope(&key.scope).to_owned());
        by_scope.entry(labels).or_default().push(report);
    }
    let registry = Registry::new();
    register_gauges(&registry, RESOURCE_GAUGES, &RESOURCE_LABELS, &by_resource)?;
    let labels = [&RESOURCE_LABELS[..], &["scope"]].concat();
    register_gauges(&registry, SCOPED_GAUGES, &labels, &by_scope)?;
    let mut families = registry.gather();
    families.extend(counted.all().iter().flat_map(|metrics| metrics.gather()));
    Ok(families)
}

/// The reports of informers, by the label values of the series that kubewarm computes from them.
type ReportsByLabels<'c> = BTreeMap<Vec<String>, Vec<&'c InformerReport>>;

fn register_gauges(
    registry: &Registry,
    rows: &[GaugeDefinition],
    labels: &[&str],
    groups: &ReportsByLabels<'_>,
) -> prometheus::Result<()> {
    for (name, help, value) in rows {
        let gauge = register_gauge_vec_with_registry!(*name, *help, labels, registry)?;
        for (labels, reports) in groups {
            if let Some(value) = value(reports) {
                gauge.with_label_values(labels).set(value);
            }
        }
    }
    Ok(())
}

fn sum(reports: &[&InformerReport], value: fn(&InformerReport) -> f64) -> f64 {
    reports.iter().map(|report| value(report)).sum()
}

/// Returns the reports of all informers that are neither paused nor blocked. Paused and blocked
/// informers open no watch. So the age of their stores is no failure, and the gauges of ages ignore
/// them.
fn current<'c>(reports: &[&'c InformerReport]) -> impl Iterator<Item = &'c InformerReport> {
    reports
        .iter()
        .copied()
        .filter(|report| !matches!(report.phase, InformerPhase::Paused | InformerPhase::Blocked))
}

fn is_watching(report: &InformerReport) -> bool {
    matches!(report.phase, InformerPhase::Watching | InformerPhase::Silent)
}

fn newest<'c>(reports: &[&'c InformerReport]) -> Option<&'c ResourceVersion> {
    let versions = reports.iter().filter_map(|report| report.version.as_ref());
    let versions = versions.filter(|version| !version.is_opaque());
    versions.reduce(|newest, next| if newest.is_older_than(next) { next } else { newest })
}

/// Returns the progress of the informer's first list, from 0 to 1.
fn progress(report: &InformerReport) -> f64 {
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

/// Returns the seconds from the informer's last failed request to its next attempt. Returns 0 if
/// the last request did not fail.
fn wait(report: &InformerReport) -> f64 {
    let fault = report.fault.as_ref();
    let wait = fault.and_then(|fault| Some(fault.next_retry?.duration_since(fault.at)));
    wait.map_or(0.0, |wait| wait.as_secs_f64().max(0.0))
}

fn scope(scope: &InformerScope) -> &'static str {
    match scope {
        InformerScope::Namespace(_) => "namespaced",
        InformerScope::AllNamespaces | InformerScope::Cluster => "cluster",
    }
}

/// Returns the last [`VERSION_DIGITS`] decimal digits of a resource version, which a gauge can
/// represent exactly.
fn last_digits(version: &ResourceVersion) -> Option<u64> {
    let text = version.to_string();
    text.get(text.len().saturating_sub(VERSION_DIGITS)..)?.parse().ok()
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
