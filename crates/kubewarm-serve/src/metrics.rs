//! What the read API is asked, and how it answers.

use http::Method;
use kubewarm_api::model::{MetricOutcome, Resource};
use kubewarm_cache::informer::{OTHER, RESOURCE_LABELS, code_label};
use parking_lot::Mutex;
use prometheus::{
    HistogramVec, IntCounterVec, IntGaugeVec, Registry, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_gauge_vec_with_registry,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Reads, from memory to a wait for a first list.
const READ_BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// From one request upstream to the longest wait for a first list.
const READ_WAIT_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 15.0, 60.0];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Handler {
    /// One object.
    Get,
    /// Several.
    List,
    /// What happens to them.
    Watch,
    /// A document about the API.
    Discovery,
    /// What is not served here, and sent on to the API server.
    Forward,
    /// What could not be told, because it was refused before.
    Other,
}

/// Where the answer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CacheUse {
    /// A table that was warm and new enough, or what is known of the API.
    Hit,
    /// The same, after waiting for it.
    Wait,
    /// Nowhere: it was refused.
    Miss,
}

/// What a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WaitFor {
    /// A cell that is not warm.
    Warmth,
    /// A version.
    Version,
    /// A proof that the cell is current.
    Proof,
}

/// The outcomes of a read that waited.
pub const WAIT_OUTCOMES: [MetricOutcome; 2] = [MetricOutcome::Success, MetricOutcome::Error];

/// What ended a client's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WatchClosed {
    /// Its time was over.
    Timeout,
    /// What happened is not known, or not remembered.
    Expired,
    /// The version that it was to begin after has not come.
    Future,
    /// It was too slow.
    Slow,
    /// The cell went, or may not answer any more.
    CellGone,
    /// Its caller may not any more, or nobody can say.
    Refused,
    /// Its client went.
    Client,
    /// The end of the process.
    Shutdown,
}

/// Resources that have a series of their own while they are watched; those beyond share one.
const MAX_RESOURCES: usize = 200;

/// Watches that are open, by the labels of their resource.
type Open = Arc<Mutex<HashMap<[String; 3], i64>>>;

/// A watch that is open, until it is dropped.
#[derive(Debug)]
pub struct Watching {
    metrics: ReadMetrics,
    of: [String; 3],
    closed: WatchClosed,
}

/// Counts what is read. Cheap to clone; clones count together.
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
    /// Counts in `registry`.
    ///
    /// # Errors
    ///
    /// [`prometheus::Error`] where it has them already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, labels: &[&str], help: &str| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let histograms = |name: &str, buckets: &[f64], labels: &[&str], help: &str| {
            register_histogram_vec_with_registry!(name, help, labels, buckets.to_vec(), registry)
        };
        Ok(Self {
            requests: counters(
                "kubewarm_read_requests_total",
                &["handler", "method", "code"],
                "Requests of the read API, by HTTP status; absent without --api-addr.",
            )?,
            duration: histograms(
                "kubewarm_read_duration_seconds",
                READ_BUCKETS,
                &["handler", "cache"],
                "Seconds from the head of a request of the read API to the head of its answer, the API server's word about the caller included.",
            )?,
            waits: histograms(
                "kubewarm_read_wait_seconds",
                READ_WAIT_BUCKETS,
                &["reason", "outcome"],
                "Seconds of reads that had to wait for something, by what they waited for last; absent until one has.",
            )?,
            clients: register_int_gauge_vec_with_registry!(
                "kubewarm_read_watches",
                "Watches that clients of the read API have open; absent for what nobody watches.",
                &RESOURCE_LABELS,
                registry
            )?,
            events: counters(
                "kubewarm_read_watch_events_total",
                &[],
                "Events that were sent to those who watch, bookmarks and errors included; absent without --api-addr.",
            )?,
            ends: counters(
                "kubewarm_read_watch_ends_total",
                &["reason"],
                "Watches of clients that ended, by what ended them; absent without --api-addr.",
            )?,
            open: Open::default(),
        })
    }

    /// Observes a read that waited, last for `reason`. `took` is the time from request to outcome.
    pub fn observe_wait(&self, reason: WaitFor, outcome: MetricOutcome, took: Duration) {
        let labels = [reason.as_ref(), outcome.as_ref()];
        self.waits.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Counts a request that was answered with `code`, `took` after its head had come. `method` is a
    /// [`method_label`].
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

    /// Counts a watch of `resource` for as long as what is returned lives.
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

/// The label of a request's method: `GET`, or `other` for all that kubewarm does not serve itself.
#[must_use]
pub fn method_label(method: &Method) -> &'static str {
    if *method == Method::GET { "GET" } else { "other" }
}

impl Watching {
    /// Counts events that are sent.
    pub fn sent(&self, events: u64) {
        self.metrics.events.with_label_values::<&str>(&[]).inc_by(events);
    }

    /// Notes what ends it; without that, it is the client.
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
            // It was there: only other labels would make this fail.
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
    fn a_series_ends_with_the_last_watch_and_there_are_so_many_at_the_most() {
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
