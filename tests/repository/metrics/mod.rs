//! Tests the metrics page: its exact text for a small input, its documentation, and its number of
//! series.

#![expect(clippy::expect_used, reason = "a test may panic")]

mod exposition;
mod page;

pub(crate) use self::exposition::Family;

use self::exposition::families;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewarm::metrics::{
    AUTHORIZATION_OUTCOMES, BuildInfo, MetricsRegistry, ProfileSnapshot, TlsListener,
};
use kubewarm_api::{
    model::{
        DecisionSource, FaultReason, GroupResource, InformerKey, InformerScope,
        ManagedFieldsPolicy, MetricOutcome, ProfileMode, ProfileRef, Projection, Resource,
        ResourceVersion,
    },
    v1alpha1::{CONDITION_TYPES, CacheProfileStatus, InformerCounts, TargetStatus},
};
use kubewarm_cache::{
    informer::{
        ConsistencyResult, DecodeStage, FirstSync, FirstSyncMethod, InformerFault, InformerPhase,
        InformerReport, LIST_OUTCOMES, RelistReason, UpstreamWatchEnd, Verb,
    },
    store::StoreUsage,
};
use kubewarm_client::LeaseState;
use kubewarm_serve::{
    callers::{LimitUsage, ReadLimit},
    certificate::{ServingCertificate, names},
    metrics::{
        ClientWatchEnd, HandlerLabel, ResponseLabels, ResponseSource, WAIT_OUTCOMES, WaitReason,
    },
};
use kubewarm_wire::upstream::UpstreamEventType;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

/// The maximum number of series for 40 resources and 20 profiles, with two informers for each
/// resource. Every label value has occurred, with three status codes, and every profile lacks all
/// permissions. A new label changes this number, so that its cost is noticed before users need
/// storage for it.
const SERIES_OF_40_RESOURCES_AND_20_PROFILES: usize = 10_722;

/// The number of series: of the process with one read resource, of each resource, and of each
/// profile. 66 series of a profile count missing permissions: list and watch of 32 targets and of
/// namespaces.
const SERIES_OF: [usize; 3] = [562, 205, 98];

/// The most series for this number of resources and profiles.
const fn most_series(resources: usize, profiles: usize) -> usize {
    let [process, resource, profile] = SERIES_OF;
    process + resource * resources + profile * profiles
}

const BUILD: BuildInfo = BuildInfo { version: "1.2.3", revision: "abc", rustc: "1.95" };

#[test]
fn a_small_input_gives_the_expected_page() {
    let metrics = MetricsRegistry::new(&BUILD).expect("names and labels are valid");
    let pods = resource("", "pods");
    let shop = snapshot(&pods, namespace("shop"), synced(1_000));
    let mut waiting = listing();
    waiting.phase = InformerPhase::Failing;
    (waiting.listed, waiting.expected) = (1, Some(4));
    waiting.fault = Some(fault());
    let mut till = snapshot(&pods, namespace("till"), waiting);
    till.1.usage.objects = 1;
    metrics.observe_informers(move || vec![shop.clone(), till.clone()]).expect("once");
    metrics.observe_profiles(|| vec![profile(0)]).expect("once");
    let counted = metrics.informers().for_resource(&pods);
    counted.count_list(MetricOutcome::Success, Duration::from_millis(300));
    counted.upstream_list_items.inc_by(3);
    counted.upstream_list_bytes.inc_by(9_000);
    counted.count_relist(RelistReason::Gone, 1, 2);
    counted.count_request_error(Verb::List, Some(403));
    counted.count_event(UpstreamEventType::Added, Some(Duration::from_millis(2)));
    metrics.operator().set_leader(&LeaseState::Leader { until: tokio::time::Instant::now() });
    metrics.operator().count_status_write(MetricOutcome::Success);
    assert_golden("tests/data/metrics.txt", &metrics.render().expect("it renders"));
}

/// Every metric of kubewarm.
pub(crate) fn described() -> Vec<Family> {
    families(&full(1, 1))
}

