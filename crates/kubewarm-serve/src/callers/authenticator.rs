//! Authenticates callers by their client certificate, or by a TokenReview of their bearer token.

use super::{
    CallerCredentials, CallerRejection, ReviewClient,
    caller_digest::{CallerDigest, DigestKey},
    failed_token_limiter::FailedTokenLimiter,
    forwarded_tokens::{ForwardedTokens, ReviewedTokens},
    identity::ClientCertChain,
    limit_key::{LimitKey, LimitKeys},
    outage_grace::OutageGrace,
    review_queue::ReviewQueue,
    token_expiry::time_to_expiry,
};
use jiff::Timestamp;
use kubewarm_api::model::DecisionSource;
use kubewarm_client::{
    AuthenticationResult, BearerCredentials, CacheEntry, CallerInfo, ExpiringCache,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// How long kubewarm caches the result of a TokenReview or access review, positive or negative. So
/// a permission that you grant or revoke takes effect within this time.
pub(super) const TTL: Duration = Duration::from_secs(10);
/// The maximum age of the TokenReview of an open watch. kubewarm then sends another TokenReview, so
/// that a revoked token ends the watch. The API server itself never authenticates an open watch
/// again, so a longer time than for requests is sufficient.
const MAX_AUTHENTICATION_AGE: Duration = Duration::from_mins(10);
pub(super) struct Authenticator {
    reviews: Arc<dyn ReviewClient>,
    key: Arc<DigestKey>,
    limit_keys: LimitKeys,
    runtime: Handle,
    users: ReviewedTokens,
    queue: ReviewQueue,
    failed: Arc<FailedTokenLimiter>,
    pub(super) grace: OutageGrace,
}

/// A caller with credentials that kubewarm or the API server accepted. [`CallerGate::admit`]
/// returns only callers whose request the API server has authorized too.
///
/// [`CallerGate::admit`]: super::CallerGate::admit
#[derive(Clone, Debug)]
pub struct AuthenticatedCaller {
    /// The authenticated user.
    pub user: Arc<CallerInfo>,
    /// The time at which kubewarm sent the TokenReview, or verified the client certificate.
    pub(crate) authenticated_at: Instant,
    /// The hash of the user's name. The user's later reads must not be older than earlier ones.
    pub(crate) name: CallerDigest,
    /// The user whose limits the caller uses.
    pub(crate) limit_key: LimitKey,
    /// The caller's token. `None` if a client certificate authenticates the caller.
    pub(super) credentials: Option<Arc<BearerCredentials>>,
}

impl AuthenticatedCaller {
    /// The time at which kubewarm authenticates the caller of an open watch again. For a token,
    /// this is a random time from 8 to 10 minutes after the TokenReview, or the token's expiry if
    /// that is earlier. For a client certificate, the time is in the past, so each review of the
    /// watch verifies the certificate, which needs no request to the API server.
    pub(crate) fn reauthentication_due(&self, now: Timestamp) -> Instant {
        let Some(credentials) = &self.credentials else { return self.authenticated_at };
        let age = MAX_AUTHENTICATION_AGE.mul_f64(fastrand::f64().mul_add(0.2, 0.8));
        let due = self.authenticated_at + age;
        // `checked_add` fails for an expiry in centuries, which counts as no expiry.
        let expiry = time_to_expiry(&credentials.token, now)
            .and_then(|left| Instant::now().checked_add(left));
        expiry.map_or(due, |expiry| expiry.min(due))
    }
}

impl Authenticator {
    /// Creates an `Authenticator` without cached TokenReviews, for clients with this number of
    /// `connections`.
    pub(super) fn new(
        reviews: Arc<dyn ReviewClient>,
        (key, limit_keys): (Arc<DigestKey>, LimitKeys),
        runtime: Handle,
        queue: ReviewQueue,
        connections: usize,
    ) -> Self {
        // One connection usually carries one token, so one result for each connection is enough.
        let users = ExpiringCache::new(connections as u64, TTL);
        let (failed, grace) = (Arc::default(), OutageGrace::default());
        Self { reviews, key, limit_keys, runtime, users, queue, failed, grace }
    }

    /// Creates the part that identifies the senders of forwarded writes. Both parts share the
    /// results of TokenReviews and the limit on invalid tokens, so that a client cannot use each
    /// limit separately.
    pub(super) fn new_forwarded_tokens(&self, queue: ReviewQueue) -> ForwardedTokens {
        let (limit_keys, users) = (self.limit_keys.clone(), self.users.clone());
        ForwardedTokens::new(limit_keys, users, Arc::clone(&self.failed), queue)
    }

    /// The key of the caller's token in the cache of TokenReviews.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Unauthorized`] if the caller has no token.
    pub(super) fn token_key(
        &self,
        credentials: &CallerCredentials,
    ) -> Result<CallerDigest, CallerRejection> {
        let presented = credentials.token.as_deref().ok_or(CallerRejection::Unauthorized)?;
        Ok(self.key.of_credentials(presented)?)
    }

    /// Authenticates the caller at the address `peer`. If kubewarm has authenticated the caller as
    /// `known` before, the limit on invalid tokens does not apply. Sets `by`, the source of the
    /// decision for the metrics, to `ApiServer` if the cache of TokenReviews has no result for the
    /// token.
    ///
    /// # Errors
    ///
    /// [`CallerRejection`] if the credentials are not accepted. kubewarm rejects the caller without
    /// a TokenReview if too many TokenReviews wait, or if the address has sent too many invalid
    /// tokens.
    pub(super) async fn authenticate(
        &self,
        credentials: &CallerCredentials,
        peer: IpAddr,
        known: Option<&AuthenticatedCaller>,
        by: &mut DecisionSource,
    ) -> Result<AuthenticatedCaller, CallerRejection> {
        if credentials.is_impersonating {
            return Err(CallerRejection::Impersonation);
        }
        // As in the API server, a valid client certificate has priority over a token.
        let certified = credentials.chain.as_deref().and_then(ClientCertChain::authenticate);
        let (identity, authenticated_at, presented) = match (certified, &credentials.token) {
            // kubewarm verifies certificates itself, without a TokenReview.
            (Some(identity), _) => (identity, Instant::now(), None),
            (None, Some(presented)) => {
                let (identity, authenticated_at) =
                    self.review_token(presented, peer.to_canonical(), known, by).await?;
                (identity, authenticated_at, Some(Arc::clone(presented)))
            }
            (None, None) => return Err(CallerRejection::Unauthorized),
        };
        match identity {
            AuthenticationResult::Known(user) => {
                let name = self.key.of_name(&user)?;
                let limit_key = match presented {
                    Some(_) => self.limit_keys.of_token_review(&user)?,
                    None => self.limit_keys.of_certificate(&user)?,
                };
                let credentials = presented;
                Ok(AuthenticatedCaller { user, authenticated_at, name, limit_key, credentials })
            }
            AuthenticationResult::Unknown => Err(CallerRejection::Unauthorized),
            AuthenticationResult::Refused { message } => {
                Err(CallerRejection::Forbidden { user: String::new(), reason: Some(message) })
            }
        }
    }

    /// Whether a token stays valid without a new TokenReview, because the API server is away. A
    /// rejected token stays rejected: its next TokenReview fails during the outage.
    fn is_kept(
        &self,
        last: &CacheEntry<AuthenticationResult>,
        credentials: &BearerCredentials,
    ) -> bool {
        let has_expired = || {
            let left = time_to_expiry(&credentials.token, Timestamp::now());
            left.is_some_and(|left| left.is_zero())
        };
        matches!(last.value, AuthenticationResult::Known(_))
            && self.grace.keeps(last.requested_at, MAX_AUTHENTICATION_AGE)
            && !has_expired()
    }

    /// Returns the result of a TokenReview, from the API server or from the cache. Also returns the
    /// time at which kubewarm sent the TokenReview.
    async fn review_token(
        &self,
        credentials: &Arc<BearerCredentials>,
        peer: IpAddr,
        known: Option<&AuthenticatedCaller>,
        by: &mut DecisionSource,
    ) -> Result<(AuthenticationResult, Instant), CallerRejection> {
        let key = self.key.of_credentials(credentials)?;
        if let Some(cached) = self.users.get(&key) {
            return Ok((cached.value, cached.requested_at));
        }
        let last = self.users.get_stale(&key);
        if let Some(kept) = last.as_ref().filter(|last| self.is_kept(last, credentials)) {
            return Ok((kept.value.clone(), kept.requested_at));
        }
        *by = DecisionSource::ApiServer;
        // Several clients can share an address, and the limit on invalid tokens applies per
        // address. So the limit does not apply to a token that the API server accepted before:
        // other clients must not block its owner.
        let was_accepted = known.is_some()
            || last.is_some_and(|entry| matches!(entry.value, AuthenticationResult::Known(_)));
        let mut attempt =
            if was_accepted { None } else { self.failed.acquire_attempt(peer, Instant::now())? };
        // Before its TokenReview, a token identifies no user, so the limit on waiting TokenReviews
        // counts by address. A caller that waits for another caller's TokenReview of the same token
        // counts too.
        let limit_key = LimitKey::Address(peer);
        let mut waits = Some(self.queue.line.enter(limit_key)?);
        let review = || {
            let (waits, permit) = (waits.take(), attempt.take());
            let (queue, failed) = (self.queue.clone(), Arc::clone(&self.failed));
            let review = self.reviews.authenticate(Arc::clone(credentials));
            async move {
                let _waits = waits;
                let _slot = queue.line.wait(limit_key).await?;
                let _attempt = match permit {
                    // Other tokens from this client address can have failed while this token's
                    // TokenReview waited, so kubewarm checks the limit on invalid tokens again.
                    None if !was_accepted => failed.acquire_attempt(peer, Instant::now())?,
                    permit => permit,
                };
                let answer = queue.await_decision(review).await;
                if matches!(
                    answer,
                    Ok(AuthenticationResult::Unknown | AuthenticationResult::Refused { .. })
                ) {
                    failed.record_failure(peer, Instant::now());
                }
                answer
            }
        };
        let entry = self.users.get_or_fetch(&self.runtime, key, None, review).await?;
        drop(waits);
        Ok((entry.value, entry.requested_at))
    }
}
