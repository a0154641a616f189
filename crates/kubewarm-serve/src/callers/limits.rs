//! The limits on clients' requests, watches, connections, TokenReviews, access reviews and
//! unwritten bytes.

use super::{
    CallerRejection,
    limit_key::{AgentAccount, LimitKey},
};
use kubewarm_client::{KeyedAcquireError, SemaphoreUsage};
use std::{num::NonZeroUsize, sync::Arc, thread, time::Duration};

/// How long a request waits for its turn. The API server's priority levels let a request wait for
/// the same time: a quarter of its default request timeout.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// How long a TokenReview or access review waits for its turn. kubewarm caches a result for 10 s
/// from the beginning of this wait, so after a longer wait, the result would often be stale when it
/// arrives.
pub(super) const MAX_REVIEW_WAIT: Duration = Duration::from_secs(8);
/// The time limit of [`CallerGate::admit`]. If the first request of a connection waits for its
/// reviews, the connection stays open for this additional time, so that the client receives a
/// response.
///
/// [`CallerGate::admit`]: super::CallerGate::admit
pub(crate) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The limits for clients of kubewarm's read API, as the operator's command-line flags set them.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// The maximum number of concurrent requests, not counting watches. The default is 400, as in
    /// the API server. Further requests wait.
    pub requests: NonZeroUsize,
    /// The maximum number of concurrent watches.
    pub watches: NonZeroUsize,
    /// The maximum number of concurrent connections. A client uses one connection, and with
    /// HTTP/1.1 one more connection for each watch.
    pub connections: NonZeroUsize,
    /// The maximum number of connections from one client address that have sent no request yet, or
    /// only requests that kubewarm rejected. All addresses of an IPv6 /64 together can have half of
    /// `connections`, or this number if it is larger.
    pub address_connections: NonZeroUsize,
    /// The percentage of all requests, watches, connections, forwarded requests, unwritten bytes
    /// and bytes of large objects that one user can use at the same time.
    pub user_quota: u8,
    /// The maximum number of response bytes, over all connections, that kubewarm has produced and
    /// not yet written to a socket.
    pub unwritten_bytes: usize,
    /// The maximum number of bytes, over all connections, of encoded objects that are too large for
    /// one piece of a response. A response contains such an object as a whole while
    /// `unwritten_bytes` counts only a piece of it.
    pub large_object_bytes: usize,
    /// The maximum size in bytes of the cache of recent changes, which all watches share.
    pub change_cache_bytes: usize,
}

/// The limits for all callers of one listener (the read API or the admin server). A limit per user
/// is a part of the total limit.
#[derive(Clone, Debug)]
pub struct ListenerLimits {
    /// What callers read from this listener, such as `objects` or `metrics`. Log messages contain
    /// this text.
    pub reads: &'static str,
    /// The maximum number of concurrent TokenReviews. One client address can have a quarter of
    /// these reviews, whatever `user_quota` is, because its clients are not authenticated yet. All
    /// addresses of an IPv6 /64 together can have half.
    pub token_reviews: usize,
    /// The maximum number of concurrent access reviews. One user can have `user_quota` percent of
    /// these reviews.
    pub access_reviews: usize,
    /// How long a request waits for its turn before kubewarm rejects it. A TokenReview or access
    /// review waits for at most 8 s of this time. The number of waiting TokenReviews is at most the
    /// limit on connections, and so is the number of waiting access reviews.
    pub max_wait: Duration,
    /// The maximum number of concurrent requests that kubewarm forwards to the API server,
    /// including watches and upgraded connections (such as `exec`). One user can have `user_quota`
    /// percent of these requests. Each forwarded request uses a connection to the API server and
    /// about 100 KiB of memory.
    pub forwarded: usize,
    /// The maximum number of large responses that kubewarm encodes at once, because each of these
    /// encodings occupies a processor. One user can have a quarter of these encodings.
    pub large_responses: usize,
    /// The limits that an administrator sets.
    pub readers: ReaderLimits,
    /// The ServiceAccounts whose pods count as one user each. All pods of one ServiceAccount
    /// together have a part of each limit, so that `user_quota` percent remain for other users.
    pub agents: Arc<[AgentAccount]>,
}