#[test]
fn names_and_help_texts_have_one_form() {
    for Family { name, kind, help, .. } in described() {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert!(help.ends_with('.') && !help.contains('|'), "{name}: {help}");
    }
}

#[test]
fn the_memory_limit_metric_exists_only_with_a_limit() {
    let metrics = MetricsRegistry::new(&BUILD).expect("names and labels are sound");
    let name = "kubewarm_store_limit_bytes";
    assert!(!metrics.render().expect("it renders").contains(name), "0 would look exceeded");
    metrics.operator().set_store_limit(1 << 20);
    let text = metrics.render().expect("it renders");
    assert!(text.lines().any(|line| line == format!("{name} 1048576")), "{text}");
}

#[test]
fn the_number_of_series_is_within_its_budget() {
    let text = full(40, 20);
    assert_eq!(series(&text).count(), SERIES_OF_40_RESOURCES_AND_20_PROFILES);
    let distinct: BTreeSet<_> = series(&text).collect();
    assert_eq!(distinct.len(), SERIES_OF_40_RESOURCES_AND_20_PROFILES, "a series occurs twice");
}

#[test]
fn the_number_of_series_matches_the_documentation() {
    for (kinds, profiles) in [(1, 0), (2, 0), (1, 1), (40, 20), (201, 101)] {
        // Above the limits of 200 resources and 100 profiles, one resource and one profile stand
        // for all others.
        let (count, most) = (series(&full(kinds, profiles)).count(), most_series(kinds, profiles));
        assert_eq!(count, most, "{kinds} kinds, {profiles} profiles");
    }
}

