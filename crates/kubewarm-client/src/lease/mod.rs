//! Leader election on a Lease: at most one process at a time believes that it leads.
//!
//! A renewal is a PUT that carries the resource version, so of two writers one loses (409). Others
//! wait a whole lease duration from when they saw the last renewal; the leader stops believing
//! earlier, at the renew deadline after it *sent* the last renewal that succeeded.
//!
//! A leader that ends without giving the lease back is followed within 20 s: others see its last
//! renewal within 3 s, and look again when the lease runs out, 15 s later; the rest is for answers.
//! Where its container is started anew, that is one of the others, by another identity.

mod record;
#[cfg(test)]
mod tests;

use self::record::{Observed, first, released};
use super::api_client::{ApiClient, ApiRequest};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long after its last renewal the leader still believes that it leads. Less than how long a lease lasts; this and
/// the other two are those of client-go.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two attempts to renew or to acquire.
const RETRY: Duration = Duration::from_secs(2);
/// What one may take of the time to terminate to give the lease back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest `Retry-After` that a follower honours.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// For an answer; the election itself waits for less.
const TIME: Duration = Duration::from_secs(30);
const MAX_BYTES: usize = 2 << 20;

/// Who leads, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// We do.
    Leader {
        /// When that ends unless we renew the lease before.
        until: Instant,
    },
    /// Not we.
    Follower {
        /// Who does; `None` after we gave the lease back.
        holder: Option<Arc<str>>,
    },
    /// The lease cannot be read or written, so we do not act as the leader.
    Unknown {
        /// Why; `None` before the first answer.
        fault: Option<Fault>,
    },
}

/// Takes part in the election while it [`run`](Self::run)s.
pub struct Elector {
    client: ApiClient,
    namespace: String,
    name: String,
    identity: String,
    state: watch::Sender<LeaseState>,
    observed: Option<Observed>,
    /// The lease as we wrote it last, if nothing has happened to it since as far as we know.
    ours: Option<Lease>,
    /// A write was sent, and not since has somebody else been seen to hold the lease.
    may_hold: bool,
}

impl LeaseState {
    /// Whether we may act as the leader at this moment. Exact even after the process was stopped for a while, so
    /// ask before each write.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader { until } if Instant::now() < *until)
    }
}

