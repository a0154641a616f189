//! Chooses the store that answers a request: the newest store that is new enough.

use super::{
    RETRY_AFTER_SECONDS, ReadService,
    covering_informers::{AGGREGATED, CandidateInformer, CoveringInformers, not_cached},
    field_filter::FieldFilter,
    kind_info::KindInfo,
    list::remembers,
    recent_versions::{CallerHash, SeenRead, WrittenVersion},
    retry::ReadAttemptError,
};
use kubewarm_api::model::{GroupResource, InformerKey, ReadConsistency, ResourceVersion};
use kubewarm_cache::{
    informer::{FreshnessCheckResult, UndecodableObject},
    store::{ObjectQuery, StoreReader},
};
use kubewarm_wire::{ObjectRequest, StatusError, VersionMatch};
use std::{slice, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a read waits for the event of a forwarded write. After this time, a freshness check shows whether the store
/// contains the write: after an etcd restore, no event brings the write's version.
const EVENT_GRACE: Duration = Duration::from_millis(250);

/// The informers that can answer a request now, and how fresh their stores must be for the request.
pub(super) struct ReadCandidates<'a> {
    pub(super) request: &'a ObjectRequest,
    pub(super) kind: KindInfo,
    /// The field selector, translated for the kind.
    pub(super) fields: FieldFilter,
    /// The informers that can answer now, the best one first. The list is never empty.
    pub(super) candidates: Vec<CandidateInformer<'a>>,
    /// Whether profiles declare further informers that can answer, also if they are not warm now.
    has_others: bool,
    /// The lowest `maxStalenessSeconds` of the profiles that serve the request.
    pub(super) max_staleness: Duration,
    consistency: ReadConsistency,
    cold_read_timeout: Duration,
    pub(super) caller: CallerHash,
    started_at: Instant,
    /// The informer whose store a freshness check confirmed for this request, and the result of the check. `None`
    /// before the first freshness check of this request.
    confirmed: Option<&'a (InformerKey, FreshnessCheckResult)>,
}

/// An informer that can answer, and its store.
type ReadableStore<'r> = (&'r CandidateInformer<'r>, StoreReader);

