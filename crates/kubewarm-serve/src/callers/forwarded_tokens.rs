//! The senders of forwarded writes. The API server authenticates a forwarded write, so kubewarm sends no token review
//! before it. kubewarm learns from the API server's response whether the API server accepts the token.

use super::{
    CallerRejection,
    authenticator::{AuthenticatedCaller, TTL},
    caller_digest::{CallerDigest, DigestKey},
    failed_token_limiter::FailedTokenLimiter,
    review_queue::ReviewQueue,
};
use http::StatusCode;
use kubewarm_client::{AuthenticationResult, CallerInfo, ExpiringCache, KeyedPermit};
use std::{fmt, net::IpAddr, sync::Arc};
use tokio::time::Instant;

/// The maximum number of tokens with a verdict, about 300 bytes each.
const MAX_VERDICTS: u64 = 1_024;

/// The results of token reviews. kubewarm uses an old result only to count a forwarded write in its limits.
pub(super) type ReviewedTokens = ExpiringCache<CallerDigest, AuthenticationResult, CallerRejection>;

/// The API server's last response to a forwarded write with a token that kubewarm has not reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenVerdict {
    Accepted,
    Refused,
}

/// Who sends a forwarded write, before the API server has authenticated it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenStanding {
    /// The user of the token's last review, which can be older than [`TTL`].
    Reviewed(Arc<CallerInfo>),
    /// The API server accepted a forwarded write with the token.
    Accepted,
    /// The API server refused the token within [`TTL`].
    Refused,
    Unverified,
}

/// Identifies the senders of forwarded writes.
pub(super) struct ForwardedTokens {
    key: Arc<DigestKey>,
    reviewed: ReviewedTokens,
    verdicts: ExpiringCache<CallerDigest, TokenVerdict, CallerRejection>,
    failed: Arc<FailedTokenLimiter>,
    /// Limits concurrent requests with unverified tokens, like token reviews.
    queue: ReviewQueue<IpAddr>,
}

/// The sender of a request that kubewarm forwards.
pub struct ForwardedCaller {
    /// The user of the token's last review. `None` if kubewarm has not reviewed the token.
    pub user: Option<Arc<CallerInfo>>,
    /// The key in the limits per user: of the user, or of the client address if kubewarm does not know the user.
    pub(crate) limit_key: CallerDigest,
    token: CallerDigest,
    peer: IpAddr,
    /// Whether a review or the API server accepted the token before the request.
    is_verified: bool,
    /// Held while the API server has not answered the request with an unverified token.
    permit: Option<UnverifiedPermit>,
}

/// Counts a request with an unverified token against the limits of its client address.
struct UnverifiedPermit {
    _slot: KeyedPermit,
    _attempt: Option<KeyedPermit>,
}

impl ForwardedTokens {
    pub(super) fn new(
        key: Arc<DigestKey>,
        reviewed: ReviewedTokens,
        failed: Arc<FailedTokenLimiter>,
        queue: ReviewQueue<IpAddr>,
    ) -> Self {
        let verdicts = ExpiringCache::new(MAX_VERDICTS, TTL);
        Self { key, reviewed, verdicts, failed, queue }
    }

    /// Identifies the sender of a write by `token`, the hash of its credentials, or else by the client address `peer`.
    ///
    /// # Errors
    ///
    /// - [`CallerRejection::Unauthorized`] if the API server refused the token within the last 10 s
    /// - [`CallerRejection::Limited`] if `peer` has sent too many refused tokens or too many unverified tokens
    pub(super) async fn identify(
        &self,
        token: CallerDigest,
        peer: IpAddr,
    ) -> Result<ForwardedCaller, CallerRejection> {
        let mut permit = None;
        let mut standing = self.standing(&token);
        if standing == TokenStanding::Unverified {
            let waits = self.queue.acquire_waiting(peer)?;
            let attempt = self.failed.acquire_attempt(peer, Instant::now())?;
            let slot = self.queue.acquire_slot(peer).await?;
            drop(waits);
            // The API server can have answered another request with this token or address during the wait.
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
                let name = self.key.of_name(&user)?;
                (Some(user), name)
            }
            TokenStanding::Accepted | TokenStanding::Unverified => {
                (None, self.key.of_address(peer)?)
            }
        };
        let is_verified = permit.is_none();
        Ok(ForwardedCaller { user, limit_key, token, peer, is_verified, permit })
    }

    fn standing(&self, token: &CallerDigest) -> TokenStanding {
        let is_fresh = |requested_at: Instant| requested_at.elapsed() < TTL;
        if let Some(last) = self.reviewed.get_stale(token) {
            match last.value {
                AuthenticationResult::Known(user) => return TokenStanding::Reviewed(user),
                // The API server authenticated the token, although it did not say the user's name.
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
    /// After 401, kubewarm forgets the token's reviews and verdicts. The next cached read needs a new review. A server
    /// behind the API server can answer 401 too, so one 401 does not refuse a token that was accepted before.
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

/// Whether the API server sends this status only after it has authenticated the request.
///
/// The API server answers 400 to a malformed path or `timeout`, and 429 while it stops, before it authenticates. A load
/// balancer in front of the API server can answer 5xx.
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
    /// The sender of a request that kubewarm authenticated with a review.
    pub(super) fn reviewed(caller: AuthenticatedCaller, token: CallerDigest, peer: IpAddr) -> Self {
        let AuthenticatedCaller { user, name, .. } = caller;
        let (user, limit_key) = (Some(user), name);
        Self { user, limit_key, token, peer, is_verified: true, permit: None }
    }

    /// Whether a review or the API server accepted the token before this request.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Stops counting the request against the limits on unverified tokens.
    pub fn release_permit(&mut self) {
        self.permit = None;
    }
}

impl fmt::Debug for ForwardedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedCaller").field("user", &self.user).finish_non_exhaustive()
    }
}
