//! How much callers can have at once.

use super::Refused;
use kubewarm_client::{Exhausted, SemaphoreUsage};
use std::{num::NonZeroUsize, thread, time::Duration};

/// How much readers can have at once, as an administrator sets it.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// Requests under way, except watches: as many as the API server admits by default.
    pub requests: NonZeroUsize,
    /// Watches.
    pub watches: NonZeroUsize,
    /// Connections. A client has one, with HTTP/1.1 one for each watch.
    pub connections: NonZeroUsize,
    /// Connections of one address, of those that have not carried an accepted request.
    pub address_connections: NonZeroUsize,
    /// Percent of the requests, the watches, the connections and the forwarded requests that one user can have.
    pub user_share: u8,
    /// Bytes of answers that were handed to connections and are not written. By user.
    pub unwritten_bytes: usize,
}

/// How much callers of one address can have at once, all of them together. One user has a share of what counts by
/// user, and one address has a quarter of what counts by address.
#[derive(Clone, Copy, Debug)]
pub struct CallerLimits {
    /// What callers read there, for the log.
    pub reads: &'static str,
    /// Reviews of credentials under way. By address.
    pub token_reviews: usize,
    /// Reviews of access under way. By user, a quarter.
    pub access_reviews: usize,
    /// Requests that wait for a review of credentials, and as many reviews of access. One address, or one user, has half,
    /// since a controller that starts asks for much at once.
    pub waiting: usize,
    /// How long a review waits for its slot.
    pub queue: Duration,
    /// Requests that are sent on, watches and tunnels among them: each holds a connection to the API server and some
    /// 100 KiB. By user.
    pub forwarded: usize,
    /// Pieces of large answers that are written at once: each takes a core for a moment. By user, a quarter.
    pub large: usize,
    /// What an administrator sets.
    pub readers: ReaderLimits,
}

/// A limit of the read API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum ReadLimit {
    /// Connections of all clients.
    Connections,
    /// Connections of one address that have carried no accepted request.
    AddressConnections,
    /// Connections of one user.
    UserConnections,
    /// Requests of all users.
    Requests,
    /// Requests of one user.
    UserRequests,
    /// Watches of all users.
    Watches,
    /// Watches of one user.
    UserWatches,
    /// Forwarded requests of all users.
    ForwardedRequests,
    /// Forwarded requests of one user.
    UserForwardedRequests,
    /// Reviews of all callers.
    Reviews,
    /// Reviews of one user or address.
    UserReviews,
    /// Rejected tokens of one address.
    FailedTokens,
}

/// The slots of one limit. For a user or an address: the slots of the one that uses most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    /// Which limit.
    pub limit: ReadLimit,
    /// Slots in use.
    pub in_use: usize,
    /// Slots that exist.
    pub size: usize,
}

impl ReadLimit {
    /// The limits with slots.
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

    /// The limits that reject. Without a slot of its user, a connection keeps the slot of its address.
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

    /// Whether the limit is of one user or address.
    #[must_use]
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

    /// The refusal where permits are exhausted: those of one caller, or all.
    pub(super) const fn reached(
        exhausted: Exhausted,
        (all, of_one): (Self, Self),
    ) -> Refused {
        Refused::Limited(match exhausted {
            Exhausted::Key => of_one,
            Exhausted::All => all,
        })
    }
}

impl LimitUsage {
    /// The usage of permits that `of_all` and `of_one` limit.
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

impl CallerLimits {
    /// Of the read address.
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

    /// Of the admin address: its listener bounds the requests, and nobody waits or watches there.
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
    /// What one user can have of `all`: at least one.
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

/// A quarter, and at least one.
pub(super) const fn quarter(limit: usize) -> usize {
    if limit < 4 { 1 } else { limit / 4 }
}

/// One at least.
const fn whole(limit: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(limit.saturating_sub(1))
}