/// A limit of the read API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum ReadLimit {
    /// The limit on connections of all clients.
    Connections,
    /// The limit on connections from one client address that have sent no request yet, or only
    /// requests that kubewarm rejected.
    AddressConnections,
    /// The limit on connections of one user.
    UserConnections,
    /// The limit on requests of all users.
    Requests,
    /// The limit on requests of one user.
    UserRequests,
    /// The limit on watches of all users.
    Watches,
    /// The limit on watches of one user.
    UserWatches,
    /// The limit on concurrent forwarded requests of all users.
    ForwardedRequests,
    /// The limit on concurrent forwarded requests of one user.
    UserForwardedRequests,
    /// The limit on waiting and concurrent TokenReviews and access reviews of all callers.
    Reviews,
    /// The limit on waiting TokenReviews of one address, or on waiting access reviews of one user.
    UserReviews,
    /// The limit on invalid tokens from one client address.
    FailedTokens,
}

/// How much of one limit is in use. For a limit per user or client address, this is the usage of
/// the user or address with the highest usage. If all pods of an agents' ServiceAccount, or all
/// addresses of an IPv6 /64, use a larger part of their limit, this is their usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    /// The limit whose slots are counted.
    pub limit: ReadLimit,
    /// The number of used slots.
    pub in_use: usize,
    /// The maximum number of slots.
    pub size: usize,
}

impl ReadLimit {
    /// The limits whose usage the metrics `kubewarm_read_in_use` and `kubewarm_read_limit` show.
    pub const WITH_SLOTS: [Self; 9] = [
        Self::Connections,
        Self::AddressConnections,
        Self::UserConnections,
        Self::Requests,
        Self::UserRequests,
        Self::Watches,
        Self::UserWatches,
        Self::ForwardedRequests,
        Self::UserForwardedRequests,
    ];

    /// The limits that cause rejections of requests or connections. `UserConnections` is not in the
    /// list: if a user has too many connections, a further connection counts against the limit of
    /// its address instead.
    pub const REJECTING: [Self; 11] = [
        Self::Connections,
        Self::AddressConnections,
        Self::Requests,
        Self::UserRequests,
        Self::Watches,
        Self::UserWatches,
        Self::ForwardedRequests,
        Self::UserForwardedRequests,
        Self::Reviews,
        Self::UserReviews,
        Self::FailedTokens,
    ];

    /// Whether the limit applies to each user or client address separately, not to all callers
    /// together. The caller itself causes a rejection by such a limit, so the metrics do not count
    /// it as an error of kubewarm.
    pub const fn is_callers_own(self) -> bool {
        match self {
            Self::Connections
            | Self::Requests
            | Self::Watches
            | Self::ForwardedRequests
            | Self::Reviews => false,
            Self::AddressConnections
            | Self::UserConnections
            | Self::UserRequests
            | Self::UserWatches
            | Self::UserForwardedRequests
            | Self::UserReviews
            | Self::FailedTokens => true,
        }
    }

    /// The rejection of a caller that has reached a limit. `of_all` is the limit on all callers
    /// together, and `of_one` is the limit on each user or address. `caller` is the user or
    /// address.
    pub(super) const fn rejection(
        exhausted: KeyedAcquireError,
        caller: LimitKey,
        of_all: Self,
        of_one: Self,
    ) -> CallerRejection {
        match (exhausted, caller) {
            (KeyedAcquireError::All, _) => CallerRejection::Limited(of_all),
            (KeyedAcquireError::Group, LimitKey::Agent { account, .. }) => {
                CallerRejection::AgentsLimited { limit: of_one, account }
            }
            (KeyedAcquireError::Group | KeyedAcquireError::Key, _) => {
                CallerRejection::Limited(of_one)
            }
        }
    }
}

