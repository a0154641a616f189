//! Chooses the store that answers a request: the newest store that is new enough.

use super::{
    RETRY_AFTER_SECONDS, ReadService,
    cold_cause::ColdCause,
    covering_informers::{AGGREGATED, CandidateInformer, CoveringInformers, not_cached},
    field_filter::FieldFilter,
    kind_info::KindInfo,
    list::remembers,
    recent_versions::{CallerHash, SeenRead, WrittenVersion},
    retry::{FreshnessWait, ReadAttemptError, VersionWait},
};
use kubewarm_api::model::{GroupResource, InformerKey, ReadConsistency, ResourceVersion};
use kubewarm_cache::{
    informer::{FreshnessCheckResult, KEPT_BY_BOOKMARKS, UndecodableObject},
    store::{ObjectQuery, StoreReader},
};
use kubewarm_client::PeerReplicas;
use kubewarm_wire::{ObjectRequest, StatusError, VersionMatch};
use std::{slice, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a read waits until the watch event of a forwarded write reaches a store. After this
/// time, kubewarm makes a freshness check instead, because the event might never come: after an
/// etcd restore, the API server does not send the write's version again.
const EVENT_GRACE: Duration = Duration::from_millis(250);

/// The informers that can answer a request now, and how fresh their stores must be for the request.
pub(super) struct ReadCandidates<'a> {
    pub(super) request: &'a ObjectRequest,
    pub(super) kind: KindInfo,
    /// The field selector, translated for the kind.
    pub(super) fields: FieldFilter,
    /// The informers that can answer now, the best one first. The list is never empty.
    pub(super) candidates: Vec<CandidateInformer<'a>>,
    /// Whether profiles declare further informers that can answer, warm or not. A later read of the
    /// caller can then get its answer from another store.
    has_others: bool,
    /// The lowest `maxStalenessSeconds` of the profiles that serve the request.
    pub(super) max_staleness: Duration,
    consistency: ReadConsistency,
    cold_read_timeout: Duration,
    pub(super) caller: CallerHash,
    started_at: Instant,
    /// The informer whose store a freshness check confirmed for this request, and the result of the
    /// check. `None` before the first freshness check of this request.
    confirmed: Option<&'a (InformerKey, FreshnessCheckResult)>,
}

/// An informer that can answer, and its store.
struct ReadableStore<'r> {
    candidate: &'r CandidateInformer<'r>,
    reader: StoreReader,
    /// The version of the store when the attempt to answer began. The store can advance meanwhile,
    /// but all decisions of the attempt use this version, so that they agree.
    version: ResourceVersion,
}

impl ReadableStore<'_> {
    fn has_reached(&self, version: &ResourceVersion) -> bool {
        self.version >= *version
    }

    fn is_older(&self, version: &ResourceVersion) -> bool {
        self.version.is_older_than(version)
    }

    fn remembers(&self, version: &ResourceVersion) -> bool {
        remembers(self.candidate, &self.reader, version)
    }
}

/// The first value is the position of the store that answers. If no store can answer yet, the
/// second value is the resource version that a store must reach.
type StoreChoice = (Option<usize>, Option<RequiredVersion>);

/// A resource version that a store must reach before it can answer.
struct RequiredVersion {
    version: ResourceVersion,
    /// If `version` is that of a forwarded write, the time of the write. A store that is confirmed
    /// to be current as of a later time contains the write too, whatever its version is. `None` if
    /// the client or a continue token named `version`.
    written_at: Option<Instant>,
    /// When kubewarm tries again at the latest, even if no store has reached `version`: by then,
    /// another informer or a freshness check can help.
    retry_at: Instant,
}

/// Why a read needs a freshness check.
enum FreshnessNeed {
    /// The read consistency or the staleness limit of the profiles.
    Profile,
    /// A forwarded write, which the store might lack.
    Write(VersionWait),
    /// The caller's last read, whose answer might have been newer than the store.
    LastRead,
}

