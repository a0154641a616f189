//! The task of one informer: it lists, watches, and retries after failures with a backoff.

pub(super) mod backoff;
pub(super) mod budget_wait;
pub(super) mod consistency_check;
pub(super) mod event_delivery;
pub(super) mod list;
pub(super) mod proof_list;
pub(super) mod proof_schedule;
pub(super) mod protobuf_support;
pub(super) mod task_state;
pub(super) mod watch;
pub(super) mod watch_list;
pub(super) mod watch_probe;
pub(super) mod watch_stream;

use self::{
    backoff::RetryBackoff, proof_schedule::ProofSchedule, protobuf_support::ProtobufSupport,
    task_state::TaskState, watch_stream::WatchStream,
};
use crate::informer::{
    ChangeNotifier, DecodeStage, InformerMetrics, InformerTiming, RelistReason, ResourceMetrics,
    UndecodableObject, Verb,
    requests::{
        list_method::ListMethodSupport, list_slots::ListSlots, list_watch_client::ListWatchClient,
    },
    shared_informer::{InformerControl, SharedInformer},
    upstream::{decoder::ObjectDecoder, metadata::ListMetadata},
};
use kubewarm_api::model::{
    Delta, FaultReason, Identity, InformerKey, InformerScope, NamespaceCheckPolicy, ObjectEncoding,
    RequestFault, Resource, ResourceVersion,
};
use kubewarm_client::{
    ExpiringCache, KeyedSemaphore, NamespaceBuckets, NamespaceExistence, ServerReachability,
    fetch_namespace_existence,
};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::watch::Receiver, time::Instant};

/// State that the tasks of all informers share.
pub(crate) struct TaskContext {
    /// Client with kubewarm's own identity. It requests only the API server's version, which is the
    /// same for every identity.
    pub(crate) operator: Arc<kube::Client>,
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
    /// The last consistent list of one object for each identity and resource. It shows an etcd restore before
    /// an interrupted watch resumes, and whether a store is current.
    ///
    /// All informers of one identity and resource share the list, because its
    /// resource version covers the whole resource. So 2,000 informers of 20 resources need 20
    /// requests, if all informers read with the same ServiceAccount.
    pub(crate) peeks: ExpiringCache<(Identity, Resource), ListMetadata>,
    /// The last lookup of each namespace by each identity.
    ///
    /// A list in a namespace that does not exist succeeds and is empty. So every informer with an
    /// empty store requests its Namespace object every `InformerTiming::namespace_check`.
    pub(crate) namespaces: ExpiringCache<(Identity, Arc<str>), NamespaceExistence>,
    pub(crate) changes: ChangeNotifier,
    pub(crate) timing: InformerTiming,
    /// When the API server last answered any client.
    pub(crate) reachability: ServerReachability,
}

/// Maximum number of undecodable objects that kubewarm logs as warnings, for one list and the watch
/// after it. The metric `kubewarm_upstream_decode_errors_total` counts all of them.
const LOGGED: u64 = 16;

/// One run of an informer's list-and-watch. `supervise` creates one `InformerTask` for each run.
pub(crate) struct InformerTask {
    pub(crate) informer: Arc<SharedInformer>,
    pub(crate) control: Receiver<InformerControl>,
    /// Number of times that the API server had rejected the informer's identity when this run of
    /// the task began. The run ends when the number increases.
    pub(crate) epoch: u64,
    pub(crate) list_watch: ListWatchClient,
    pub(crate) metrics: Arc<ResourceMetrics>,
    pub(crate) shared: Arc<TaskContext>,
    pub(crate) decoder: ObjectDecoder,
    /// Version of the API server before the last list; empty if it is unknown.
    pub(crate) server_version: Arc<str>,
    pub(crate) backoff: RetryBackoff,
    /// Number of consecutive watches that ended within `InformerTiming::immediate_end` without an
    /// event.
    pub(crate) closed_at_once: u32,
    /// Number of consecutive watches that lasted less than `InformerTiming::stable_after`, 10 s in
    /// production.
    pub(crate) short_watches: u32,
    /// Number of events of the open watch whose version was newer than the store's version.
    pub(crate) new_events: u64,
    pub(crate) has_reported_silence: bool,
    /// Number of consecutive lists that failed because the response was cut off or malformed.
    pub(crate) broken_lists: u32,
    /// Whether the controller itself reads this store. True for the informers of CacheProfiles and
    /// of Namespaces.
    pub(crate) is_followed: bool,
    /// Number of objects that the current list found with a new UID, including the failed attempts
    /// of this list. A later attempt finds these objects unchanged, so a new attempt does not reset
    /// the number.
    pub(crate) replaced: u64,
    pub(crate) listed_at: Option<Instant>,
    pub(crate) opened_at: Option<Instant>,
    /// The store's version after the last probe that raised it. The informer's own watch can send an
    /// earlier bookmark later.
    pub(crate) probed: Option<ResourceVersion>,
    /// When the open watch asks for the next proof that the store is current.
    pub(crate) proofs: ProofSchedule,
    /// Number of undecodable objects in the current list and in the watch after it.
    pub(crate) rejected: u64,
    /// Number of bytes that the informer's lists received since kubewarm last compared memory and
    /// objects with the profiles' limits.
    pub(crate) unchecked_bytes: usize,
    pub(crate) has_reported_excess: bool,
    /// Start of the last consistency check. Before the first check, this is the start of the task's
    /// run.
    pub(crate) consistency_checked_at: Instant,
    /// Random factor from 0.8 to 1.2 for the period of consistency checks. The factor spreads the
    /// checks of informers that started together.
    pub(crate) consistency_check_jitter: f64,
}