impl LimitUsage {
    /// Converts the usage of a semaphore into the usage of two limits: `of_all`, the limit on all
    /// callers together, and `of_one`, the limit on each user or client address.
    pub(crate) const fn of(
        usage: SemaphoreUsage,
        of_all: ReadLimit,
        of_one: ReadLimit,
    ) -> [Self; 2] {
        [
            Self { limit: of_all, in_use: usage.in_use, size: usage.size },
            Self { limit: of_one, in_use: usage.most_of_one, size: usage.part },
        ]
    }
}

impl ListenerLimits {
    /// The limits for callers of the read API.
    pub fn for_reads(readers: ReaderLimits) -> Self {
        Self {
            reads: "objects",
            token_reviews: 32,
            access_reviews: 64,
            max_wait: MAX_WAIT,
            forwarded: 1_024,
            large_responses: 2 * thread::available_parallelism().map_or(1, NonZeroUsize::get),
            readers,
            agents: Arc::default(),
        }
    }

    /// The limits on callers of the admin server, which serves metrics and debug information. The
    /// admin server has no watches, and its listener has its own limit on requests. If the maximum
    /// number of concurrent TokenReviews or access reviews is reached, kubewarm rejects a further
    /// caller at once.
    pub fn for_admin() -> Self {
        Self {
            reads: "metrics",
            token_reviews: 16,
            access_reviews: 16,
            max_wait: Duration::ZERO,
            forwarded: 0,
            large_responses: 1,
            readers: ReaderLimits { requests: whole(256), ..ReaderLimits::default() },
            agents: Arc::default(),
        }
    }
}

impl ListenerLimits {
    /// The limits on other replicas, which copy stores. Clients have their own limits, so that
    /// clients and starting replicas do not delay each other. A peer that waits longer than 4 s
    /// lists instead: it stops waiting after 5 s.
    pub fn for_peers() -> Self {
        Self {
            reads: "stores",
            token_reviews: 4,
            access_reviews: 1,
            max_wait: Duration::from_secs(4),
            forwarded: 0,
            large_responses: 1,
            readers: ReaderLimits {
                requests: whole(16),
                watches: whole(1),
                connections: whole(64),
                address_connections: whole(16),
                user_quota: 100,
                unwritten_bytes: 4 << 20,
                ..ReaderLimits::default()
            },
            agents: Arc::default(),
        }
    }
}

impl ReaderLimits {
    /// The part of the limit `all` that one user can use; at least one.
    pub(super) fn user_limit(&self, all: usize) -> usize {
        (all.saturating_mul(self.user_quota.into()) / 100).max(1)
    }

    /// The part of the limit `all` that the pods of one entry in a list of `entries` agents'
    /// ServiceAccounts can use together. All entries together leave `user_quota` percent to other
    /// users, unless this is less than one user's part.
    pub(super) fn agents_limit(&self, all: usize, entries: usize) -> usize {
        let percent = 100_usize.saturating_sub(self.user_quota.into()) / entries.max(1);
        self.user_limit(all).max(all.saturating_mul(percent) / 100)
    }
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self {
            requests: whole(400),
            watches: whole(4_096),
            connections: whole(1_024),
            address_connections: whole(128),
            user_quota: 25,
            unwritten_bytes: 64 << 20,
            large_object_bytes: 64 << 20,
            change_cache_bytes: 32 << 20,
        }
    }
}

pub(super) const fn quarter(limit: usize) -> usize {
    if limit < 4 { 1 } else { limit / 4 }
}

/// The part of a limit that all addresses of an IPv6 /64 can use together. Half of the limit
/// remains for clients elsewhere. One address has a smaller part, by default at most a quarter, so
/// one pod leaves something for the other pods of its node.
pub(crate) const fn network_part(limit: usize) -> usize {
    limit / 2
}

/// `limit`, but at least one.
const fn whole(limit: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(limit.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_leave_a_users_part_to_others_and_get_at_least_a_users_part() {
        let part = |user_quota, entries| {
            ReaderLimits { user_quota, ..ReaderLimits::default() }.agents_limit(1_000, entries)
        };
        assert_eq!([1, 2, 3, 4].map(|entries| part(25, entries)), [750, 370, 250, 250]);
        assert_eq!([1, 50, 60, 100].map(|quota| part(quota, 1)), [990, 500, 600, 1_000]);
    }
}
