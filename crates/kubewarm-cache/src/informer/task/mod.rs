//! The task of one informer: it lists, watches, and retries after failures with a backoff.

pub(super) mod backoff;
pub(super) mod budget_wait;
pub(super) mod consistency_check;
pub(super) mod event_delivery;
pub(super) mod list;
pub(super) mod peer_list;
pub(super) mod proof_list;
pub(super) mod proof_schedule;
pub(super) mod protobuf_support;
pub(super) mod session;
pub(super) mod task_state;
pub(super) mod watch;
pub(super) mod watch_list;
pub(super) mod watch_probe;
pub(super) mod watch_stream;

use self::{
    backoff::RetryBackoff,
    consistency_check::ConsistencySchedule,
    list::{ListHistory, ListRun},
    proof_schedule::ProofSchedule,
    protobuf_support::ProtobufSupport,
    session::InformerSession,
    task_state::TaskState,
    watch::{WatchHistory, WatchRun},
    watch_stream::WatchStream,
};
use crate::informer::{
    ChangeNotifier, InformerMetrics, InformerTiming, RelistReason, Verb,
    requests::{list_method::ListMethodSupport, list_slots::ListSlots},
    shared_informer::InformerControl,
};
use kubewarm_api::model::{FaultReason, Identity, RequestFault, Resource};
use kubewarm_client::{
    ExpiringCache, KeyedSemaphore, NamespaceBuckets, NamespaceExistence, PeerReplicas,
    ServerReachability,
};
use kubewarm_wire::upstream::ListMetadata;
use std::sync::{Arc, OnceLock};
use tokio::{sync::watch::Receiver, time::Instant};

/// State that the tasks of all informers share.
pub(crate) struct TaskContext {
    pub(crate) metrics: Arc<InformerMetrics>,
    pub(crate) lists: ListSlots,
    /// Limits concurrent probes (second, short watches) of informers. Each namespace with profiles
    /// has its own limit.
    pub(crate) probes: KeyedSemaphore<Arc<str>>,
    /// Limits concurrent consistency checks of informers. Each namespace with profiles has its own
    /// limit.
    pub(crate) consistency_checks: KeyedSemaphore<Arc<str>>,
    /// Limits the rate of informers' requests. Each namespace with profiles has its own limit.
    pub(crate) buckets: NamespaceBuckets,
    pub(crate) list_methods: ListMethodSupport,
    pub(crate) protobuf: ProtobufSupport,
    /// The last consistent list of one object for each identity and resource. Its version shows
    /// whether an etcd restore has lowered versions before an interrupted watch resumes, and
    /// whether a store is current.
    ///
    /// All informers of one identity and resource share the list, because its resource version
    /// covers the whole resource. So 2,000 informers of 20 resources need 20 requests, if all
    /// informers read with the same ServiceAccount.
    pub(crate) peeks: ExpiringCache<(Identity, Resource), ListMetadata>,
    /// The last lookup of each namespace by each identity.
    ///
    /// A list in a namespace that does not exist succeeds and is empty. So every informer with an
    /// empty store looks up its Namespace every `InformerTiming::namespace_check`. Informers of one
    /// namespace share the lookup.
    pub(crate) namespaces: ExpiringCache<(Identity, Arc<str>), NamespaceExistence>,
    pub(crate) changes: ChangeNotifier,
    pub(crate) timing: InformerTiming,
    /// When the API server last answered any client. After an outage, informers retry before their
    /// backoff ends.
    pub(crate) reachability: ServerReachability,
    /// The replicas from which informers copy their stores instead of listing. Empty if replicas do
    /// not trust each other.
    pub(crate) peers: OnceLock<PeerReplicas>,
}

/// One run of an informer's list-and-watch. `supervise` creates one `InformerTask` for each run.
///
/// The state of one list is in [`ListRun`], and the state of one watch in [`WatchRun`]. State that
/// lasts longer is in `lists` and `watches`.
pub(crate) struct InformerTask {
    session: InformerSession,
    control: Receiver<InformerControl>,
    backoff: RetryBackoff,
    lists: ListHistory,
    watches: WatchHistory,
    checks: ConsistencySchedule,
}

/// The next activity of the task.
#[derive(Debug)]
pub(crate) enum TaskAction {
    /// List the objects. The value is the reason of a relist, or `None` for a first list, which has
    /// no reason.
    List(Option<RelistReason>),
    Watch,
    /// Run a rollback check (a consistent read that detects an etcd restore). Then open a watch
    /// from the newest version that the informer received.
    Verify {
        /// When the connection of the last watch broke. kubewarm must send the rollback check after
        /// this time.
        since: Instant,
    },
    /// Follow a watch that is open already.
    Follow(Box<WatchStream>),
}

/// A failed list or watch, and the activity that follows after the backoff.
#[derive(Debug)]
pub(crate) struct TaskFailure {
    pub(crate) fault: RequestFault,
    pub(crate) verb: Verb,
    pub(crate) then: TaskAction,
}

impl InformerTask {
    pub(crate) fn new(session: InformerSession) -> Self {
        Self {
            control: session.informer.control.subscribe(),
            backoff: RetryBackoff::new(session.shared.timing.backoff),
            session,
            lists: ListHistory::default(),
            watches: WatchHistory::default(),
            checks: ConsistencySchedule::new(Instant::now()),
        }
    }

