//! Every time-out of the engine, in one place, each with its reason.

use std::time::Duration;

/// How long the engine waits for what. Tests against a scripted server shorten it.
#[derive(Clone, Debug)]
pub struct Timing {
    /// For the headers of a list: a server that is warming up its own cache may take long, and
    /// gives up by itself after 60 s.
    pub list_headers: Duration,
    /// For the headers of a watch, which a server sends before anything happens.
    pub watch_headers: Duration,
    /// A list must bring at least [`Timing::list_least`] bytes in this time, or end.
    pub list_window: Duration,
    /// See [`Timing::list_window`]: below this rate a list never ends and holds a slot for ever.
    pub list_least: u64,
    /// Shortest `timeoutSeconds` of a watch; the longest is twice that, as in client-go, so that
    /// thousands of watches do not end together.
    pub watch_least: Duration,
    /// A watch that ends sooner than this without an event ended "at once".
    pub at_once: Duration,
    /// A watch that lasted less, or a list after which another was needed sooner, did not help: the
    /// next one waits.
    pub settled: Duration,
    /// A watch whose connection brings nothing at all for so long is reopened: servers send a
    /// bookmark about every minute.
    pub watch_dead: Duration,
    /// `timeoutSeconds` of a probe: the least that makes a 1.36 server send a bookmark.
    pub probe: Duration,
    /// How long before the staleness bound a quiet watch is probed, so that a healthy one never
    /// crosses it: a probe takes about 2 s, at most `probe` and some.
    pub probe_margin: Duration,
    /// How long an event seen by the probe may be missing from the watch.
    pub probe_grace: Duration,
    /// Between two probes of a cell that do not succeed.
    pub probe_pause: Duration,
    /// For an empty namespace that may not exist: how often it is asked for.
    pub namespace_check: Duration,
    /// Unit of the growing waits: 1, 2, 4 … 30 of it.
    pub backoff: Duration,
    /// Reconnects after a broken connection are spread over this time.
    pub spread: Duration,
    /// How long a fallback to another list strategy is remembered: servers get upgraded.
    pub remember: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            list_headers: Duration::from_secs(65),
            watch_headers: Duration::from_secs(30),
            list_window: Duration::from_secs(30),
            list_least: 16 << 10,
            watch_least: Duration::from_mins(5),
            at_once: Duration::from_secs(1),
            settled: Duration::from_secs(10),
            watch_dead: Duration::from_secs(150),
            probe: Duration::from_secs(4),
            probe_margin: Duration::from_secs(6),
            probe_grace: Duration::from_secs(2),
            probe_pause: Duration::from_secs(5),
            namespace_check: Duration::from_secs(30),
            backoff: Duration::from_secs(1),
            spread: Duration::from_millis(500),
            remember: Duration::from_hours(1),
        }
    }
}
