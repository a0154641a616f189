//! The senders of forwarded writes. The API server authenticates a forwarded write, so kubewarm
//! sends no TokenReview before it. kubewarm learns from the API server's response whether the API
//! server accepts the token.

use super::{
    CallerRejection,
    authenticator::{AuthenticatedCaller, TTL},
    caller_digest::CallerDigest,
    failed_token_limiter::FailedTokenLimiter,
    limit_key::{LimitKey, LimitKeys},
    review_queue::ReviewQueue,
};
use http::StatusCode;
use kubewarm_client::{AuthenticationResult, CallerInfo, ExpiringCache, KeyedPermit};
use std::{net::IpAddr, sync::Arc};
use tokio::time::Instant;

/// The maximum number of cached verdicts, one for each token, about 300 bytes each. A token whose
/// verdict was dropped counts as unverified again.
const MAX_VERDICTS: u64 = 1_024;

/// The results of TokenReviews. A result older than [`TTL`] decides only how a forwarded write
/// counts in the limits, because a read from a store needs a newer result.
pub(super) type ReviewedTokens = ExpiringCache<CallerDigest, AuthenticationResult, CallerRejection>;

/// The API server's decision about a token, from its response to the last forwarded write with this
/// token. kubewarm records a decision only for a token that no TokenReview has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenVerdict {
    Accepted,
    Refused,
}

/// What kubewarm knows about the token of a forwarded write before the API server has authenticated
/// the write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenStanding {
    /// The user of the token's last TokenReview. The TokenReview can be older than [`TTL`], because
    /// kubewarm uses the user of a forwarded write only in its limits.
    Reviewed(Arc<CallerInfo>),
    /// The API server accepted a forwarded write with the token.
    Accepted,
    /// The API server rejected the token less than 10 s ago ([`TTL`]).
    Refused,
    Unverified,
}

/// Identifies the senders of forwarded writes.
pub(super) struct ForwardedTokens {
    limit_keys: LimitKeys,
    reviewed: ReviewedTokens,
    verdicts: ExpiringCache<CallerDigest, TokenVerdict, CallerRejection>,
    failed: Arc<FailedTokenLimiter>,
    /// Limits how many requests with unverified tokens wait for the API server at once, in the same
    /// way as kubewarm limits TokenReviews.
    queue: ReviewQueue,
}

/// The sender of a request that kubewarm forwards.
pub struct ForwardedCaller {
    /// The user of the token's last TokenReview. `None` if no TokenReview has accepted the token.
    pub user: Option<Arc<CallerInfo>>,
    /// The user whose limits the request uses, or the client address if kubewarm does not know the
    /// user.
    pub(crate) limit_key: LimitKey,
    token: CallerDigest,
    peer: IpAddr,
    /// Whether a TokenReview or the API server accepted the token before the request.
    is_verified: bool,
    /// The permit of a request with an unverified token. kubewarm drops the permit when the API
    /// server answers. kubewarm also drops the permit if the answer takes so long that the token is
    /// probably valid.
    permit: Option<UnverifiedPermit>,
}

/// Counts a request with an unverified token against the limits of its client address.
struct UnverifiedPermit {
    _slot: KeyedPermit,
    _attempt: Option<KeyedPermit>,
}

impl ForwardedTokens {
    pub(super) fn new(
        limit_keys: LimitKeys,
        reviewed: ReviewedTokens,
        failed: Arc<FailedTokenLimiter>,
        queue: ReviewQueue,
    ) -> Self {
        let verdicts = ExpiringCache::new(MAX_VERDICTS, TTL);
        Self { limit_keys, reviewed, verdicts, failed, queue }
    }