impl Elector {
    /// Prepares; nothing is sent before [`run`](Self::run).
    #[must_use]
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            client: ApiClient::new(client),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            state: watch::Sender::new(LeaseState::Unknown { fault: None }),
            observed: None,
            ours: None,
            may_hold: false,
        }
    }

    /// The state, and its changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.state.subscribe()
    }

    /// Takes part until `stop`, then gives the lease back if it is ours (within 2 s). Failures,
    /// 403 among them, are told by the state and tried again; they never end it.
    ///
    /// # Cost
    ///
    /// One small request every `retry`: the leader writes, the others read.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let attempted = stop.run_until_cancelled(self.attempt_in_time()).await;
            let Some(attempted) = attempted else { break };
            let fault = self.conclude(attempted);
            failures = if fault.is_some() { failures + 1 } else { 0 };
            let pause = self.pause(failures, fault.as_ref());
            if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                break;
            }
            self.step_down_if_late(fault);
        }
        self.release().await;
    }

    async fn attempt_in_time(&mut self) -> Result<LeaseState, Fault> {
        // Half, so that one lost answer leaves time for another attempt.
        let half = RENEW_DEADLINE / 2;
        let budget = self.remaining().map_or(half, |remaining| remaining.min(half));
        let late =
            || Fault::new(Reason::TimedOut, format!("no answer about the lease in {budget:?}"));
        timeout(budget, self.attempt()).await.unwrap_or_else(|_| Err(late()))
    }

    /// Reads the lease, unless we know it, and writes it if we may. Cancel safe: the next attempt
    /// reads it again.
    async fn attempt(&mut self) -> Result<LeaseState, Fault> {
        for _ in 0..2 {
            let known = match self.ours.take() {
                Some(lease) => Some(lease),
                None => self.get().await?,
            };
            let sent = Instant::now();
            let (identity, clock) = (&self.identity, Timestamp::now());
            let ours = match known {
                None => first(&self.name, identity, clock),
                Some(lease) => {
                    let observed = Observed::note(self.observed.take(), &lease, sent);
                    let observed = self.observed.insert(observed);
                    let Some(ours) = observed.claim(lease, identity, sent, clock) else {
                        self.may_hold = false;
                        return Ok(LeaseState::Follower { holder: Some(observed.holder().into()) });
                    };
                    ours
                }
            };
            self.may_hold = true;
            if let Some(lease) = self.write(&ours).await? {
                self.observed = Some(Observed::note(self.observed.take(), &lease, sent));
                self.ours = Some(lease);
                return Ok(LeaseState::Leader { until: sent + RENEW_DEADLINE });
            }
            // A conflict: what the lease says now decides.
        }
        Err(Fault::new(Reason::ServerError, "the lease changes faster than it can be written"))
    }

    fn conclude(&mut self, attempted: Result<LeaseState, Fault>) -> Option<Fault> {
        match attempted {
            // The process was stopped in mid-request; the next attempt tells.
            Ok(LeaseState::Leader { until }) if until <= Instant::now() => None,
            Ok(state) => {
                self.enter(state);
                None
            }
            Err(fault) => {
                self.step_down_if_late(Some(fault.clone()));
                Some(fault)
            }
        }
    }

    fn step_down_if_late(&mut self, fault: Option<Fault>) {
        let was_leader = matches!(*self.state.borrow(), LeaseState::Leader { .. });
        if self.remaining().is_none() && (was_leader || fault.is_some()) {
            self.enter(LeaseState::Unknown { fault });
        }
    }

    /// How long we may still lead; `None` if we do not.
    fn remaining(&self) -> Option<Duration> {
        let LeaseState::Leader { until } = *self.state.borrow() else { return None };
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// With jitter, and for followers longer from failure to failure, up to the renew deadline; but
    /// no longer than the lease lasts that somebody else has.
    fn pause(&self, failures: u32, fault: Option<&Fault>) -> Duration {
        let spread = fastrand::f64() / 2.0;
        if let Some(remaining) = self.remaining() {
            return RETRY.mul_f64(1.0 - spread / 2.0).min(remaining);
        }
        let grown =
            RETRY.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(RENEW_DEADLINE);
        let told = fault.and_then(Fault::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
        let pause = grown.max(told).mul_f64(1.0 + spread);
        match &self.observed {
            Some(observed) if fault.is_none() => pause.min(observed.left(Instant::now())),
            Some(_) | None => pause,
        }
    }

    fn enter(&self, next: LeaseState) {
        let Self { namespace, name, .. } = self;
        self.state.send_if_modified(|state| {
            if *state == next {
                return false;
            }
            let is_renewal =
                matches!((&*state, &next), (LeaseState::Leader { .. }, LeaseState::Leader { .. }));
            if is_renewal {
                *state = next;
                return false;
            }
            match (&*state, &next) {
                (_, LeaseState::Leader { .. }) => tracing::info!(namespace, name, "leading"),
                (_, LeaseState::Follower { holder }) => {
                    let holder = holder.as_deref();
                    tracing::info!(namespace, name, holder, "following");
                }
                (
                    LeaseState::Unknown { fault: Some(last) },
                    LeaseState::Unknown { fault: Some(now) },
                ) if last.reason() == now.reason() => {}
                (_, LeaseState::Unknown { fault: Some(fault) }) => {
                    let reason = fault.reason().as_str();
                    tracing::warn!(namespace, name, reason, error = %fault, "lease not usable");
                }
                (_, LeaseState::Unknown { fault: None }) => {
                    tracing::warn!(namespace, name, "lease not renewed in time");
                }
            }
            *state = next;
            true
        });
    }

    async fn release(&mut self) {
        let was_leader = matches!(*self.state.borrow(), LeaseState::Leader { .. });
        if was_leader {
            self.enter(LeaseState::Follower { holder: None });
        }
        if !self.may_hold {
            return;
        }
        match timeout(RELEASE_TIMEOUT, self.give_back()).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => tracing::warn!(error = %fault, "lease not released"),
            Err(_) => tracing::warn!("lease not released in time"),
        }
    }

    async fn give_back(&mut self) -> Result<(), Fault> {
        for _ in 0..2 {
            let known = match self.ours.take() {
                Some(lease) => Some(lease),
                None => self.get().await?,
            };
            let free = known.and_then(|lease| released(lease, &self.identity, Timestamp::now()));
            let Some(lease) = free else { return Ok(()) };
            if self.write(&lease).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn get(&self) -> Result<Option<Lease>, Fault> {
        let answer = bounded(self.client.get(self.path())).send().await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        answer.json().map(Some)
    }

    /// The lease as written; `None` if somebody else has changed, deleted or created it. A PUT also creates the
    /// lease: RBAC can restrict a PUT to a name, and not a POST.
    async fn write(&self, lease: &Lease) -> Result<Option<Lease>, Fault> {
        let body = serde_json::to_vec(lease)
            .map_err(|error| Fault::new(Reason::Malformed, error.to_string()))?;
        let is_new = lease.metadata.resource_version.is_none();
        let answer = bounded(self.client.put(self.path(), body)).send().await?;
        match answer.status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Ok(None),
            // Somebody else has created it: the API server wants a resource version.
            StatusCode::UNPROCESSABLE_ENTITY if is_new => Ok(None),
            _ => answer.json().map(Some),
        }
    }

    fn path(&self) -> String {
        let Self { namespace, name, .. } = self;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    }
}

fn bounded(request: ApiRequest) -> ApiRequest {
    request.within(TIME).at_most(MAX_BYTES)
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}
