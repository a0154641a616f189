//! How much callers can have at once.

use std::{num::NonZeroUsize, thread, time::Duration};

/// How much callers of one address can have at once, all of them together. One user has a quarter of what counts by
/// user, and one address has a quarter of what counts by address.
#[derive(Clone, Copy, Debug)]
pub struct CallerLimits {
    /// What callers read there, for the log.
    pub reads: &'static str,
    /// Reviews of credentials under way. By address.
    pub token_reviews: usize,
    /// Reviews of access under way. By user.
    pub access_reviews: usize,
    /// Requests that wait for a review of credentials, and as many reviews of access. One address, or one user, has half,
    /// since a controller that starts asks for much at once.
    pub waiting: usize,
    /// How long a review waits for its slot.
    pub queue: Duration,
    /// Requests under way. By user.
    pub requests: usize,
    /// Watches. By user.
    pub watches: usize,
    /// Requests that are sent on, watches and tunnels among them: each holds a connection to the API server and some
    /// 100 KiB. By user.
    pub forwarded: usize,
    /// Pieces of large answers that are written at once: each takes a core for a moment. By user.
    pub large: usize,
    /// Connections that carried an accepted request. By user.
    pub connections: usize,
}

impl CallerLimits {
    /// Of the admin address: its listener bounds the requests, and nobody waits there.
    #[must_use]
    pub const fn admin() -> Self {
        Self {
            reads: "metrics",
            token_reviews: 16,
            access_reviews: 16,
            waiting: 256,
            queue: Duration::ZERO,
            requests: 256,
            watches: 0,
            forwarded: 0,
            large: 1,
            connections: 0,
        }
    }
}

impl Default for CallerLimits {
    /// Of the read address.
    fn default() -> Self {
        Self {
            reads: "objects",
            token_reviews: 32,
            access_reviews: 64,
            waiting: 200,
            queue: Duration::from_secs(3),
            requests: 400,
            watches: 4_096,
            forwarded: 1_024,
            large: 2 * thread::available_parallelism().map_or(1, NonZeroUsize::get),
            connections: 1_024,
        }
    }
}

/// A quarter, and at least one.
pub(super) const fn quarter(limit: usize) -> usize {
    if limit < 4 { 1 } else { limit / 4 }
}
