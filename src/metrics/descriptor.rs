//! Every metric there is: name, type, labels and meaning. `docs/metrics.md` is made from these.

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    core::Desc,
};
use std::collections::HashMap;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size; the upper bounds of its buckets, without the last, infinite one.
    Histogram(&'static [f64]),
}

/// What a metric is counted by, before its own labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// The process.
    Process,
    /// A profile: `namespace` and `profile`.
    Profile,
    /// A resource: `group`, `version` and `resource`.
    Resource,
    /// A resource and its `scope`: `cluster`, or `namespaced` for cells of one namespace.
    Scope,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptor {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it is counted by.
    pub keyed: Keyed,
    /// Its own labels.
    pub labels: &'static [&'static str],
    /// What it says, with the unit; the HELP line.
    pub help: &'static str,
}

/// The buckets of client-go's `rest_client_request_duration_seconds`, so that dashboards compare.
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The range of the API server's own cache initialisation.
const WARMUP: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Watches are asked to last 5 to 10 minutes; the low end shows trouble.
const WATCH: &[f64] = &[1.0, 5.0, 15.0, 60.0, 180.0, 300.0, 420.0, 600.0, 1800.0];
/// From what a quiet machine does to what a person notices.
const LAG: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Reads, from memory to a wait for a first list.
const READ: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// From an event just now to the largest bound that a profile sets.
const FRESH: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 3600.0];
/// From one request upstream to the longest wait for a first list.
const WAIT: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 15.0, 60.0];
/// A run over all profiles, from one to thousands.
const RECONCILE: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

macro_rules! descriptors {
    ($($constant:ident = $name:literal, $kind:expr, $keyed:ident, $labels:expr, $help:literal;)+) => {
        $(pub(super) const $constant: Descriptor = Descriptor {
            name: $name,
            kind: $kind,
            keyed: Keyed::$keyed,
            labels: &$labels,
            help: $help,
        };)+

        /// Every metric of this process, but `process_*`, which the prometheus crate names.
        pub const fn all() -> &'static [Descriptor] {
            &[$($constant),+]
        }
    };
}