/// Returns the position of the newest of the wanted stores. A store with other fields than the first wanted one does not
/// count.
fn newest(
    readable: &[ReadableStore<'_>],
    is_wanted: impl Fn(&CandidateInformer<'_>, &StoreReader) -> bool,
) -> Option<usize> {
    let wanted = readable.iter().enumerate().filter(|(_, (it, reader))| is_wanted(it, reader));
    let newest = wanted.reduce(|best, next| {
        let ((_, (best_candidate, held)), (_, (candidate, reader))) = (best, next);
        let has_same_fields = best_candidate.key.projection == candidate.key.projection;
        let versions = held.version().zip(reader.version());
        let is_newer = versions.is_some_and(|(held, other)| held.is_older_than(&other));
        if has_same_fields && is_newer { next } else { best }
    });
    newest.map(|(at, _)| at)
}

fn has_reached(reader: &StoreReader, version: &ResourceVersion) -> bool {
    reader.version().is_some_and(|held| held >= *version)
}

fn is_older(reader: &StoreReader, version: &ResourceVersion) -> bool {
    reader.version().is_some_and(|held| held.is_older_than(version))
}

impl ReadService {
    /// Finds the informers of `covering` that can answer now.
    ///
    /// # Errors
    ///
    /// - [`ReadAttemptError::Cold`] if no informer is warm
    /// - 400, 406 or 421 if [`CoveringInformers`] or [`FieldFilter`] rejects the request
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
        let (candidates, is_forbidden) = covering
            .rank_warm(|key| self.dependencies.reports.get_summary_for_read(key), Instant::now());
        if candidates.is_empty() {
            return Err(ReadAttemptError::Cold { wait: cold_read_timeout, is_forbidden });
        }
        let has_others = covering.has_several_informers();
        let (consistency, max_staleness) = (covering.consistency(), covering.max_staleness());
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

    /// Returns the candidate informer whose store answers the request, and a reader of this store. Of the stores that
    /// are as new as the request needs, the newest one answers. So a read with a lower requirement after one with a
    /// higher requirement does not return an older version. For an earlier version, the first store that has it answers.
    ///
    /// A store with other fields than the best one answers only if the best one is not new enough.
    pub(super) fn choose<'r>(
        &self,
        route: &'r ReadCandidates<'_>,
    ) -> Result<(&'r CandidateInformer<'r>, StoreReader), ReadAttemptError> {
        let request = route.request;
        let mut readable: Vec<ReadableStore<'_>> = Vec::new();
        for candidate in &route.candidates {
            readable
                .extend(self.dependencies.catalog.reader(candidate.key).map(|it| (candidate, it)));
        }
        if readable.is_empty() {
            return Err(route.cold());
        }
        let first = |is_wanted: &dyn Fn(&CandidateInformer<'_>, &StoreReader) -> bool| {
            readable.iter().position(|(candidate, reader)| is_wanted(candidate, reader))
        };
        // `found` is the position in `readable` of the store that answers. If no store can answer yet, `query` is
        // the resource version that a store must reach.
        let (found, query) = match &request.version_match {
            VersionMatch::Any => (newest(&readable, |_, _| true), None),
            VersionMatch::Latest | VersionMatch::Continue { version: None, .. } => {
                self.choose_latest(route, &readable)?
            }
            VersionMatch::NotOlderThan(version) => {
                (newest(&readable, |_, reader| has_reached(reader, version)), Some(version.clone()))
            }
            VersionMatch::Exact(version) => {
                let found = first(&|it, reader| remembers(it, reader, version));
                let will_come = |it: &CandidateInformer<'_>, reader: &StoreReader| {
                    is_older(reader, version) && it.report.is_kept_current()
                };
                if found.is_none() && first(&will_come).is_none() {
                    return Err(StatusError::expired().into());
                }
                (found, Some(version.clone()))
            }
            // The continue token contains a resource version. All stores that can still serve this version return
            // the same page. If the API server or another replica answered the first page, a store may not have
            // reached the version yet.
            VersionMatch::Continue { version: Some(version), .. } => {
                match first(&|it, reader| remembers(it, reader, version)) {
                    None if readable.iter().all(|(_, reader)| is_older(reader, version)) => {
                        (None, Some(version.clone()))
                    }
                    found => (found.or(Some(0)), None),
                }
            }
        };
        match (found, query) {
            (Some(at), _) => Ok(readable.swap_remove(at)),
            (None, Some(query)) => {
                let newest = newest(&readable, |_, _| true).and_then(|at| readable.get(at));
                let (candidate, reader) = newest.ok_or_else(|| route.cold())?;
                Err(ReadAttemptError::Behind {
                    informer: Box::new(candidate.key.clone()),
                    payer: candidate.payer(),
                    query,
                    newest: reader.version(),
                })
            }
            (None, None) => Err(route.cold()),
        }
    }

    /// Returns the position of the store that answers a request for the latest state. If no store can answer yet, returns
    /// the resource version that a store must reach.
    fn choose_latest(
        &self,
        route: &ReadCandidates<'_>,
        readable: &[ReadableStore<'_>],
    ) -> Result<(Option<usize>, Option<ResourceVersion>), ReadAttemptError> {
        let is_new = |it: &CandidateInformer<'_>, reader: &StoreReader| {
            route.is_new_enough(it, reader.version().as_ref())
        };
        // If an informer's selectors exclude an object, a write to this object does not advance the
        // informer's resource version. So a read does not wait for a recent write, or for what the caller
        // has read, if all informers that can answer it have selectors.
        let are_parts = readable.iter().all(|(it, _)| it.is_part());
        let written = self.min_version(route).filter(|_| !are_parts);
        let seen = self.seen_read(route).filter(|_| !are_parts);
        // A list that kubewarm sent after the read began contains the writes before it.
        let written_at = written.as_ref().map(|written| written.at.min(route.started_at));
        let has_written = |it: &CandidateInformer<'_>, reader: &StoreReader| {
            written.as_ref().is_none_or(|written| {
                has_reached(reader, &written.version) || it.report.current_at > written_at
            })
        };
        // The store may never reach the version that the caller has read: another store got it from a
        // bookmark. It is also new enough if it is proven current as of a time after that read.
        let has_seen = |it: &CandidateInformer<'_>, reader: &StoreReader| {
            seen.as_ref().is_none_or(|seen| {
                seen.version.as_ref().is_some_and(|version| has_reached(reader, version))
                    || it.report.current_at > Some(seen.at)
            })
        };
        let found = newest(readable, |it, reader| {
            is_new(it, reader) && has_written(it, reader) && has_seen(it, reader)
        });
        if found.is_some() {
            return Ok((found, None));
        }
        let Some(at) = newest(readable, is_new) else {
            return Err(route.unconfirmed(&route.candidates));
        };
        let is_written_somewhere = readable.iter().any(|(it, reader)| has_written(it, reader));
        // The event of a write usually arrives within milliseconds.
        let is_late = written_at.is_some_and(|at| at.elapsed() >= EVENT_GRACE);
        let check_since = match &seen {
            Some(seen) if is_written_somewhere => Some(seen.at),
            _ => written_at.filter(|_| is_late),
        };
        match check_since {
            Some(since) => {
                let (candidate, _) = &readable[at];
                Err(route.unconfirmed_since(slice::from_ref(*candidate), since))
            }
            None => Ok((None, written.map(|written| written.version))),
        }
    }

    /// Checks whether data from the candidate informer's store can answer the request. Returns the data's resource
    /// version.
    ///
    /// # Errors
    ///
    /// [`ReadAttemptError`] if the informer lost access or listed its objects again during the read, or if the data
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
        if is_latest_wanted(&route.request.version_match)
            && !route.is_new_enough(candidate, version)
        {
            return Err(route.unconfirmed(&route.candidates));
        }
        version.cloned().ok_or_else(|| route.cold())
    }

    /// Checks that the candidate informer's store lacks no requested object that exists at the API server. Call this
    /// after reading the store: the informer reports an object before the store drops the object's last state, and the
    /// report ends after the store has the next state. So the check covers the reports before and after the read.
    ///
    /// # Errors
    ///
    /// 500 if kubewarm could not decode such an object. An object of another namespace or name does not count.
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
        let namespace = scope.namespace().map(|it| &**it);
        match all.find(|object| object.is_in(namespace, scope.name())) {
            None => Ok(()),
            Some(undecodable) => {
                let UndecodableObject { object, problem, .. } = undecodable;
                let named = Some(&**object).filter(|_| !undecodable.is_unnamed());
                let resource = request.resource.group_resource();
                Err(StatusError::incomplete(resource, named, problem))
            }
        }
    }

    /// Whether the informer is readable, and has neither lost access nor listed its objects again since kubewarm
    /// chose the informer for this request.
    pub(super) fn is_undisturbed(&self, candidate: &CandidateInformer<'_>) -> bool {
        self.dependencies.reports.get_summary(candidate.key).is_some_and(|report| {
            let snapshot = &candidate.report;
            candidate.can_be_read(&report)
                && report.synced_at == snapshot.synced_at
                && report.lost == snapshot.lost
        })
    }

    /// Records the version that the caller has read, if a further informer could answer the caller's next read.
    pub(super) fn record_seen(&self, route: &ReadCandidates<'_>, version: &ResourceVersion) {
        if route.has_others && !route.request.version_match.is_earlier() {
            self.seen_reads.record(route.caller, route.version_scope(), Some(version));
        }
    }

    /// The resource version of a recent forwarded write whose change the response must include.
    fn min_version(&self, route: &ReadCandidates<'_>) -> Option<WrittenVersion> {
        match route.consistency {
            ReadConsistency::Eventual => None,
            ReadConsistency::Bounded | ReadConsistency::Strict => {
                self.written_versions.min_version(&route.request.resource, route.version_scope().1)
            }
        }
    }

    /// What the caller has read. `None` if the profiles permit older answers, or if each answer waits for a freshness
    /// check anyway.
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

    /// The kind and the namespace of the requested objects. All candidates have objects of the same kind, so they have
    /// the same namespace.
    pub(super) fn version_scope(&self) -> (&GroupResource, Option<&Arc<str>>) {
        let namespace = self.candidates.first().and_then(|it| it.authorized_scope.namespace());
        (self.request.resource.group_resource(), namespace)
    }

    /// Whether kubewarm has confirmed, within the profiles' staleness limit, that the candidate informer's store is
    /// current.
    pub(super) fn is_current(&self, candidate: &CandidateInformer<'_>) -> bool {
        candidate.age.is_some_and(|age| age <= self.max_staleness)
    }

    fn is_new_enough(
        &self,
        candidate: &CandidateInformer<'_>,
        version: Option<&ResourceVersion>,
    ) -> bool {
        match self.consistency {
            ReadConsistency::Eventual => true,
            ReadConsistency::Bounded => self.is_current(candidate),
            ReadConsistency::Strict => self.confirmed.is_some_and(|(key, freshness_check)| {
                key == candidate.key && freshness_check.is_valid_for(version)
            }),
        }
    }

    /// The error if no informer that can answer the request is readable: the request then waits for a warm
    /// informer.
    pub(super) fn cold(&self) -> ReadAttemptError {
        ReadAttemptError::Cold { wait: self.cold_read_timeout, is_forbidden: false }
    }

    /// Chooses the candidate informer whose store a freshness check can confirm. If no candidate has a running
    /// watch, for example while the profiles are paused, the result is 504.
    pub(super) fn unconfirmed(&self, candidates: &[CandidateInformer<'_>]) -> ReadAttemptError {
        let now = Instant::now();
        let since = match (self.consistency, self.confirmed) {
            (ReadConsistency::Strict, None) => self.started_at,
            // The last freshness check does not cover the store's resource version, because the store has changed
            // since the check.
            (ReadConsistency::Strict, Some(_)) => now,
            (ReadConsistency::Eventual | ReadConsistency::Bounded, _) => {
                now.checked_sub(self.max_staleness).unwrap_or(now)
            }
        };
        self.unconfirmed_since(candidates, since)
    }

    /// The same, for a freshness check that began after `since`.
    fn unconfirmed_since(
        &self,
        candidates: &[CandidateInformer<'_>],
        since: Instant,
    ) -> ReadAttemptError {
        let Some(candidate) = candidates.iter().find(|it| it.report.is_kept_current()) else {
            let age = candidates.first().and_then(|it| it.age);
            return self.stale(age, "no watch updates it").into();
        };
        ReadAttemptError::Unconfirmed {
            informer: Box::new(candidate.key.clone()),
            payer: candidate.payer(),
            since,
            is_forwardable: self.consistency == ReadConsistency::Strict
                || candidate.report.lacks_bookmarks,
            failure: self.stale(candidate.age, "a freshness check did not confirm it"),
        }
    }

    fn stale(&self, age: Option<Duration>, why: &str) -> StatusError {
        let known = match age {
            Some(age) => format!("last known to be current {} s ago", age.as_secs()),
            None => "not known to be current".to_owned(),
        };
        let requirement = match self.consistency {
            ReadConsistency::Strict => {
                "its profile requires a freshness check for each read".to_owned()
            }
            ReadConsistency::Eventual | ReadConsistency::Bounded => {
                format!("which is more than the {} s of its profile", self.max_staleness.as_secs())
            }
        };
        let mut message = format!("the cache is {known}, {requirement}, and {why}");
        // The message recommends `resourceVersion=0`, except with the read consistency `Eventual`. With `Eventual`,
        // only a get of a missing object fails as stale, and `resourceVersion=0` does not help.
        if is_latest_wanted(&self.request.version_match)
            && self.consistency != ReadConsistency::Eventual
        {
            message.push_str("; set resourceVersion=0 to accept stale objects");
        }
        StatusError::stale(self.request.resource.group_resource(), &message, RETRY_AFTER_SECONDS)
    }
}

/// Whether the request needs the latest state. A request that sets `resourceVersion` does not.
const fn is_latest_wanted(at: &VersionMatch) -> bool {
    matches!(at, VersionMatch::Latest | VersionMatch::Continue { version: None, .. })
}
