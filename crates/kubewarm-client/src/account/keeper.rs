//! Keeps one account's token: asks for it once for all who wait, renews it, and drops it when the
//! API server refuses it.

use super::{mint::Account, token::Token};
use crate::Buckets;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use parking_lot::Mutex;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Longest wait between two attempts that fail: 1, 2, 4 … seconds before, all with jitter.
const LONGEST_WAIT: u32 = 30;

/// The token of one account. Asks only when a request needs it: an account that nobody reads as
/// costs nothing.
pub(super) struct Keeper {
    account: Account,
    operator: Arc<Client>,
    buckets: Buckets,
    state: Mutex<State>,
    /// Held while a token is asked for.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Arc<Token>>,
    /// Attempts since a token was last accepted.
    failures: u32,
    /// The last failure, and when to try again.
    failed: Option<(Fault, Instant)>,
}

/// What there is without asking.
enum AtHand {
    Token(Arc<Token>),
    /// Usable, and to be renewed.
    Ageing(Arc<Token>),
    Refused(Fault),
    Nothing,
}

impl Keeper {
    pub(super) fn new(account: Account, operator: Arc<Client>, buckets: Buckets) -> Self {
        let (state, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { account, operator, buckets, state, asking }
    }

    /// A token that should be accepted. Those who ask at the same time share one request; after a
    /// failure all are told the same until it is time to try again. Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of [`Account::mint`], with the time until the next attempt.
    pub(super) async fn token(&self) -> Result<Arc<Token>, Fault> {
        match self.at_hand() {
            AtHand::Token(token) => return Ok(token),
            AtHand::Refused(fault) => return Err(fault),
            AtHand::Ageing(token) => {
                // Until the new one is there, and if there will be none, the old one does.
                let Ok(_asking) = self.asking.try_lock() else { return Ok(token) };
                return Ok(self.ask().await.unwrap_or(token));
            }
            AtHand::Nothing => {}
        }
        let _asking = self.asking.lock().await;
        match self.at_hand() {
            AtHand::Token(token) | AtHand::Ageing(token) => Ok(token),
            AtHand::Refused(fault) => Err(fault),
            AtHand::Nothing => self.ask().await,
        }
    }

    /// The API server accepted `token`.
    pub(super) fn accepted(&self, token: &Token) {
        if token.prove() {
            self.state.lock().failures = 0;
        }
    }

    /// The API server answered 401: the token goes. Whether another one may be tried at once: not if
    /// this one was new.
    pub(super) fn refused(&self, token: &Arc<Token>) -> bool {
        let mut state = self.state.lock();
        if !state.token.as_ref().is_some_and(|held| Arc::ptr_eq(held, token)) {
            // Somebody has noticed before.
            return true;
        }
        state.token = None;
        if token.is_proven() {
            tracing::info!(account = %self.account, "the token is not accepted any more");
            return true;
        }
        let message = format!("the API server does not accept a new token of {}", self.account);
        let _told_by_the_next =
            state.fail(Fault::new(Reason::Unauthorized, message).with_code(401));
        false
    }

    fn at_hand(&self) -> AtHand {
        let now = Instant::now();
        let state = self.state.lock();
        let held_back = state.failed.as_ref().filter(|(_, until)| now < *until);
        match (&state.token, held_back) {
            (Some(token), None) if token.is_usable(now) && token.is_due(now) => {
                AtHand::Ageing(Arc::clone(token))
            }
            (Some(token), _) if token.is_usable(now) => AtHand::Token(Arc::clone(token)),
            (_, Some((fault, until))) => {
                AtHand::Refused(fault.clone().with_retry_after(Some(*until - now)))
            }
            (_, None) => AtHand::Nothing,
        }
    }

    async fn ask(&self) -> Result<Arc<Token>, Fault> {
        self.buckets.pass(&self.account.namespace, 1).await;
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

impl State {
    /// Notes the failure, and adds the time until the next attempt to it.
    fn fail(&mut self, fault: Fault) -> Fault {
        let seconds = 1_u32.checked_shl(self.failures).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let wait = Duration::from_secs(seconds.into()).mul_f64(1.0 + fastrand::f64() / 4.0);
        let wait = wait.max(fault.retry_after().unwrap_or_default());
        self.failures = self.failures.saturating_add(1);
        let fault = fault.with_retry_after(Some(wait));
        self.failed = Some((fault.clone(), Instant::now() + wait));
        fault
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds credentials.
        f.debug_struct("Keeper").field("account", &self.account).finish_non_exhaustive()
    }
}
