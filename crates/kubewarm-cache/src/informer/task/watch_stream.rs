//! An open watch, the ways in which it can end, and its metrics.

use crate::informer::{
    InformerTiming, ResourceMetrics, UpstreamWatchEnd,
    requests::request::{BodyChunks, UpstreamBody},
};
use bytes::Bytes;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_wire::upstream::{EventSplitter, RejectedObject};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

pub(crate) struct WatchStream {
    pub(crate) chunks: BodyChunks,
    pub(crate) splitter: EventSplitter,
    pub(crate) rest: Bytes,
    pub(crate) opened: Instant,
    /// The `timeoutSeconds` of the request.
    pub(crate) timeout: Duration,
    pub(crate) last_bytes_at: Instant,
    pub(crate) events: u64,
}

/// Why a watch ended.
pub(crate) enum WatchStreamEnd {
    /// The response ended normally, for example at the watch's `timeoutSeconds`.
    Clean,
    Broken(RequestFault),
    /// The informer closed the watch, because the watch was silent or missed events. The text
    /// contains the reason.
    Dead(&'static str),
    /// The API server sent an `ERROR` event.
    ErrorEvent(RequestFault),
    /// The watch sent an event that cannot be decoded and names no object. The text describes the
    /// problem.
    Undecodable(String),
    /// An object cannot be read in protobuf. The informer relists in JSON.
    NeedsJson(RejectedObject),
    /// An event is not newer than the store, and its object is not in the store. The store can lack
    /// a change, so the informer relists.
    OutOfOrder,
    /// A bookmark has a lower version than the store. A consistent read must follow, because only
    /// this read shows whether an etcd restore lowered resource versions.
    VersionDecreased,
    /// A consistency check found that the store differs from a list of the same version.
    Inconsistent,
    /// The informer's namespace does not exist.
    NamespaceGone(RequestFault),
}

impl WatchStream {
    pub(crate) fn new(body: UpstreamBody, timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            chunks: body.chunks,
            splitter: EventSplitter::new(body.media_type),
            rest: Bytes::new(),
            opened: now,
            timeout,
            last_bytes_at: now,
            events: 0,
        }
    }
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream").field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl WatchStreamEnd {
    /// The value of the label `reason` of `kubewarm_upstream_watch_ends_total`. The watch lasted
    /// for `lasted`, and requested `timeout` as its `timeoutSeconds`.
    pub(crate) fn label(&self, lasted: Duration, timeout: Duration) -> UpstreamWatchEnd {
        match self {
            Self::Clean if is_early(lasted, timeout) => UpstreamWatchEnd::Eof,
            Self::Clean => UpstreamWatchEnd::ServerTimeout,
            Self::Broken(_) => UpstreamWatchEnd::Broken,
            Self::Dead(_) => UpstreamWatchEnd::Idle,
            Self::ErrorEvent(fault) => match (fault.reason(), fault.code()) {
                (FaultReason::Gone, _) => UpstreamWatchEnd::Gone,
                (_, Some(429)) => UpstreamWatchEnd::Http429,
                (_, Some(400..=499)) => UpstreamWatchEnd::Http4xx,
                _ => UpstreamWatchEnd::Http5xx,
            },
            Self::Undecodable(_)
            | Self::NeedsJson(_)
            | Self::OutOfOrder
            | Self::VersionDecreased => UpstreamWatchEnd::Decode,
            Self::Inconsistent | Self::NamespaceGone(_) => UpstreamWatchEnd::Shutdown,
        }
    }
}

/// Records the end of a watch when the guard is dropped, also if the informer's task ends during
/// the watch. The recorded reason is `Shutdown` unless [`WatchMetricsGuard::end`] set another
/// reason.
#[must_use = "dropping it at once records a watch that was stopped"]
pub(crate) struct WatchMetricsGuard {
    metrics: Arc<ResourceMetrics>,
    opened: Instant,
    reason: UpstreamWatchEnd,
}

impl WatchMetricsGuard {
    pub(crate) fn new(metrics: &Arc<ResourceMetrics>, opened: Instant) -> Self {
        metrics.upstream_watch_starts.inc();
        Self { metrics: Arc::clone(metrics), opened, reason: UpstreamWatchEnd::Shutdown }
    }

    pub(crate) fn end(mut self, reason: UpstreamWatchEnd) {
        self.reason = reason;
    }
}

impl Drop for WatchMetricsGuard {
    fn drop(&mut self) {
        self.metrics.observe_watch_end(self.reason, self.opened.elapsed());
    }
}

/// Whether a watch ended more than 2 s before its `timeoutSeconds`.
pub(crate) fn is_early(lasted: Duration, timeout: Duration) -> bool {
    // Tolerate 2 s, because the API server counts whole seconds from the arrival of the request.
    lasted + Duration::from_secs(2) < timeout
}

/// Returns a random `timeoutSeconds` between `InformerTiming::watch_min_timeout` and twice that
/// value.
pub(crate) fn random_timeout(timing: &InformerTiming) -> Duration {
    timing.watch_min_timeout.mul_f64(1.0 + fastrand::f64())
}
