//! The metrics of the read API.

use crate::callers::{CallerRejection, ReadLimit};
use kubewarm_api::model::{MetricOutcome, Resource};
use kubewarm_cache::informer::{OTHER, RESOURCE_LABELS, code_label};
use parking_lot::{Mutex, RwLock};
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// Histogram buckets in seconds for the time from a client's request to kubewarm's response. Most
/// responses come from memory, so the smallest bucket is 0.1 ms.
const READ_BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// Histogram buckets in seconds for reads that waited. The smallest bucket is for one request to
/// the API server. The largest bucket is for the longest wait for an informer's first list.
const READ_WAIT_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 15.0, 60.0];

/// The kind of a client's request, as the metric label `handler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HandlerLabel {
    /// A get of one object.
    Get,
    /// A list of objects.
    List,
    /// A watch of objects.
    Watch,
    /// A request for a discovery document or for the API server's version.
    Discovery,
    /// A request that kubewarm forwards to the API server.
    Forward,
    /// A request of another replica for one of this replica's stores.
    Peer,
    /// A request that kubewarm rejected before it determined the kind of the request.
    Other,
}

/// The source of kubewarm's response to a client, as the metric label `cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ResponseSource {
    /// A store that answered without a wait. All watches and discovery documents count as hits too.
    Hit,
    /// A store that answered a get or list after the request waited for the store or for a
    /// freshness check.
    Wait,
    /// The API server, to which kubewarm forwarded the request.
    Bypass,
    /// No source: kubewarm itself returned an error.
    Rejected,
}

/// What a get or list waited for last before kubewarm answered, as the metric label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WaitReason {
    /// A wait until an informer is warm.
    Sync,
    /// The read waited until a store reached the resource version that it needs.
    ResourceVersion,
    /// A wait for a freshness check.
    FreshnessCheck,
}

/// The values of the label `outcome` of gets and lists that waited: kubewarm answered the request,
/// or returned an error.
pub const WAIT_OUTCOMES: [MetricOutcome; 2] = [MetricOutcome::Success, MetricOutcome::Error];

/// Why a client's watch ended, as the metric label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ClientWatchEnd {
    /// The watch has reached its timeout.
    Timeout,
    /// The event log of the informer's store no longer contains all changes after the last event of
    /// the watch.
    Expired,
    /// The client requested a watch from a resource version that no store reached in time.
    FutureVersion,
    /// The client read too slowly, and the event log no longer contains the changes that the watch
    /// needs next.
    Slow,
    /// kubewarm stopped or blocked the watch's informer, or no profile serves reads from this
    /// informer any more.
    InformerGone,
    /// The client lost its permission to watch, or the API server did not confirm the permission in
    /// time.
    Rejected,
    /// The client disconnected.
    Client,
    /// kubewarm shut down.
    Shutdown,
}

/// The maximum number of resources (such as `pods`) with their own metric series. All further
/// resources share the label value `_other`.
const MAX_RESOURCES: usize = 200;

/// The number of clients' open watches, by the values of the labels `group`, `version` and
/// `resource`.
type OpenWatches = Arc<Mutex<HashMap<[String; 3], i64>>>;

/// One response, with the values that the metrics record about it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseLabels<'r> {
    /// The kind of the request.
    pub handler: HandlerLabel,
    /// The requested resource; `None` for requests without a resource, such as requests for
    /// discovery documents.
    pub resource: Option<&'r Resource>,
    /// The HTTP status. `None` if kubewarm broke the client's connection without a response,
    /// because the connection to the API server broke during a forwarded request.
    pub code: Option<u16>,
    /// The outcome of the request: kubewarm answered it, rejected it, or failed.
    pub outcome: MetricOutcome,
    /// The source of the response.
    pub source: ResponseSource,
}

/// Counts a client's open watch in the metrics until this value is dropped.
#[derive(Debug)]
pub struct OpenClientWatch {
    metrics: ReadMetrics,
    labels: [String; 3],
    end: ClientWatchEnd,
}

/// The metrics of kubewarm's read API. Clones update the same metrics.
#[derive(Clone, Debug)]
pub struct ReadMetrics {
    requests: IntCounterVec,
    response_bytes: IntCounterVec,
    duration: HistogramVec,
    waits: HistogramVec,
    watches: IntGaugeVec,
    watch_events: IntCounterVec,
    watch_ends: IntCounterVec,
    incomplete_rows: IntCounterVec,
    limit_rejections: IntCounterVec,
    open: OpenWatches,
    /// The resources with their own metric series, at most `MAX_RESOURCES`. The limit bounds
    /// memory, because a series stays in memory until the process ends.
    resources: Arc<RwLock<HashSet<Resource>>>,
    /// Further resources with their own metric series, of forwarded requests. They have a separate
    /// limit of `MAX_RESOURCES`, so that they do not use up the series of resources with an
    /// informer.
    forwarded: Arc<RwLock<HashSet<Resource>>>,
}