descriptors! {
    BUILD_INFO = "kubewarm_build_info", Kind::Gauge, Process, ["version", "revision", "rustc"],
        "Always 1; the labels say which build this is.";
    LEADER = "leader_election_master_status", Kind::Gauge, Process, ["name"],
        "Whether this process holds the lease: 1 or 0.";
    RECONCILE_DURATION = "kubewarm_reconcile_duration_seconds", Kind::Histogram(RECONCILE), Process,
        ["outcome"], "Seconds of one run over all profiles.";
    STATUS_WRITES = "kubewarm_status_writes_total", Kind::Counter, Process, ["outcome"],
        "Writes of a profile's status.";
    ACCESS_CHECKS = "kubewarm_access_checks_total", Kind::Counter, Process, ["check", "outcome"],
        "Checks of permissions: the real list and watch of a cell, and reviews. A review of rules counts as allowed when it was answered.";
    LIMIT_REJECTIONS = "kubewarm_limit_rejections_total", Kind::Counter, Process, ["limit"],
        "Targets that were stopped because of a limit, tries included.";
    MEMORY_LIMIT = "kubewarm_memory_limit_bytes", Kind::Gauge, Process, [],
        "Bytes of memory that all tables may take together (--memory-limit); absent without a limit.";
    HTTP_REQUESTS = "kubewarm_http_requests_total", Kind::Counter, Process,
        ["handler", "method", "code"], "Requests of the read API, by HTTP status; absent without --api-addr.";
    HTTP_REQUEST_DURATION = "kubewarm_http_request_duration_seconds", Kind::Histogram(READ), Process,
        ["handler", "cache"],
        "Seconds from the head of a request of the read API to the head of its answer, the API server's word about the caller included.";
    READ_WAIT = "kubewarm_read_wait_seconds", Kind::Histogram(WAIT), Process, ["reason", "outcome"],
        "Seconds of reads that had to wait for something, by what they waited for last; absent until one has.";
    HTTP_WATCH_CLIENTS = "kubewarm_http_watch_clients", Kind::Gauge, Resource, [],
        "Watches that clients of the read API have open; absent for what nobody watches.";
    HTTP_WATCH_EVENTS = "kubewarm_http_watch_events_total", Kind::Counter, Process, [],
        "Events that were sent to those who watch, bookmarks and errors included; absent without --api-addr.";
    HTTP_WATCH_ENDS = "kubewarm_http_watch_ends_total", Kind::Counter, Process, ["reason"],
        "Watches of clients that ended, by what ended them; absent without --api-addr.";
    AUTHZ_DECISIONS = "kubewarm_authz_decisions_total", Kind::Counter, Process, ["source", "decision"],
        "Decisions on whether a caller may, who it is included, and each check of an open watch; by who said so: the API server now (api), or what it had said a moment ago (cache).";
    AUTHZ_DURATION = "kubewarm_authz_duration_seconds", Kind::Histogram(REQUEST), Process, ["source"],
        "Seconds until that was decided, the wait for a turn to ask included.";
    TOKIO_WORKERS = "tokio_workers", Kind::Gauge, Process, [],
        "Threads of the runtime.";
    TOKIO_ALIVE_TASKS = "tokio_alive_tasks", Kind::Gauge, Process, [],
        "Tasks that have not ended.";
    TOKIO_QUEUE_DEPTH = "tokio_global_queue_depth", Kind::Gauge, Process, [],
        "Tasks that wait for a thread in the runtime's global queue.";
    PROFILE_INFO = "kubewarm_profile_info", Kind::Gauge, Profile, ["mode"],
        "Always 1; how many there are for those under _other.";
    PROFILE_CONDITION = "kubewarm_profile_condition", Kind::Gauge, Profile, ["condition", "status"],
        "Whether the condition has this status: 1 or 0; how many have it for those under _other.";
    PROFILE_TARGETS = "kubewarm_profile_targets", Kind::Gauge, Profile, ["state"],
        "Targets in this state.";
    RBAC_MISSING = "kubewarm_rbac_missing", Kind::Gauge, Profile,
        ["group", "version", "resource", "verb"],
        "Cells that the API server refuses for want of this permission; absent where there are none.";
    OBJECTS = "kubewarm_objects", Kind::Gauge, Scope, [],
        "Objects in memory.";
    STORE_BYTES = "kubewarm_store_bytes", Kind::Gauge, Scope, [],
        "Bytes of memory that their tables take, indexes included.";
    STORE_DECODE_ERRORS = "kubewarm_store_decode_errors", Kind::Gauge, Scope, [],
        "Times that a stored object could not be read back from a table that is open, and was left out; each is a bug of kubewarm.";
    WARMUP_DURATION = "kubewarm_warmup_duration_seconds", Kind::Histogram(WARMUP), Resource,
        ["strategy"], "Seconds from the declaration of a cell to its first complete list.";
    WARMUP_PROGRESS = "kubewarm_warmup_progress_ratio", Kind::Gauge, Resource, [],
        "How far the first lists are, 0 to 1: the mean over the cells. A list whose end the server does not foretell counts as 0 until it is done.";
    WARMUP_START = "kubewarm_warmup_start_timestamp_seconds", Kind::Gauge, Scope, [],
        "When the first of the synced cells was declared.";
    WARMUP_SYNCED = "kubewarm_warmup_synced_timestamp_seconds", Kind::Gauge, Scope, [],
        "When the last of the cells was first synced; absent while one is not.";
    LIST_DURATION = "kubewarm_list_duration_seconds", Kind::Histogram(REQUEST), Resource,
        ["outcome"], "Seconds from the request to the last byte of a list, or of a page of it.";
    LIST_PAGES = "kubewarm_list_pages_total", Kind::Counter, Resource, [],
        "Lists and pages received.";
    LIST_ITEMS = "kubewarm_list_items_total", Kind::Counter, Resource, [],
        "Objects received in lists.";
    LIST_BYTES = "kubewarm_list_bytes_total", Kind::Counter, Resource, [],
        "Bytes received in lists, as sent by the API server.";
    RELISTS = "kubewarm_relists_total", Kind::Counter, Resource, ["reason"],
        "Complete lists of cells that were already synced.";
    REPLACED_OBJECTS = "kubewarm_replaced_objects_total", Kind::Counter, Resource, [],
        "Objects that a relist found under the same name with another UID: deleted and created anew unseen.";
    GAP_DELETES = "kubewarm_gap_deletes_total", Kind::Counter, Resource, [],
        "Objects that a relist found gone; replaced ones are not counted.";
    WATCH_STARTS = "kubewarm_watch_starts_total", Kind::Counter, Resource, [],
        "Watches that the API server began to answer.";
    WATCH_ENDS = "kubewarm_watch_ends_total", Kind::Counter, Resource, ["reason"],
        "Watches that ended.";
    WATCH_DURATION = "kubewarm_watch_duration_seconds", Kind::Histogram(WATCH), Resource, [],
        "Seconds that a watch was open.";
    WATCH_ACTIVE = "kubewarm_watch_active", Kind::Gauge, Resource, [],
        "Watches that are open.";
    WATCH_EVENTS = "kubewarm_watch_events_total", Kind::Counter, Resource, ["type"],
        "Events of watches.";
    WATCH_ERRORS = "kubewarm_watch_errors_total", Kind::Counter, Resource, ["code"],
        "Lists and watches that failed, by HTTP status; none if there was no answer.";
    WATCH_BACKOFF = "kubewarm_watch_backoff_seconds", Kind::Gauge, Resource, [],
        "The longest wait between two attempts that a cell is in; 0 if none waits.";
    DECODE_ERRORS = "kubewarm_decode_errors_total", Kind::Counter, Resource, ["stage"],
        "Bytes from the API server that made no sense.";
    LAST_EVENT = "kubewarm_last_event_timestamp_seconds", Kind::Gauge, Scope, [],
        "When the last event came, in any cell.";
    LAST_BOOKMARK = "kubewarm_last_bookmark_timestamp_seconds", Kind::Gauge, Scope, [],
        "When the last bookmark came, in the cell where that is longest ago. Paused and fenced cells are left out.";
    LAST_PROGRESS = "kubewarm_last_progress_timestamp_seconds", Kind::Gauge, Scope, [],
        "When a list, an event, a bookmark or a probe last proved the cell current, in the cell where that is longest ago. Paused and fenced cells are left out.";
    RESOURCE_VERSION = "kubewarm_resource_version", Kind::Gauge, Resource, [],
        "The newest resource version seen, its last 15 digits; compare with apiserver_watch_cache_resource_version.";
    EVENT_LAG = "kubewarm_event_lag_seconds", Kind::Histogram(LAG), Resource, [],
        "Seconds from the bytes of an event read to the event processed by every observer.";
    FRESHNESS = "kubewarm_freshness_seconds", Kind::Histogram(FRESH), Resource, [],
        "Seconds since a table was last proved current, at each read that it answered; absent until there is one.";
    RV_ROLLBACKS = "kubewarm_rv_rollbacks_total", Kind::Counter, Resource, [],
        "Times that resource versions went back: an etcd restore.";
    CONSISTENCY_CHECKS = "kubewarm_consistency_checks_total", Kind::Counter, Resource, ["result"],
        "Comparisons of a table with a list of its version (freshness.verifyIntervalSeconds).";
}

