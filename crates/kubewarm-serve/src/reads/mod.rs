//! Answers gets, lists and watches from the stores of informers.
//!
//! A request has passed an access review before it reaches this module. The module fetches no
//! objects from the API server, only `CustomResourceDefinition`s (`kind_resolver.rs`). If no
//! profile keeps the requested objects warm, the client gets 421. Clients cannot mistake a 421 for
//! a deleted object or an empty list.

mod access_loss_check;
mod authorized_scope;
mod cold_cause;
mod covering_informers;
mod field_filter;
#[cfg(test)]
mod fixtures;
mod item_position;
mod kind_info;
mod kind_resolver;
mod large_objects;
mod list;
mod read_candidates;
mod read_response;
mod recent_versions;
mod response_envelope;
mod retry;
mod row_printer;
mod serving_index;
mod watch;

pub use self::{
    kind_resolver::KindResolver,
    read_response::{
        DamagedObjectError, ListEncoder, ListEncodingError, PART_BYTES, PIECE_BYTES, ReadBody,
        ReadFreshness, ReadResponse, ReadSource,
    },
    serving_index::{ServingIndex, ServingInformer},
    watch::{WatchChunk, WatchFeed, WatchProgress},
};

use self::{
    covering_informers::CandidateInformer,
    kind_info::KindInfo,
    large_objects::{LargeObjectPermits, ObjectPermit, encoded_with_permit},
    read_candidates::ReadCandidates,
    recent_versions::{SeenReads, WrittenVersions},
    retry::{ReadAttemptError, RequestSender},
};
use crate::{callers::UserPermits, metrics::ReadMetrics};
use futures::future::BoxFuture;
use kubewarm_api::model::{
    ObjectKey, ProfileRef, RequestFault, Resource, ResourceInfo, ResourceVersion,
};
use kubewarm_cache::{
    informer::{ChangeNotifier, FreshnessChecker, InformerHandles, InformerMetrics},
    store::{StoreCatalog, StoredObject},
};
use kubewarm_client::PeerReplicas;
use kubewarm_wire::{ObjectRequest, StatusError, VersionMatch, WriteTarget};
use std::{hash::Hash, slice, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// The `Retry-After`, in seconds, of errors about a store that is not warm or not current. An
/// informer's first list or a freshness check takes about this long.
const RETRY_AFTER_SECONDS: u64 = 2;
/// The interval at which kubewarm clears the cache of decompressed store changes that all client
/// watches share. Otherwise, changes that no watch needs any more would stay in memory until newer
/// changes replace them.
const SHARED_PERIOD: Duration = Duration::from_secs(15);

/// How long a get waits for the memory of a large object, as a request waits for its turn. The
/// caller's permission was confirmed before, so a revocation does not count for this time.
const MAX_MEMORY_WAIT: Duration = Duration::from_secs(15);

/// The wait of a get for the memory of a large object.
struct GetMemory {
    /// The permit of the last wait; `None` before, and after the next attempt has begun.
    held: Option<ObjectPermit>,
    until: Instant,
    has_waited: bool,
}

/// The parts of the operator that [`ReadService`] uses.
pub struct ReadDependencies {
    /// The stores of all informers.
    pub catalog: StoreCatalog,
    /// The state of each informer.
    pub reports: InformerHandles,
    /// Wakes waiting gets, lists and watches when the state of an informer changes.
    pub changes: ChangeNotifier,
    /// Runs freshness checks.
    pub freshness_checker: FreshnessChecker,
    /// The metrics that record the age of the stores that answer requests, for each resource.
    pub informer_metrics: Arc<InformerMetrics>,
    /// Records how long reads wait.
    pub metrics: ReadMetrics,
    /// Returns the informers from which profiles serve gets, lists and watches. `None` until
    /// kubewarm has listed the profiles. kubewarm calls this function for every request.
    pub serving_index: Box<dyn Fn() -> Option<Arc<ServingIndex>> + Send + Sync>,
    /// Returns a future that ends after the next change of `serving_index`. Watches wait for it.
    pub serving_index_change: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    /// Looks up the kind of a request, because field selectors and tables depend on the kind.
    pub kinds: KindResolver,
    /// The operator namespace. Its profiles serve reads of every namespace.
    pub operator_namespace: Arc<str>,
    /// The other replicas; `None` if replicas copy no stores.
    pub peers: Option<PeerReplicas>,
}

/// Answers gets, lists and watches.
pub struct ReadService {
    dependencies: ReadDependencies,
    written_versions: WrittenVersions,
    seen_reads: SeenReads,
    /// Decompressed and encoded changes, which watches share.
    change_cache: watch::ChangeCache,
}

impl ReadService {
    /// Creates the service that answers gets, lists and watches. The service knows no forwarded
    /// writes of an earlier process, so reads do not wait for these writes. The cache of recent
    /// changes, which watches share, has at most `change_cache_bytes` bytes.
    pub fn new(dependencies: ReadDependencies, change_cache_bytes: usize) -> Self {
        Self {
            dependencies,
            written_versions: WrittenVersions::new(),
            seen_reads: SeenReads::new(),
            change_cache: watch::ChangeCache::new(change_cache_bytes),
        }
    }

    /// Records the resource version `version` that the API server returned for a forwarded write.
    /// For a minute, reads of the same resource and namespace wait up to 6 s until a store reaches
    /// this version. Two kinds of reads do not wait: reads with their own `resourceVersion`, and
    /// reads with the consistency `Eventual`.
    pub fn record_write(&self, written: WriteTarget, version: &ResourceVersion) {
        self.written_versions.record(written, version, Instant::now());
    }

    /// Answers a get or a list. If `profile` is given, only informers of that profile answer.
    /// `can_forward` is whether the API server can answer instead.
    ///
    /// `caller` identifies the client's user: a store that is older than what this user last read
    /// of the kind and namespace answers only after a freshness check. Objects that are too large
    /// for one piece of a response wait for `permits`.
    ///
    /// # Errors
    ///
    /// The API server's errors, and errors that only kubewarm returns:
    ///
    /// - 421: no profile keeps the objects warm
    /// - 429: no informer with the objects is warm yet, or its relist is not complete
    /// - 503: a get has waited 15 s for the memory of a large object
    /// - 503: all informers with the objects lack permission to list or watch
    /// - 500: the store lacks a requested object, because kubewarm cannot read it
    /// - 504: kubewarm cannot confirm that the store is current
    ///
    /// # Cost
    ///
    /// If no informer is warm, waits as long as the profiles permit. Waits up to 6 s until a store
    /// reaches the requested resource version, or for a freshness check, which concurrent reads
    /// share. With `can_forward`, some reads wait only 25 ms, such as `Strict` reads and most reads
    /// with `resourceVersion`. Then they fail with an error that is specific to kubewarm, so that
    /// the server forwards them.
    pub async fn read(
        &self,
        request: &ObjectRequest,
        profile: Option<&ProfileRef>,
        caller: &impl Hash,
        permits: &UserPermits,
        can_forward: bool,
    ) -> Result<ReadResponse, StatusError> {
        let started_at = Instant::now();
        let sender = RequestSender { caller: self.seen_reads.hash(caller), can_forward };
        let mut memory =
            GetMemory { held: None, until: started_at + MAX_MEMORY_WAIT, has_waited: false };
        let answered =
            self.when_ready(request, profile, sender, async |route| match &request.name {
                Some(name) => self.get(route, name, permits, &mut memory).await,
                None => self.list(route, permits).await,
            });
        let (answer, waited) = answered.await?;
        self.dependencies.reports.observe_read(&answer.source.informer, started_at.elapsed());
        Ok(ReadResponse { has_waited: waited || memory.has_waited, ..answer })
    }

    /// Records the age of a store when kubewarm begins to send objects of it.
    pub(crate) fn observe_staleness(&self, resource: &Resource, age: Duration) {
        self.dependencies.informer_metrics.for_resource(resource).observe_staleness(age);
    }

    /// Returns the kinds that kubewarm serves, in the order of the API server's discovery. If
    /// `profile` is given, returns only the kinds of this profile.
    ///
    /// # Errors
    ///
    /// 503 until kubewarm has listed the profiles, and if kubewarm cannot fetch a kind's
    /// `CustomResourceDefinition`.
    pub async fn list_kinds(
        &self,
        profile: Option<&ProfileRef>,
    ) -> Result<Vec<ResourceInfo>, StatusError> {
        let serving_index = self.serving_index()?;
        let declared = serving_index.resources(profile).collect();
        let ordered =
            self.dependencies.kinds.order(&declared).map_err(|fault| unresolved(&fault))?;
        let mut kinds = Vec::new();
        for resource in &ordered {
            kinds.extend(self.kind(resource).await?.map(|kind| kind.document));
        }
        Ok(kinds)
    }

    fn serving_index(&self) -> Result<Arc<ServingIndex>, StatusError> {
        let not_listed =
            || StatusError::unavailable("the CacheProfiles have not been listed yet", 1);
        (self.dependencies.serving_index)().ok_or_else(not_listed)
    }

    /// Looks up the kind of `resource`; `None` if kubewarm does not serve this kind.
    async fn kind(&self, resource: &Resource) -> Result<Option<KindInfo>, StatusError> {
        self.dependencies.kinds.resolve(resource).await.map_err(|fault| unresolved(&fault))
    }

    async fn get(
        &self,
        route: &ReadCandidates<'_>,
        name: &str,
        permits: &UserPermits,
        memory: &mut GetMemory,
    ) -> Result<ReadResponse, ReadAttemptError> {
        // If this attempt ends in a wait for something else, it does not keep the permit.
        let held = memory.held.take();
        let request = route.request;
        let (candidate, reader) = self.choose(route)?;
        let key = candidate.authorized_scope.key();
        let (object, version) = reader.get_at(&key);
        let version = self.confirm(route, candidate, version.as_ref())?;
        self.record_seen(route, &version);
        let object = object.map_err(|_damaged| StatusError::from(DamagedObjectError))?;
        let not_found = || StatusError::not_found(request.resource.group_resource(), name);
        if object.is_none() {
            // The first lookup did not find the object, but the store has the object now: someone
            // created it meanwhile, or kubewarm could decode a later state of it. A further attempt
            // finds the object.
            if reader.contains(&key.namespace, &key.name) {
                return Err(ReadAttemptError::Disturbed);
            }
            self.check_complete(route, candidate)?;
        }
        let (candidate, object) = match object {
            Some(object) => (candidate, object),
            // kubewarm returns 404 only if it has confirmed that the store is current. Otherwise
            // kubewarm looks up the object in another informer's store.
            None if route.is_current(candidate) => return Err(not_found().into()),
            None => match self.find_in_current_store(route, &key) {
                Some((_, None)) => return Err(not_found().into()),
                Some((other, Some(object)))
                    if matches!(
                        request.version_match,
                        VersionMatch::Any | VersionMatch::Latest
                    ) =>
                {
                    (other, object)
                }
                // Either no store is current, or the other store can be older than the version that
                // the request needs. So kubewarm repeats the get after a freshness check of the
                // chosen informer's store.
                Some((_, Some(_))) | None => {
                    return Err(route.unconfirmed(slice::from_ref(candidate)));
                }
            },
        };
        let format = request.format(object.encoding)?;
        let permits = LargeObjectPermits::new(permits, object.encoding, format.media_type);
        let length = object.bytes.len();
        let Ok(permit) = permits.acquire_now(length, held) else {
            drop(object);
            memory.has_waited = true;
            let waiting = timeout_at(memory.until, permits.acquire(length)).await;
            memory.held =
                waiting.map_err(|_elapsed| StatusError::memory_in_use(RETRY_AFTER_SECONDS))?;
            return Err(ReadAttemptError::MemoryFreed);
        };
        let metrics = &self.dependencies.metrics;
        let body = response_envelope::whole(&route.kind, &object, format, metrics);
        let body = encoded_with_permit(body.map_err(StatusError::from)?, permit);
        let body = ReadBody::Whole(body);
        Ok(ReadResponse::new(body, format.media_type, candidate, route))
    }

    /// Looks up the object `key` in the store of the best informer that is readable and whose store
    /// is current. Returns `None` if there is no such informer.
    fn find_in_current_store<'r>(
        &self,
        route: &'r ReadCandidates<'_>,
        key: &ObjectKey,
    ) -> Option<(&'r CandidateInformer<'r>, Option<StoredObject>)> {
        let is_current = |candidate: &&CandidateInformer<'_>| route.is_current(candidate);
        route.candidates.iter().filter(is_current).find_map(|candidate| {
            // A damaged object does not show whether the object exists now, so kubewarm reads the
            // next store.
            let (object, version) = self.dependencies.catalog.reader(candidate.key)?.get_at(key);
            let object = object.ok().filter(|_| version.is_some())?;
            let is_complete = self.check_complete(route, candidate).is_ok();
            (is_complete && self.is_undisturbed(candidate)).then_some((candidate, object))
        })
    }

    /// Every 15 s, clears the cache of store changes that all client watches share, until `stop` is
    /// cancelled. A watch that still needs a removed change decompresses the change again, so
    /// clearing the cache loses no event.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                sleep(SHARED_PERIOD).await;
                self.change_cache.clear();
            }
        })
        .await;
    }
}

fn unresolved(fault: &RequestFault) -> StatusError {
    tracing::debug!(%fault, "cannot look up a kind");
    StatusError::unavailable("the kind cannot be looked up at the API server; try again", 1)
}
