//! Leader election with a Lease: at most one process at a time acts as the leader.
//!
//! A renewal is a `PUT` with the Lease's resource version, so one of two concurrent writes fails
//! with 409. A follower acquires the lease only 15 s (the lease duration) after it saw the last
//! renewal. The leader stops acting 10 s (the renew deadline) after it *sent* its last successful
//! renewal. So two processes never lead at the same time.
//!
//! If a leader dies without releasing the lease, another process leads within 20 s. A follower sees
//! the last renewal within 3 s, and reads the lease again when it expires 15 s later. The remaining
//! 2 s are for requests. A restarted container has a new identity, so it also waits until the lease
//! expires.

mod observed_lease;
#[cfg(test)]
mod tests;

use self::observed_lease::{ObservedLease, new_lease, released_lease};
use super::api_client::{ApiClient, ApiRequest};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Time after its last successful renewal at which the leader stops acting, as in client-go by
/// default. The time is shorter than the lease duration of 15 s, so the leader stops before another
/// process leads.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two attempts to renew or to acquire the lease, before jitter. client-go has the
/// same default.
const RETRY: Duration = Duration::from_secs(2);
/// Pause after an attempt that did not reach the API server, before jitter. The pause is short,
/// because the first answer of the API server also ends the backoff of waiting informers.
const UNREACHABLE_RETRY: Duration = Duration::from_millis(500);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest `Retry-After` that a follower honours, so that no response delays a new leader for
/// longer. A longer value counts as 1 minute.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// Time limit of one HTTP request. An attempt to renew the lease (5 s) and its release (2 s) have
/// shorter limits, which end a request earlier.
const TIME: Duration = Duration::from_secs(30);
const MAX_BYTES: usize = 2 << 20;

/// The state of the leader election, from the view of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// This process leads.
    Leader {
        /// Time at which this process stops leading, unless it renews the lease before.
        until: Instant,
    },
    /// Another process leads, or this process has released the lease.
    Follower {
        /// The identity of the leader; `None` after this process released the lease.
        holder: Option<Arc<str>>,
    },
    /// This process could not read or write the lease, so it does not act as the leader.
    Unknown {
        /// The failure of the last attempt to read or write the lease. `None` before the first
        /// response, or if the leadership ended without a failed attempt.
        fault: Option<RequestFault>,
    },
}

/// One candidate of the leader election. The candidate competes for the lease while
/// [`run`](Self::run) runs.
pub struct LeaderElector {
    client: ApiClient,
    namespace: String,
    name: String,
    identity: String,
    state: watch::Sender<LeaseState>,
    observed: Option<ObservedLease>,
    /// The lease as this process last wrote it, so that the next renewal needs no read. If `None`,
    /// the next attempt reads the lease.
    ours: Option<Lease>,
    /// Whether this process might hold the lease, so that it must release the lease at its end.
    /// True if this process has sent a write and has not read another holder since then: the API
    /// server can have executed a write without a response.
    can_hold: bool,
}

impl LeaseState {
    /// Returns whether this process can act as the leader now. Call this method before each write
    /// to the API server.
    ///
    /// The result is also correct after the process was suspended: the method compares the current
    /// time with the end of the leadership.
    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader { until } if Instant::now() < *until)
    }
}