impl Kind {
    /// As the TYPE line has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Keyed {
    /// The labels it stands for.
    #[must_use]
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Process => &[],
            Self::Profile => &["namespace", "profile"],
            Self::Resource => &["group", "version", "resource"],
            Self::Scope => &["group", "version", "resource", "scope"],
        }
    }
}

impl Descriptor {
    /// All its labels: those of its key, then its own.
    #[must_use]
    pub fn all_labels(&self) -> Vec<&'static str> {
        [self.keyed.labels(), self.labels].concat()
    }

    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    fn histogram_opts(&self) -> HistogramOpts {
        let buckets = match self.kind {
            Kind::Histogram(buckets) => buckets.to_vec(),
            Kind::Counter | Kind::Gauge => Vec::new(),
        };
        HistogramOpts { common_opts: self.opts(), buckets }
    }

    /// What the registry needs to know of a metric that is made later.
    pub(super) fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.all_labels().into_iter().map(str::to_owned).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, HashMap::new())
    }

    pub(super) fn gauges(&self) -> prometheus::Result<GaugeVec> {
        GaugeVec::new(self.opts(), &self.all_labels())
    }

    pub(super) fn int_gauges(&self) -> prometheus::Result<IntGaugeVec> {
        IntGaugeVec::new(self.opts(), &self.all_labels())
    }

    pub(super) fn counters(&self) -> prometheus::Result<IntCounterVec> {
        IntCounterVec::new(self.opts(), &self.all_labels())
    }

    pub(super) fn histograms(&self) -> prometheus::Result<HistogramVec> {
        HistogramVec::new(self.histogram_opts(), &self.all_labels())
    }

    /// As [`Self::counters`], with the labels of its key already set to `key`.
    pub(super) fn counters_of(&self, key: &Key) -> prometheus::Result<IntCounterVec> {
        IntCounterVec::new(self.opts().const_labels(key.clone()), self.labels)
    }

    /// A counter without labels of its own, those of its key set to `key`.
    pub(super) fn counter_of(&self, key: &Key) -> prometheus::Result<IntCounter> {
        IntCounter::with_opts(self.opts().const_labels(key.clone()))
    }

    /// As [`Self::histograms`], with the labels of its key already set to `key`.
    pub(super) fn histograms_of(&self, key: &Key) -> prometheus::Result<HistogramVec> {
        HistogramVec::new(self.histogram_opts().const_labels(key.clone()), self.labels)
    }

    /// A histogram without labels of its own, those of its key set to `key`.
    pub(super) fn histogram_of(&self, key: &Key) -> prometheus::Result<Histogram> {
        Histogram::with_opts(self.histogram_opts().const_labels(key.clone()))
    }
}

/// The values of a key's labels, by name.
pub(super) type Key = HashMap<String, String>;
