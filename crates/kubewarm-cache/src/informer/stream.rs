//! An open watch, how it can end, and the record of it.

use super::{
    ResourceMetrics, Timing, WatchEnd, lines::LineSplitter, split::MAX_OBJECT, upstream::Chunks,
};
use bytes::Bytes;
use kubewarm_api::model::{Fault, Reason};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// An open watch.
pub(super) struct Stream {
    pub(super) chunks: Chunks,
    pub(super) lines: LineSplitter,
    /// Received, not yet cut.
    pub(super) rest: Bytes,
    pub(super) opened: Instant,
    /// `timeoutSeconds`.
    pub(super) asked: Duration,
    /// When the last bytes came.
    pub(super) heard: Instant,
    pub(super) events: u64,
}

/// Why a watch is over.
pub(super) enum End {
    /// The response ended as it should.
    Clean,
    /// The connection broke.
    Broken(Fault),
    /// We gave it up: nothing comes, though something should.
    Dead(&'static str),
    /// The server said why, in an `ERROR` event.
    Told(Fault),
    /// Bytes that make no sense, and no name of the object they are of: what is wrong with them.
    Nonsense(String),
    /// An event older than one before it, of an object that is not held.
    Disordered,
    /// A version lower than the one known: only a consistent read can say why.
    WentBack,
    /// The table is not what a list of its version names.
    Inconsistent,
    /// The namespace does not exist.
    NamespaceGone(Fault),
}

impl Stream {
    pub(super) fn new(chunks: Chunks, asked: Duration) -> Self {
        let now = Instant::now();
        Self {
            chunks,
            lines: LineSplitter::new(MAX_OBJECT),
            rest: Bytes::new(),
            opened: now,
            asked,
            heard: now,
            events: 0,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("opened", &self.opened).finish_non_exhaustive()
    }
}

impl End {
    /// The label of `kubewarm_upstream_watch_ends_total`.
    pub(super) fn label(&self, lasted: Duration, asked: Duration) -> WatchEnd {
        match self {
            Self::Clean if is_early(lasted, asked) => WatchEnd::Eof,
            Self::Clean => WatchEnd::ServerTimeout,
            Self::Broken(_) => WatchEnd::Broken,
            Self::Dead(_) => WatchEnd::Idle,
            Self::Told(fault) => match (fault.reason(), fault.code()) {
                (Reason::Gone, _) => WatchEnd::Gone,
                (_, Some(429)) => WatchEnd::Http429,
                (_, Some(400..=499)) => WatchEnd::Http4xx,
                _ => WatchEnd::Http5xx,
            },
            Self::Nonsense(_) | Self::Disordered | Self::WentBack => WatchEnd::Decode,
            Self::Inconsistent | Self::NamespaceGone(_) => WatchEnd::Shutdown,
        }
    }
}

/// Counts a watch as ended when it is dropped: stopped, unless [`OpenWatch::ended`] said why.
#[must_use = "dropping it at once records a watch that was stopped"]
pub(super) struct OpenWatch {
    metrics: Arc<ResourceMetrics>,
    opened: Instant,
    reason: WatchEnd,
}

impl OpenWatch {
    pub(super) fn new(metrics: &Arc<ResourceMetrics>, opened: Instant) -> Self {
        metrics.upstream_watch_starts.inc();
        Self { metrics: Arc::clone(metrics), opened, reason: WatchEnd::Shutdown }
    }

    pub(super) fn ended(mut self, reason: WatchEnd) {
        self.reason = reason;
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.metrics.observe_watch_end(self.reason, self.opened.elapsed());
    }
}

/// Whether a watch ended before the time it was opened for.
pub(super) fn is_early(lasted: Duration, asked: Duration) -> bool {
    // The server counts from when it got the request, in whole seconds.
    lasted + Duration::from_secs(2) < asked
}

/// A random `timeoutSeconds`.
pub(super) fn lasting(timing: &Timing) -> Duration {
    timing.watch_least.mul_f64(1.0 + fastrand::f64())
}