    /// Identifies the sender of a write, for limits only: by `token`, the hash of its credentials,
    /// or else by the client address `peer`.
    ///
    /// # Errors
    ///
    /// - [`CallerRejection::Unauthorized`] if the API server rejected the token within the last 10
    ///   s
    /// - [`CallerRejection::Limited`] if `peer` has sent too many rejected tokens or too many
    ///   unverified tokens
    pub(super) async fn identify(
        &self,
        token: CallerDigest,
        peer: IpAddr,
    ) -> Result<ForwardedCaller, CallerRejection> {
        let mut permit = None;
        let mut standing = self.standing(&token);
        if standing == TokenStanding::Unverified {
            let waits = self.queue.line.enter(LimitKey::Address(peer))?;
            let attempt = self.failed.acquire_attempt(peer, Instant::now())?;
            let slot = self.queue.line.wait(LimitKey::Address(peer)).await?;
            drop(waits);
            // During the wait, the API server can have answered other requests with this token or
            // from this address, so check both again.
            standing = self.standing(&token);
            if standing == TokenStanding::Unverified {
                let attempt = match attempt {
                    None => self.failed.acquire_attempt(peer, Instant::now())?,
                    permit => permit,
                };
                permit = Some(UnverifiedPermit { _slot: slot, _attempt: attempt });
            }
        }
        let (user, limit_key) = match standing {
            TokenStanding::Refused => return Err(CallerRejection::Unauthorized),
            TokenStanding::Reviewed(user) => {
                let limit_key = self.limit_keys.of_token_review(&user)?;
                (Some(user), limit_key)
            }
            TokenStanding::Accepted | TokenStanding::Unverified => (None, LimitKey::Address(peer)),
        };
        let is_verified = permit.is_none();
        Ok(ForwardedCaller { user, limit_key, token, peer, is_verified, permit })
    }

    fn standing(&self, token: &CallerDigest) -> TokenStanding {
        let is_fresh = |requested_at: Instant| requested_at.elapsed() < TTL;
        if let Some(last) = self.reviewed.get_stale(token) {
            match last.value {
                AuthenticationResult::Known(user) => return TokenStanding::Reviewed(user),
                // The API server accepted the token, but its owner may not send the
                // SelfSubjectReview, so kubewarm does not know the user's name.
                AuthenticationResult::Refused { .. } => return TokenStanding::Accepted,
                AuthenticationResult::Unknown if is_fresh(last.requested_at) => {
                    return TokenStanding::Refused;
                }
                AuthenticationResult::Unknown => {}
            }
        }
        match self.verdicts.get_stale(token) {
            Some(last) if last.value == TokenVerdict::Accepted => TokenStanding::Accepted,
            Some(last) if is_fresh(last.requested_at) => TokenStanding::Refused,
            Some(_) | None => TokenStanding::Unverified,
        }
    }

    /// Records the status of the API server's own response to a request of `caller`.
    ///
    /// After 401, kubewarm forgets the cached TokenReview and verdict of the token, so the next
    /// read from a store needs a new TokenReview. kubewarm rejects further writes with the token
    /// only if neither a TokenReview nor the API server accepted the token before. Otherwise the
    /// 401 can come from a server behind the API server.
    pub(super) fn record_response(&self, caller: &mut ForwardedCaller, status: StatusCode) {
        caller.release_permit();
        let now = Instant::now();
        if status == StatusCode::UNAUTHORIZED {
            self.reviewed.remove(&caller.token);
            if caller.is_verified {
                self.verdicts.remove(&caller.token);
            } else {
                self.failed.record_failure(caller.peer, now);
                self.verdicts.insert(caller.token, TokenVerdict::Refused, now);
            }
        } else if !caller.is_verified && proves_authentication(status) {
            self.verdicts.insert(caller.token, TokenVerdict::Accepted, now);
        }
    }
}

/// Whether the API server sends this status only after it has authenticated the request, so that
/// the status proves that the API server accepts the token.
///
/// The API server sends 400 for a malformed path or `timeout`, and 429 during its shutdown, before
/// it authenticates. A load balancer in front of the API server can send 5xx.
pub(crate) fn proves_authentication(status: StatusCode) -> bool {
    status.is_success()
        || matches!(
            status,
            StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::CONFLICT
                | StatusCode::GONE
                | StatusCode::UNPROCESSABLE_ENTITY
        )
}

impl ForwardedCaller {
    /// The sender of a request that kubewarm authenticated with a TokenReview.
    pub(super) fn reviewed(caller: AuthenticatedCaller, token: CallerDigest, peer: IpAddr) -> Self {
        let AuthenticatedCaller { user, limit_key, .. } = caller;
        Self { user: Some(user), limit_key, token, peer, is_verified: true, permit: None }
    }

    /// Whether a TokenReview or the API server accepted the token before this request.
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Stops counting the request against the limits on unverified tokens.
    pub fn release_permit(&mut self) {
        self.permit = None;
    }
}
