//! Polls the discovery documents of the API server and publishes a snapshot of the resources that
//! the API server serves.

mod document;
mod page;
mod served_resources;
#[cfg(test)]
mod tests;

pub use self::served_resources::ServedResources;
pub use kubewarm_wire::is_builtin_group;

use self::page::DiscoveryPage;
use super::api_client::ApiClient;
use kube::Client;
use kubewarm_api::model::RequestFault;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Polling period while the API server serves all kinds that profiles name. A poll is cheap: if the
/// document has not changed, the API server answers with 304.
const PERIOD: Duration = Duration::from_secs(30);
/// Polling period while the API server does not serve a kind that a profile names, so that kubewarm
/// finds a new CRD within 5 s.
const HURRIED_PERIOD: Duration = Duration::from_secs(5);
/// Minimum time between two polls, also if a caller of `refresh` requests a poll.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// Longest `Retry-After` that discovery honours, so that no response delays the next poll for
/// longer. A longer value counts as 2 minutes.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Polls the discovery documents of one API server. All clones share one snapshot of the served
/// resources. The caller must call [`run`](Self::run) on one clone.
#[derive(Clone)]
pub struct Discovery(Arc<DiscoveryState>);

struct DiscoveryState {
    client: Client,
    served: watch::Sender<Option<Arc<ServedResources>>>,
    fault: watch::Sender<Option<RequestFault>>,
    is_hurried: AtomicBool,
    is_refresh_requested: AtomicBool,
    wake: Notify,
}

impl Discovery {
    /// Creates a poller that sends its requests with `client`. The poller sends no request before a
    /// call of [`run`](Self::run).
    pub fn new(client: Client) -> Self {
        Self(Arc::new(DiscoveryState {
            client,
            served: watch::Sender::new(None),
            fault: watch::Sender::new(None),
            is_hurried: AtomicBool::new(false),
            is_refresh_requested: AtomicBool::new(false),
            wake: Notify::new(),
        }))
    }

    /// Returns a receiver of the latest snapshot of the served resources, and of its changes. The
    /// receiver contains `None` before the first successful poll. A poll without a change sends no
    /// notification.
    pub fn served(&self) -> watch::Receiver<Option<Arc<ServedResources>>> {
        self.0.served.subscribe()
    }

    /// Returns a receiver of the last poll's failure. The receiver contains `None` if the last poll
    /// succeeded, or before the first poll.
    ///
    /// After a failed poll, [`served`](Self::served) still returns the last snapshot.
    pub fn fault(&self) -> watch::Receiver<Option<RequestFault>> {
        self.0.fault.subscribe()
    }

    /// Sets the polling period: 5 s if `is_hurried`, otherwise 30 s.
    ///
    /// The controller sets `is_hurried` while the API server does not serve a kind that a profile
    /// names.
    pub fn set_hurried(&self, is_hurried: bool) {
        if self.0.is_hurried.swap(is_hurried, Ordering::Relaxed) != is_hurried {
            self.0.wake.notify_one();
        }
    }

    /// Requests another poll, which starts at the earliest 1 s after the last poll.
    ///
    /// Call this method after a sign that the served resources have changed, such as a 404 on a
    /// list.
    pub fn refresh(&self) {
        self.0.is_refresh_requested.store(true, Ordering::Relaxed);
        self.0.wake.notify_one();
    }

    /// Polls until `stop` is cancelled. If a poll fails, [`fault`](Self::fault) contains its
    /// failure, and the next poll retries.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.poll_without_end()).await;
    }

    async fn poll_without_end(&self) {
        let (mut core, mut apis) = (DiscoveryPage::default(), DiscoveryPage::default());
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            self.0.is_refresh_requested.store(false, Ordering::Relaxed);
            let known = self.0.served.borrow().clone();
            match self.read(&mut core, &mut apis, known.as_deref()).await {
                Ok(served) => {
                    self.publish(served, failures);
                    failures = 0;
                }
                Err(fault) => {
                    self.report(fault);
                    failures = failures.saturating_add(1);
                }
            }
            self.wait_for_next_poll(started, failures).await;
        }
    }

    /// Reads the documents of `/api` and `/apis` into a snapshot.
    ///
    /// While an API server starts, its documents lack the kinds of CRDs and aggregated APIs, and
    /// kubewarm would stop the informers of these kinds. So if a resource of `known` is missing,
    /// this function requests `/readyz`. If the API server is not ready, the function fails.
    /// Otherwise it reads the documents again, and accepts that the resource is missing.
    async fn read(
        &self,
        core: &mut DiscoveryPage,
        apis: &mut DiscoveryPage,
        known: Option<&ServedResources>,
    ) -> Result<ServedResources, RequestFault> {
        let client = &self.0.client;
        let mut is_checked = false;
        loop {
            // A snapshot needs both documents, so this function fails if one of the two requests
            // fails.
            let read = tokio::join!(core.read(client, "/api"), apis.read(client, "/apis"));
            read.0.and(read.1)?;
            let served = ServedResources::new(&core.groups, &apis.groups, known);
            if is_checked || known.is_none_or(|known| served.contains_all_of(known)) {
                return Ok(served);
            }
            let readiness = ApiClient::new(client).get("/readyz").send().await?;
            // Only a 5xx shows that the API server is not ready. Another status, such as 403, can
            // mean that the cluster hides `/readyz`.
            if readiness.status.is_server_error() {
                return Err(readiness.fault());
            }
            is_checked = true;
        }
    }

    fn publish(&self, served: ServedResources, attempts: u32) {
        self.0.served.send_if_modified(|current| {
            if current.as_deref() == Some(&served) {
                return false;
            }
            tracing::debug!("discovery changed");
            *current = Some(Arc::new(served));
            true
        });
        if self.0.fault.send_if_modified(|fault| fault.take().is_some()) {
            tracing::info!(attempts, "discovery works again");
        }
    }

    fn report(&self, fault: RequestFault) {
        self.0.fault.send_modify(|last| {
            if last.as_ref().is_none_or(|last| last.reason() != fault.reason()) {
                tracing::warn!(reason = %fault.reason(), error = %fault, "discovery failed");
            }
            *last = Some(fault);
        });
    }

    async fn wait_for_next_poll(&self, started: Instant, failures: u32) {
        // Jitter changes the period by up to 10 %. So replicas that start at the same time do not
        // poll at the same time.
        let spread = 0.9 + fastrand::f64() * 0.2;
        sleep_until(started + MIN_PERIOD.mul_f64(spread)).await;
        while !self.0.is_refresh_requested.load(Ordering::Relaxed) {
            let due = started + self.period(failures).mul_f64(spread);
            tokio::select! {
                () = sleep_until(due) => return,
                () = self.0.wake.notified() => {}
            }
        }
    }

    fn period(&self, failures: u32) -> Duration {
        let pace = if self.0.is_hurried.load(Ordering::Relaxed) { HURRIED_PERIOD } else { PERIOD };
        match &*self.0.fault.borrow() {
            None => pace,
            Some(fault) => {
                let backoff = MIN_PERIOD.saturating_mul(1 << failures.min(5));
                let delay = fault.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
                backoff.min(PERIOD).max(delay)
            }
        }
    }
}
