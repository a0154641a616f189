//! Authenticates and authorizes callers, which are clients of the read API or of the admin server.
//! The API server decides in TokenReviews and access reviews. kubewarm caches each decision for at
//! most 10 s.
//!
//! With `--auth=caller-token`, kubewarm sends a SelfSubjectReview with the caller's token instead
//! of a TokenReview. Comments in this crate mean both by "TokenReview".
//!
//! Each request needs an authenticated caller and then an access review. kubewarm caches
//! TokenReviews and access reviews separately. By default, a cached access review for all object
//! names does not apply to a request for one name, see [`CallerGate::with_all_names_reviews`].
//! Every user needs an access review, even a member of `system:masters`.
//!
//! A forwarded write needs no TokenReview and no access review, because the API server itself
//! authenticates and authorizes the write.

mod authenticator;
mod authorizer;
mod caller_digest;
mod credentials;
mod failed_token_limiter;
#[cfg(test)]
pub(crate) mod fixtures;
mod forwarded_tokens;
mod identity;
mod limits;
mod network;
mod review_client;
mod review_queue;

pub use self::{
    authenticator::AuthenticatedCaller,
    caller_digest::CallerDigest,
    credentials::{CallerCredentials, CredentialsError},
    forwarded_tokens::ForwardedCaller,
    identity::ClientCa,
    limits::{LimitUsage, ListenerLimits, ReadLimit, ReaderLimits},
    network::network,
    review_client::ReviewClient,
};
pub(crate) use self::{
    credentials::is_impersonation_header,
    forwarded_tokens::proves_authentication,
    identity::{ClientCertChain, OptionalClientCertVerifier},
};

use self::{
    authenticator::Authenticator, authorizer::Authorizer, caller_digest::DigestKey,
    forwarded_tokens::ForwardedTokens, limits::quarter, review_queue::ReviewQueue,
};
use crate::ServeError;
use http::StatusCode;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_api::model::{DecisionSource, MetricOutcome, RequestFault};
use kubewarm_client::{KeyedPermit, KeyedSemaphore};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// One permit of the semaphore for unwritten response bytes covers this number of bytes.
pub const UNWRITTEN_UNIT: usize = 1 << 10;

/// A callback that receives each decision about a caller: the source of the decision (cache or API
/// server), the decision itself, and how long the decision took.
pub type DecisionObserver = Box<dyn Fn(DecisionSource, MetricOutcome, Duration) + Send + Sync>;

/// One user's part of a semaphore that limits a resource, such as the bytes of unwritten responses.
#[derive(Clone, Debug)]
pub struct UserPermits {
    permits: KeyedSemaphore<CallerDigest>,
    user: CallerDigest,
}

/// Who authenticates the sender of a request that kubewarm forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardAuthentication {
    /// kubewarm authenticates the sender with a TokenReview before it forwards the request.
    Review,
    /// Only the API server authenticates the sender, so the request does not wait for a
    /// TokenReview.
    ApiServer,
}

/// Why kubewarm rejects a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerRejection {
    /// The API server does not accept the caller's credentials.
    Unauthorized,
    /// The API server accepts the caller's credentials, but does not permit the request.
    Forbidden {
        /// The user's name. Empty if the caller has no permission to send a SelfSubjectReview,
        /// because the API server then returns no name.
        user: String,
        /// The authorizer's reason, if it returns one.
        reason: Option<String>,
    },
    /// The request has impersonation headers. An access review with these headers would not
    /// authorize the read: RBAC can permit to impersonate a user for access reviews only.
    Impersonation,
    /// The caller has reached one of kubewarm's limits, for example on the user's requests or on
    /// invalid tokens from one address.
    Limited(ReadLimit),
    /// A TokenReview or access review failed, so the API server has not decided.
    Undecided(RequestFault),
}

/// Authenticates and authorizes callers. Limits their requests, watches, connections and unwritten
/// response bytes.
pub struct CallerGate {
    authenticator: Authenticator,
    forwarded_tokens: ForwardedTokens,
    authorizer: Authorizer,
    requests: KeyedSemaphore<CallerDigest>,
    watches: KeyedSemaphore<CallerDigest>,
    connections: KeyedSemaphore<CallerDigest>,
    forwarded: KeyedSemaphore<CallerDigest>,
    large: KeyedSemaphore<CallerDigest>,
    unwritten: KeyedSemaphore<CallerDigest>,
    observer: DecisionObserver,
}