impl ReadMetrics {
    /// Registers the metrics of the read API in `registry`.
    ///
    /// # Errors
    ///
    /// [`prometheus::Error`] if `registry` already contains one of these metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, labels: &[&str], help: &str| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let histograms = |name: &str, buckets: &[f64], labels: &[&str], help: &str| {
            register_histogram_vec_with_registry!(name, help, labels, buckets.to_vec(), registry)
        };
        let limit_rejections = counters(
            "kubewarm_read_limit_rejections_total",
            &["limit"],
            "Connections and requests rejected because a limit was reached.",
        )?;
        for limit in ReadLimit::REJECTING {
            limit_rejections.with_label_values(&[limit]).inc_by(0);
        }
        Ok(Self {
            limit_rejections,
            requests: counters(
                "kubewarm_read_requests_total",
                &["group", "version", "resource", "handler", "code", "outcome"],
                "Requests to the read API. Absent without --api-addr.",
            )?,
            response_bytes: counters(
                "kubewarm_read_response_bytes_total",
                &RESOURCE_LABELS,
                "Bytes of response bodies handed to connections, after compression.",
            )?,
            duration: histograms(
                "kubewarm_read_duration_seconds",
                READ_BUCKETS,
                &["handler", "cache"],
                "Time from request head to response head, access reviews included.",
            )?,
            waits: histograms(
                "kubewarm_read_wait_seconds",
                READ_WAIT_BUCKETS,
                &["reason", "outcome"],
                "Duration of reads that waited, by the last reason. Absent until a read has waited.",
            )?,
            watches: register_int_gauge_vec_with_registry!(
                "kubewarm_read_watches",
                "Open client watches. Absent for resources without watches.",
                &RESOURCE_LABELS,
                registry
            )?,
            watch_events: counters(
                "kubewarm_read_watch_events_total",
                &RESOURCE_LABELS,
                "Watch events sent to clients, bookmarks and errors included.",
            )?,
            watch_ends: counters(
                "kubewarm_read_watch_ends_total",
                &["reason"],
                "Client watches that ended, by cause.",
            )?,
            incomplete_rows: counters(
                "kubewarm_read_incomplete_rows_total",
                &RESOURCE_LABELS,
                "Rows of Tables with a value that kubewarm could not compute. Absent until the first such row.",
            )?,
            open: OpenWatches::default(),
            resources: Arc::default(),
            forwarded: Arc::default(),
        })
    }

    /// Records a get or list that waited. `reason` is what the request waited for last. `took` is
    /// the time from the request to the response.
    pub fn observe_wait(&self, reason: WaitReason, outcome: MetricOutcome, took: Duration) {
        let labels = [reason.as_ref(), outcome.as_ref()];
        self.waits.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Gives `resource` its own metric series, up to 200 resources. Call this only for resources
    /// with an informer. Otherwise a client with a wildcard Role could create series for invented
    /// resource names.
    pub fn admit(&self, resource: &Resource) {
        admit_to(&self.resources, resource);
    }

    /// Gives `resource` its own metric series, up to 200 further resources. Call this only after
    /// the API server has answered a forwarded request for the resource with success, so that
    /// clients cannot create series for invented resource names.
    pub(crate) fn admit_forwarded(&self, resource: &Resource) {
        if !self.resources.read().contains(resource) {
            admit_to(&self.forwarded, resource);
        }
    }

    /// The values of the labels `group`, `version` and `resource`. The values are `_other` for a
    /// resource without its own metric series, and empty if `resource` is `None`.
    fn labels<'r>(&self, resource: Option<&'r Resource>) -> [&'r str; 3] {
        let Some(resource) = resource else { return [""; 3] };
        if self.resources.read().contains(resource) || self.forwarded.read().contains(resource) {
            [resource.group(), resource.version(), resource.resource()]
        } else {
            [OTHER; 3]
        }
    }

    /// Records a response to a client. `took` is the time from the request's head to the response's
    /// head.
    pub fn observe_response(&self, response: &ResponseLabels<'_>, took: Duration) {
        let &ResponseLabels { handler, resource, code, outcome, source } = response;
        let [group, version, resource] = self.labels(resource);
        let (handler, code) = (handler.as_ref(), code_label(code));
        let labels = [group, version, resource, handler, code, outcome.as_ref()];
        self.requests.with_label_values(&labels).inc();
        let labels = [handler, source.as_ref()];
        self.duration.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The counter of response body bytes for `resource`.
    pub fn response_bytes(&self, resource: Option<&Resource>) -> IntCounter {
        self.response_bytes.with_label_values(&self.labels(resource))
    }

    /// Counts a row of a `Table` with a cell that could not be computed. Returns whether the row is
    /// the first one of its metric series, so that the caller logs only this row.
    pub fn count_incomplete_row(&self, resource: &Resource) -> bool {
        let counter = self.incomplete_rows.with_label_values(&self.labels(Some(resource)));
        let is_first = counter.get() == 0;
        counter.inc();
        is_first
    }

    pub(crate) fn count_rejection(&self, limit: ReadLimit) {
        self.limit_rejections.with_label_values(&[limit]).inc();
    }

    /// Counts the rejection of a client's request if a limit of kubewarm caused the rejection.
    pub(crate) fn count_refusal(&self, refused: &CallerRejection) {
        if let CallerRejection::Limited(limit) | CallerRejection::AgentsLimited { limit, .. } =
            refused
        {
            self.count_rejection(*limit);
        }
    }

    /// Counts a client's watch of `resource` as open until the returned value is dropped.
    pub fn open_watch(&self, resource: &Resource) -> OpenClientWatch {
        let labels = self.labels(Some(resource)).map(str::to_owned);
        let mut open = self.open.lock();
        let count = open.entry(labels.clone()).or_default();
        *count += 1;
        self.watches.with_label_values(&labels).set(*count);
        drop(open);
        OpenClientWatch { metrics: self.clone(), labels, end: ClientWatchEnd::Client }
    }
}

