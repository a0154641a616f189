//! A list: what of a table is selected, of which moment, and how much of it is one page.

use super::{
    Answer, Attempt, Body, Kind, Pages, Reads, Reply,
    choose::{Needs, wants_latest},
    cover::Candidate,
    fields::Fields,
    frame::Frame,
    lease::Lease,
    snapshots::{self, Moment},
};
use kubewarm_api::model::{ObjectKey, Sensitivity};
use kubewarm_cache::store::{Chosen, Reader, Selected, Wanted};
use kubewarm_wire::{At, Continue, Failure, Objects};

impl Reads {
    /// Answers a list, or a page of one.
    pub(super) async fn list(
        &self,
        asked: &Objects,
        (kind, fields): (&Kind, &Fields),
        candidates: &[Candidate<'_>],
        needs: Needs<'_>,
    ) -> Result<Attempt, Failure> {
        let (candidate, reader) = match self.chosen(asked, candidates, needs)? {
            Ok(chosen) => chosen,
            Err(attempt) => return Ok(attempt),
        };
        let wanted = fields.wanted(asked, candidate.key);
        // A version that is no number does not fit into a token: then all is answered at once, as whoever
        // gets no token takes a list for whole.
        let is_number = reader.version().is_some_and(|version| version.as_u64().is_some());
        let limit = asked.limit.filter(|_| is_number);
        let limit = limit.map(|limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
        let after = match &asked.at {
            At::Continue { after, .. } => Some(after),
            At::Latest | At::Any | At::NotOlderThan(_) | At::Exact(_) => None,
        };
        let selected = self.selected(asked, candidate, &reader, (&wanted, after, limit))?;
        if !self.is_undisturbed(candidate) {
            return Ok(Attempt::Disturbed);
        }
        let Some(version) = selected.version().cloned() else { return Ok(Attempt::Cold) };
        if wants_latest(&asked.at) && !needs.are_met_by(candidate, Some(&version)) {
            return needs.unproven(asked, candidates);
        }
        let chosen = pick(&selected, &wanted, (after, limit)).await;
        let is_full = limit.is_some_and(|limit| chosen.objects() >= limit);
        let goes_on = is_full && selected.has_more(&chosen);
        let next = chosen.last_key().filter(|_| goes_on).and_then(|last| {
            let (after, namespace) = (last.clone(), asked.namespace.clone());
            Continue { version: Some(version.clone()), after, namespace }.encode()
        });
        let is_whole = asked.labels.is_empty() && asked.fields.is_empty();
        let behind = selected.behind(after).saturating_sub(chosen.objects()) as u64;
        let remaining = next.as_ref().filter(|_| is_whole).map(|_| behind);
        let frame = Frame::new(kind, asked.form, (version, next, remaining));
        let (lease, key) = (Lease::of(candidate), candidate.key.clone());
        let reports = self.from.reports.clone();
        let may_go_on = Box::new(move || lease.holds(reports.glance(&key).as_ref()));
        let pages = Box::new(Pages::new(frame, chosen, asked, may_go_on));
        let answer = Answer::new(Body::Pages(pages), candidate, needs.bound);
        Ok(Attempt::Done(Reply::Answer(Box::new(answer))))
    }

    /// What is selected for one page: now, or of the moment of the page before.
    fn selected(
        &self,
        asked: &Objects,
        candidate: &Candidate<'_>,
        reader: &Reader,
        (wanted, after, limit): (&Wanted, Option<&ObjectKey>, Option<usize>),
    ) -> Result<Selected, Failure> {
        let moment = Moment::of(candidate);
        if let At::Continue { version: Some(version), after } = &asked.at {
            let known = self.snapshots.get((&moment, version, wanted), Some(after), reader);
            if let Some(known) = known {
                return Ok(known);
            }
            let selected = reader.select(wanted, Some(after), limit);
            if selected.version() != Some(version) {
                let at_latest = Continue {
                    version: None,
                    after: after.clone(),
                    namespace: asked.namespace.clone(),
                };
                return Err(Failure::expired_continue(at_latest.encode()));
            }
            return Ok(selected);
        }
        if let At::Exact(version) = &asked.at
            && let Some(known) = self.snapshots.get((&moment, version, wanted), after, reader)
        {
            return Ok(known);
        }
        let selected = self.first_page(candidate, reader, (wanted, after, limit));
        match &asked.at {
            At::Exact(version) if selected.version() != Some(version) => Err(Failure::expired()),
            At::Latest | At::Any | At::NotOlderThan(_) | At::Exact(_) | At::Continue { .. } => {
                Ok(selected)
            }
        }
    }

    /// Who takes many at once will want the rest, of the same moment: then all of it is kept.
    fn first_page(
        &self,
        candidate: &Candidate<'_>,
        reader: &Reader,
        (wanted, after, limit): (&Wanted, Option<&ObjectKey>, Option<usize>),
    ) -> Selected {
        let is_secret = candidate.key.sensitivity() == Sensitivity::Secret;
        let goes_on = |limit: &usize| *limit >= snapshots::MIN_LIMIT && !is_secret;
        let Some(limit) = limit.filter(goes_on) else {
            return reader.select(wanted, after, limit);
        };
        let moment = Moment::of(candidate);
        let known = reader
            .version()
            .and_then(|version| self.snapshots.get((&moment, &version, wanted), after, reader));
        known.unwrap_or_else(|| {
            // All of it, and that it is bounded: so that it is known where it ends.
            let all = reader.select(wanted, after, Some(usize::MAX));
            // Of fewer there is no next page.
            if all.objects() >= limit {
                self.snapshots.put(moment, wanted, (&all, after));
            }
            all
        })
    }
}

/// Those of `selected` that meet the tests of `wanted`, up to `limit` behind `after`; in turns with others, where
/// bodies are looked into.
pub(super) async fn pick(
    selected: &Selected,
    wanted: &Wanted,
    (after, limit): (Option<&ObjectKey>, Option<usize>),
) -> Chosen {
    let mut choosing = selected.choose(wanted, after, limit);
    while choosing.step() {
        if !wanted.tests.is_empty() {
            // Others are answered by this thread, too.
            tokio::task::yield_now().await;
        }
    }
    choosing.chosen()
}