impl CallerGate {
    /// Creates a `CallerGate` with empty caches. `observer` receives each decision about a caller.
    /// `runtime` sends the TokenReviews and access reviews, because their connections must outlive
    /// the server's threads.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the kernel returns no random numbers.
    pub fn new(
        reviews: Arc<dyn ReviewClient>,
        limits: &ListenerLimits,
        runtime: Handle,
        observer: DecisionObserver,
    ) -> Result<Self, ServeError> {
        let key = Arc::new(DigestKey::generate()?);
        let is_failing = Arc::default();
        let token_reviews = ReviewQueue::new(limits.token_reviews, limits, Arc::clone(&is_failing));
        let unverified = ReviewQueue::new(limits.token_reviews, limits, Arc::clone(&is_failing));
        let access_reviews = ReviewQueue::new(limits.access_reviews, limits, is_failing);
        let readers = &limits.readers;
        let by_user = |limit: usize| KeyedSemaphore::new(limit, readers.user_limit(limit));
        let authenticator = Authenticator::new(
            Arc::clone(&reviews),
            Arc::clone(&key),
            runtime.clone(),
            token_reviews,
        );
        Ok(Self {
            forwarded_tokens: authenticator.new_forwarded_tokens(unverified),
            authenticator,
            authorizer: Authorizer::new(reviews, key, runtime, access_reviews),
            requests: by_user(readers.requests.get()),
            watches: by_user(readers.watches.get()),
            connections: by_user(readers.connections.get()),
            forwarded: by_user(limits.forwarded),
            large: KeyedSemaphore::new(limits.large_responses, quarter(limits.large_responses)),
            unwritten: by_user(readers.unwritten_bytes / UNWRITTEN_UNIT),
            observer,
        })
    }

    /// Makes [`Self::admit`] send the access review of a `get` first without the object's name. If
    /// this review permits all names, no review with the name follows, so gets of many objects
    /// share one review. Use this only if no authorizer of the API server denies single names.
    pub fn with_all_names_reviews(mut self) -> Self {
        self.authorizer.can_review_all_names = true;
        self
    }

