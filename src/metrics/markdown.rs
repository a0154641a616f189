//! `docs/metrics.md`, made from the descriptors.

use super::{
    OTHER,
    descriptor::{Descriptor, Keyed, Kind, all},
    label::{CODES, Label},
    operator::{Reconciled, StatusWrite},
    reads::{CacheUse, Handler, Method, WatchClosed},
    snapshot::{ConditionStatus, TargetState},
};
use crate::{
    access::{Check, CheckOutcome},
    informer::{Comparison, EventKind, ListOutcome, RelistReason, Stage, Strategy, WatchEnd},
    model::{DecidedBy, Decision, Measure, Mode, Verb, WaitFor, WaitOutcome},
};
use std::fmt::{self, Write as _};

/// The most series that 40 resources, each in cells of one namespace and of all, and 20 profiles
/// make: when every label value has occurred, with three status codes, and every profile lacks whatever
/// it can lack. A new label shows here before it shows in somebody's bill.
pub const SERIES_OF_40_RESOURCES_AND_20_PROFILES: usize = 9_893;

/// What makes that number: series of the process, of a resource and of a profile. Of the latter 66 are of
/// permissions that are missing, where 32 targets and their namespaces may be neither listed nor watched.
const SERIES_OF: [usize; 3] = [433, 188, 97];

/// The most series that so many resources and profiles make.
#[must_use]
pub const fn most_series(resources: usize, profiles: usize) -> usize {
    let [process, resource, profile] = SERIES_OF;
    process + resource * resources + profile * profiles
}

const HEAD: &str = "\
<!-- Generated from src/metrics/descriptor.rs; `make generate` rewrites it. -->
# Metrics

Served at `/metrics` of the admin address (`--admin-addr`, default `[::]:9090`) in Prometheus' text
format. Besides those below there are the usual `process_*` metrics: CPU, memory, threads and open
files.

- Times are timestamps, not ages: `time() - kubewarm_last_progress_timestamp_seconds`.
- Labels are closed sets, or names of resources and profiles. Never an object's name, a message or a
  UID.
- `scope` is `namespaced` for cells of one namespace and `cluster` for the others. The namespace is no
  label: cells of several namespaces are added up.
- The series of a resource end with its last cell, those of a profile with the profile.
";

/// The whole page.
///
/// # Errors
///
/// Never: a `String` takes everything.
pub fn markdown() -> Result<String, fmt::Error> {
    let mut page = String::from(HEAD);
    writeln!(
        page,
        "- At most 200 resources and 100 profiles have series of their own; the rest share those\n  \
         labelled `{OTHER}`.\n\
         - 40 resources and 20 profiles make at most {SERIES_OF_40_RESOURCES_AND_20_PROFILES} \
         series: with every label value and\n  three status codes, and every permission missing: 1,320 of them. A test counts them.\n\
         \n\
         The gauges by resource or profile are read from the cells and profiles at each scrape; \
         counters and\nhistograms begin at zero with a resource's first cell."
    )?;
    for (keyed, title) in [
        (Keyed::Process, "The process"),
        (Keyed::Profile, "Profiles"),
        (Keyed::Resource, "Resources"),
        (Keyed::Scope, "Resources, by scope"),
    ] {
        writeln!(page, "\n## {title}\n")?;
        if !keyed.labels().is_empty() {
            writeln!(page, "All have the labels {}.\n", code_list(keyed.labels()))?;
        }
        page.push_str("| Name | Type | Labels | What it says |\n|---|---|---|---|\n");
        for metric in all().iter().filter(|metric| metric.keyed == keyed) {
            row(&mut page, metric)?;
        }
    }
    page.push_str("\n## Label values\n\n| Metric | Label | Values |\n|---|---|---|\n");
    for (metric, label, values) in closed_sets() {
        writeln!(page, "| `{metric}` | `{label}` | {} |", code_list(&values))?;
    }
    page.push_str("\n## Buckets\n\n| Histogram | Upper bounds |\n|---|---|\n");
    for metric in all() {
        if let Kind::Histogram(buckets) = metric.kind {
            let bounds: Vec<_> = buckets.iter().map(ToString::to_string).collect();
            writeln!(page, "| `{}` | {} |", metric.name, bounds.join(" "))?;
        }
    }
    Ok(page)
}