/// Adds `resource` to `resources`, up to `MAX_RESOURCES` resources.
fn admit_to(resources: &RwLock<HashSet<Resource>>, resource: &Resource) {
    if resources.read().contains(resource) {
        return;
    }
    let mut resources = resources.write();
    if resources.len() < MAX_RESOURCES {
        resources.insert(resource.clone());
    }
}

impl OpenClientWatch {
    /// Counts events that kubewarm sends to the client.
    pub fn count_events(&self, events: u64) {
        self.metrics.watch_events.with_label_values(&self.labels).inc_by(events);
    }

    /// Sets the reason why the watch ended. The default is [`ClientWatchEnd::Client`].
    pub fn set_end(&mut self, end: ClientWatchEnd) {
        self.end = end;
    }
}

impl Drop for OpenClientWatch {
    fn drop(&mut self) {
        let mut open = self.metrics.open.lock();
        let left = open.get(&self.labels).map_or(0, |count| count - 1);
        if left > 0 {
            open.insert(self.labels.clone(), left);
            self.metrics.watches.with_label_values(&self.labels).set(left);
        } else {
            open.remove(&self.labels);
            let _removed = self.metrics.watches.remove_label_values(&self.labels);
        }
        drop(open);
        self.metrics.watch_ends.with_label_values(&[self.end]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::GroupResource;

    fn resource(at: usize) -> Resource {
        Resource::new(GroupResource::new("x.io", &format!("kind{at}")).unwrap(), "v1").unwrap()
    }

    #[test]
    fn watch_series_end_with_the_last_watch_and_are_bounded() {
        let metrics = ReadMetrics::register(&Registry::new()).unwrap();
        (0..MAX_RESOURCES + 5).for_each(|at| metrics.admit(&resource(at)));
        let watches: Vec<_> =
            (0..MAX_RESOURCES + 5).map(|at| metrics.open_watch(&resource(at))).collect();
        let again = metrics.open_watch(&resource(0));
        assert_eq!(metrics.open.lock().len(), MAX_RESOURCES + 1);
        let count =
            |labels: &[String; 3]| metrics.open.lock().get(labels).copied().unwrap_or_default();
        assert_eq!((count(&again.labels), count(&[OTHER; 3].map(str::to_owned))), (2, 5));
        drop(watches);
        assert_eq!((count(&again.labels), metrics.open.lock().len()), (1, 1));
        drop(again);
        assert!(metrics.open.lock().is_empty());
    }

    #[test]
    fn resources_above_the_limit_and_resources_that_were_not_admitted_share_series() {
        let registry = Registry::new();
        let metrics = ReadMetrics::register(&registry).unwrap();
        let observe = |at: usize, code: u16| {
            let resource = resource(at);
            let response = ResponseLabels {
                handler: HandlerLabel::Get,
                resource: Some(&resource),
                code: Some(code),
                outcome: MetricOutcome::of_status(code),
                source: ResponseSource::Hit,
            };
            metrics.observe_response(&response, Duration::ZERO);
        };
        let series = || {
            let families = registry.gather();
            let family =
                families.iter().find(|family| family.name() == "kubewarm_read_requests_total");
            family.map_or(0, |family| family.get_metric().len())
        };
        for at in 0..MAX_RESOURCES + 50 {
            metrics.admit(&resource(at));
            observe(at, 200);
        }
        assert_eq!(series(), MAX_RESOURCES + 1);
        for at in MAX_RESOURCES..2 * MAX_RESOURCES + 50 {
            metrics.admit_forwarded(&resource(at));
            observe(at, 200);
        }
        assert_eq!(
            series(),
            2 * MAX_RESOURCES + 1,
            "forwarded resources have a limit of their own"
        );
        observe(1_000, 403);
        observe(2_000, 403);
        assert_eq!(series(), 2 * MAX_RESOURCES + 2, "both resources have the label value {OTHER}");
    }
}
