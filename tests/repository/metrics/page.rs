//! Generates `docs/metrics.md` from the exported metrics.

use super::{SERIES_OF_40_RESOURCES_AND_20_PROFILES, exposition::Family};
use crate::generated::first_sentence;
use kubewarm::{
    access::AccessCheckKind,
    metrics::{
        ACCESS_CHECK_OUTCOMES, AUTHORIZATION_OUTCOMES, CONDITION_STATUSES, STATUS_WRITE_OUTCOMES,
        TargetState, TlsListener,
    },
};
use kubewarm_api::model::{DecisionSource, LimitKind, MetricOutcome, ProfileMode, Verb};
use kubewarm_cache::informer::{
    CONSISTENCY_OUTCOMES, DecodeStage, FirstSyncMethod, LIST_OUTCOMES, OTHER, RESOURCE_LABELS,
    RelistReason, UpstreamWatchEnd, code_label,
};
use kubewarm_serve::{
    callers::{RbacFallback, ReadLimit},
    metrics::{ClientWatchEnd, HandlerLabel, ResponseSource, WAIT_OUTCOMES, WaitReason},
};
use kubewarm_wire::upstream::UpstreamEventType;
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};
use strum::VariantArray;

const HEAD: &str = "\
<!-- Generated from what kubewarm exports; `make generate` rewrites it. -->
# Metrics

This page lists each metric that kubewarm serves at `/metrics` of `--admin-addr`. It is for people who write queries and
alerts. [Monitoring](monitoring.md) shows how to scrape them. kubewarm also serves `process_*`: CPU, memory, threads and open files.

- Times are timestamps, not ages: `time() - kubewarm_last_confirmed_timestamp_seconds`.
- Label values are closed sets, or names of resources and profiles. No label has an object name, a message or a UID.
- `scope` is `namespaced` for informers of one namespace, otherwise `cluster`. Informers of several namespaces are added up.
- In metrics of the read API, empty `group`, `version` and `resource` mean a request without a resource, such as discovery.
- The series of a resource end with its last informer, the series of a profile with the profile. Series of the read API end
  with the process.
";