impl RequiredVersion {
    fn is_met_by(&self, store: &ReadableStore<'_>) -> bool {
        store.has_reached(&self.version)
            || self.written_at.is_some() && store.candidate.report.current_at > self.written_at
    }

    /// Converts the required version into a wait, which ends when one of the stores without the
    /// version reaches it.
    fn wait(self, readable: &[ReadableStore<'_>]) -> VersionWait {
        let behind = readable.iter().filter(|store| !self.is_met_by(store));
        let stores = behind.map(|store| (store.candidate.key.clone(), store.reader.clone()));
        let stores = stores.collect();
        VersionWait { version: self.version, written_at: self.written_at, stores }
    }
}

/// Returns the position of the best of the stores that `is_wanted` accepts. `is_worse` compares two
/// stores. A store counts only if it keeps the same fields as the first accepted store, which ranks
/// best.
fn best(
    readable: &[ReadableStore<'_>],
    is_wanted: impl Fn(&ReadableStore<'_>) -> bool,
    is_worse: impl Fn(&ReadableStore<'_>, &ReadableStore<'_>) -> bool,
) -> Option<usize> {
    let wanted = readable.iter().enumerate().filter(|(_, store)| is_wanted(store));
    let best = wanted.reduce(|best, next| {
        let ((_, best_store), (_, store)) = (best, next);
        let has_same_fields = best_store.candidate.key.projection == store.candidate.key.projection;
        if has_same_fields && is_worse(best_store, store) { next } else { best }
    });
    best.map(|(at, _)| at)
}

/// Returns the position of the newest of the stores that `is_wanted` accepts.
fn newest(
    readable: &[ReadableStore<'_>],
    is_wanted: impl Fn(&ReadableStore<'_>) -> bool,
) -> Option<usize> {
    best(readable, is_wanted, |store, other| store.version.is_older_than(&other.version))
}

/// Returns the position of the store that answers for exactly the resource version `version`: of
/// the stores that remember this version, the most recently confirmed one. After an etcd restore, a
/// store that has not noticed the restore can remember a version of the undone history, but nothing
/// has confirmed it since.
fn remembering(readable: &[ReadableStore<'_>], version: &ResourceVersion) -> Option<usize> {
    let confirmed_at = |store: &ReadableStore<'_>| store.candidate.report.current_at;
    best(
        readable,
        |store| store.remembers(version),
        |store, other| confirmed_at(store) < confirmed_at(other),
    )
}

impl ReadService {
    /// Finds the informers of `covering` that can answer now.
    ///
    /// # Errors
    ///
    /// - [`ReadAttemptError::Cold`] if no informer is warm
    /// - 400, 406 or 421 if [`CoveringInformers`] or [`FieldFilter`] rejects the request
    /// - 503 if all informers were paused before their first list was complete
    /// - the request's `version_error`
    pub(super) async fn route<'a>(
        &self,
        request: &'a ObjectRequest,
        covering: CoveringInformers<'a>,
        (caller, started_at): (CallerHash, Instant),
        confirmed: Option<&'a (InformerKey, FreshnessCheckResult)>,
    ) -> Result<ReadCandidates<'a>, ReadAttemptError> {
        let cold_read_timeout = covering.cold_read_timeout();
        let kind = self.kind(&request.resource).await?;
        let kind = kind.ok_or_else(|| not_cached(request, AGGREGATED))?;
        let fields = FieldFilter::resolve(request, &kind, |name| covering.index(name))?;
        if let Some(failure) = &request.version_error {
            return Err((**failure).clone().into());
        }
        let covering = covering.with_fields(&kind, &fields)?;
        let (candidates, cause) = covering
            .rank_warm(|key| self.dependencies.reports.get_summary_for_read(key), Instant::now());
        if candidates.is_empty() {
            if cause == ColdCause::Paused {
                // Only a person can resume the profile, so the read does not wait for a list.
                return Err(cause.error(request.resource.group_resource()).into());
            }
            // Each reader of a resource waits for the first list. If kubewarm forwarded their
            // reads instead, all of them would load the API server at once.
            let (wait, is_forwardable) = (cold_read_timeout, false);
            return Err(ReadAttemptError::Cold { wait, cause, is_forwardable });
        }
        let has_others = covering.has_several_informers();
        let max_staleness = covering.max_staleness();
        let mut consistency = covering.consistency();
        if consistency == ReadConsistency::Bounded && self.is_newly_ready() {
            consistency = ReadConsistency::Strict;
        }
        Ok(ReadCandidates {
            request,
            kind,
            fields,
            candidates,
            has_others,
            max_staleness,
            consistency,
            cold_read_timeout,
            caller,
            started_at,
            confirmed,
        })
    }

    /// Whether a client can have received newer objects from another replica a moment ago. Reads
    /// with the default consistency then need a freshness check.
    pub(super) fn is_newly_ready(&self) -> bool {
        self.dependencies.peers.as_ref().is_some_and(PeerReplicas::is_newly_ready)
    }

    /// Returns the candidate informer whose store answers the request, and a reader of this store.
    /// Of the stores that are as new as the request needs, the newest one answers. So a read that
    /// accepts older data returns no older version than a previous read that needed newer data. For
    /// an earlier version, the most recently confirmed store that has it answers.
    ///
    /// A store that keeps other fields than the best candidate's store answers only if the best
    /// candidate's store is not new enough.
    pub(super) fn choose<'r>(
        &self,
        route: &'r ReadCandidates<'_>,
    ) -> Result<(&'r CandidateInformer<'r>, StoreReader), ReadAttemptError> {
        let request = route.request;
        let (mut readable, relisting) = self.readable_stores(route);
        if readable.is_empty() {
            return Err(route.cold());
        }
        // At this time kubewarm tries again at the latest, because other informers might be able to
        // answer by then.
        let retry_at = Instant::now() + EVENT_GRACE;
        let required = |version: &ResourceVersion| {
            Some(RequiredVersion { version: version.clone(), written_at: None, retry_at })
        };
        let (position, wanted): StoreChoice = match &request.version_match {
            VersionMatch::Any => (newest(&readable, |_| true), None),
            VersionMatch::Latest | VersionMatch::Continue { version: None, .. } => {
                self.choose_latest(route, &readable)?
            }
            VersionMatch::NotOlderThan(version) => {
                (newest(&readable, |store| store.has_reached(version)), required(version))
            }
            VersionMatch::Exact(version) => {
                let position = remembering(&readable, version);
                let will_come = |store: &ReadableStore<'_>| {
                    store.is_older(version) && store.candidate.report.is_kept_current()
                };
                if position.is_none() && !readable.iter().any(will_come) {
                    return Err(StatusError::expired().into());
                }
                (position, required(version))
            }
            // The continue token contains a resource version. All stores that can still serve this
            // version return the same page, unless etcd was restored. If the API server or another
            // replica answered the first page, the stores here might not have reached the version
            // yet, so the read waits.
            VersionMatch::Continue { version: Some(version), .. } => {
                match remembering(&readable, version) {
                    None if readable.iter().all(|store| store.is_older(version)) => {
                        (None, required(version))
                    }
                    position => (position.or(Some(0)), None),
                }
            }
        };
        let is_older = |at: usize| {
            let relisting = relisting.as_ref().filter(|_| !is_exact(&request.version_match));
            let store = readable.get(at);
            store.zip(relisting).is_some_and(|(store, version)| store.is_older(version))
        };
        match (position, wanted) {
            // The answer would be older than an answer from before the relist, so the read waits.
            (Some(at), _) if is_older(at) => Err(route.cold()),
            (Some(at), _) => {
                let ReadableStore { candidate, reader, .. } = readable.swap_remove(at);
                Ok((candidate, reader))
            }
            (None, Some(required)) => {
                let newest = newest(&readable, |_| true).and_then(|at| readable.get(at));
                let newest = newest.ok_or_else(|| route.cold())?;
                Err(ReadAttemptError::Behind {
                    informer: Box::new(newest.candidate.key.clone()),
                    payer: newest.candidate.payer(),
                    newest: newest.version.clone(),
                    retry_at: required.retry_at,
                    wait: required.wait(&readable),
                })
            }
            (None, None) => Err(route.cold()),
        }
    }

    /// Returns the candidate informers' stores with objects of one version. The second value is the
    /// newest version of the other stores, which a relist has changed in part.
    fn readable_stores<'r>(
        &self,
        route: &'r ReadCandidates<'_>,
    ) -> (Vec<ReadableStore<'r>>, Option<ResourceVersion>) {
        let (mut readable, mut relisting) = (Vec::new(), None::<ResourceVersion>);
        for candidate in &route.candidates {
            let Some(reader) = self.dependencies.catalog.reader(candidate.key) else { continue };
            if let Some(version) = reader.consistent_version() {
                readable.push(ReadableStore { candidate, reader, version });
                continue;
            }
            let is_newest = |version: &ResourceVersion| {
                relisting.as_ref().is_none_or(|known| known.is_older_than(version))
            };
            if let Some(version) = reader.version().filter(is_newest) {
                relisting = Some(version);
            }
        }
        (readable, relisting)
    }

    /// Returns the position of the store that answers a request for the latest state. If no store
    /// can answer yet, the second value is the resource version that a store must reach.
    fn choose_latest(
        &self,
        route: &ReadCandidates<'_>,
        readable: &[ReadableStore<'_>],
    ) -> Result<StoreChoice, ReadAttemptError> {
        let is_new =
            |store: &ReadableStore<'_>| route.is_new_enough(store.candidate, &store.version);
        // Without selectors, each write advances an informer's resource version. With selectors, a
        // write to an excluded object does not, so the store might never reach that version. So if
        // all informers that can answer have selectors, a read does not wait for the versions of
        // recent writes or of the caller's last reads.
        let has_only_parts = readable.iter().all(|store| store.candidate.is_part());
        let written = self.min_version(route).filter(|_| !has_only_parts);
        let seen = self.seen_read(route).filter(|_| !has_only_parts);
        let written = written.map(|WrittenVersion { version, at }| {
            // The read must see only writes that ended before the read began. So a store that is
            // confirmed to be current as of a time after the read's start is new enough, even if
            // later writes followed.
            let at = at.min(route.started_at);
            // The event of a write usually arrives within milliseconds, so a freshness check within
            // this grace period would cost a request for nothing.
            RequiredVersion { version, written_at: Some(at), retry_at: at + EVENT_GRACE }
        });
        let has_written = |store: &ReadableStore<'_>| {
            written.as_ref().is_none_or(|written| written.is_met_by(store))
        };
        // A store might never reach the version that the caller has read, for instance because
        // another store received this version in a bookmark. So a store is also new enough if it is
        // confirmed to be current as of a time after that read.
        let has_seen = |store: &ReadableStore<'_>| {
            seen.as_ref().is_none_or(|seen| {
                seen.version.as_ref().is_some_and(|version| store.has_reached(version))
                    || store.candidate.report.current_at > Some(seen.at)
            })
        };
        let position =
            newest(readable, |store| is_new(store) && has_written(store) && has_seen(store));
        if position.is_some() {
            return Ok((position, None));
        }
        let Some(at) = newest(readable, is_new) else {
            return Err(route.unconfirmed(&route.candidates));
        };
        let is_written_somewhere = readable.iter().any(has_written);
        let candidate = slice::from_ref(readable[at].candidate);
        if let Some(seen) = seen.filter(|_| is_written_somewhere) {
            return Err(route.unconfirmed_since(candidate, seen.at, FreshnessNeed::LastRead));
        }
        match written {
            Some(late) if late.retry_at <= Instant::now() => {
                let since = late.written_at.unwrap_or(route.started_at);
                let need = FreshnessNeed::Write(late.wait(readable));
                Err(route.unconfirmed_since(candidate, since, need))
            }
            written => Ok((None, written)),
        }
    }