    /// Lists and watches until the caller drops the future. Cancel safe: the store is consistent
    /// between any two deltas, and an incomplete list deletes no objects.
    pub(crate) async fn run(mut self) {
        let mut next = {
            let status = self.session.informer.status();
            // Check `is_synced` and not the store's version: at the end of a first list, the store
            // has a version a moment before the list counts as complete.
            match status.required_relist() {
                None if status.is_synced() => TaskAction::Verify { since: Instant::now() },
                owed => TaskAction::List(owed),
            }
        };
        loop {
            let step = match next {
                TaskAction::List(why) => {
                    ListRun::new(&mut self.session, &mut self.lists).list(why).await
                }
                TaskAction::Watch => self.session.watch(self.lists.listed_at()).await,
                TaskAction::Verify { since } => self.verify(since).await,
                TaskAction::Follow(stream) => {
                    let listed_at = self.lists.listed_at();
                    let run = WatchRun {
                        opened_at: stream.opened,
                        proofs: ProofSchedule::new(stream.opened, stream.timeout),
                        session: &mut self.session,
                        control: &mut self.control,
                        backoff: &mut self.backoff,
                        history: &mut self.watches,
                        checks: &mut self.checks,
                        listed_at,
                        new_events: 0,
                        has_reported_silence: false,
                        probed: None,
                    };
                    run.follow(*stream).await
                }
            };
            next = match step {
                Ok(next) => self.record_relist(next),
                Err(failure) => self.wait(failure).await,
            };
        }
    }

    /// If `next` is a relist, records the relist in the informer's status. If the informer is
    /// paused before the relist, it then relists when it resumes.
    fn record_relist(&self, next: TaskAction) -> TaskAction {
        if let TaskAction::List(Some(why)) = next {
            self.session.informer.status().require_relist(why);
        }
        next
    }

    /// Records a failed list or watch, waits for the backoff, and returns what the task does next.
    async fn wait(&mut self, failure: TaskFailure) -> TaskAction {
        let TaskFailure { mut fault, verb, mut then } = failure;
        let failed_at = Instant::now();
        self.session.metrics.count_request_error(verb, fault.code());
        if matches!(
            fault.reason(),
            FaultReason::Forbidden | FaultReason::Unauthorized | FaultReason::NotServed
        ) {
            fault = self.session.missing_namespace(failed_at).await.unwrap_or(fault);
        }
        if matches!(fault.reason(), FaultReason::NamespaceNotFound | FaultReason::NotServed) {
            self.lists.purge(&self.session.informer);
            then = TaskAction::List(Some(RelistReason::Recreated));
        }
        let then = self.record_relist(then);
        let delay = self.backoff.record_failure(fault.retry_after(), fastrand::f64());
        let attempts = self.backoff.failures();
        self.session.informer.record_failure(verb, &fault, attempts, delay);
        if attempts == 1 {
            tracing::info!(informer = %self.session.informer.key, ?verb, reason = %fault.reason(), %fault, "failed, retrying");
        } else {
            tracing::debug!(informer = %self.session.informer.key, ?verb, reason = %fault.reason(), %fault, attempts, "failed again");
        }
        let is_denied = fault.reason().is_access_denied();
        let confirmed_at = |control: &InformerControl| control.access.permission().confirmed_at;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.early_start(failed_at), if fault.is_server_away() => self.backoff.start_early(),
            // The API server has permitted an access check since it rejected this request, so retry
            // at once.
            _ = self.control.wait_for(|control| confirmed_at(control) > Some(failed_at)), if is_denied => {}
        }
        if matches!(then, TaskAction::Watch | TaskAction::Verify { .. }) {
            self.session.informer.enter(TaskState::Queued);
        }
        then
    }

    /// Waits until the API server has answered a request that any client sent after `failed_at`,
    /// and then for the delay of an early start. A random delay of at most
    /// `InformerTiming::reconnect_jitter` spreads the informers.
    fn early_start(&self, failed_at: Instant) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.session.shared);
        let jitter = shared.timing.reconnect_jitter.mul_f64(fastrand::f64());
        let delay = self.backoff.early_delay() + jitter;
        async move {
            shared.reachability.answered_since(failed_at).await;
            tokio::time::sleep(delay).await;
        }
    }

    /// Runs the rollback check (a consistent read that detects an etcd restore), then continues
    /// with a watch.
    ///
    /// A random delay of at most `InformerTiming::reconnect_jitter` comes first. All informers lose
    /// their connections together when an API server stops, and must not reconnect together.
    async fn verify(&mut self, since: Instant) -> Result<TaskAction, TaskFailure> {
        tokio::time::sleep(self.session.shared.timing.reconnect_jitter.mul_f64(fastrand::f64()))
            .await;
        if self.has_rolled_back(since).await? {
            return Ok(self.lists.roll_back(&self.session));
        }
        Ok(TaskAction::Watch)
    }

    /// The rollback check: whether a consistent read returns a version that is older than the
    /// store's version. `false` if the versions are not numbers, because they have no order.
    ///
    /// After an etcd restore, the API server accepts a watch from a version that it has not reached
    /// yet. The watch stays silent until the API server reaches that version, and misses the
    /// changes before that version. So after a broken connection, a watch resumes only after a
    /// consistent read with a version that is not older.
    async fn has_rolled_back(&self, since: Instant) -> Result<bool, TaskFailure> {
        let Some(known) = self.session.version().filter(|version| !version.is_opaque()) else {
            return Ok(false);
        };
        let within = self.session.shared.timing.list_headers;
        let (requested_at, newest) =
            self.session.newest_version(since, within).await.map_err(|fault| {
                // All informers that share this consistent read receive its failure. Set `since` to
                // now, so that the next attempt sends a new request.
                let then = TaskAction::Verify { since: Instant::now() };
                TaskFailure { fault, verb: Verb::List, then }
            })?;
        if newest.is_older_than(&known) {
            return Ok(true);
        }
        self.session.informer.status().record_newest(requested_at, newest, Some(&known));
        Ok(false)
    }
}
