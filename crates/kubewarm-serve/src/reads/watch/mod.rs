//! Watches: which cell one is answered from, where it begins, and what is sent until it ends.

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
    /// Begins a watch; of `profile`'s cells alone, if one is named. What is asked of `watching` stands in
    /// `asked` too.
    ///
    /// # Errors
    ///
    /// As of [`Reads::answer`]; but that what happened is forgotten, or a version does not come, is said by
    /// the watch itself, as the API server does.
    ///
    /// # Cost
    ///
    /// Waits as [`Reads::answer`] does. What it begins with it holds packed, as a list does.
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

    /// The first cell that remembers what happened after that version.
    ///
    /// # Errors
    ///
    /// 410 where none of them does.
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
