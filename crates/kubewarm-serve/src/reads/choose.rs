//! Which of the cells that may answer is new enough to, and what has to be proved before one is.

use super::{Attempt, RETRY_AFTER_SECONDS, Reads, cover::Candidate, list::remembers};
use kubewarm_api::model::{CellKey, Consistency, ResourceVersion};
use kubewarm_cache::{informer::Proof, store::Reader};
use kubewarm_wire::{At, Failure, Objects};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// What is asked of an answer's age, and what has been proved for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs<'a> {
    /// The strictest of those that offer any of it.
    pub(super) consistency: Consistency,
    /// The same.
    pub(super) bound: Duration,
    /// When the request came.
    pub(super) began: Instant,
    /// What this request has waited for.
    pub(super) proved: Option<&'a Proved>,
}

/// A cell that was proved current for this very request.
#[derive(Debug)]
pub(super) struct Proved {
    pub(super) key: CellKey,
    pub(super) proof: Proof,
}

/// A cell that would answer if it were known to be current.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) key: CellKey,
    /// The namespace at whose expense it may be proved.
    pub(super) payer: Arc<str>,
    /// As of when it must be.
    pub(super) since: Instant,
    /// What is answered if it cannot be.
    pub(super) failure: Failure,
}

impl Needs<'_> {
    /// Whether a table that shows this version of this cell answers a request for the latest.
    pub(super) fn are_met_by(
        &self,
        candidate: &Candidate<'_>,
        version: Option<&ResourceVersion>,
    ) -> bool {
        match self.consistency {
            Consistency::Eventual => true,
            Consistency::Bounded => self.is_current(candidate),
            Consistency::Strict => {
                self.proved.is_some_and(|it| it.key == *candidate.key && it.proof.covers(version))
            }
        }
    }

    pub(super) fn is_current(&self, candidate: &Candidate<'_>) -> bool {
        candidate.age.is_some_and(|age| age <= self.bound)
    }

    /// As of when a proof must be.
    fn since(&self) -> Instant {
        match (self.consistency, self.proved) {
            (Consistency::Strict, None) => self.began,
            // The last one has been overtaken.
            (Consistency::Strict, Some(_)) => Instant::now(),
            (Consistency::Eventual | Consistency::Bounded, _) => {
                let now = Instant::now();
                now.checked_sub(self.bound).unwrap_or(now)
            }
        }
    }

    /// What is to be proved so that one of `candidates` may answer.
    ///
    /// # Errors
    ///
    /// 504 where nothing keeps any of them current.
    pub(super) fn unproven(
        &self,
        asked: &Objects,
        candidates: &[Candidate<'_>],
    ) -> Result<Attempt, Failure> {
        let Some(first) = candidates.first() else {
            return Err(Failure::internal("no candidate"));
        };
        let Some(candidate) = candidates.iter().find(|it| it.report.is_kept_current()) else {
            return Err(self.stale(asked, first, "nothing keeps it current"));
        };
        Ok(Attempt::Unproven(Box::new(Doubt {
            key: candidate.key.clone(),
            payer: candidate.payer(),
            since: self.since(),
            failure: self.stale(asked, candidate, "asking the API server has not helped"),
        })))
    }

    /// What is held may be older than the profile lets it be; `why` it still is.
    fn stale(&self, asked: &Objects, candidate: &Candidate<'_>, why: &str) -> Failure {
        let known = match candidate.age {
            Some(age) => format!("last known to be current {} s ago", age.as_secs()),
            None => "not known to be current".to_owned(),
        };
        let wanted = match self.consistency {
            Consistency::Strict => "its profile wants that proved for each read".to_owned(),
            Consistency::Eventual | Consistency::Bounded => {
                format!("which is more than the {} s of its profile", self.bound.as_secs())
            }
        };
        let mut message = format!("the cache is {known}, {wanted}, and {why}");
        // Of `Eventual` nothing is refused but that there is no such object, whatever version is asked for.
        if wants_latest(&asked.at) && self.consistency != Consistency::Eventual {
            message.push_str("; with resourceVersion=0 it answers from what it has");
        }
        Failure::stale(asked.resource.group_resource(), &message, RETRY_AFTER_SECONDS)
    }
}

impl Reads {
    /// The first of `candidates` that is as new as asked for, and its table.
    pub(super) fn chosen<'a>(
        &self,
        asked: &Objects,
        candidates: &'a [Candidate<'a>],
        needs: Needs<'_>,
    ) -> Result<Result<(&'a Candidate<'a>, Reader), Attempt>, Failure> {
        let readable = candidates.iter().filter_map(|candidate| {
            let reader = self.from.catalog.reader(candidate.key)?;
            Some((candidate, reader))
        });
        let mut readable: Vec<_> = readable.collect();
        if readable.is_empty() {
            return Ok(Err(Attempt::Cold));
        }
        let at =
            |wanted: &dyn Fn(&(&Candidate<'_>, Reader)) -> bool| readable.iter().position(wanted);
        // Which of them, or what they have to come to.
        let found = match &asked.at {
            At::Any => Ok(0),
            At::Latest | At::Continue { version: None, .. } => {
                let met = at(&|(it, reader)| needs.are_met_by(it, reader.version().as_ref()));
                let Some(met) = met else { return needs.unproven(asked, candidates).map(Err) };
                match self.floor(asked, needs) {
                    None => Ok(met),
                    Some(floor) => {
                        let are_parts = readable.iter().all(|(it, _)| it.is_part());
                        at(&|(it, reader)| {
                            let version = reader.version();
                            let has_come = version.as_ref().is_some_and(|held| *held >= floor);
                            needs.are_met_by(it, version.as_ref()) && (are_parts || has_come)
                        })
                        .ok_or(floor)
                    }
                }
            }
            At::NotOlderThan(version) => {
                let held = at(&|(_, reader)| reader.version().is_some_and(|held| held >= *version));
                held.ok_or_else(|| version.clone())
            }
            At::Exact(version) => {
                let comes = |(it, reader): &(&Candidate<'_>, Reader)| {
                    let is_older = reader.version().is_some_and(|it| it.is_older_than(version));
                    is_older && it.report.is_kept_current()
                };
                match at(&|(it, reader)| remembers(it, reader, version)) {
                    Some(found) => Ok(found),
                    None if readable.iter().any(comes) => Err(version.clone()),
                    None => return Err(Failure::expired()),
                }
            }
            // Any table that remembers the version gives the same page.
            At::Continue { version: Some(version), .. } => {
                Ok(at(&|(it, reader)| remembers(it, reader, version)).unwrap_or(0))
            }
        };
        match found {
            Ok(position) => Ok(Ok(readable.swap_remove(position))),
            Err(wanted) => {
                let newest = readable.iter().filter_map(|(_, reader)| reader.version());
                let newest = newest.reduce(|a, b| if a.is_older_than(&b) { b } else { a });
                Ok(Err(Attempt::Behind { wanted, newest }))
            }
        }
    }

    /// What was written through this process and must be in the answer.
    fn floor(&self, asked: &Objects, needs: Needs<'_>) -> Option<ResourceVersion> {
        match needs.consistency {
            Consistency::Eventual => None,
            Consistency::Bounded | Consistency::Strict => self.floors.of(asked),
        }
    }
}

/// Whether a request asks for what is newest, and not for a version or for any.
pub(super) const fn wants_latest(at: &At) -> bool {
    matches!(at, At::Latest | At::Continue { version: None, .. })
}
