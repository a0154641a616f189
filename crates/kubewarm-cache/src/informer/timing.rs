//! All time limits and intervals of informers, each with its reason.

use std::time::Duration;

/// Time limits and intervals of informers. Only tests change the defaults, to run faster.
#[derive(Clone, Debug)]
pub struct InformerTiming {
    /// Time limit for the response headers of a list. An API server whose watch cache is not ready
    /// can take 60 s to respond.
    pub list_headers: Duration,
    /// Time limit for the response headers of a watch. An API server sends them before the first
    /// event.
    pub watch_headers: Duration,
    /// Interval in which a list must receive at least [`InformerTiming::list_min_bytes`] bytes.
    /// Otherwise the list fails.
    pub list_window: Duration,
    /// Minimum number of bytes per [`InformerTiming::list_window`]. A slower list would occupy a
    /// list slot, whose number is limited, without end.
    pub list_min_bytes: u64,
    /// Shortest `timeoutSeconds` of a watch. An informer picks a random value up to twice as long,
    /// as in client-go. So thousands of watches do not end together.
    pub watch_min_timeout: Duration,
    /// A watch that ends within this time after its start, without an event, counts as a failure,
    /// so that the informer waits for a backoff before the next watch.
    pub immediate_end: Duration,
    /// Minimum duration of a watch that resets the backoff. A relist waits for a backoff if the
    /// last list completed less than this time ago. So an informer whose watches fail at once does
    /// not list in a loop.
    pub stable_after: Duration,
    /// The informer replaces a watch after this time without bytes and without a proof that the
    /// store is current. A healthy watch receives a bookmark about every minute, so a watch that
    /// was silent for this time has missed two.
    pub watch_max_silence: Duration,
    /// `timeoutSeconds` of a probe, a short second watch. kubewarm sends only whole seconds. An API
    /// server of Kubernetes 1.36 sends no bookmark if the value is shorter than 4 s.
    pub probe: Duration,
    /// Time before the end of the profile's `maxStalenessSeconds` at which the informer sends a
    /// probe (a second, short watch). It sends the probe only if its own watch has not brought the
    /// store to the version of the last consistent list. A probe takes about 2 s, and at most a
    /// little more than its `timeoutSeconds`. So a healthy store never becomes stale.
    pub probe_margin: Duration,
    /// Time limit for the informer's own watch to deliver an event that a probe (a second, short
    /// watch) received.
    pub probe_grace: Duration,
    /// Time from a bookmark to the informer's next consistent list. kube-apiserver sends the next
    /// bookmark about 60 s after the last one. So the list is only 20 s old when the bookmark
    /// brings the store to the list's version, which proves the store current.
    pub list_after_bookmark: Duration,
    /// Minimum time from one consistent list to the next, if the store becomes stale only after 2
    /// minutes or more. Bookmarks arrive about once a minute, and more than one list for each
    /// bookmark would prove nothing more.
    pub list_interval: Duration,
    /// Time from a consistent list to the probe (a second, short watch). On a busy resource, an
    /// event brings the store to the list's version within this time, so that no probe is needed.
    pub list_grace: Duration,
    /// Time limit for the response headers of a consistent list of one object, and again for its
    /// body. A longer wait would delay the next list until the store is stale.
    pub list_for_proof: Duration,
    /// Minimum delay after a failed consistent list or probe (a second, short watch), and after a
    /// probe that did not prove the store current.
    pub probe_pause: Duration,
    /// Interval at which an informer with an empty store checks whether its namespace exists. Lists
    /// and watches do not show a missing namespace.
    pub namespace_check: Duration,
    /// First delay of the exponential backoff. The delay doubles with each failure, up to 30 times
    /// this value.
    pub backoff: Duration,
    /// Maximum random delay before a reconnect after a broken connection. It spreads the reconnects
    /// of many informers.
    pub reconnect_jitter: Duration,
    /// How long an informer does not retry a list method that failed. The time is limited because
    /// an upgraded API server can support the method.
    pub failed_method_ttl: Duration,
    /// Age at which an informer requests the API server's version again before a list. The version
    /// decides how the informer lists, and changes with an upgrade.
    pub server_version_ttl: Duration,
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
            list_after_bookmark: Duration::from_secs(40),
            list_interval: Duration::from_secs(55),
            list_grace: Duration::from_millis(250),
            list_for_proof: Duration::from_secs(10),
            probe_pause: Duration::from_secs(5),
            namespace_check: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            reconnect_jitter: Duration::from_millis(500),
            failed_method_ttl: Duration::from_hours(1),
            server_version_ttl: Duration::from_mins(1),
        }
    }
}