#[test]
fn kinds_and_profiles_beyond_the_bound_add_no_series() {
    let (at_the_cap, beyond) = (full(201, 101), full(400, 300));
    assert_eq!(series(&at_the_cap).count(), series(&beyond).count());
    assert!(beyond.contains(r#"kubewarm_objects{group="_other",resource="_other""#));
    assert!(beyond.contains(r#"kubewarm_profile_info{mode="Active",namespace="_other""#));
}

#[test]
fn the_number_of_series_returns_to_its_start_without_informers() {
    let metrics = MetricsRegistry::new(&BUILD).expect("names and labels are valid");
    let informers = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&informers);
    metrics.observe_informers(move || read.lock().clone()).expect("once");
    let before = metrics.render().expect("it renders");
    let pods = resource("", "pods");
    informers.lock().push(snapshot(&pods, InformerScope::AllNamespaces, synced(1_000)));
    measure_everything(&metrics, &pods);
    assert_ne!(metrics.render().expect("it renders"), before);
    informers.lock().clear();
    // A task that is being stopped can still count something after its informer has gone.
    metrics.informers().for_resource(&pods).upstream_watch_starts.inc();
    assert_eq!(metrics.render().expect("it renders"), before);
}

#[test]
fn the_page_about_metrics_is_up_to_date() {
    assert_golden("docs/metrics.md", &page::page(&described()).expect("it is written"));
}

/// A metrics page with every label value, for this number of kinds and profiles. Each kind has an
/// informer of one namespace and one of all namespaces.
fn full(kinds: usize, profiles: usize) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let metrics = MetricsRegistry::new(&BUILD).expect("names and labels are valid");
    let resources: Vec<_> =
        (0..kinds).map(|at| resource("x.io", &format!("kind{at:03}"))).collect();
    let informers: Vec<_> = resources
        .iter()
        .flat_map(|resource| {
            [namespace("shop"), InformerScope::AllNamespaces]
                .map(|scope| snapshot(resource, scope, synced(1_000)))
        })
        .collect();
    metrics.observe_informers(move || informers.clone()).expect("once");
    metrics
        .observe_profiles(move || (0..profiles).map(profile_without_rights).collect())
        .expect("once");
    metrics.observe_process(runtime.handle().clone()).expect("once");
    metrics.observe_read_limits(|| ReadLimit::WITH_SLOTS.map(in_use).into()).expect("once");
    metrics.observe_appliers(|| 1).expect("once");
    let certificate =
        ServingCertificate::self_signed(names("kubewarm-0", "ops")).expect("it is made");
    let certificate = Arc::new(certificate);
    let shown = [TlsListener::Admin, TlsListener::Read]
        .map(|listener| (listener, Arc::clone(&certificate)));
    metrics.observe_certificates(shown.into()).expect("once");
    // This scrape comes first: it decides which resources have series of their own, in the order of
    // the informers.
    metrics.render().expect("it renders");
    for resource in &resources {
        measure_everything(&metrics, resource);
    }
    metrics.operator().set_store_limit(192 << 20);
    metrics.operator().observe_reconcile(Duration::from_millis(3));
    read_everything(&metrics, &resources);
    let _open: Vec<_> =
        resources.iter().map(|resource| metrics.reads().open_watch(resource)).collect();
    metrics.render().expect("it renders")
}

const fn in_use(limit: ReadLimit) -> LimitUsage {
    LimitUsage { limit, in_use: 1, size: 2 }
}

/// Each label value of the read API, with three status codes.
fn read_everything(metrics: &MetricsRegistry, resources: &[Resource]) {
    let took = Duration::from_millis(3);
    let observe = |handler, resource: Option<&Resource>| {
        for (code, outcome, source) in [
            (200, MetricOutcome::Success, ResponseSource::Hit),
            (429, MetricOutcome::Rejected, ResponseSource::Wait),
            (503, MetricOutcome::Error, ResponseSource::Rejected),
        ] {
            let code = Some(code);
            let response = ResponseLabels { handler, resource, code, outcome, source };
            metrics.reads().observe_response(&response, took);
        }
        metrics.reads().response_bytes(resource).inc();
    };
    for handler in
        [HandlerLabel::Discovery, HandlerLabel::Forward, HandlerLabel::Peer, HandlerLabel::Other]
    {
        observe(handler, None);
    }
    for resource in resources {
        metrics.reads().admit(resource);
        for handler in [HandlerLabel::Get, HandlerLabel::List, HandlerLabel::Watch] {
            observe(handler, Some(resource));
        }
        metrics.reads().open_watch(resource).count_events(1);
        let _is_first = metrics.reads().count_incomplete_row(resource);
    }
    for reason in [WaitReason::Sync, WaitReason::ResourceVersion, WaitReason::FreshnessCheck] {
        for outcome in WAIT_OUTCOMES {
            metrics.reads().observe_wait(reason, outcome, took);
        }
    }
    for source in [DecisionSource::Cache, DecisionSource::ApiServer, DecisionSource::Rules] {
        for outcome in AUTHORIZATION_OUTCOMES {
            metrics.operator().observe_authorization(source, outcome, took);
        }
    }
    for end in [
        ClientWatchEnd::Timeout,
        ClientWatchEnd::Expired,
        ClientWatchEnd::FutureVersion,
        ClientWatchEnd::Slow,
        ClientWatchEnd::InformerGone,
        ClientWatchEnd::Rejected,
        ClientWatchEnd::Client,
        ClientWatchEnd::Shutdown,
    ] {
        let mut watch = metrics.reads().open_watch(&resource("", "pods"));
        watch.set_end(end);
    }
}

/// Counts one event for each label value, with three status codes.
fn measure_everything(metrics: &MetricsRegistry, resource: &Resource) {
    let took = Duration::from_millis(30);
    let counters = metrics.informers().for_resource(resource);
    for outcome in LIST_OUTCOMES {
        counters.count_list(outcome, took);
    }
    counters.count_relist(RelistReason::Gone, 1, 1);
    counters.upstream_watch_starts.inc();
    counters.observe_watch_end(UpstreamWatchEnd::Eof, took);
    counters.count_event(UpstreamEventType::Added, Some(took));
    counters.count_decode_error(DecodeStage::WatchLine);
    counters.observe_staleness(took);
    for result in [
        ConsistencyResult::Equal,
        ConsistencyResult::Different,
        ConsistencyResult::Skipped,
        ConsistencyResult::Failed,
    ] {
        counters.count_consistency_check(result);
    }
    counters.store_decode_errors.inc();
    counters.resource_version_rollbacks.inc();
    for method in [FirstSyncMethod::List, FirstSyncMethod::WatchList, FirstSyncMethod::PagedList] {
        counters.observe_warmup(method, took);
    }
    for verb in [Verb::List, Verb::Watch] {
        for code in [None, Some(429), Some(503)] {
            counters.count_request_error(verb, code);
        }
    }
}

fn series(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _value)| series))
}

