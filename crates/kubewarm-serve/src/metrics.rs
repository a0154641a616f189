//! The metrics of the read API.

use http::Method;
use kubewarm_api::model::Resource;
use kubewarm_cache::informer::{OTHER, RESOURCE_LABELS, code_label};
use parking_lot::Mutex;
use prometheus::{
    HistogramVec, IntCounterVec, IntGaugeVec, Registry, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Buckets in seconds, from a read in memory to a wait for a first list.
const READ: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// Buckets in seconds, from one request to the API server to the longest wait for a first list.
const WAIT: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 15.0, 60.0];

/// The kind of a request: the label `handler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Handler {
    /// A get of one object.
    Get,
    /// A list of objects.
    List,
    /// A watch.
    Watch,
    /// A discovery document, or the API server's version.
    Discovery,
    /// A request that is forwarded to the API server.
    Forward,
    /// A request that was rejected before its kind was known.
    Other,
}

/// The source of a response: the label `cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CacheUse {
    /// A store that was warm and fresh, or cached data about the API.
    Hit,
    /// A store, after a wait until it was warm and fresh.
    Wait,
    /// No store: the request was rejected or forwarded.
    Miss,
}

/// What a read has waited for: the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WaitFor {
    /// An informer that is not warm.
    Warmth,
    /// A resource version.
    Version,
    /// A freshness check of the informer.
    Proof,
}

/// The values of the label `outcome`: the wait was successful, or the read was rejected.
pub const WAIT_OUTCOMES: [&str; 2] = ["met", "refused"];

/// Why a client's watch ended: the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WatchClosed {
    /// The watch has reached its timeout.
    Timeout,
    /// The event log does not contain all changes after the watch's position.
    Expired,
    /// The store did not reach the start version in time.
    Future,
    /// The client read too slowly, and the watch fell behind the event log.
    Slow,
    /// The informer was stopped or blocked, or no profile serves it any more.
    CellGone,
    /// The caller lost its permission, or the API server did not confirm it in time.
    Refused,
    /// The client disconnected.
    Client,
    /// kubewarm shut down.
    Shutdown,
}

/// The maximum number of watched resources with their own series. All further resources share one series.
const MAX_RESOURCES: usize = 200;

/// The number of open watches, by the labels of their resource.
type Open = Arc<Mutex<HashMap<[String; 3], i64>>>;

/// Counts an open watch until it is dropped.
#[derive(Debug)]
pub struct Watching {
    metrics: ReadMetrics,
    of: [String; 3],
    closed: WatchClosed,
}

/// The metrics of reads. Clones count together.
#[derive(Clone, Debug)]
pub struct ReadMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    waits: HistogramVec,
    clients: IntGaugeVec,
    events: IntCounterVec,
    ends: IntCounterVec,
    open: Open,
}

impl ReadMetrics {
    /// Registers the metrics in `registry`.
    ///
    /// # Errors
    ///
    /// [`prometheus::Error`] if they are already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, labels: &[&str], help: &str| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let histograms = |name: &str, buckets: &[f64], labels: &[&str], help: &str| {
            register_histogram_vec_with_registry!(name, help, labels, buckets.to_vec(), registry)
        };
        Ok(Self {
            requests: counters(
                "kubewarm_http_requests_total",
                &["handler", "method", "code"],
                "Requests of the read API, by HTTP status; absent without --api-addr.",
            )?,
            duration: histograms(
                "kubewarm_http_request_duration_seconds",
                READ,
                &["handler", "cache"],
                "Seconds from the head of a request of the read API to the head of its answer, the API server's word about the caller included.",
            )?,
            waits: histograms(
                "kubewarm_read_wait_seconds",
                WAIT,
                &["reason", "outcome"],
                "Seconds of reads that had to wait for something, by what they waited for last; absent until one has.",
            )?,
            clients: register_int_gauge_vec_with_registry!(
                "kubewarm_http_watch_clients",
                "Watches that clients of the read API have open; absent for what nobody watches.",
                &RESOURCE_LABELS,
                registry
            )?,
            events: counters(
                "kubewarm_http_watch_events_total",
                &[],
                "Events that were sent to those who watch, bookmarks and errors included; absent without --api-addr.",
            )?,
            ends: counters(
                "kubewarm_http_watch_ends_total",
                &["reason"],
                "Watches of clients that ended, by what ended them; absent without --api-addr.",
            )?,
            open: Open::default(),
        })
    }

    /// Records a read that waited for `reason`. `took` is the time from the request to its answer or rejection.
    pub fn waited(&self, reason: WaitFor, is_met: bool, took: Duration) {
        let [met, refused] = WAIT_OUTCOMES;
        let outcome = if is_met { met } else { refused };
        self.waits.with_label_values(&[reason.as_ref(), outcome]).observe(took.as_secs_f64());
    }

    /// Records a response with the status `code`. `took` is the time since the request's head. `method` must be
    /// a [`method_label`].
    pub fn answered(
        &self,
        (handler, method): (Handler, &'static str),
        code: u16,
        from: CacheUse,
        took: Duration,
    ) {
        let labels = [handler.as_ref(), method, code_label(Some(code))];
        self.requests.with_label_values(&labels).inc();
        let labels = [handler.as_ref(), from.as_ref()];
        self.duration.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Counts a watch of `resource` as open until the result is dropped.
    #[must_use]
    pub fn watching(&self, resource: &Resource) -> Watching {
        let of = [resource.group(), resource.version(), resource.resource()].map(str::to_owned);
        let mut open = self.open.lock();
        let is_full = open.len() >= MAX_RESOURCES && !open.contains_key(&of);
        let of = if is_full { [OTHER; 3].map(str::to_owned) } else { of };
        let count = open.entry(of.clone()).or_default();
        *count += 1;
        self.clients.with_label_values(&of).set(*count);
        drop(open);
        Watching { metrics: self.clone(), of, closed: WatchClosed::Client }
    }
}

/// The label of a request's method: `GET`, or `other` for all methods that kubewarm does not serve itself.
#[must_use]
pub fn method_label(method: &Method) -> &'static str {
    if *method == Method::GET { "GET" } else { "other" }
}

impl Watching {
    /// Counts events that were sent.
    pub fn sent(&self, events: u64) {
        self.metrics.events.with_label_values::<&str>(&[]).inc_by(events);
    }

    /// Sets the reason of the watch's end. The default is a disconnected client.
    pub fn close(&mut self, why: WatchClosed) {
        self.closed = why;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut open = self.metrics.open.lock();
        let left = open.get(&self.of).map_or(0, |count| count - 1);
        if left > 0 {
            open.insert(self.of.clone(), left);
            self.metrics.clients.with_label_values(&self.of).set(left);
        } else {
            open.remove(&self.of);
            // The series exists, so only other label names could cause an error.
            let _removed = self.metrics.clients.remove_label_values(&self.of);
        }
        drop(open);
        self.metrics.ends.with_label_values(&[self.closed]).inc();
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
        let held: Vec<_> =
            (0..MAX_RESOURCES + 5).map(|at| metrics.watching(&resource(at))).collect();
        let again = metrics.watching(&resource(0));
        assert_eq!(metrics.open.lock().len(), MAX_RESOURCES + 1);
        let count = |of: &[String; 3]| metrics.open.lock().get(of).copied().unwrap_or_default();
        assert_eq!((count(&again.of), count(&[OTHER; 3].map(str::to_owned))), (2, 5));
        drop(held);
        assert_eq!((count(&again.of), metrics.open.lock().len()), (1, 1));
        drop(again);
        assert!(metrics.open.lock().is_empty());
    }
}
