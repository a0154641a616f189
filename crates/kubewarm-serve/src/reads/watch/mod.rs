//! Watches: chooses the informer and the start position, and produces events until the end.

mod cursor;
mod feed;
mod lines;
mod opened;
mod timing;

pub use self::{
    cursor::Piece,
    feed::{Feed, Progress},
};

pub(super) use self::opened::Shared;

use self::{cursor::WatchCursor, feed::OpenWatch, timing::Timing};
use super::{Reads, Source, cover::Candidate, list::pick, retry::NotYet, route::Route};
use kubewarm_api::model::{ProfileRef, ResourceVersion};
use kubewarm_cache::store::Follower;
use kubewarm_wire::{At, Begin, Failure, Objects, Watching};
use std::sync::Arc;
use tokio::time::Instant;

impl Reads {
    /// Starts a watch. If `profile` is given, only informers of that profile answer. `watching` must be the
    /// watch options of `asked`.
    ///
    /// # Errors
    ///
    /// The errors of [`Reads::answer`]. As in the API server, two errors become an error event of the watch
    /// instead. They are an expired version, and a version that no store has reached in time.
    ///
    /// # Cost
    ///
    /// Waits like [`Reads::answer`]. Keeps the stored bodies of the initial objects in memory until they are
    /// sent.
    pub async fn watch(
        self: &Arc<Self>,
        asked: &Objects,
        watching: &Watching,
        profile: Option<&ProfileRef>,
    ) -> Result<Feed, Failure> {
        let begun = self
            .when_ready(asked, profile, async |route| self.begin(route, watching, profile).await);
        let is_sent_as_event = |failure: &Failure| match failure.code() {
            410 => true,
            504 => matches!(asked.at, At::NotOlderThan(_)),
            _ => false,
        };
        match begun.await {
            Ok((open, _waited)) => Ok(Feed::new(open)),
            Err(failure) if is_sent_as_event(&failure) => Ok(Feed::failed(&failure)),
            Err(failure) => Err(failure),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        route: &Route<'_>,
        watching: &Watching,
        profile: Option<&ProfileRef>,
    ) -> Result<OpenWatch, NotYet> {
        let open = |candidate: &Candidate<'_>, follower, initial| {
            let wanted = route.wanted(candidate);
            OpenWatch {
                reads: Arc::clone(self),
                asked: route.asked.clone(),
                profile: profile.cloned(),
                source: Source::of(candidate, route.max_staleness),
                terms: candidate.access_terms(),
                indexes: route.fields.indexes.clone(),
                cursor: WatchCursor::new(&route.kind, route.asked, wanted, (follower, initial)),
                timing: Timing::new(watching, Instant::now()),
            }
        };
        if let Begin::After(version) = &watching.begin {
            let (candidate, follower) = self.follow(route, version)?;
            return Ok(open(candidate, follower, None));
        }
        let (candidate, reader) = self.choose(route)?;
        if watching.begin == Begin::Now {
            return Ok(open(candidate, reader.follow_from_now(), None));
        }
        let wanted = route.wanted(candidate);
        let (selected, follower) = reader.select_and_follow(&wanted);
        let version = self.confirm(route, candidate, selected.version())?;
        let selected = pick(selected).await;
        Ok(open(candidate, follower, Some((selected, version))))
    }

    /// Follows the first informer whose event log begins at or before `version`.
    ///
    /// # Errors
    ///
    /// 410 if there is no such event log.
    fn follow<'r>(
        &self,
        route: &'r Route<'_>,
        version: &ResourceVersion,
    ) -> Result<(&'r Candidate<'r>, Follower), NotYet> {
        let mut forgotten = None;
        for candidate in &route.candidates {
            let Some(reader) = self.from.catalog.reader(candidate.key) else { continue };
            match reader.follow(version) {
                Ok(follower) => return Ok((candidate, follower)),
                Err(none) => forgotten = forgotten.or(Some(none)),
            }
        }
        Err(forgotten.map_or_else(
            || route.cold(),
            |none| Failure::too_old(version, none.oldest.as_ref()).into(),
        ))
    }
}