/// The next activity of the task.
#[derive(Debug)]
pub(crate) enum TaskAction {
    /// List the objects. The value is the reason of a relist, or `None` for the first list.
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
    pub(crate) fn new(
        informer: &Arc<SharedInformer>,
        list_watch: &ListWatchClient,
        shared: &Arc<TaskContext>,
        epoch: u64,
    ) -> Self {
        let key = &informer.key;
        // A watch that resumes must have the encoding of the store.
        let encoding = informer.reader.encoding();
        let mut list_watch = list_watch.clone();
        list_watch.accept_protobuf(encoding != ObjectEncoding::Json);
        Self {
            list_watch,
            decoder: ObjectDecoder::of_store(key, encoding),
            server_version: Arc::default(),
            informer: Arc::clone(informer),
            control: informer.control.subscribe(),
            epoch,
            metrics: shared.metrics.for_resource(&key.resource),
            backoff: RetryBackoff::new(shared.timing.backoff),
            shared: Arc::clone(shared),
            closed_at_once: 0,
            short_watches: 0,
            new_events: 0,
            has_reported_silence: false,
            broken_lists: 0,
            is_followed: is_followed(key),
            replaced: 0,
            listed_at: None,
            opened_at: None,
            probed: None,
            proofs: ProofSchedule::new(Instant::now(), Duration::ZERO),
            rejected: 0,
            unchecked_bytes: 0,
            has_reported_excess: false,
            consistency_checked_at: Instant::now(),
            consistency_check_jitter: 0.8 + 0.4 * fastrand::f64(),
        }
    }

    /// Lists and watches until the caller drops the future. Cancel safe: the store is consistent
    /// between any two deltas, and an incomplete list deletes no objects.
    pub(crate) async fn run(mut self) {
        let mut next = {
            let status = self.informer.status();
            match (status.required_relist(), status.version()) {
                (None, Some(_)) => TaskAction::Verify { since: Instant::now() },
                (owed, _) => TaskAction::List(owed),
            }
        };
        loop {
            let step = match next {
                TaskAction::List(why) => self.list(why).await,
                TaskAction::Watch => self.watch().await,
                TaskAction::Verify { since } => self.verify(since).await,
                TaskAction::Follow(stream) => self.follow(*stream).await,
            };
            next = match step {
                Ok(next) => self.record_relist(next),
                Err(failure) => self.wait(failure).await,
            };
        }
    }

    /// If `next` is a relist, records the relist in the informer's status, so that a paused
    /// informer relists when it resumes.
    fn record_relist(&self, next: TaskAction) -> TaskAction {
        if let TaskAction::List(Some(why)) = next {
            self.informer.status().require_relist(why);
        }
        next
    }