fn resource(group: &str, name: &str) -> Resource {
    Resource::new(GroupResource::new(group, name).expect("a name"), "v1").expect("a version")
}

fn namespace(name: &str) -> InformerScope {
    InformerScope::Namespace(name.into())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn snapshot(
    resource: &Resource,
    scope: InformerScope,
    report: InformerReport,
) -> (InformerKey, InformerReport) {
    let key =
        InformerKey::all(resource.clone(), scope, Projection::Full(ManagedFieldsPolicy::Drop));
    let usage = StoreUsage { objects: 3, bytes: 4_096 };
    (key, InformerReport { usage, ..report })
}

fn listing() -> InformerReport {
    InformerReport { phase: InformerPhase::Listing, ..InformerReport::queued(at(900)) }
}

fn synced(second: i64) -> InformerReport {
    InformerReport {
        phase: InformerPhase::Watching,
        warmed: Some(FirstSync {
            started: at(second - 2),
            synced: at(second),
            took: Duration::from_secs(2),
            strategy: FirstSyncMethod::List,
        }),
        synced_at: Some(at(second)),
        version: ResourceVersion::parse("1234567890123456789"),
        current_time: Some(at(second + 10)),
        event_time: Some(at(second + 5)),
        bookmark_time: Some(at(second + 10)),
        ..listing()
    }
}

fn fault() -> InformerFault {
    InformerFault {
        reason: FaultReason::Forbidden,
        verb: Verb::List,
        message: "no".into(),
        at: at(1_000),
        since: at(990),
        attempts: 2,
        next_retry: Some(Timestamp::from_millisecond(1_002_500).expect("in range")),
    }
}

fn profile(number: usize) -> ProfileSnapshot {
    let conditions = CONDITION_TYPES.map(|type_| Condition {
        type_: type_.to_owned(),
        status: "Unknown".to_owned(),
        reason: String::new(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    });
    let synced = InformerCounts { total: 1, synced: 1, ..InformerCounts::default() };
    let forbidden = InformerCounts { total: 1, forbidden: 1, ..InformerCounts::default() };
    let target = |informers| TargetStatus { informers: Some(informers), ..TargetStatus::default() };
    let status = CacheProfileStatus {
        conditions: conditions.into(),
        targets: [synced, forbidden].map(target).into(),
        ..CacheProfileStatus::default()
    };
    ProfileSnapshot {
        profile: ProfileRef { namespace: "shop".into(), name: format!("p{number:03}").into() },
        mode: ProfileMode::Active,
        status: Arc::new(status),
        missing: BTreeMap::from([((resource("", "pods"), Verb::Watch), 1)]),
    }
}

/// A profile that lacks list and watch of 32 kinds and of its selectors' namespaces.
fn profile_without_rights(number: usize) -> ProfileSnapshot {
    let kinds = (0..33).map(|kind| resource("", &format!("kind{kind}")));
    let missing =
        kinds.flat_map(|kind| [Verb::List, Verb::Watch].map(|verb| ((kind.clone(), verb), 1)));
    ProfileSnapshot { missing: missing.collect(), ..profile(number) }
}

/// Fails unless the committed file equals `generated`. With `BLESS=1`, writes the file instead.
#[track_caller]
fn assert_golden(path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, generated).expect("the file can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is stale; run `make generate` and look at the difference. It should be:\n{generated}",
        path.display(),
    );
}
