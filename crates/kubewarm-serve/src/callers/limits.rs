//! The limits on what callers can occupy at once.

use std::{num::NonZeroUsize, thread, time::Duration};

/// The limits for clients of the read address, as an administrator sets them.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// Concurrent requests, except watches. The default is the API server's default.
    pub requests: NonZeroUsize,
    /// Concurrent watches.
    pub watches: NonZeroUsize,
    /// Concurrent connections. A client has one connection, and with HTTP/1.1 one for each watch.
    pub connections: NonZeroUsize,
    /// Concurrent connections of one client address without an accepted request.
    pub address_connections: NonZeroUsize,
    /// The percentage of the requests, watches, connections, forwarded requests and unwritten bytes that one
    /// user can have.
    pub user_share: u8,
    /// The bytes of responses that connections have taken and not written. The limit counts by user.
    pub unwritten_bytes: usize,
}

/// The limits for all callers of one listener. One user can have a part of a limit that counts by user. One
/// client address can have a quarter of a limit that counts by address.
#[derive(Clone, Copy, Debug)]
pub struct CallerLimits {
    /// What callers read from this listener, for log messages.
    pub reads: &'static str,
    /// Concurrent token reviews. The limit counts by address.
    pub token_reviews: usize,
    /// Concurrent access reviews. The limit counts by user; one user can have a quarter.
    pub access_reviews: usize,
    /// Requests that wait for a token review, and the same number again for access reviews. One address or user
    /// can have half, because a starting controller sends many requests at once.
    pub waiting: usize,
    /// How long a review waits for its slot.
    pub queue: Duration,
    /// Concurrent forwarded requests, with watches and tunnels. The limit counts by user. Each request holds a
    /// connection to the API server and about 100 KiB.
    pub forwarded: usize,
    /// Pieces of large responses that are encoded at once; each piece occupies a processor for a moment. The
    /// limit counts by user; one user can have a quarter.
    pub large: usize,
    /// The limits that an administrator sets.
    pub readers: ReaderLimits,
}

impl CallerLimits {
    /// The limits of the read address.
    #[must_use]
    pub fn reads(readers: ReaderLimits) -> Self {
        Self {
            reads: "objects",
            token_reviews: 32,
            access_reviews: 64,
            waiting: 200,
            queue: Duration::from_secs(3),
            forwarded: 1_024,
            large: 2 * thread::available_parallelism().map_or(1, NonZeroUsize::get),
            readers,
        }
    }

    /// The limits of the admin address. Its listener limits the requests. There, reviews do not wait, and there
    /// are no watches.
    #[must_use]
    pub fn admin() -> Self {
        Self {
            reads: "metrics",
            token_reviews: 16,
            access_reviews: 16,
            waiting: 256,
            queue: Duration::ZERO,
            forwarded: 0,
            large: 1,
            readers: ReaderLimits { requests: whole(256), ..ReaderLimits::default() },
        }
    }
}

impl ReaderLimits {
    /// How much of `all` one user can have; at least one.
    pub(super) fn share(&self, all: usize) -> usize {
        (all.saturating_mul(self.user_share.into()) / 100).max(1)
    }
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self {
            requests: whole(400),
            watches: whole(4_096),
            connections: whole(1_024),
            address_connections: whole(128),
            user_share: 25,
            unwritten_bytes: 64 << 20,
        }
    }
}

/// A quarter of `limit`, but at least one.
pub(super) const fn quarter(limit: usize) -> usize {
    if limit < 4 { 1 } else { limit / 4 }
}

/// `limit`, but at least one.
const fn whole(limit: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(limit.saturating_sub(1))
}
