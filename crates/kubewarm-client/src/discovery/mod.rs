//! Keeps a snapshot of what the API server serves: polls discovery, publishes what changed.

mod document;
mod page;
mod served;
#[cfg(test)]
mod tests;

pub use self::served::{Served, is_builtin_group};

use self::page::Page;
use kube::Client;
use kubewarm_api::model::Fault;
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

/// While nothing is missing. An unchanged document costs a 304.
const PERIOD: Duration = Duration::from_secs(30);
/// While a declared kind is missing: a new CRD is noticed within so much.
const HURRIED_PERIOD: Duration = Duration::from_secs(5);
/// Between two polls, whatever is asked for.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Discovery of one API server. Clones share it; one of them must [`run`](Self::run).
#[derive(Clone)]
pub struct Discovery(Arc<Shared>);

struct Shared {
    client: Client,
    served: watch::Sender<Option<Arc<Served>>>,
    fault: watch::Sender<Option<Fault>>,
    is_hurried: AtomicBool,
    is_asked: AtomicBool,
    wake: Notify,
}

impl Discovery {
    /// Prepares discovery through `client`; nothing is sent before [`run`](Self::run).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Shared {
            client,
            served: watch::Sender::new(None),
            fault: watch::Sender::new(None),
            is_hurried: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            wake: Notify::new(),
        }))
    }

    /// The latest snapshot; `None` before the first. Changes only when what is served changes.
    #[must_use]
    pub fn served(&self) -> watch::Receiver<Option<Arc<Served>>> {
        self.0.served.subscribe()
    }

    /// Why discovery fails now, while the last snapshot stays; `None` if the last poll succeeded, or before the first.
    #[must_use]
    pub fn fault(&self) -> watch::Receiver<Option<Fault>> {
        self.0.fault.subscribe()
    }

    /// Polls every 5 s if `is_hurried`, because a declared kind is missing; otherwise every 30 s.
    pub fn set_hurried(&self, is_hurried: bool) {
        if self.0.is_hurried.swap(is_hurried, Ordering::Relaxed) != is_hurried {
            self.0.wake.notify_one();
        }
    }

    /// Polls as soon as the last poll is 1 s old: after a sign that something changed, such as a
    /// 404 on a list or an event of a `CustomResourceDefinition`.
    pub fn refresh(&self) {
        self.0.is_asked.store(true, Ordering::Relaxed);
        self.0.wake.notify_one();
    }

    /// Polls until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.poll_for_ever()).await;
    }

    async fn poll_for_ever(&self) {
        let (mut core, mut named) = (Page::default(), Page::default());
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            self.0.is_asked.store(false, Ordering::Relaxed);
            let known = self.0.served.borrow().clone();
            let client = &self.0.client;
            let read = tokio::join!(core.read(client, "/api"), named.read(client, "/apis"));
            // Of the two documents either both count or none.
            match read.0.and(read.1) {
                Ok(()) => {
                    let served = Served::new(&core.groups, &named.groups, known.as_deref());
                    self.publish(served, failures);
                    failures = 0;
                }
                Err(fault) => {
                    self.report(fault);
                    failures = failures.saturating_add(1);
                }
            }
            self.rest(started, failures).await;
        }
    }

    fn publish(&self, served: Served, attempts: u32) {
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

    fn report(&self, fault: Fault) {
        self.0.fault.send_modify(|last| {
            if last.as_ref().is_none_or(|last| last.reason() != fault.reason()) {
                tracing::warn!(reason = %fault.reason(), error = %fault, "discovery failed");
            }
            *last = Some(fault);
        });
    }

    async fn rest(&self, started: Instant, failures: u32) {
        // Replicas that were started together should not poll together.
        let spread = 0.9 + fastrand::f64() * 0.2;
        sleep_until(started + MIN_PERIOD.mul_f64(spread)).await;
        while !self.0.is_asked.load(Ordering::Relaxed) {
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
                let told = fault.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
                backoff.min(PERIOD).max(told)
            }
        }
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery").field("fault", &*self.0.fault.borrow()).finish_non_exhaustive()
    }
}
