//! Authenticates and authorizes callers, which are clients of the read API or of the admin server.
//! The API server decides in TokenReviews and access reviews. kubewarm caches each decision for at
//! most 10 s.
//!
//! With `--auth=caller-token`, kubewarm sends a SelfSubjectReview with the caller's token instead
//! of a TokenReview. Comments in this crate mean both by "TokenReview".
//!
//! Each request needs an authenticated caller and then an access review. kubewarm caches
//! TokenReviews and access reviews separately. By default, a cached access review answers only
//! equal requests of the same user; [`AuthorizationMode`] has the alternatives. Every user that no
//! RBAC rule allows a request needs an access review, even a member of `system:masters`.
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
mod limit_key;
mod limits;
mod network;
mod outage_grace;
pub(crate) mod rbac;
mod retry_pace;
mod review_client;
mod review_queue;
mod token_expiry;
mod waiting_line;

pub use self::{
    authenticator::AuthenticatedCaller,
    authorizer::AuthorizationMode,
    caller_digest::CallerDigest,
    credentials::{CallerCredentials, CredentialsError},
    forwarded_tokens::ForwardedCaller,
    identity::ClientCa,
    limit_key::{AgentAccount, AgentAccountError, LimitKey},
    limits::{LimitUsage, ListenerLimits, ReadLimit, ReaderLimits},
    rbac::{
        ClusterRules, ClusterRulesWriter, MAX_RULES_AGE, RbacAuthorizer, RbacFallback, RulesProof,
    },
    review_client::ReviewClient,
};
pub(crate) use self::{
    credentials::is_impersonation_header,
    forwarded_tokens::proves_authentication,
    identity::{ClientCertChain, OptionalClientCertVerifier},
    limits::{ADMISSION_TIMEOUT, network_part},
    network::network,
};

use self::{
    authenticator::Authenticator,
    authorizer::Authorizer,
    caller_digest::DigestKey,
    forwarded_tokens::ForwardedTokens,
    limit_key::LimitKeys,
    limits::{MAX_REVIEW_WAIT, quarter},
    outage_grace::OutageGrace,
    retry_pace::RetryPace,
    review_queue::ReviewQueue,
    waiting_line::WaitingLine,
};
use crate::ServeError;
use futures::future::{BoxFuture, FutureExt as _};
use http::StatusCode;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReviewSpec;
use kubewarm_api::model::{DecisionSource, FaultReason, MetricOutcome, RequestFault};
use kubewarm_client::{KeyedAcquireError, KeyedPermit, KeyedSemaphore, ServerReachability};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

/// One permit of a semaphore that limits the memory of responses covers this number of bytes.
pub const PERMIT_BYTES: usize = 1 << 10;

/// A callback that receives each decision about a caller: the source of the decision (cache or API
/// server), the decision itself, and how long the decision took.
pub type DecisionObserver = Box<dyn Fn(DecisionSource, MetricOutcome, Duration) + Send + Sync>;

/// The permits of a semaphore that one user can acquire. The semaphore limits a resource, such as
/// the bytes of unwritten responses.
#[derive(Clone, Debug)]
pub struct UserPermits {
    permits: KeyedSemaphore<LimitKey>,
    user: LimitKey,
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
    /// All pods of the caller's agents' ServiceAccount together have reached their part of a limit.
    AgentsLimited {
        /// The limit on each user. Each of the pods is a user.
        limit: ReadLimit,
        /// The position of the ServiceAccount in [`ListenerLimits::agents`].
        account: usize,
    },
    /// A TokenReview or access review failed, so the API server has not decided.
    Undecided(RequestFault),
}

/// Whether a request opens a watch. An open watch counts against the limits on watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A get, a list or another request that ends with its response.
    Read,
    /// A watch. The number is how many watches it counts as: [`RequestKind::watch`].
    Watch(u32),
}

