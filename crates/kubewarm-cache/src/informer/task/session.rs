//! State that the lists and watches of one run of an informer's task share: store, client, decoder
//! and namespace.

use super::TaskContext;
use crate::informer::{
    DecodeStage, ResourceMetrics, UndecodableObject, Verb,
    requests::list_watch_client::ListWatchClient, shared_informer::SharedInformer,
};
use jiff::Timestamp;
use kubewarm_api::model::{
    Delta, FaultReason, InformerScope, NamespaceCheckPolicy, ObjectEncoding, RequestFault,
    ResourceVersion, UsageMeter,
};
use kubewarm_client::{NamespaceExistence, fetch_namespace_existence};
use kubewarm_wire::upstream::{MAX_OBJECT, ObjectDecoder, RejectedObject};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::Instant};

/// Maximum number of undecodable objects that kubewarm logs as warnings, for one list and the watch
/// after it. The metric `kubewarm_upstream_decode_errors_total` counts all of them.
const LOGGED: u64 = 16;

/// State that the lists and watches of one run of the informer's task share.
pub(crate) struct InformerSession {
    pub(crate) informer: Arc<SharedInformer>,
    /// Number of times that the API server had rejected the informer's identity when this run of
    /// the task began. Each list is recorded with this number, which shows whether a rejection came
    /// later. The run ends when the number increases.
    pub(crate) refusals: u64,
    pub(crate) list_watch: ListWatchClient,
    pub(crate) metrics: Arc<ResourceMetrics>,
    pub(crate) shared: Arc<TaskContext>,
    pub(crate) decoder: ObjectDecoder,
    /// Version of the API server before the last list; empty if it is unknown. After an upgrade,
    /// kubewarm tests again whether it can read the resource in protobuf.
    pub(crate) server_version: Arc<str>,
    /// Number of undecodable objects in the current list and in the watch after it. Before the
    /// first list of this run, the number that an earlier run reported.
    ///
    /// While the number is zero during a watch, the informer's report names no undecodable object,
    /// so events need no search. Otherwise, consistency checks are skipped until a list has none,
    /// because the store lacks these objects.
    pub(crate) rejected: u64,
    /// Whether this run has notified the controller that the informer's profiles exceed their
    /// limits on memory or objects.
    has_reported_excess: bool,
}

impl InformerSession {
    pub(crate) fn new(
        informer: &Arc<SharedInformer>,
        list_watch: &ListWatchClient,
        shared: &Arc<TaskContext>,
        refusals: u64,
    ) -> Self {
        let key = &informer.key;
        // A watch that resumes must have the encoding of the store, because all objects of a store
        // have one encoding.
        let encoding = informer.reader.encoding();
        let mut list_watch = list_watch.clone();
        list_watch.accept_protobuf(encoding != ObjectEncoding::Json);
        Self {
            list_watch,
            decoder: ObjectDecoder::of_store(key, encoding),
            server_version: Arc::default(),
            informer: Arc::clone(informer),
            refusals,
            metrics: shared.metrics.for_resource(&key.resource),
            shared: Arc::clone(shared),
            rejected: informer.status().count_undecodable(),
            has_reported_excess: false,
        }
    }

    /// Returns the newest version of the resource in the API server. Sends a consistent list of one
    /// object, or shares one that was sent after `since` for the same identity and resource.
    /// `within` is the time limit for the headers, and again for the body. The result also contains
    /// the time at which the list was sent. Versions count the changes of all namespaces, so
    /// informers of different namespaces share a list.
    pub(crate) fn newest_version(
        &self,
        since: Instant,
        within: Duration,
    ) -> impl Future<Output = Result<(Instant, ResourceVersion), RequestFault>> + Send + use<> {
        let key = &self.informer.key;
        let list_key = (key.identity.clone(), key.resource.clone());
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let metrics = Arc::clone(&self.metrics);
        async move {
            let peek = async move {
                metrics.count_freshness_request(Verb::List);
                list_watch.peek(within).await
            };
            let entry = shared
                .peeks
                .get_or_fetch(&Handle::current(), list_key, Some(since), || peek)
                .await?;
            Ok((entry.requested_at, entry.value.version()?))
        }
    }

    /// Namespace of the profile whose settings the informer uses. The informer's requests count
    /// against this namespace's rate limit.
    pub(crate) fn namespace_of_profile(&self) -> Arc<str> {
        self.informer.settings(|settings| Arc::clone(&settings.list_slot_owner.profile.namespace))
    }

    /// The version that the store has reached, from which the next watch starts. `None` before the
    /// first list is in the store.
    pub(crate) fn version(&self) -> Option<ResourceVersion> {
        self.informer.reader.version()
    }

    /// Counts, logs and reports an object that could not be decoded.
    pub(crate) fn reject(&mut self, rejected: RejectedObject, stage: DecodeStage) {
        self.metrics.count_decode_error(stage);
        self.rejected += 1;
        let rejected = UndecodableObject {
            object: rejected.name.as_deref().unwrap_or(UndecodableObject::UNNAMED).into(),
            problem: rejected.problem.into(),
            at: Timestamp::now(),
        };
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
    /// `None` if the namespace exists, even if it is being deleted, or if the informer's identity
    /// cannot read namespaces. kubewarm sent the namespace lookup after `since`.
    pub(crate) async fn absent_namespace(&self, since: Instant) -> Option<RequestFault> {
        let existence = self.look_up_namespace(since).await;
        missing_namespace(&self.informer.key.scope, existence)
            .filter(|_| existence == NamespaceExistence::Absent)
    }

    /// Returns a fault if the informer's namespace does not exist or is being deleted. kubewarm
    /// sent the namespace lookup after `since`.
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
        let lookup_key = (key.identity.clone(), Arc::clone(name));
        let lookups = &self.shared.namespaces;
        let seen =
            lookups.get_or_fetch(&Handle::current(), lookup_key, Some(since), || lookup).await;
        seen.map_or(NamespaceExistence::Unknown, |entry| entry.value)
    }

    /// Describes a listed object or an event's object above the size limit, from its first bytes.
    pub(crate) fn oversized(&self, head: &[u8]) -> RejectedObject {
        let problem = format!("it is larger than {} MiB", MAX_OBJECT >> 20);
        RejectedObject::new(self.decoder.encoding, head, problem)
    }

    pub(crate) fn meter(&self) -> Arc<UsageMeter> {
        self.informer.settings(|settings| Arc::clone(&settings.meter))
    }

    pub(crate) fn has_reported_excess(&self) -> bool {
        self.has_reported_excess
    }

    /// Notifies the controller each time that one of the informer's profiles begins to exceed its
    /// limit on memory or objects.
    pub(crate) fn notify_excess(&mut self) {
        let is_exceeded = !self.meter().is_within_all();
        if is_exceeded && !self.has_reported_excess {
            self.shared.changes.notify();
        }
        self.has_reported_excess = is_exceeded;
    }
}

/// Returns the fault of an informer in `scope` if its namespace does not exist or is being deleted.
/// During a deletion, Roles disappear first, so a 403 does not show that a permission is missing.
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
