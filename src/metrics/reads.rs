//! What the read API is asked, and how it answers.

use super::{
    descriptor,
    label::{Label, code_label},
};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// One object.
    Get,
    /// Several.
    List,
    /// A document about the API.
    Discovery,
    /// What is not served here, and sent on to the API server.
    Forward,
    /// What could not be told, because it was refused before.
    Other,
}

/// Where the answer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// A table that was warm and new enough, or what is known of the API.
    Hit,
    /// The same, after waiting for it.
    Wait,
    /// Nowhere: it was refused.
    Miss,
}

/// What a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A cell that is not warm.
    Warmth,
    /// A version.
    Version,
    /// A proof that the cell is current.
    Proof,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// With an answer.
    Met,
    /// With a refusal.
    Refused,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The one that reads.
    Get,
    /// One that is refused.
    Other,
}

/// Counts what is read. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct ReadMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    waits: HistogramVec,
}

impl ReadMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let requests = descriptor::HTTP_REQUESTS.counters()?;
        let duration = descriptor::HTTP_REQUEST_DURATION.histograms()?;
        let waits = descriptor::READ_WAIT.histograms()?;
        registry.register(Box::new(waits.clone()))?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { requests, duration, waits })
    }

    /// Counts a read that waited for something, `took` all in all.
    pub fn waited(&self, reason: WaitFor, outcome: WaitOutcome, took: Duration) {
        let labels = [reason.as_label(), outcome.as_label()];
        self.waits.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Counts a request that was answered with `code`, `took` after its head had come.
    pub fn answered(
        &self,
        (handler, method): (Handler, Method),
        code: u16,
        from: CacheUse,
        took: Duration,
    ) {
        let labels = [handler.as_label(), method.as_label(), code_label(Some(code))];
        self.requests.with_label_values(&labels).inc();
        let labels = [handler.as_label(), from.as_label()];
        self.duration.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