/// A section of the page: its title, the labels that all its metrics have, and the names of its
/// metrics in reading order.
type Section = (&'static str, &'static [&'static str], &'static [&'static str]);

const SECTIONS: [Section; 5] = [
    (
        "Process",
        &[],
        &[
            "kubewarm_build_info",
            "leader_election_master_status",
            "kubewarm_reconcile_duration_seconds",
            "kubewarm_status_writes_total",
            "kubewarm_access_checks_total",
            "kubewarm_limit_rejections_total",
            "kubewarm_store_limit_bytes",
            "tokio_workers",
            "tokio_alive_tasks",
            "tokio_global_queue_depth",
        ],
    ),
    (
        "Read API",
        &[],
        &[
            "kubewarm_read_requests_total",
            "kubewarm_read_response_bytes_total",
            "kubewarm_read_duration_seconds",
            "kubewarm_read_wait_seconds",
            "kubewarm_read_staleness_seconds",
            "kubewarm_read_watches",
            "kubewarm_read_watch_events_total",
            "kubewarm_read_watch_ends_total",
            "kubewarm_read_incomplete_rows_total",
            "kubewarm_read_authorizations_total",
            "kubewarm_read_authorization_duration_seconds",
            "kubewarm_rbac_fallbacks_total",
            "kubewarm_read_in_use",
            "kubewarm_read_limit",
            "kubewarm_read_limit_rejections_total",
            "kubewarm_read_appliers",
            "kubewarm_certificate_expiry_timestamp_seconds",
        ],
    ),
    (
        "Profiles",
        &["namespace", "profile"],
        &[
            "kubewarm_profile_info",
            "kubewarm_profile_condition",
            "kubewarm_profile_targets",
            "kubewarm_missing_permissions",
        ],
    ),
    (
        "Resources",
        &RESOURCE_LABELS,
        &[
            "kubewarm_warmup_duration_seconds",
            "kubewarm_warmup_progress_ratio",
            "kubewarm_upstream_list_duration_seconds",
            "kubewarm_upstream_list_pages_total",
            "kubewarm_upstream_list_items_total",
            "kubewarm_upstream_list_bytes_total",
            "kubewarm_upstream_relists_total",
            "kubewarm_upstream_relist_replaced_objects_total",
            "kubewarm_upstream_relist_deleted_objects_total",
            "kubewarm_upstream_watch_starts_total",
            "kubewarm_upstream_watch_ends_total",
            "kubewarm_upstream_watch_duration_seconds",
            "kubewarm_upstream_watches",
            "kubewarm_upstream_watch_events_total",
            "kubewarm_upstream_request_errors_total",
            "kubewarm_upstream_backoff_seconds",
            "kubewarm_upstream_decode_errors_total",
            "kubewarm_upstream_protobuf_fallbacks_total",
            "kubewarm_resource_version",
            "kubewarm_resource_version_rollbacks_total",
            "kubewarm_event_processing_seconds",
            "kubewarm_upstream_freshness_requests_total",
            "kubewarm_consistency_checks_total",
            "kubewarm_consistency_differences_total",
            "kubewarm_store_decode_errors_total",
        ],
    ),
    (
        "Resources by scope",
        &["group", "version", "resource", "scope"],
        &[
            "kubewarm_objects",
            "kubewarm_store_bytes",
            "kubewarm_warmup_start_timestamp_seconds",
            "kubewarm_warmup_synced_timestamp_seconds",
            "kubewarm_last_event_timestamp_seconds",
            "kubewarm_last_bookmark_timestamp_seconds",
            "kubewarm_last_confirmed_timestamp_seconds",
        ],
    ),
];

/// The outcomes of a read.
const READ_OUTCOMES: [MetricOutcome; 3] =
    [MetricOutcome::Success, MetricOutcome::Error, MetricOutcome::Rejected];

/// The order of labels on the page. The exposition sorts them by name.
const ORDER: [&str; 17] = [
    "group",
    "version",
    "resource",
    "verb",
    "revision",
    "rustc",
    "check",
    "handler",
    "cache",
    "code",
    "reason",
    "source",
    "condition",
    "status",
    "outcome",
    "limit",
    "listener",
];

/// The complete page.
pub(super) fn page(families: &[Family]) -> Result<String, fmt::Error> {
    let mut page = String::from(HEAD);
    writeln!(
        page,
        "- At most 200 resources and 100 profiles have series of their own. The others share series with the label value\n  \
         `{OTHER}`.\n\
         - In metrics of the read API, a resource without an informer has the label value `{OTHER}`, until a forwarded request for\n  \
         it succeeds. At most 200 resources of forwarded requests have further series of their own.\n\
         - 40 resources and 20 profiles make at most {SERIES_OF_40_RESOURCES_AND_20_PROFILES} series."
    )?;
    for (title, common, names) in SECTIONS {
        writeln!(page, "\n## {title}\n")?;
        if !common.is_empty() {
            writeln!(page, "All have the labels {}.\n", code_list(common))?;
        }
        for Family { name, help, kind, labels, .. } in in_order(families, names) {
            let labels = labels.iter().map(String::as_str).filter(|label| !common.contains(label));
            let mut labels: Vec<_> = labels.collect();
            labels.sort_by_key(|label| ORDER.iter().position(|known| known == label));
            let with = if labels.is_empty() { "" } else { ", by " };
            let labels = code_list(&labels);
            writeln!(page, "- `{name}` ({kind}{with}{labels}): {}", first_sentence(help))?;
        }
    }
    page.push_str("\n## Label values\n\n");
    let mut sets: Vec<(&str, Vec<&str>, Vec<&str>)> = Vec::new();
    for (metric, label, values) in closed_sets() {
        match sets.iter_mut().find(|(name, same, _)| *name == label && *same == values) {
            Some((_, _, metrics)) => metrics.push(metric),
            None => sets.push((label, values, vec![metric])),
        }
    }
    for (label, values, metrics) in &sets {
        writeln!(page, "- `{label}` of {}: {}", code_list(metrics), code_list(values))?;
    }
    Ok(page)
}

fn in_order<'a>(families: &'a [Family], names: &[&str]) -> impl Iterator<Item = &'a Family> {
    names.iter().filter_map(|name| families.iter().find(|family| family.name == *name))
}

/// The labels whose values are known in advance: for each one, the metric, the label and its
/// values.
fn closed_sets() -> [(&'static str, &'static str, Vec<&'static str>); 34] {
    [
        ("kubewarm_status_writes_total", "outcome", outcomes(&STATUS_WRITE_OUTCOMES)),
        ("kubewarm_access_checks_total", "check", values::<AccessCheckKind>()),
        ("kubewarm_access_checks_total", "outcome", outcomes(&ACCESS_CHECK_OUTCOMES)),
        ("kubewarm_limit_rejections_total", "limit", values::<LimitKind>()),
        ("kubewarm_read_requests_total", "handler", values::<HandlerLabel>()),
        ("kubewarm_read_requests_total", "outcome", outcomes(&READ_OUTCOMES)),
        ("kubewarm_read_requests_total", "code", codes()),
        ("kubewarm_read_duration_seconds", "handler", values::<HandlerLabel>()),
        ("kubewarm_read_duration_seconds", "cache", values::<ResponseSource>()),
        ("kubewarm_read_wait_seconds", "reason", values::<WaitReason>()),
        ("kubewarm_read_wait_seconds", "outcome", outcomes(&WAIT_OUTCOMES)),
        ("kubewarm_read_watch_ends_total", "reason", values::<ClientWatchEnd>()),
        ("kubewarm_read_authorizations_total", "source", values::<DecisionSource>()),
        ("kubewarm_read_authorizations_total", "outcome", outcomes(&AUTHORIZATION_OUTCOMES)),
        ("kubewarm_read_authorization_duration_seconds", "source", values::<DecisionSource>()),
        ("kubewarm_rbac_fallbacks_total", "reason", RbacFallback::REASONS.to_vec()),
        ("kubewarm_read_in_use", "limit", limits(&ReadLimit::WITH_SLOTS)),
        ("kubewarm_read_limit", "limit", limits(&ReadLimit::WITH_SLOTS)),
        ("kubewarm_read_limit_rejections_total", "limit", limits(&ReadLimit::REJECTING)),
        ("kubewarm_certificate_expiry_timestamp_seconds", "listener", values::<TlsListener>()),
        ("kubewarm_profile_info", "mode", values::<ProfileMode>()),
        ("kubewarm_profile_condition", "status", CONDITION_STATUSES.to_vec()),
        ("kubewarm_profile_targets", "state", values::<TargetState>()),
        ("kubewarm_missing_permissions", "verb", verbs()),
        ("kubewarm_warmup_duration_seconds", "strategy", values::<FirstSyncMethod>()),
        ("kubewarm_upstream_list_duration_seconds", "outcome", outcomes(&LIST_OUTCOMES)),
        ("kubewarm_upstream_relists_total", "reason", values::<RelistReason>()),
        ("kubewarm_upstream_watch_ends_total", "reason", values::<UpstreamWatchEnd>()),
        ("kubewarm_upstream_watch_events_total", "type", values::<UpstreamEventType>()),
        ("kubewarm_upstream_request_errors_total", "verb", verbs()),
        ("kubewarm_upstream_request_errors_total", "code", codes()),
        ("kubewarm_upstream_freshness_requests_total", "verb", verbs()),
        ("kubewarm_upstream_decode_errors_total", "stage", values::<DecodeStage>()),
        ("kubewarm_consistency_checks_total", "outcome", outcomes(&CONSISTENCY_OUTCOMES)),
    ]
}

fn values<L: AsRef<str> + VariantArray>() -> Vec<&'static str> {
    L::VARIANTS.iter().map(AsRef::as_ref).collect()
}

fn outcomes(all: &'static [MetricOutcome]) -> Vec<&'static str> {
    all.iter().map(AsRef::as_ref).collect()
}

fn limits(all: &'static [ReadLimit]) -> Vec<&'static str> {
    all.iter().map(AsRef::as_ref).collect()
}

fn verbs() -> Vec<&'static str> {
    [Verb::List, Verb::Watch].map(Verb::as_str).into()
}

/// Every value of the status code label, by class.
fn codes() -> Vec<&'static str> {
    let all = [None].into_iter().chain((0..=u16::MAX).map(Some)).map(code_label);
    let exact = |label: &&str| label.parse::<u16>().is_ok();
    let all: BTreeSet<_> = all.collect();
    let classes = ["4xx", "5xx", "other"];
    let listed: Vec<_> =
        ["none"].into_iter().chain(all.iter().copied().filter(exact)).chain(classes).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all, "a class is not listed");
    listed
}

