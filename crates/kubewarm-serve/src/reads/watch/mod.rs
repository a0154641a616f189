//! Client watches: chooses the informer and the start position, and produces events until the watch
//! ends.

mod change_cache;
mod cursor;
mod deadlines;
mod event_encoder;
mod feed;

pub use self::{
    cursor::WatchChunk,
    feed::{WatchFeed, WatchProgress},
};

pub(super) use self::change_cache::ChangeCache;

use self::{
    cursor::WatchCursor, deadlines::WatchDeadlines, event_encoder::EventEncoder, feed::ActiveWatch,
};
use super::{
    ReadService, ReadSource,
    covering_informers::CandidateInformer,
    list::pick,
    read_candidates::ReadCandidates,
    retry::{ReadAttemptError, RequestSender},
};
use crate::callers::UserPermits;
use kubewarm_api::model::{ProfileRef, ResourceVersion};
use kubewarm_cache::store::EventLogFollower;
use kubewarm_wire::{
    MediaType, ObjectRequest, StatusError, VersionMatch, WatchOptions, WatchStart,
};
use std::{hash::Hash, sync::Arc};
use tokio::time::Instant;

impl ReadService {
    /// Starts a watch. If `profile` is given, only informers of that profile answer. `watching`
    /// must be the watch options of `request`. Objects that are too large for one piece of a
    /// response wait for `permits`.
    ///
    /// # Errors
    ///
    /// The errors of [`ReadService::read`]. As in the API server, the watch sends two errors as
    /// an error event: an expired resource version, and a version that no store reaches in time.
    ///
    /// # Cost
    ///
    /// Waits like [`ReadService::read`]. Keeps the initial objects in memory until the watch has
    /// sent them.
    pub async fn watch(
        self: &Arc<Self>,
        request: &ObjectRequest,
        watching: &WatchOptions,
        profile: Option<&ProfileRef>,
        caller: &impl Hash,
        permits: &UserPermits,
    ) -> Result<WatchFeed, StatusError> {
        // A forwarded watch would stay at the API server until its end, even if a store could serve
        // the watch soon after its start. So watches wait for a store.
        let sender = RequestSender { caller: self.seen_reads.hash(caller), can_forward: false };
        let started = self.when_ready(request, profile, sender, async |route| {
            self.begin(route, watching, profile, permits).await
        });
        let is_sent_as_event = |failure: &StatusError| match failure.code() {
            410 => true,
            504 => matches!(request.version_match, VersionMatch::NotOlderThan(_)),
            _ => false,
        };
        match started.await {
            Ok((open, _waited)) => Ok(WatchFeed::new(open)),
            Err(failure) if is_sent_as_event(&failure) => {
                let is_builtin = kubewarm_client::is_builtin_group(request.resource.group());
                let is_protobuf = is_builtin && request.form_in_json.is_some();
                let media_type = if is_protobuf { MediaType::Protobuf } else { MediaType::Json };
                Ok(WatchFeed::failed(&failure, media_type))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        route: &ReadCandidates<'_>,
        watching: &WatchOptions,
        profile: Option<&ProfileRef>,
        permits: &UserPermits,
    ) -> Result<ActiveWatch, ReadAttemptError> {
        let open = |candidate: &CandidateInformer<'_>, follower: EventLogFollower, initial| {
            let query = route.query(candidate);
            self.check_complete(route, candidate)?;
            let format = route.request.format(follower.encoding())?;
            Ok(ActiveWatch {
                reads: Arc::clone(self),
                request: route.request.clone(),
                profile: profile.cloned(),
                source: ReadSource::of(candidate, route),
                access_requirement: candidate.access_requirement(),
                access_counter: self.dependencies.reports.access_counter(candidate.key),
                checked_at: None,
                index_change: None,
                checked_index: None,
                indexes: route.fields.indexes.clone(),
                cursor: WatchCursor::new(
                    EventEncoder::new(&route.kind, format, &self.dependencies.metrics),
                    route.request,
                    candidate.authorized_scope.clone(),
                    query,
                    follower,
                    initial,
                    permits,
                ),
                timing: WatchDeadlines::new(watching, Instant::now()),
            })
        };
        if let WatchStart::After(version) = &watching.start {
            let (candidate, follower) = self.follow(route, version)?;
            return open(candidate, follower, None);
        }
        let (candidate, reader) = self.choose(route)?;
        if watching.start == WatchStart::Now {
            return open(candidate, reader.follow_from_now(), None);
        }
        let query = route.query(candidate);
        let (selected, follower) = reader.select_and_follow(&query);
        let version = self.confirm(route, candidate, selected.version())?;
        self.record_seen(route, &version);
        let selected = pick(selected).await;
        open(candidate, follower, Some((selected, version)))
    }

    /// Returns a reader of the event log of the first informer whose event log contains all changes
    /// after `version`.
    ///
    /// # Errors
    ///
    /// 410 if there is no such event log.
    fn follow<'r>(
        &self,
        route: &'r ReadCandidates<'_>,
        version: &ResourceVersion,
    ) -> Result<(&'r CandidateInformer<'r>, EventLogFollower), ReadAttemptError> {
        let mut forgotten = None;
        for candidate in &route.candidates {
            let Some(reader) = self.dependencies.catalog.reader(candidate.key) else { continue };
            match reader.follow(version) {
                Ok(follower) => return Ok((candidate, follower)),
                Err(none) => forgotten = forgotten.or(Some(none)),
            }
        }
        Err(forgotten.map_or_else(
            || route.cold(),
            |none| StatusError::too_old(version, none.oldest.as_ref()).into(),
        ))
    }
}