    /// Checks whether data from the candidate informer's store can answer the request. Returns the
    /// data's resource version.
    ///
    /// # Errors
    ///
    /// [`ReadAttemptError`] if the informer lost access or relisted during the read, or if the data
    /// is too old.
    pub(super) fn confirm(
        &self,
        route: &ReadCandidates<'_>,
        candidate: &CandidateInformer<'_>,
        version: Option<&ResourceVersion>,
    ) -> Result<ResourceVersion, ReadAttemptError> {
        if !self.is_undisturbed(candidate) {
            return Err(ReadAttemptError::Disturbed);
        }
        let version = version.ok_or_else(|| route.cold())?;
        if is_latest_wanted(&route.request.version_match)
            && !route.is_new_enough(candidate, version)
        {
            return Err(route.unconfirmed(&route.candidates));
        }
        Ok(version.clone())
    }

    /// Checks that the candidate informer's store lacks no requested object that exists at the API
    /// server, because kubewarm could not decode the object.
    ///
    /// Call this after reading the store, because the check covers the informer's reports before
    /// and after the read. The informer reports an undecodable object before the store drops its
    /// last state, and until the store has the object's next state. So one of the two reports
    /// contains each object that the read can have missed.
    ///
    /// # Errors
    ///
    /// 500 if kubewarm could not decode such an object. An object of a namespace or name outside
    /// the request does not count.
    pub(super) fn check_complete(
        &self,
        route: &ReadCandidates<'_>,
        candidate: &CandidateInformer<'_>,
    ) -> Result<(), StatusError> {
        let request = route.request;
        let report = self.dependencies.reports.get_summary(candidate.key);
        let after = report.map(|report| report.undecodable).unwrap_or_default();
        let mut all = candidate.report.undecodable.iter().chain(&*after);
        let scope = &candidate.authorized_scope;
        let namespace = scope.namespace().map(|namespace| &**namespace);
        match all.find(|object| object.is_in(namespace, scope.name())) {
            None => Ok(()),
            Some(undecodable) => {
                let UndecodableObject { object, problem, .. } = undecodable;
                let object = Some(&**object).filter(|_| !undecodable.is_unnamed());
                let resource = request.resource.group_resource();
                Err(StatusError::incomplete(resource, object, problem))
            }
        }
    }