    /// Authenticates the caller with `credentials` at the address `peer`, and authorizes `access`.
    /// The request counts against the limits on requests until the returned permit is dropped. So
    /// keep the permit until the response is written.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the caller is rejected, or the API server returns no decision.
    ///
    /// # Cost
    ///
    /// A TokenReview and then an access review at the API server, if neither result is cached. With
    /// [`Self::with_all_names_reviews`], a second access review can follow. Concurrent equal
    /// reviews share one request to the API server.
    pub async fn admit(
        &self,
        credentials: &CallerCredentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
    ) -> Result<(AuthenticatedCaller, KeyedPermit), CallerRejection> {
        self.observe_decision(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, by).await?;
            let permit = self.requests.acquire_now(&caller.name);
            let permit = permit.map_err(|exhausted| {
                ReadLimit::rejection(exhausted, ReadLimit::Requests, ReadLimit::UserRequests)
            })?;
            let asked = self.authorizer.authorize_request(&caller, access, by).await?;
            Ok((AuthenticatedCaller { reviewed_at: asked, ..caller }, permit))
        })
        .await
    }

    /// Authenticates and authorizes the caller of an open watch again. The call does not count
    /// against the limits on requests. Returns the time at which kubewarm sent the older of two
    /// reviews, the TokenReview and the access review.
    ///
    /// # Errors
    ///
    /// The errors of [`CallerGate::admit`].
    pub async fn recheck(
        &self,
        credentials: &CallerCredentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
    ) -> Result<Instant, CallerRejection> {
        self.observe_decision(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, by).await?;
            self.authorizer.authorize(&caller, access, by).await
        })
        .await
    }

    /// Authorizes a further `access` that a request of an authenticated caller needs. Returns the
    /// time at which kubewarm sent the oldest of the TokenReview and the access reviews for this
    /// request.
    ///
    /// # Errors
    ///
    /// The errors of [`CallerGate::admit`].
    pub async fn review_also(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
    ) -> Result<Instant, CallerRejection> {
        self.observe_decision(async |by| self.authorizer.authorize(caller, access, by).await).await
    }

    /// Identifies the caller at the address `peer`, whose request kubewarm will forward to the API
    /// server. The API server itself authorizes the request. The request counts against the limits
    /// on forwarded requests until the returned permit is dropped. Keep the permit until the
    /// response has ended, or until an upgraded connection has ended.
    ///
    /// With [`ForwardAuthentication::ApiServer`], the user can come from an old TokenReview, so the
    /// user's permissions are unconfirmed. Use the user only for limits, and pass the API server's
    /// response to [`Self::record_forwarded_response`].
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the caller is rejected, or the API server returns no decision.
    pub async fn admit_forwarded(
        &self,
        credentials: &CallerCredentials,
        peer: IpAddr,
        authentication: ForwardAuthentication,
    ) -> Result<(ForwardedCaller, KeyedPermit), CallerRejection> {
        self.observe_decision(async |by| {
            let token = self.authenticator.token_key(credentials)?;
            let caller = match authentication {
                ForwardAuthentication::Review => {
                    let caller = self.authenticator.authenticate(credentials, peer, by).await?;
                    ForwardedCaller::reviewed(caller, token, network(peer))
                }
                ForwardAuthentication::ApiServer => {
                    self.forwarded_tokens.identify(token, network(peer)).await?
                }
            };
            let permit = self.forwarded.acquire_now(&caller.limit_key).map_err(|exhausted| {
                let of_one = ReadLimit::UserForwardedRequests;
                ReadLimit::rejection(exhausted, ReadLimit::ForwardedRequests, of_one)
            })?;
            Ok((caller, permit))
        })
        .await
    }

    /// Records whether the API server accepted the token of a forwarded request. `status` must be
    /// the API server's own status, not that of a pod behind the API server's proxy, because a pod
    /// does not check the token.
    pub fn record_forwarded_response(&self, caller: &mut ForwardedCaller, status: StatusCode) {
        self.forwarded_tokens.record_response(caller, status);
    }

    /// Counts a connection against the limit on the connections of `user` until the returned permit
    /// is dropped. Call this for the first request of the connection that kubewarm does not reject.
    /// `None` if the user has reached this limit.
    pub fn acquire_connection(&self, user: CallerDigest) -> Option<KeyedPermit> {
        self.connections.try_acquire(&user)
    }

    /// The user's permits of the semaphore that limits how many large responses kubewarm encodes at
    /// once. One user has at most a quarter of all permits.
    pub fn large_response_permits(&self, caller: &AuthenticatedCaller) -> UserPermits {
        UserPermits { permits: self.large.clone(), user: caller.name }
    }

    /// The user's permits of the semaphore that limits unwritten response bytes. One permit covers
    /// [`UNWRITTEN_UNIT`] bytes.
    pub fn unwritten_byte_permits(&self, user: CallerDigest) -> UserPermits {
        UserPermits { permits: self.unwritten.clone(), user }
    }

    /// Counts a watch against the limits on watches until the returned permit is dropped. An open
    /// watch counts against these limits instead of the limits on requests. `caller` is a result of
    /// [`CallerGate::admit`].
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if all users together, or this user, have too many watches.
    pub fn acquire_watch(
        &self,
        caller: &AuthenticatedCaller,
    ) -> Result<KeyedPermit, CallerRejection> {
        self.watches.acquire_now(&caller.name).map_err(|exhausted| {
            ReadLimit::rejection(exhausted, ReadLimit::Watches, ReadLimit::UserWatches)
        })
    }

    /// The usage of each limit, except the limits on all connections and on client addresses.
    ///
    /// Cost: visits each user with requests, watches or connections. So call this method for a
    /// metrics scrape, not for a request.
    pub fn usage(&self) -> Vec<LimitUsage> {
        let connections = self.connections.usage();
        let connections = LimitUsage {
            limit: ReadLimit::UserConnections,
            in_use: connections.most_of_one,
            size: connections.part,
        };
        let others = [
            (&self.requests, ReadLimit::Requests, ReadLimit::UserRequests),
            (&self.watches, ReadLimit::Watches, ReadLimit::UserWatches),
            (&self.forwarded, ReadLimit::ForwardedRequests, ReadLimit::UserForwardedRequests),
        ];
        let others =
            others.map(|(slots, of_all, of_user)| LimitUsage::of(slots.usage(), of_all, of_user));
        std::iter::once(connections).chain(others.into_iter().flatten()).collect()
    }

    async fn observe_decision<T>(
        &self,
        deciding: impl AsyncFnOnce(&mut DecisionSource) -> Result<T, CallerRejection>,
    ) -> Result<T, CallerRejection> {
        let (mut source, started_at) = (DecisionSource::Cache, Instant::now());
        let decided = deciding(&mut source).await;
        let outcome =
            decided.as_ref().err().map_or(MetricOutcome::Success, CallerRejection::outcome);
        (self.observer)(source, outcome, started_at.elapsed());
        decided
    }
}

impl UserPermits {
    /// Waits for `count` permits of the semaphore. If one user can have fewer than `count` permits,
    /// waits for that smaller number. Never returns `None`.
    pub async fn acquire(&self, count: usize) -> Option<KeyedPermit> {
        self.permits.acquire_many(&self.user, count).await
    }
}

impl CallerRejection {
    const fn outcome(&self) -> MetricOutcome {
        match self {
            Self::Unauthorized | Self::Forbidden { .. } | Self::Impersonation => {
                MetricOutcome::Rejected
            }
            Self::Limited(limit) if limit.is_callers_own() => MetricOutcome::Rejected,
            Self::Limited(_) | Self::Undecided(_) => MetricOutcome::Error,
        }
    }
}

impl From<RequestFault> for CallerRejection {
    fn from(fault: RequestFault) -> Self {
        Self::Undecided(fault)
    }
}

impl fmt::Debug for CallerGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerGate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
