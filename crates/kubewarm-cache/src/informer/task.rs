//! The task of one cell: list, watch, fail, wait, again.

use super::{
    Changes, InformerMetrics, RelistReason, ResourceMetrics, Stage, Timing, Undecodable, Verb,
    backoff::Backoff,
    cell::{Control, Informer},
    decode::Decoder,
    list_watch::ListWatch,
    metadata::ListMeta,
    slots::Slots,
    state::Step,
    strategy::Strategies,
    stream::Stream,
};
use kubewarm_api::model::{
    CellKey, Extent, Fault, Identity, NamespaceCheck, Reason, Resource, ResourceVersion,
};
use kubewarm_client::{Buckets, Existence, Expiring, KeyedSemaphore, existence};
use std::sync::Arc;
use tokio::{runtime::Handle, sync::watch, time::Instant};

/// What all cells of the process share.
pub(super) struct Shared {
    /// For what is the same whoever asks; nothing else is read as the operator for all.
    pub(super) operator: Arc<kube::Client>,
    pub(super) metrics: Arc<InformerMetrics>,
    /// Bounds first lists and relists.
    pub(super) lists: Slots,
    /// Bounds probes, by the namespace of the profile.
    pub(super) probes: KeyedSemaphore<Arc<str>>,
    /// Bounds lists to compare tables with, likewise.
    pub(super) comparisons: KeyedSemaphore<Arc<str>>,
    /// Bounds what is asked for each namespace.
    pub(super) buckets: Buckets,
    pub(super) strategies: Strategies,
    /// The last peek at each resource, by identity: all cells of one share it, since a list's version is
    /// that of the whole resource. So 2,000 cells of 20 kinds cost one identity 20 requests.
    pub(super) peeks: Expiring<(Identity, Resource), ListMeta>,
    /// The last look at each namespace, likewise. A list of a namespace that does not exist is empty and
    /// successful, so every cell that holds nothing looks for its namespace now and then.
    pub(super) namespaces: Expiring<(Identity, Arc<str>), Existence>,
    pub(super) changes: Changes,
    pub(super) timing: Timing,
}

/// Undecodable objects that are logged since the last list began; the counter counts them all.
const LOGGED: u64 = 16;

/// One informer's list-and-watch.
pub(super) struct Task {
    pub(super) informer: Arc<Informer>,
    /// Wakes the task when the orders change.
    pub(super) control: watch::Receiver<Control>,
    /// Of the gate, as of which the task began: it ends with a loss.
    pub(super) epoch: u64,
    pub(super) list_watch: ListWatch,
    pub(super) metrics: Arc<ResourceMetrics>,
    pub(super) shared: Arc<Shared>,
    pub(super) decoder: Decoder,
    pub(super) backoff: Backoff,
    /// Watches in a row that ended at once.
    pub(super) closed_at_once: u32,
    /// Watches in a row that did not last.
    pub(super) short_watches: u32,
    /// Changes that the watch that is open has brought.
    pub(super) news: u64,
    /// Whether others have been told that the watch that is open is silent.
    pub(super) told_silent: bool,
    /// Lists in a row that broke off.
    pub(super) broken_lists: u32,
    /// Whether the controller reads this store: profiles, and namespaces.
    pub(super) is_followed: bool,
    /// Objects that the list under way has replaced, over all attempts: the next attempt finds them unchanged.
    pub(super) replaced: u64,
    /// When the last list completed.
    pub(super) listed_at: Option<Instant>,
    /// When the watch that is open was opened.
    pub(super) opened_at: Option<Instant>,
    /// Undecodable objects since the last list began.
    pub(super) rejected: u64,
    /// Bytes of lists, over all pages, since the limits were last compared.
    pub(super) unchecked_bytes: usize,
    /// Whether the controller has been notified of the limit that is exceeded now.
    pub(super) has_told_excess: bool,
    /// When the store was last compared with a list, or the task began.
    pub(super) compared_at: Instant,
    /// Of the interval between two comparisons: stores that were opened together are not compared together.
    pub(super) compared_part: f64,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// List; `None`: for the first time.
    List(Option<RelistReason>),
    /// Open a watch from the version known.
    Watch,
    /// The same, after a consistent read has shown that versions have not gone back since.
    Verify {
        /// When the connection broke.
        since: Instant,
    },
    /// Follow a watch that is open already.
    Follow(Box<Stream>),
}