/// kubewarm keeps the selectors of an open watch, about ten bytes of memory for each byte of the
/// request's query. So each further number of these bytes counts as a further watch.
const QUERY_BYTES_PER_WATCH: usize = 2 << 10;

impl RequestKind {
    /// The kind of a watch. `query` is the request's query, still percent-encoded.
    pub fn watch(query: Option<&str>) -> Self {
        let further = query.map_or(0, str::len) / QUERY_BYTES_PER_WATCH;
        Self::Watch(u32::try_from(further).unwrap_or(u32::MAX).saturating_add(1))
    }
}

/// A request that a [`CallerGate`] has authenticated and authorized.
#[derive(Debug)]
#[must_use = "the request stops counting against the limits when its permits are dropped"]
pub struct AdmittedRequest {
    /// The authenticated user.
    pub caller: AuthenticatedCaller,
    /// The request counts against the limits on requests until this permit is dropped. So keep the
    /// permit until the response is written.
    pub permit: KeyedPermit,
    /// The watch counts against the limits on watches until this permit is dropped. `None` if the
    /// request opens no watch.
    pub watch: Option<KeyedPermit>,
    /// kubewarm sent the access review at this time. If RBAC rules permit the request, the rules
    /// contain every change before this time.
    pub authorized_at: Instant,
}