    /// Records a failed list or watch, waits for the backoff, and returns what the task does next.
    async fn wait(&mut self, failure: TaskFailure) -> TaskAction {
        let TaskFailure { mut fault, verb, mut then } = failure;
        let failed_at = Instant::now();
        self.metrics.count_request_error(verb, fault.code());
        if matches!(
            fault.reason(),
            FaultReason::Forbidden | FaultReason::Unauthorized | FaultReason::NotServed
        ) {
            fault = self.missing_namespace(failed_at).await.unwrap_or(fault);
        }
        if matches!(fault.reason(), FaultReason::NamespaceNotFound | FaultReason::NotServed) {
            self.purge();
            then = TaskAction::List(Some(RelistReason::Recreated));
        }
        let then = self.record_relist(then);
        let delay = self.backoff.record_failure(fault.retry_after(), fastrand::f64());
        let attempts = self.backoff.failures();
        self.informer.record_failure(verb, &fault, attempts, delay);
        if attempts == 1 {
            tracing::info!(informer = %self.informer.key, ?verb, reason = %fault.reason(), %fault, "failed, retrying");
        } else {
            tracing::debug!(informer = %self.informer.key, ?verb, reason = %fault.reason(), %fault, attempts, "failed again");
        }
        let returns = self.informer.control.borrow().gate.returns;
        let is_unreachable =
            fault.reason() == FaultReason::Unreachable && fault.retry_after().is_none();
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.early_start(failed_at), if is_unreachable => self.backoff.start_early(),
            // The access checker confirmed access, so retry a list or watch that the API server
            // rejected with 401 or 403.
            _ = self.control.wait_for(|control| control.gate.returns != returns) => {}
        }
        if matches!(then, TaskAction::Watch | TaskAction::Verify { .. }) {
            self.informer.enter(TaskState::Queued);
        }
        then
    }

    /// Waits until the API server has answered a request that any client sent after `failed_at`, and
    /// then for the delay of an early start. A random delay of at most
    /// `InformerTiming::reconnect_jitter` spreads the informers.
    fn early_start(&self, failed_at: Instant) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.shared);
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
        tokio::time::sleep(self.shared.timing.reconnect_jitter.mul_f64(fastrand::f64())).await;
        if self.has_rolled_back(since).await? {
            return Ok(self.roll_back());
        }
        Ok(TaskAction::Watch)
    }

    /// The rollback check: whether a consistent read returns a version that is older than the
    /// store's version.
    ///
    /// After an etcd restore, the API server accepts a watch from a version that it has not reached
    /// yet. The watch stays silent until the API server reaches that version, and misses the
    /// changes before that version. So after a broken connection, a watch resumes only after a
    /// consistent read with a version that is not older.
    async fn has_rolled_back(&self, since: Instant) -> Result<bool, TaskFailure> {
        let Some(known) = self.version().filter(|version| !version.is_opaque()) else {
            return Ok(false);
        };
        let within = self.shared.timing.list_headers;
        let (requested_at, newest) = self.newest_version(since, within).await.map_err(|fault| {
            // All informers that share this consistent read receive its failure. Set `since` to
            // now, so that the next attempt sends a new request.
            let then = TaskAction::Verify { since: Instant::now() };
            TaskFailure { fault, verb: Verb::List, then }
        })?;
        if newest.is_older_than(&known) {
            return Ok(true);
        }
        self.informer.status().record_newest(requested_at, newest);
        Ok(false)
    }

    /// Sends a consistent list of one object, or shares one that was sent after `since` for the same
    /// identity and resource. `within` is the time limit for the headers, and again for the body.
    /// Returns when the list was sent, and its version. Versions count the changes of all namespaces, so
    /// informers of different namespaces share a list.
    pub(crate) fn newest_version(
        &self,
        since: Instant,
        within: Duration,
    ) -> impl Future<Output = Result<(Instant, ResourceVersion), RequestFault>> + Send + use<> {
        let key = &self.informer.key;
        let of = (key.identity.clone(), key.resource.clone());
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let metrics = Arc::clone(&self.metrics);
        async move {
            let peek = async move {
                metrics.count_freshness_request(Verb::List);
                list_watch.peek(within).await
            };
            let entry =
                shared.peeks.get_or_fetch(&Handle::current(), of, Some(since), || peek).await?;
            Ok((entry.requested_at, entry.value.version()?))
        }
    }

    /// Purges the store after an etcd restore, because etcd has lost changes that the store
    /// contains.
    pub(crate) fn roll_back(&mut self) -> TaskAction {
        tracing::warn!(
            informer = %self.informer.key,
            version = self.version().map(|version| version.to_string()),
            "resource versions went back, as after an etcd restore; listing again"
        );
        self.metrics.resource_version_rollbacks.inc();
        self.purge();
        TaskAction::List(Some(RelistReason::Rollback))
    }

    pub(crate) fn purge(&mut self) {
        self.replaced = 0;
        self.informer.purge();
    }

    /// Namespace of the profile whose settings the informer uses. The informer's requests count
    /// against this namespace's rate limit.
    pub(crate) fn namespace_of_profile(&self) -> Arc<str> {
        self.informer.settings(|settings| Arc::clone(&settings.list_slot_owner.profile.namespace))
    }

    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        self.informer.status().version().cloned()
    }

    /// Counts, logs and reports an object that could not be decoded.
    pub(crate) fn reject(&mut self, rejected: UndecodableObject, stage: DecodeStage) {
        self.metrics.count_decode_error(stage);
        self.rejected += 1;
        let (object, problem) = (&rejected.object, &*rejected.problem);
        if self.rejected <= LOGGED {
            tracing::warn!(informer = %self.informer.key, ?object, problem, "not decodable");
        } else {
            tracing::debug!(informer = %self.informer.key, ?object, problem, "not decodable");
        }
        self.informer.status().add_undecodable(rejected);
        self.informer.apply(Delta::Unreadable);
        self.shared.changes.notify();
    }

    /// Returns a fault if the API server confirms that the informer's namespace does not exist.
    /// `None` if the namespace exists, or if the informer's identity cannot read namespaces.
    /// kubewarm sent the namespace lookup after `since`.
    pub(crate) async fn absent_namespace(&self, since: Instant) -> Option<RequestFault> {
        let existence = self.look_up_namespace(since).await;
        missing_namespace(&self.informer.key.scope, existence)
            .filter(|_| existence == NamespaceExistence::Absent)
    }

    /// Returns a fault if the informer's namespace does not exist or is being deleted. kubewarm sent the
    /// namespace lookup after `since`.
    pub(crate) async fn missing_namespace(&self, since: Instant) -> Option<RequestFault> {
        let existence = self.look_up_namespace(since).await;
        missing_namespace(&self.informer.key.scope, existence)
    }

    /// Looks up the informer's namespace, or reuses a lookup that was sent after `since`. Returns
    /// `Unknown` if the profiles disable the lookup.
    async fn look_up_namespace(&self, since: Instant) -> NamespaceExistence {
        let key = &self.informer.key;
        let check = self.informer.settings(|settings| settings.namespace_check);
        let (InformerScope::Namespace(name), NamespaceCheckPolicy::Require) = (&key.scope, check)
        else {
            return NamespaceExistence::Unknown;
        };
        let (list_watch, namespace) = (self.list_watch.clone(), Arc::clone(name));
        let lookup = async move {
            let seen = fetch_namespace_existence(&list_watch.client, &namespace).await;
            // Return an error, which the cache does not keep. The next call then sends a new
            // request for the Namespace.
            if seen == NamespaceExistence::Unknown {
                return Err(RequestFault::new(
                    FaultReason::Unreachable,
                    "the namespace's existence is unknown",
                ));
            }
            Ok(seen)
        };
        let of = (key.identity.clone(), Arc::clone(name));
        let lookups = &self.shared.namespaces;
        let seen = lookups.get_or_fetch(&Handle::current(), of, Some(since), || lookup).await;
        seen.map_or(NamespaceExistence::Unknown, |entry| entry.value)
    }
}

/// Whether the controller must be notified of every event of this informer. True only for the
/// informers of Namespaces and CacheProfiles, which rarely change.
fn is_followed(key: &InformerKey) -> bool {
    let of = key.resource.group_resource();
    key.is_own() || (of.group(), of.resource()) == ("", "namespaces")
}

/// Returns a fault if the namespace does not exist or is being deleted. During a deletion, Roles
/// disappear first, so a 403 does not show that a permission is missing.
pub(crate) fn missing_namespace(
    scope: &InformerScope,
    existence: NamespaceExistence,
) -> Option<RequestFault> {
    let what = match existence {
        NamespaceExistence::Absent => "does not exist",
        NamespaceExistence::Terminating => "is being deleted",
        NamespaceExistence::Present
        | NamespaceExistence::NotAllowed
        | NamespaceExistence::Unknown => return None,
    };
    Some(RequestFault::new(FaultReason::NamespaceNotFound, format!("{scope} {what}")))
}