/// An attempt that failed, and what to try after a wait.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) verb: Verb,
    pub(super) then: Next,
}

impl Task {
    pub(super) fn new(
        informer: &Arc<Informer>,
        list_watch: &ListWatch,
        shared: &Arc<Shared>,
        epoch: u64,
    ) -> Self {
        let key = &informer.key;
        Self {
            list_watch: list_watch.clone(),
            decoder: Decoder::new(key),
            informer: Arc::clone(informer),
            control: informer.control.subscribe(),
            epoch,
            metrics: shared.metrics.for_resource(&key.resource),
            backoff: Backoff::new(shared.timing.backoff),
            shared: Arc::clone(shared),
            closed_at_once: 0,
            short_watches: 0,
            news: 0,
            told_silent: false,
            broken_lists: 0,
            is_followed: is_followed(key),
            replaced: 0,
            listed_at: None,
            opened_at: None,
            rejected: 0,
            unchecked_bytes: 0,
            has_told_excess: false,
            compared_at: Instant::now(),
            compared_part: 0.8 + 0.4 * fastrand::f64(),
        }
    }

    /// Runs until it is dropped. Cancel safe: the table is consistent between any two deltas, and a
    /// list that breaks off sweeps nothing.
    pub(super) async fn run(mut self) {
        let mut next = {
            let status = self.informer.status();
            match (status.owed(), status.version()) {
                (None, Some(_)) => Next::Verify { since: Instant::now() },
                (owed, _) => Next::List(owed),
            }
        };
        loop {
            let step = match next {
                Next::List(why) => self.list(why).await,
                Next::Watch => self.watch().await,
                Next::Verify { since } => self.verify(since).await,
                Next::Follow(stream) => self.follow(*stream).await,
            };
            next = match step {
                Ok(next) => self.note(next),
                Err(failure) => self.wait(failure).await,
            };
        }
    }

    /// Writes down that a list is needed, so that a cell that is held meanwhile makes up for it.
    fn note(&self, next: Next) -> Next {
        if let Next::List(Some(why)) = next {
            self.informer.status().owe(why);
        }
        next
    }

