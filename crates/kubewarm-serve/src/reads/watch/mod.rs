//! Watches: which cell one is answered from, where it begins, and what is sent until it ends.

mod feed;
mod lines;
mod opened;
mod telling;
mod timing;

pub use self::feed::{Feed, Piece, Progress};

pub(super) use self::opened::Shared;

use self::{telling::Start, timing::Timing};
use super::{
    Attempt, Reads, Reply, Source,
    choose::{Needs, wants_latest},
    cover::{Candidate, Coverage},
    fields::Fields,
    kinds::Kind,
    lease::Lease,
    list::pick,
};
use kubewarm_api::model::{CellKey, Index, OnAccessLost, ProfileRef, ResourceVersion};
use kubewarm_cache::store::{Follower, Wanted};
use kubewarm_wire::{At, Begin, Failure, Objects, Watching};
use std::sync::Arc;
use tokio::time::Instant;

/// Where a watch begins, and from what it is answered.
pub(super) struct Beginning {
    kind: Arc<Kind>,
    source: Source,
    lease: Lease,
    wanted: Wanted,
    /// The declared indexes that it selects by.
    indexes: Vec<Index>,
    follower: Follower,
    start: Start,
}

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
        let began = Instant::now();
        let mut waited = None;
        let reply = self.tried(asked, profile, (began, &mut waited)).await;
        self.count_wait(waited, (reply.is_ok(), began.elapsed()));
        let is_told = |failure: &Failure| match failure.code() {
            410 => true,
            504 => matches!(asked.at, At::NotOlderThan(_)),
            _ => false,
        };
        match reply {
            Ok(Reply::Watch(beginning)) => {
                let timing = Timing::new(watching, Instant::now());
                let of = (asked.clone(), profile.cloned());
                Ok(Feed::new(Arc::clone(self), of, *beginning, timing))
            }
            Ok(Reply::Answer(_)) => Err(Failure::internal("a list came instead of a watch")),
            Err(failure) if is_told(&failure) => Ok(Feed::failed(asked, failure)),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn begin(
        &self,
        (asked, watching): (&Objects, &Watching),
        (kind, fields): (&Arc<Kind>, Fields),
        candidates: &[Candidate<'_>],
        needs: Needs<'_>,
    ) -> Result<Attempt, Failure> {
        let done = |candidate: &Candidate<'_>, (follower, start)| {
            Attempt::Done(Reply::Watch(Box::new(Beginning {
                kind: Arc::clone(kind),
                source: Source::of(candidate, needs.bound),
                lease: Lease::of(candidate),
                wanted: fields.wanted(asked, candidate.key),
                indexes: fields.indexes.clone(),
                follower,
                start,
            })))
        };
        if let Begin::After(version) = &watching.begin {
            let Some((candidate, follower)) = self.followed(version, candidates)? else {
                return Ok(Attempt::Cold);
            };
            return Ok(done(candidate, (follower, Start::default())));
        }
        let (candidate, reader) = match self.chosen(asked, candidates, needs)? {
            Ok(chosen) => chosen,
            Err(attempt) => return Ok(attempt),
        };
        if watching.begin == Begin::Now {
            return Ok(done(candidate, (reader.follow_from_now(), Start::default())));
        }
        let wanted = fields.wanted(asked, candidate.key);
        let (selected, follower) = reader.select_and_follow(&wanted);
        if !self.is_undisturbed(candidate) {
            return Ok(Attempt::Disturbed);
        }
        let Some(version) = selected.version().cloned() else { return Ok(Attempt::Cold) };
        if wants_latest(&asked.at) && !needs.are_met_by(candidate, Some(&version)) {
            return needs.unproven(asked, candidates);
        }
        let initial = Some(pick(selected).await);
        let start = Start { initial, version: Some(version) };
        Ok(done(candidate, (follower, start)))
    }

    /// The first cell that remembers what happened after that version; `None` if none can be read.
    ///
    /// # Errors
    ///
    /// 410 where none of them does.
    fn followed<'a>(
        &self,
        version: &ResourceVersion,
        candidates: &'a [Candidate<'a>],
    ) -> Result<Option<(&'a Candidate<'a>, Follower)>, Failure> {
        let mut forgotten = None;
        for candidate in candidates {
            let Some(reader) = self.from.catalog.reader(candidate.key) else { continue };
            match reader.follow(version) {
                Ok(follower) => return Ok(Some((candidate, follower))),
                Err(none) => forgotten = forgotten.or(Some(none)),
            }
        }
        match forgotten {
            None => Ok(None),
            Some(none) => Err(Failure::too_old(version, none.oldest.as_ref())),
        }
    }

    /// What the profiles say that let the cell answer what is asked by these indexes; `None`: none does any
    /// more, or an index has become another one.
    fn policies(
        &self,
        (asked, profile): (&Objects, Option<&ProfileRef>),
        (key, indexes): (&CellKey, &[Index]),
    ) -> Option<Vec<OnAccessLost>> {
        let offers = self.offers().ok()?;
        let coverage = Coverage::of(&offers, asked, profile, &self.from.home).ok()?;
        let is_same = |index: &Index| {
            coverage.index(&index.name).is_ok_and(|declared| declared == Some(&index.by))
        };
        if !indexes.iter().all(is_same) || !coverage.declares(key, indexes) {
            return None;
        }
        let report = |it: &CellKey| (it == key).then(|| self.from.reports.glance(it)).flatten();
        let candidates = coverage.warm(report, Instant::now());
        candidates.first().map(Candidate::policies)
    }
}