/// Authenticates and authorizes callers. Limits their requests, watches, connections and unwritten
/// response bytes.
pub struct CallerGate {
    authenticator: Authenticator,
    forwarded_tokens: ForwardedTokens,
    authorizer: Authorizer,
    limit_keys: LimitKeys,
    requests: WaitingLine,
    watches: KeyedSemaphore<LimitKey>,
    connections: KeyedSemaphore<LimitKey>,
    forwarded: KeyedSemaphore<LimitKey>,
    large_responses: KeyedSemaphore<LimitKey>,
    unwritten: KeyedSemaphore<LimitKey>,
    large_objects: KeyedSemaphore<LimitKey>,
    retry_pace: RetryPace,
    own_retry_pace: RetryPace,
    reachability: ServerReachability,
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
        let readers = &limits.readers;
        let connections = readers.connections.get();
        let limit_keys = LimitKeys::new(Arc::clone(&key), Arc::clone(&limits.agents));
        let by_user = |limit: usize, of_user: usize| {
            let of_agents = readers.agents_limit(limit, limits.agents.len());
            KeyedSemaphore::new(limit, of_user)
                .with_groups(of_agents, LimitKey::agents)
                .with_groups(network_part(limit), LimitKey::network)
        };
        let by_quota = |limit: usize| by_user(limit, readers.user_limit(limit));
        let max_review_wait = limits.max_wait.min(MAX_REVIEW_WAIT);
        let is_failing = Arc::default();
        let reviews_in = (ReadLimit::Reviews, ReadLimit::UserReviews);
        let by_address = |limit: usize, of_address: usize| {
            KeyedSemaphore::new(limit, of_address)
                .with_groups(network_part(limit), LimitKey::network)
        };
        let new_token_queue = || {
            let slots = by_address(limits.token_reviews, quarter(limits.token_reviews));
            let waiting = by_address(connections, readers.address_connections.get());
            let line = WaitingLine::new(slots, waiting, max_review_wait, reviews_in);
            ReviewQueue::new(line, limits.reads, Arc::clone(&is_failing))
        };
        let access_reviews = ReviewQueue::new(
            WaitingLine::new(
                by_quota(limits.access_reviews),
                by_quota(connections),
                max_review_wait,
                reviews_in,
            ),
            limits.reads,
            Arc::clone(&is_failing),
        );
        let authenticator = Authenticator::new(
            Arc::clone(&reviews),
            (Arc::clone(&key), limit_keys.clone()),
            runtime.clone(),
            new_token_queue(),
            connections,
        );
        Ok(Self {
            forwarded_tokens: authenticator.new_forwarded_tokens(new_token_queue()),
            authenticator,
            authorizer: Authorizer::new(reviews, key, runtime, access_reviews, connections),
            limit_keys,
            requests: WaitingLine::new(
                by_quota(readers.requests.get()),
                by_quota(connections),
                limits.max_wait,
                (ReadLimit::Requests, ReadLimit::UserRequests),
            ),
            watches: by_quota(readers.watches.get()),
            connections: by_quota(connections),
            forwarded: by_quota(limits.forwarded),
            large_responses: by_user(limits.large_responses, quarter(limits.large_responses)),
            unwritten: by_quota(readers.unwritten_bytes / PERMIT_BYTES),
            large_objects: by_quota(readers.large_object_bytes / PERMIT_BYTES),
            retry_pace: RetryPace::new(Instant::now()),
            own_retry_pace: RetryPace::new(Instant::now()),
            reachability: ServerReachability::default(),
            observer,
        })
    }

    /// Lets open watches repeat failed reviews as soon as the API server answers again. Without
    /// this call, each watch waits for the end of its own pause.
    pub fn with_reachability(mut self, reachability: ServerReachability) -> Self {
        self.reachability = reachability;
        self
    }

    /// Keeps positive decisions for at most `period` after the API server's last answer. Call
    /// [`Self::with_reachability`] first, because otherwise the API server never answers.
    pub fn with_outage_grace(mut self, period: Duration) -> Self {
        let grace = OutageGrace::new(period, self.reachability.clone());
        self.authenticator.grace = grace.clone();
        self.authorizer.grace = grace;
        self
    }

    /// Returns when the API server has answered a request that any of kubewarm's clients sent after
    /// `since`.
    pub(crate) fn answered_since(&self, since: Instant) -> BoxFuture<'static, ()> {
        let reachability = self.reachability.clone();
        async move { reachability.answered_since(since).await }.boxed()
    }

    /// Authorizes requests by `mode`.
    pub fn with_authorization(mut self, mode: AuthorizationMode) -> Self {
        self.authorizer.mode = mode;
        self
    }

    /// Authenticates the caller with `credentials` at the address `peer`, and authorizes `access`.
    /// If too many requests are in progress, the request first waits for its turn.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the caller is rejected, the API server returns no decision, or the
    /// request does not get its turn in time. [`CallerRejection::Limited`] if the request opens a
    /// watch, and all users together or this user have too many watches.
    ///
    /// # Cost
    ///
    /// A TokenReview and then an access review at the API server, if neither result is cached. With
    /// [`AuthorizationMode::SharedReviews`], a second access review can follow. With
    /// [`AuthorizationMode::Rbac`], most requests need no access review. Concurrent equal reviews
    /// share one request to the API server. A watch above the limits needs no access review.
    pub async fn admit(
        &self,
        credentials: &CallerCredentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
        kind: RequestKind,
    ) -> Result<AdmittedRequest, CallerRejection> {
        self.observe_decision(async |by| {
            let admitting = self.admit_by(credentials, access, peer, kind, by);
            timeout(ADMISSION_TIMEOUT, admitting).await.unwrap_or_else(|_| {
                let message = format!("no decision within {ADMISSION_TIMEOUT:?}");
                Err(RequestFault::new(FaultReason::TimedOut, message).into())
            })
        })
        .await
    }

    async fn admit_by(
        &self,
        credentials: &CallerCredentials,
        access: &SelfSubjectAccessReviewSpec,
        peer: IpAddr,
        kind: RequestKind,
        by: &mut DecisionSource,
    ) -> Result<AdmittedRequest, CallerRejection> {
        let caller = self.authenticator.authenticate(credentials, peer, None, by).await?;
        // Clients repeat a watch that kubewarm rejects. So the limits on watches come before the
        // access review: a rejected watch must cost the API server no access review.
        let watch = match kind {
            RequestKind::Read => None,
            RequestKind::Watch(count) => Some(self.acquire_watch(&caller, count)?),
        };
        let permit = self.requests.acquire(caller.limit_key).await?;
        let authorized_at = self.authorizer.authorize(&caller, access, by).await?;
        Ok(AdmittedRequest { caller, permit, watch, authorized_at })
    }

    /// Authenticates the caller's token, and waits for the request's turn as [`Self::admit`] does.
    /// Authorizes nothing: the caller of this method must do that.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::admit`]. [`CallerRejection::Unauthorized`] if a client certificate
    /// authenticates the caller.
    pub async fn admit_token(
        &self,
        credentials: &CallerCredentials,
        peer: IpAddr,
    ) -> Result<(AuthenticatedCaller, KeyedPermit), CallerRejection> {
        self.observe_decision(async |by| {
            let caller = self.authenticator.authenticate(credentials, peer, None, by).await?;
            if caller.credentials.is_none() {
                return Err(CallerRejection::Unauthorized);
            }
            let permit = self.requests.acquire(caller.limit_key).await?;
            Ok((caller, permit))
        })
        .await
    }

    /// Authenticates the caller of an open watch again. `known` is the result of the previous
    /// authentication. The call does not count against the limits on requests and on invalid
    /// tokens, because the token was valid when the watch began.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the credentials are not accepted, or the API server returns no
    /// decision.
    pub async fn authenticate_again(
        &self,
        credentials: &CallerCredentials,
        peer: IpAddr,
        known: &AuthenticatedCaller,
    ) -> Result<AuthenticatedCaller, CallerRejection> {
        self.observe_decision(async |by| {
            self.authenticator.authenticate(credentials, peer, Some(known), by).await
        })
        .await
    }

    /// Authorizes a further `access` that a request or an open watch of an authenticated caller
    /// needs. Returns a time as [`AdmittedRequest::authorized_at`] does. The call does not count
    /// against the limits on requests.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the access is denied, or the API server returns no decision.
    pub async fn authorize(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
    ) -> Result<Instant, CallerRejection> {
        self.observe_decision(async |by| self.authorizer.authorize(caller, access, by).await).await
    }

    /// Whether current RBAC rules allow `access`. `false` without rules.
    ///
    /// Cost: no request, and a few microseconds.
    pub(crate) fn is_allowed_by_rules(
        &self,
        caller: &AuthenticatedCaller,
        access: &SelfSubjectAccessReviewSpec,
    ) -> bool {
        self.authorizer.is_allowed_by_rules(caller, access)
    }

    /// Returns half a second after the next change of the RBAC rules. Without rules, it never
    /// returns.
    pub(crate) fn rules_change(&self) -> BoxFuture<'static, ()> {
        self.authorizer.rules_change()
    }

    /// Waits for the turn of an open watch's review. After the RBAC rules turned out to be wrong,
    /// all watches need reviews, and must not send them at once.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] if too many watches wait.
    pub(crate) async fn pace_watch(&self) -> Result<(), CallerRejection> {
        self.authorizer.pace_watch().await
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
                    let caller =
                        self.authenticator.authenticate(credentials, peer, None, by).await?;
                    ForwardedCaller::reviewed(caller, token, peer.to_canonical())
                }
                ForwardAuthentication::ApiServer => {
                    self.forwarded_tokens.identify(token, peer.to_canonical()).await?
                }
            };
            let permit = self.forwarded.acquire_now(&caller.limit_key).map_err(|exhausted| {
                let of_all = ReadLimit::ForwardedRequests;
                let of_one = ReadLimit::UserForwardedRequests;
                ReadLimit::rejection(exhausted, caller.limit_key, of_all, of_one)
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
    /// `None` if the user, or all pods of the user's agents' ServiceAccount, have reached this
    /// limit; the connection then still counts against the limit of its address.
    pub fn acquire_connection(&self, user: LimitKey) -> Option<KeyedPermit> {
        self.connections.try_acquire(&user)
    }

    /// The user's permits of the semaphore that limits how many large responses kubewarm encodes at
    /// once. One user has at most a quarter of all permits.
    pub fn large_response_permits(&self, caller: &AuthenticatedCaller) -> UserPermits {
        UserPermits::new(&self.large_responses, caller.limit_key)
    }

    /// The user's permits of the semaphore that limits unwritten response bytes. One permit covers
    /// [`PERMIT_BYTES`] bytes.
    pub fn unwritten_byte_permits(&self, user: LimitKey) -> UserPermits {
        UserPermits::new(&self.unwritten, user)
    }

    /// The user's permits of the semaphore that limits the memory of large objects in responses.
    /// One permit covers [`PERMIT_BYTES`] bytes.
    pub fn large_object_permits(&self, user: LimitKey) -> UserPermits {
        UserPermits::new(&self.large_objects, user)
    }

    /// Counts a watch as `count` watches against the limits on watches until the returned permit is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] or [`CallerRejection::AgentsLimited`] if all users together,
    /// this user, or all pods of the user's agents' ServiceAccount have too many watches.
    fn acquire_watch(
        &self,
        caller: &AuthenticatedCaller,
        count: u32,
    ) -> Result<KeyedPermit, CallerRejection> {
        let limit_key = caller.limit_key;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.watches.acquire_many_now(&limit_key, count).map_err(|exhausted| {
            ReadLimit::rejection(exhausted, limit_key, ReadLimit::Watches, ReadLimit::UserWatches)
        })
    }

    /// The agents' ServiceAccount at this position in [`ListenerLimits::agents`].
    pub fn agents(&self, account: usize) -> Option<&AgentAccount> {
        self.limit_keys.agents(account)
    }

    /// Counts a request that kubewarm rejects only for now, because of a limit or a failed review.
    /// Returns after how many seconds the client should retry: from 1 to 30, more if kubewarm has
    /// rejected many requests recently.
    pub fn record_refusal(&self) -> u64 {
        self.retry_pace.record_refusal(Instant::now())
    }

    /// As [`Self::record_refusal`], for a request above a limit of its own user or client address.
    /// Any client can cause such refusals, so they do not delay the retries of other clients'
    /// requests that kubewarm refuses for another reason.
    pub fn record_own_refusal(&self) -> u64 {
        self.own_retry_pace.record_refusal(Instant::now())
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
        let forwarded = self.forwarded.usage();
        let others = [
            (self.requests.usage(), ReadLimit::Requests, ReadLimit::UserRequests),
            (self.watches.usage(), ReadLimit::Watches, ReadLimit::UserWatches),
            (forwarded, ReadLimit::ForwardedRequests, ReadLimit::UserForwardedRequests),
        ];
        let others = others.map(|(usage, of_all, of_user)| LimitUsage::of(usage, of_all, of_user));
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
    /// Returns the permits of `user`.
    pub fn new(permits: &KeyedSemaphore<LimitKey>, user: LimitKey) -> Self {
        Self { permits: permits.clone(), user }
    }

    /// Waits for `count` permits, or fewer if one user can have only fewer:
    /// [`KeyedSemaphore::acquire_many`]. Never returns `None`, because the semaphore is never
    /// closed.
    pub async fn acquire(&self, count: usize) -> Option<KeyedPermit> {
        self.permits.acquire_many(&self.user, count).await
    }

    /// As [`Self::acquire`], without waiting.
    ///
    /// # Errors
    ///
    /// [`KeyedAcquireError`] if the permits are in use.
    pub fn acquire_now(&self, count: usize) -> Result<KeyedPermit, KeyedAcquireError> {
        self.permits.acquire_many_now(&self.user, count)
    }
}

impl CallerRejection {
    const fn outcome(&self) -> MetricOutcome {
        match self {
            Self::Unauthorized | Self::Forbidden { .. } | Self::Impersonation => {
                MetricOutcome::Rejected
            }
            Self::AgentsLimited { .. } => MetricOutcome::Rejected,
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