    /// Whether the informer is readable, and has neither lost access nor relisted since kubewarm
    /// chose the informer for this request. After a relist because of an etcd restore, the store
    /// can be older than the version that this request needs. After a loss of access, clients may
    /// not read the data.
    pub(super) fn is_undisturbed(&self, candidate: &CandidateInformer<'_>) -> bool {
        self.dependencies.reports.get_summary(candidate.key).is_some_and(|report| {
            let snapshot = &candidate.report;
            candidate.can_be_read(&report)
                && report.synced_at == snapshot.synced_at
                && report.lost_at == snapshot.lost_at
        })
    }

    /// Records the version that the caller has read, so that the caller's next read returns no
    /// older version. This is necessary only if a further informer could answer the next read.
    /// Otherwise, the next read reads the same store again.
    pub(super) fn record_seen(&self, route: &ReadCandidates<'_>, version: &ResourceVersion) {
        if route.has_others && !route.request.version_match.is_earlier() {
            self.seen_reads.record(route.caller, route.version_scope(), Some(version));
        }
    }

    /// The resource version of a recent forwarded write whose change the response must include.
    /// `None` if no write is recent, or if the profiles' read consistency is `Eventual`.
    fn min_version(&self, route: &ReadCandidates<'_>) -> Option<WrittenVersion> {
        match route.consistency {
            ReadConsistency::Eventual => None,
            ReadConsistency::Bounded | ReadConsistency::Strict => {
                self.written_versions.min_version(&route.request.resource, route.version_scope().1)
            }
        }
    }