impl LeaderElector {
    /// Creates a candidate for the Lease `name`. The candidate sends no request before a call of
    /// [`run`](Self::run).
    ///
    /// `identity` must be unique for each process, because a candidate renews a lease that contains
    /// its identity.
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            client: ApiClient::new(client),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            state: watch::Sender::new(LeaseState::Unknown { fault: None }),
            observed: None,
            ours: None,
            can_hold: false,
        }
    }

    /// Returns a receiver of the current state and its changes. A renewal changes `until`, but does
    /// not notify receivers.
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.state.subscribe()
    }

    /// Takes part in the leader election until `stop` is cancelled. Then releases the lease, within
    /// 2 s, if this process holds it.
    ///
    /// After a failure, such as a 403, the candidate puts the failure into the state and retries.
    /// No failure ends `run`.
    ///
    /// # Cost
    ///
    /// One request every 1.5 s to 3 s: the leader sends a `PUT`, a follower a `GET`. About two
    /// attempts to connect a second while the API server is unreachable.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let attempted = stop.run_until_cancelled(self.attempt_in_time()).await;
            let Some(attempted) = attempted else { break };
            let fault = self.record_attempt(attempted);
            failures = if fault.is_some() { failures + 1 } else { 0 };
            let pause = self.pause(failures, fault.as_ref());
            if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                break;
            }
            self.step_down_if_late(fault);
        }
        self.release().await;
    }

    async fn attempt_in_time(&mut self) -> Result<LeaseState, RequestFault> {
        // An attempt has half of the renew deadline, so that the leader can repeat an attempt whose
        // response was lost.
        let half = RENEW_DEADLINE / 2;
        let budget = self.remaining().map_or(half, |remaining| remaining.min(half));
        let late = || {
            RequestFault::new(
                FaultReason::TimedOut,
                format!("no answer about the lease in {budget:?}"),
            )
        };
        timeout(budget, self.attempt()).await.unwrap_or_else(|_| Err(late()))
    }

    /// Makes one attempt to renew or to acquire the lease. Reads the lease unless `ours` contains
    /// it. Writes the lease unless another process holds it.
    ///
    /// Cancel safe: after a cancelled attempt, the next attempt reads the lease.
    async fn attempt(&mut self) -> Result<LeaseState, RequestFault> {
        for _ in 0..2 {
            let known = match self.ours.take() {
                Some(lease) => Some(lease),
                None => self.get().await?,
            };
            let sent = Instant::now();
            let (identity, clock) = (&self.identity, Timestamp::now());
            let ours = match known {
                None => new_lease(&self.name, identity, clock),
                Some(lease) => {
                    let observed = ObservedLease::observe(self.observed.take(), &lease, sent);
                    let observed = self.observed.insert(observed);
                    let Some(ours) = observed.claim(lease, identity, sent, clock) else {
                        self.can_hold = false;
                        return Ok(LeaseState::Follower { holder: Some(observed.holder().into()) });
                    };
                    ours
                }
            };
            self.can_hold = true;
            if let Some(lease) = self.write(&ours).await? {
                self.observed = Some(ObservedLease::observe(self.observed.take(), &lease, sent));
                self.ours = Some(lease);
                return Ok(LeaseState::Leader { until: sent + RENEW_DEADLINE });
            }
            // The write failed, because another client changed the lease at the same time. The next
            // iteration reads the lease again.
        }
        Err(RequestFault::new(
            FaultReason::ServerError,
            "the lease changes faster than it can be written",
        ))
    }

    fn record_attempt(
        &mut self,
        attempted: Result<LeaseState, RequestFault>,
    ) -> Option<RequestFault> {
        match attempted {
            // The process was suspended during the request, and the leadership that the request
            // would have extended has already ended. Only the next attempt can decide whether this
            // process leads.
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

    fn step_down_if_late(&mut self, fault: Option<RequestFault>) {
        let was_leader = matches!(*self.state.borrow(), LeaseState::Leader { .. });
        if self.remaining().is_none() && (was_leader || fault.is_some()) {
            self.enter(LeaseState::Unknown { fault });
        }
    }

    fn remaining(&self) -> Option<Duration> {
        let LeaseState::Leader { until } = *self.state.borrow() else { return None };
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Returns the time until the next attempt, with jitter.
    ///
    /// A leader pauses for 1.5 s to 2 s, a follower for 2 s to 3 s. Consecutive failures double a
    /// follower's pause, up to 15 s. A `Retry-After` of the API server can make the pause longer.
    /// If the API server is unreachable, each pause is 0.4 s to 0.75 s. Without a failure, the
    /// pause of a follower ends at the latest when the lease expires.
    fn pause(&self, failures: u32, fault: Option<&RequestFault>) -> Duration {
        let spread = fastrand::f64() / 2.0;
        let is_unreachable = fault.is_some_and(|fault| fault.reason() == FaultReason::Unreachable);
        let pause = if is_unreachable { UNREACHABLE_RETRY } else { RETRY };
        if let Some(remaining) = self.remaining() {
            return pause.mul_f64(1.0 - spread / 2.0).min(remaining);
        }
        if is_unreachable {
            return pause.mul_f64(1.0 + spread);
        }
        let grown =
            RETRY.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(RENEW_DEADLINE);
        let delay =
            fault.and_then(RequestFault::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
        let pause = grown.max(delay).mul_f64(1.0 + spread);
        match &self.observed {
            Some(observed) if fault.is_none() => pause.min(observed.remaining(Instant::now())),
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
        if !self.can_hold {
            return;
        }
        match timeout(RELEASE_TIMEOUT, self.write_release()).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => tracing::warn!(error = %fault, "lease not released"),
            Err(_) => tracing::warn!("lease not released in time"),
        }
    }

    async fn write_release(&mut self) -> Result<(), RequestFault> {
        for _ in 0..2 {
            let known = match self.ours.take() {
                Some(lease) => Some(lease),
                None => self.get().await?,
            };
            let free =
                known.and_then(|lease| released_lease(lease, &self.identity, Timestamp::now()));
            let Some(lease) = free else { return Ok(()) };
            if self.write(&lease).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn get(&self) -> Result<Option<Lease>, RequestFault> {
        let response = bounded(self.client.get(self.path())).send().await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        response.json().map(Some)
    }

    /// Writes `lease` and returns it with its new resource version. Returns `None` if another
    /// client has changed, deleted or created the lease.
    ///
    /// A `PUT` also creates the lease. kubewarm sends no `POST`, because RBAC cannot restrict a
    /// `POST` to one name.
    async fn write(&self, lease: &Lease) -> Result<Option<Lease>, RequestFault> {
        let body = serde_json::to_vec(lease)
            .map_err(|error| RequestFault::new(FaultReason::Malformed, error.to_string()))?;
        let is_new = lease.metadata.resource_version.is_none();
        let response = bounded(self.client.put(self.path(), body)).send().await?;
        match response.status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Ok(None),
            // Another client has created the lease in the meantime, so the API server requires a
            // resource version in the `PUT`.
            StatusCode::UNPROCESSABLE_ENTITY if is_new => Ok(None),
            _ => response.json().map(Some),
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