    /// Writes a failure down, waits, and says what follows.
    async fn wait(&mut self, failure: Failure) -> Next {
        let Failure { mut fault, verb, mut then } = failure;
        let failed_at = Instant::now();
        self.metrics.count_request_error(verb, fault.code());
        if matches!(fault.reason(), Reason::Forbidden | Reason::Unauthorized | Reason::NotServed) {
            let existence = self.namespace(failed_at).await;
            fault = missing_namespace(&self.informer.key.extent, existence).unwrap_or(fault);
        }
        if matches!(fault.reason(), Reason::NamespaceNotFound | Reason::NotServed) {
            self.purge();
            then = Next::List(Some(RelistReason::Recreated));
        }
        let then = self.note(then);
        let delay = self.backoff.failed(fault.retry_after(), fastrand::f64());
        let attempts = self.backoff.failures();
        self.informer.failed(verb, &fault, attempts, delay);
        if attempts == 1 {
            tracing::info!(cell = %self.informer.key, ?verb, reason = %fault.reason(), %fault, "failed, retrying");
        } else {
            tracing::debug!(cell = %self.informer.key, ?verb, reason = %fault.reason(), %fault, attempts, "failed again");
        }
        let returns = self.informer.control.borrow().gate.returns;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            // What was refused may be allowed now.
            _ = self.control.wait_for(|control| control.gate.returns != returns) => {}
        }
        if matches!(then, Next::Watch | Next::Verify { .. }) {
            self.informer.enter(Step::Queued);
        }
        then
    }

    /// Shows by a consistent read that versions have not gone back, then goes on to watch.
    ///
    /// All cells lose their connections in the same moment when a server goes: they do not come back
    /// in the same moment.
    async fn verify(&mut self, since: Instant) -> Result<Next, Failure> {
        tokio::time::sleep(self.shared.timing.spread.mul_f64(fastrand::f64())).await;
        if self.has_rolled_back(since).await? {
            return Ok(self.roll_back());
        }
        Ok(Next::Watch)
    }

    /// Whether a consistent read is older than the table.
    ///
    /// After an etcd restore the server accepts a watch from a version that it has not reached yet, and
    /// stays silent until it has; what happened in between would be lost. So no watch is resumed after
    /// a broken connection before a consistent read has shown that the version is still of the past.
    async fn has_rolled_back(&self, since: Instant) -> Result<bool, Failure> {
        let Some(known) = self.version().filter(|version| !version.is_opaque()) else {
            return Ok(false);
        };
        let within = self.shared.timing.list_headers;
        let key = &self.informer.key;
        let of = (key.identity.clone(), key.resource.clone());
        let list_watch = self.list_watch.clone();
        let peek = async move { list_watch.peek(within).await };
        let peeks = &self.shared.peeks;
        let peek = peeks.get_or_fetch(&Handle::current(), of, Some(since), || peek).await;
        let newest = peek.and_then(|entry| entry.value.version()).map_err(|fault| {
            // The failure is shared by those who waited for it; the next attempt asks again.
            let then = Next::Verify { since: Instant::now() };
            Failure { fault, verb: Verb::List, then }
        })?;
        Ok(newest.is_older_than(&known))
    }

    /// Drops everything: what is held is of a future that did not happen.
    pub(super) fn roll_back(&mut self) -> Next {
        tracing::warn!(
            cell = %self.informer.key,
            version = self.version().map(|version| version.to_string()),
            "resource versions went back, as after an etcd restore: listing anew"
        );
        self.metrics.resource_version_rollbacks.inc();
        self.purge();
        Next::List(Some(RelistReason::Rollback))
    }

    /// Drops what is held.
    pub(super) fn purge(&mut self) {
        self.replaced = 0;
        self.informer.empty();
    }

    /// The namespace of the profile that decides how the cell runs: what is asked for it counts there.
    pub(super) fn namespace_of_profile(&self) -> Arc<str> {
        self.informer.tuning(|tuning| Arc::clone(&tuning.member_of.profile.namespace))
    }

    /// The newest version delivered.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        self.informer.status().version().cloned()
    }

    /// Counts and names what could not be decoded.
    pub(super) fn reject(&mut self, rejected: Undecodable, stage: Stage) {
        self.metrics.count_decode_error(stage);
        self.rejected += 1;
        let (object, problem) = (&rejected.object, &*rejected.problem);
        if self.rejected <= LOGGED {
            tracing::warn!(cell = %self.informer.key, ?object, problem, "not decodable");
        } else {
            tracing::debug!(cell = %self.informer.key, ?object, problem, "not decodable");
        }
        self.informer.status().undecodable(rejected);
        self.shared.changes.notify();
    }

    /// The fault of a cell whose namespace does not exist, as the API server says to a request sent after `since`.
    /// `None` also where nobody may ask.
    pub(super) async fn absent_namespace(&self, since: Instant) -> Option<Fault> {
        let existence = self.namespace(since).await;
        missing_namespace(&self.informer.key.extent, existence)
            .filter(|_| existence == Existence::Absent)
    }

    /// What the API server says of the cell's namespace.
    async fn namespace(&self, since: Instant) -> Existence {
        let key = &self.informer.key;
        let check = self.informer.tuning(|tuning| tuning.namespace_check);
        let (Extent::Namespace(name), NamespaceCheck::Ask) = (&key.extent, check) else {
            return Existence::Unknown;
        };
        let (list_watch, namespace) = (self.list_watch.clone(), Arc::clone(name));
        let look = async move {
            let seen = existence(&list_watch.client, &namespace).await;
            // An error is not remembered, so the next caller asks again.
            if seen == Existence::Unknown {
                return Err(Fault::new(Reason::Unreachable, "it does not say"));
            }
            Ok(seen)
        };
        let of = (key.identity.clone(), Arc::clone(name));
        let looks = &self.shared.namespaces;
        let seen = looks.get_or_fetch(&Handle::current(), of, Some(since), || look).await;
        seen.map_or(Existence::Unknown, |entry| entry.value)
    }
}

/// Whether the controller acts on every event of such a cell: namespaces and profiles change rarely.
fn is_followed(key: &CellKey) -> bool {
    let of = key.resource.group_resource();
    key.is_own() || (of.group(), of.resource()) == ("", "namespaces")
}

/// The fault of a cell whose namespace does not exist, or is being deleted: its roles go first, so they are not missing.
pub(super) fn missing_namespace(extent: &Extent, existence: Existence) -> Option<Fault> {
    let what = match existence {
        Existence::Absent => "does not exist",
        Existence::Leaving => "is being deleted",
        Existence::Present | Existence::NotAllowed | Existence::Unknown => return None,
    };
    Some(Fault::new(Reason::NamespaceNotFound, format!("{extent} {what}")))
}