fn code_list(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[test]
fn every_metric_is_in_a_section_of_the_page() {
    let exported: BTreeSet<_> = super::described().into_iter().map(|family| family.name).collect();
    let listed = SECTIONS.iter().flat_map(|(_, _, names)| *names).map(ToString::to_string);
    assert_eq!(listed.collect::<BTreeSet<_>>(), exported);
    for family in super::described() {
        let section = SECTIONS.iter().find(|(_, _, names)| names.contains(&&*family.name));
        let (_, common, _) = section.expect("it is listed");
        let has = |label: &&&str| family.labels.iter().any(|name| name == **label);
        assert_eq!(common.iter().filter(has).count(), common.len(), "{family:?}");
    }
}

/// Labels whose values are not known in advance, because they are names, for instance of conditions
/// or kinds.
const NAMES: &[&str] = &["version", "revision", "rustc", "name", "condition", "group", "resource"];
/// Labels that the text above the tables explains, so the tables omit them.
const EXPLAINED: &[&str] = &["namespace", "profile", "scope"];

#[test]
fn each_label_has_its_values_on_the_page_or_is_a_name() {
    let is_closed = |label: &String| ![NAMES, EXPLAINED].concat().contains(&&**label);
    let exported: BTreeSet<_> = super::described()
        .into_iter()
        .flat_map(|Family { name, labels, .. }| {
            labels.into_iter().filter(is_closed).map(move |label| (name.clone(), label))
        })
        .collect();
    let listed = closed_sets().map(|(metric, label, _)| (metric.to_owned(), label.to_owned()));
    assert_eq!(BTreeSet::from(listed), exported);
}
