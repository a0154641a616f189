//! All time limits and intervals of informers, each with its reason.

use std::time::Duration;

/// Time limits and intervals of informers. Only tests change the defaults, to run faster.
#[derive(Clone, Debug)]
pub struct InformerTiming {
    /// Limit for the headers of a list. A server whose watch cache is not ready can respond late;
    /// it gives up after 60 s.
    pub list_headers: Duration,
    /// Limit for the headers of a watch, which a server sends before the first event.
    pub watch_headers: Duration,
    /// Within this time, a list must receive at least [`InformerTiming::list_min_bytes`] bytes, or it fails.
    pub list_window: Duration,
    /// Minimum number of bytes per [`InformerTiming::list_window`]. A slower list would occupy its slot
    /// without end.
    pub list_min_bytes: u64,
    /// Shortest `timeoutSeconds` of a watch. The longest is twice that, as in client-go, so that
    /// thousands of watches do not end together.
    pub watch_min_timeout: Duration,
    /// A watch without events that ends within this time counts as a failure.
    pub immediate_end: Duration,
    /// A watch that lasts less does not reset the backoff. A relist that is required sooner after a
    /// list waits for a backoff.
    pub stable_after: Duration,
    /// Maximum silence of a watch before it is reopened. A server sends a bookmark about every
    /// minute.
    pub watch_max_silence: Duration,
    /// `timeoutSeconds` of a probe, in whole seconds. A 1.36 server sends no bookmark for a shorter
    /// one.
    pub probe: Duration,
    /// How long before the staleness limit a silent watch is probed. A probe takes about 2 s, and
    /// at most a little more than `probe`. So a healthy store never becomes stale.
    pub probe_margin: Duration,
    /// How long the watch can take to deliver an event that a probe received.
    pub probe_grace: Duration,
    /// Minimum delay after a failed probe.
    pub probe_pause: Duration,
    /// Interval of namespace lookups for an informer with an empty store.
    pub namespace_check: Duration,
    /// First delay of the exponential backoff. It doubles up to 30 times this value.
    pub backoff: Duration,
    /// Maximum random delay before a reconnect after a broken connection.
    pub reconnect_jitter: Duration,
    /// How long a failed list strategy is skipped. The time is limited because servers are
    /// upgraded.
    pub failed_method_ttl: Duration,
}

impl Default for InformerTiming {
    fn default() -> Self {
        Self {
            list_headers: Duration::from_secs(65),
            watch_headers: Duration::from_secs(30),
            list_window: Duration::from_secs(30),
            list_min_bytes: 16 << 10,
            watch_min_timeout: Duration::from_mins(5),
            immediate_end: Duration::from_secs(1),
            stable_after: Duration::from_secs(10),
            watch_max_silence: Duration::from_secs(150),
            probe: Duration::from_secs(4),
            probe_margin: Duration::from_secs(6),
            probe_grace: Duration::from_secs(2),
            probe_pause: Duration::from_secs(5),
            namespace_check: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            reconnect_jitter: Duration::from_millis(500),
            failed_method_ttl: Duration::from_hours(1),
        }
    }
}
