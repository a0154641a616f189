//! Requests, renews and drops the token of one ServiceAccount.

use super::{token::AccountToken, token_request::ServiceAccountRef};
use crate::NamespaceBuckets;
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Longest wait after a failed token request, in seconds. The wait starts at 1 s and doubles with
/// each failure. Jitter adds up to a quarter.
const LONGEST_WAIT: u32 = 30;

/// The cached token of one ServiceAccount. The cache requests a token only when a request needs
/// one, so an unused ServiceAccount causes no token requests.
pub(super) struct TokenCache {
    account: ServiceAccountRef,
    operator: Arc<Client>,
    buckets: NamespaceBuckets,
    state: Mutex<TokenCacheState>,
    /// A task holds this lock during a token request, so that only one token request runs at a
    /// time.
    request_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct TokenCacheState {
    token: Option<Arc<AccountToken>>,
    /// Failed token requests since the API server last accepted a token. Each failure doubles the
    /// wait before the next token request.
    failures: u32,
    /// The fault of the last failed token request, and the time of the next token request.
    failed: Option<(RequestFault, Instant)>,
}

/// The result of [`TokenCache::token`] that is available without a token request.
enum CachedToken {
    Token(Arc<AccountToken>),
    /// The token is valid and due for renewal.
    Ageing(Arc<AccountToken>),
    /// The last token request failed, and the next token request is not due yet.
    Refused(RequestFault),
    /// No usable token is cached, so kubewarm must send a token request now.
    Nothing,
}

impl TokenCache {
    pub(super) fn new(
        account: ServiceAccountRef,
        operator: Arc<Client>,
        buckets: NamespaceBuckets,
    ) -> Self {
        let (state, request_lock) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { account, operator, buckets, state, request_lock }
    }

    /// Returns a token that the API server should accept.
    ///
    /// Concurrent callers wait for one token request. After a failed token request, all callers get
    /// the fault of this request until the next token request is due. Cancel safe.
    ///
    /// # Errors
    ///
    /// The errors of [`ServiceAccountRef::mint`]; [`FaultReason::Unauthorized`] if the API server
    /// rejected a new token. The fault's `Retry-After` is the time until the next token request.
    pub(super) async fn token(&self) -> Result<Arc<AccountToken>, RequestFault> {
        match self.cached_token() {
            CachedToken::Token(token) => return Ok(token),
            CachedToken::Refused(fault) => return Err(fault),
            CachedToken::Ageing(token) => {
                // Other requests use the current token during its renewal. If the renewal fails,
                // the request that started the renewal also uses the current token.
                let Ok(_only_request) = self.request_lock.try_lock() else { return Ok(token) };
                return Ok(self.request_token().await.unwrap_or(token));
            }
            CachedToken::Nothing => {}
        }
        let _only_request = self.request_lock.lock().await;
        match self.cached_token() {
            CachedToken::Token(token) | CachedToken::Ageing(token) => Ok(token),
            CachedToken::Refused(fault) => Err(fault),
            CachedToken::Nothing => self.request_token().await,
        }
    }

    /// Records that the API server accepted `token`. The first acceptance of a token resets the
    /// number of failures, so that the wait after the next failed token request is 1 s again.
    pub(super) fn record_accepted(&self, token: &AccountToken) {
        if token.mark_accepted() {
            self.state.lock().failures = 0;
        }
    }

    /// Drops `token` after a 401. Returns whether the caller can retry with a new token at once.
    ///
    /// The result is `false` if the API server has never accepted `token`: a new token would
    /// probably fail too.
    pub(super) fn drop_rejected(&self, token: &Arc<AccountToken>) -> bool {
        let mut state = self.state.lock();
        if !state.token.as_ref().is_some_and(|known| Arc::ptr_eq(known, token)) {
            // Another request has already dropped `token`, so the caller can retry with a newer
            // token.
            return true;
        }
        state.token = None;
        if token.is_accepted() {
            tracing::info!(account = %self.account, "the token is not accepted any more");
            return true;
        }
        let message = format!("the API server does not accept a new token of {}", self.account);
        let _returned_by_the_next =
            state.fail(RequestFault::new(FaultReason::Unauthorized, message).with_code(401));
        false
    }

    fn cached_token(&self) -> CachedToken {
        let now = Instant::now();
        let state = self.state.lock();
        let held_back = state.failed.as_ref().filter(|(_, until)| now < *until);
        match (&state.token, held_back) {
            (Some(token), None) if token.is_usable(now) && token.is_due(now) => {
                CachedToken::Ageing(Arc::clone(token))
            }
            (Some(token), _) if token.is_usable(now) => CachedToken::Token(Arc::clone(token)),
            (_, Some((fault, until))) => {
                CachedToken::Refused(fault.clone().with_retry_after(Some(*until - now)))
            }
            (_, None) => CachedToken::Nothing,
        }
    }

    async fn request_token(&self) -> Result<Arc<AccountToken>, RequestFault> {
        self.buckets.take(&self.account.namespace, 1).await;
        let minted = self.account.mint(&self.operator).await;
        let mut state = self.state.lock();
        match minted {
            Ok(token) => {
                let token = Arc::new(token);
                state.token = Some(Arc::clone(&token));
                state.failed = None;
                tracing::debug!(account = %self.account, "new token");
                Ok(token)
            }
            Err(fault) => {
                tracing::debug!(account = %self.account, reason = %fault.reason(), %fault, "no token");
                Err(state.fail(fault))
            }
        }
    }
}

impl TokenCacheState {
    /// Records `fault` and returns it with the time until the next token request as its
    /// `Retry-After`.
    fn fail(&mut self, fault: RequestFault) -> RequestFault {
        let seconds = 1_u32.checked_shl(self.failures).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let wait = Duration::from_secs(seconds.into()).mul_f64(1.0 + fastrand::f64() / 4.0);
        let wait = wait.max(fault.retry_after().unwrap_or_default());
        self.failures = self.failures.saturating_add(1);
        let fault = fault.with_retry_after(Some(wait));
        self.failed = Some((fault.clone(), Instant::now() + wait));
        fault
    }
}