/// Metric, label and its values.
fn closed_sets() -> [(&'static str, &'static str, Vec<&'static str>); 28] {
    [
        ("kubewarm_reconcile_duration_seconds", "outcome", values::<Reconciled>()),
        ("kubewarm_status_writes_total", "outcome", values::<StatusWrite>()),
        ("kubewarm_access_checks_total", "check", values::<Check>()),
        ("kubewarm_access_checks_total", "outcome", values::<CheckOutcome>()),
        ("kubewarm_limit_rejections_total", "limit", values::<Measure>()),
        ("kubewarm_http_requests_total", "handler", values::<Handler>()),
        ("kubewarm_http_requests_total", "method", values::<Method>()),
        ("kubewarm_http_requests_total", "code", CODES.to_vec()),
        ("kubewarm_http_request_duration_seconds", "handler", values::<Handler>()),
        ("kubewarm_http_request_duration_seconds", "cache", values::<CacheUse>()),
        ("kubewarm_read_wait_seconds", "reason", values::<WaitFor>()),
        ("kubewarm_read_wait_seconds", "outcome", values::<WaitOutcome>()),
        ("kubewarm_http_watch_ends_total", "reason", values::<WatchClosed>()),
        ("kubewarm_authz_decisions_total", "source", values::<DecidedBy>()),
        ("kubewarm_authz_decisions_total", "decision", values::<Decision>()),
        ("kubewarm_authz_duration_seconds", "source", values::<DecidedBy>()),
        ("kubewarm_profile_info", "mode", values::<Mode>()),
        ("kubewarm_profile_condition", "status", values::<ConditionStatus>()),
        ("kubewarm_profile_targets", "state", values::<TargetState>()),
        ("kubewarm_rbac_missing", "verb", values::<Verb>()),
        ("kubewarm_warmup_duration_seconds", "strategy", values::<Strategy>()),
        ("kubewarm_list_duration_seconds", "outcome", values::<ListOutcome>()),
        ("kubewarm_relists_total", "reason", values::<RelistReason>()),
        ("kubewarm_watch_ends_total", "reason", values::<WatchEnd>()),
        ("kubewarm_watch_events_total", "type", values::<EventKind>()),
        ("kubewarm_watch_errors_total", "code", CODES.to_vec()),
        ("kubewarm_decode_errors_total", "stage", values::<Stage>()),
        ("kubewarm_consistency_checks_total", "result", values::<Comparison>()),
    ]
}

fn values<L: Label>() -> Vec<&'static str> {
    L::ALL.iter().map(|label| label.as_label()).collect()
}

fn row(page: &mut String, metric: &Descriptor) -> fmt::Result {
    let Descriptor { name, kind, labels, help, .. } = metric;
    writeln!(page, "| `{name}` | {} | {} | {help} |", kind.as_str(), code_list(labels))
}

fn code_list(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels whose values are names, of builds, conditions or kinds.
    const NAMES: &[&str] =
        &["version", "revision", "rustc", "name", "condition", "group", "resource"];

    #[test]
    fn each_label_has_its_values_on_the_page_or_is_a_name() {
        let listed: Vec<_> =
            closed_sets().into_iter().map(|(metric, label, _)| (metric, label)).collect();
        let labels = all().iter().flat_map(|metric| {
            let own = metric.labels.iter().filter(|label| !NAMES.contains(label));
            own.map(|&label| (metric.name, label))
        });
        let labels: Vec<_> = labels.collect();
        for label in &labels {
            assert!(listed.contains(label), "{label:?} is not listed");
        }
        for label in &listed {
            assert!(labels.contains(label), "{label:?} does not exist");
        }
    }
}