    /// What the caller has read. `None` if the profiles permit older answers (`Eventual`), or if
    /// each answer waits for a freshness check anyway (`Strict`).
    fn seen_read(&self, route: &ReadCandidates<'_>) -> Option<SeenRead> {
        match route.consistency {
            ReadConsistency::Eventual | ReadConsistency::Strict => None,
            ReadConsistency::Bounded => self.seen_reads.newest(route.caller, route.version_scope()),
        }
    }
}

impl ReadCandidates<'_> {
    pub(super) fn query(&self, candidate: &CandidateInformer<'_>) -> ObjectQuery {
        self.fields.query(self.request, candidate.key, &candidate.authorized_scope)
    }

    /// The kind and the namespace of the requested objects, by which kubewarm keeps the versions of
    /// writes and reads. All candidates have objects of the same kind, so they have the same
    /// namespace.
    pub(super) fn version_scope(&self) -> (&GroupResource, Option<&Arc<str>>) {
        let namespace =
            self.candidates.first().and_then(|candidate| candidate.authorized_scope.namespace());
        (self.request.resource.group_resource(), namespace)
    }

    /// Whether kubewarm has confirmed, within the profiles' staleness limit, that the candidate
    /// informer's store is current.
    pub(super) fn is_current(&self, candidate: &CandidateInformer<'_>) -> bool {
        candidate.age.is_some_and(|age| age <= self.max_staleness)
    }

    fn is_new_enough(&self, candidate: &CandidateInformer<'_>, version: &ResourceVersion) -> bool {
        match self.consistency {
            ReadConsistency::Eventual => true,
            ReadConsistency::Bounded => self.is_current(candidate),
            ReadConsistency::Strict => self.confirmed.is_some_and(|(key, freshness_check)| {
                key == candidate.key && freshness_check.is_valid_for(version)
            }),
        }
    }

    /// The error if no store of the candidate informers has the objects of one version, usually
    /// because a relist has changed a part of them. With this error, the request waits for the end
    /// of the relist.
    pub(super) fn cold(&self) -> ReadAttemptError {
        if !self.has_others && self.candidates.iter().all(CandidateInformer::is_stopped) {
            return ColdCause::Paused.error(self.request.resource.group_resource()).into();
        }
        // Before and after the relist, kubewarm forwards these reads too if they wait.
        let is_forwardable = self.consistency == ReadConsistency::Strict
            || is_version_named(&self.request.version_match);
        let (wait, cause) = (self.cold_read_timeout, ColdCause::NotWarm);
        ReadAttemptError::Cold { wait, cause, is_forwardable }
    }

    /// Returns the reason to wait for a freshness check: it names the first candidate informer
    /// whose store such a check can confirm. If no candidate has a running watch, for example while
    /// the profiles are paused, no check can pass, and the result is the error 504.
    pub(super) fn unconfirmed(&self, candidates: &[CandidateInformer<'_>]) -> ReadAttemptError {
        let now = Instant::now();
        let since = match (self.consistency, self.confirmed) {
            (ReadConsistency::Strict, None) => self.started_at,
            // The last freshness check does not cover the store's resource version, because the
            // store has changed since the check.
            (ReadConsistency::Strict, Some(_)) => now,
            (ReadConsistency::Eventual | ReadConsistency::Bounded, _) => {
                now.checked_sub(self.max_staleness).unwrap_or(now)
            }
        };
        self.unconfirmed_since(candidates, since, FreshnessNeed::Profile)
    }

    /// Like [`Self::unconfirmed`], for a freshness check that began after `since`.
    fn unconfirmed_since(
        &self,
        candidates: &[CandidateInformer<'_>],
        since: Instant,
        need: FreshnessNeed,
    ) -> ReadAttemptError {
        let Some(candidate) =
            candidates.iter().find(|candidate| candidate.report.is_kept_current())
        else {
            let age = candidates.first().and_then(|candidate| candidate.age);
            return self.stale(age, &need, "no watch updates it").into();
        };
        let failure = self.stale(candidate.age, &need, "a freshness check did not confirm it");
        ReadAttemptError::Unconfirmed(Box::new(FreshnessWait {
            informer: candidate.key.clone(),
            payer: candidate.payer(),
            since,
            is_forwardable: self.is_forwardable(candidate, &need),
            written: match need {
                FreshnessNeed::Write(wait) => Some(wait),
                FreshnessNeed::Profile | FreshnessNeed::LastRead => None,
            },
            failure,
        }))
    }

    /// Whether kubewarm forwards the read if a freshness check of the candidate informer's store
    /// takes long.
    fn is_forwardable(&self, candidate: &CandidateInformer<'_>, need: &FreshnessNeed) -> bool {
        let is_due = match (self.consistency, need) {
            (ReadConsistency::Strict, _) => true,
            // kubewarm confirms a store that no client reads only every 2 minutes, so an age of up
            // to 2 minutes is normal. A higher age shows an outage or throttling of the API server,
            // which forwarded reads would load further.
            (ReadConsistency::Bounded, FreshnessNeed::Profile) => {
                candidate.age.is_some_and(|age| age <= KEPT_BY_BOOKMARKS)
            }
            (ReadConsistency::Bounded, FreshnessNeed::Write(_) | FreshnessNeed::LastRead)
            | (ReadConsistency::Eventual, _) => false,
        };
        is_due || candidate.report.lacks_bookmarks
    }

    fn stale(&self, age: Option<Duration>, need: &FreshnessNeed, why: &str) -> StatusError {
        let known = match age {
            Some(age) => format!("last known to be current {} s ago", age.as_secs()),
            None => "not known to be current".to_owned(),
        };
        let requirement = match (need, self.consistency) {
            (FreshnessNeed::Write(VersionWait { version, .. }), _) => {
                format!("it has not received version {version} of a forwarded write")
            }
            (FreshnessNeed::LastRead, _) => "your last read can be newer".to_owned(),
            (FreshnessNeed::Profile, ReadConsistency::Strict) => {
                "its profile requires a freshness check for each read".to_owned()
            }
            (FreshnessNeed::Profile, ReadConsistency::Eventual | ReadConsistency::Bounded) => {
                format!("which is more than the {} s of its profile", self.max_staleness.as_secs())
            }
        };
        let mut message = format!("the cache is {known}, {requirement}, and {why}");
        // The message recommends `resourceVersion=0`, except with the read consistency `Eventual`.
        // With `Eventual`, only a get of a missing object fails as stale, and `resourceVersion=0`
        // does not help.
        if is_latest_wanted(&self.request.version_match)
            && self.consistency != ReadConsistency::Eventual
        {
            message.push_str("; set resourceVersion=0 to accept stale objects");
        }
        StatusError::stale(self.request.resource.group_resource(), &message, RETRY_AFTER_SECONDS)
    }
}

/// Whether the response must have exactly one resource version, which another store can also have.
fn is_exact(wanted: &VersionMatch) -> bool {
    matches!(wanted, VersionMatch::Exact(_) | VersionMatch::Continue { version: Some(_), .. })
}

/// Whether the client or a continue token names the oldest resource version that the response may
/// have.
pub(super) fn is_version_named(wanted: &VersionMatch) -> bool {
    matches!(
        wanted,
        VersionMatch::NotOlderThan(_) | VersionMatch::Continue { version: Some(_), .. }
    )
}

/// Whether the request needs the latest state, because it sets no `resourceVersion` and continues
/// no list at a version.
const fn is_latest_wanted(at: &VersionMatch) -> bool {
    matches!(at, VersionMatch::Latest | VersionMatch::Continue { version: None, .. })
}
