//! Where a read goes: the cells that may answer it now, and which of them is new enough.

use super::{
    RETRY_AFTER_SECONDS, Reads,
    cover::{Candidate, Coverage, MAY_FILTER, not_cached},
    fields::Fields,
    kind::Kind,
    list::remembers,
    retry::NotYet,
};
use kubewarm_api::model::{CellKey, Consistency, ResourceVersion};
use kubewarm_cache::{
    informer::Proof,
    store::{Reader, Wanted},
};
use kubewarm_wire::{At, Failure, Objects};
use std::time::Duration;
use tokio::time::Instant;

/// The cells that may answer a request now, and how new they have to be.
pub(super) struct Route<'a> {
    /// The request.
    pub(super) asked: &'a Objects,
    /// What its kind is.
    pub(super) kind: Kind,
    /// What its field selector means.
    pub(super) fields: Fields,
    /// The cells that are warm, the best first; never empty.
    pub(super) candidates: Vec<Candidate<'a>>,
    /// The longest time without a proof that the strictest profile permits.
    pub(super) max_staleness: Duration,
    consistency: Consistency,
    cold_read_timeout: Duration,
    /// When the request came.
    began: Instant,
    /// The cell that was proved current for this request, and the proof.
    proved: Option<&'a (CellKey, Proof)>,
}

impl Reads {
    /// Finds the cells of `coverage` that may answer now.
    ///
    /// # Errors
    ///
    /// [`NotYet::Cold`] if none is warm; 400, 406 and 421 as [`Coverage`] and [`Fields`] return them.
    pub(super) async fn route<'a>(
        &self,
        asked: &'a Objects,
        coverage: Coverage<'a>,
        (began, proved): (Instant, Option<&'a (CellKey, Proof)>),
    ) -> Result<Route<'a>, NotYet> {
        let cold_read_timeout = coverage.cold_read_timeout();
        let kind = self.kind(&asked.resource).await?;
        let kind = kind.ok_or_else(|| not_cached(asked, MAY_FILTER))?;
        let fields = Fields::of(asked, &kind, |name| coverage.index(name))?;
        let coverage = coverage.knowing(&kind, &fields)?;
        let (candidates, is_forbidden) =
            coverage.warm(|key| self.from.reports.glance(key), Instant::now());
        if candidates.is_empty() {
            return Err(NotYet::Cold { wait: cold_read_timeout, is_forbidden });
        }
        let (consistency, max_staleness) = (coverage.consistency(), coverage.max_staleness());
        Ok(Route {
            asked,
            kind,
            fields,
            candidates,
            max_staleness,
            consistency,
            cold_read_timeout,
            began,
            proved,
        })
    }

    /// The first candidate whose table is as new as the request wants, and the table.
    pub(super) fn choose<'r>(
        &self,
        route: &'r Route<'_>,
    ) -> Result<(&'r Candidate<'r>, Reader), NotYet> {
        let asked = route.asked;
        let mut readable: Vec<(&Candidate<'_>, Reader)> = Vec::new();
        for candidate in &route.candidates {
            readable.extend(self.from.catalog.reader(candidate.key).map(|it| (candidate, it)));
        }
        if readable.is_empty() {
            return Err(route.cold());
        }
        let first = |is_wanted: &dyn Fn(&Candidate<'_>, &Reader) -> bool| {
            readable.iter().position(|(candidate, reader)| is_wanted(candidate, reader))
        };
        let has_reached = |reader: &Reader, version: &ResourceVersion| {
            reader.version().is_some_and(|held| held >= *version)
        };
        // The table that answers, or else the version that one has to reach first.
        let (found, wanted) = match &asked.at {
            At::Any => (Some(0), None),
            At::Latest | At::Continue { version: None, .. } => {
                let is_new = |it: &Candidate<'_>, reader: &Reader| {
                    route.is_new_enough(it, reader.version().as_ref())
                };
                let Some(new_enough) = first(&is_new) else {
                    return Err(route.unproven(&route.candidates));
                };
                // What was written elsewhere does not reach a cell with selectors.
                let are_parts = readable.iter().all(|(it, _)| it.is_part());
                match self.floor(route).filter(|_| !are_parts) {
                    None => (Some(new_enough), None),
                    Some(floor) => {
                        let found =
                            first(&|it, reader| is_new(it, reader) && has_reached(reader, &floor));
                        (found, Some(floor))
                    }
                }
            }
            At::NotOlderThan(version) => {
                (first(&|_, reader| has_reached(reader, version)), Some(version.clone()))
            }
            At::Exact(version) => {
                let found = first(&|it, reader| remembers(it, reader, version));
                let will_come = |it: &Candidate<'_>, reader: &Reader| {
                    let is_older = reader.version().is_some_and(|held| held.is_older_than(version));
                    is_older && it.report.is_kept_current()
                };
                if found.is_none() && first(&will_come).is_none() {
                    return Err(Failure::expired().into());
                }
                (found, Some(version.clone()))
            }
            // Any table that remembers the version gives the same page.
            At::Continue { version: Some(version), .. } => {
                (first(&|it, reader| remembers(it, reader, version)).or(Some(0)), None)
            }
        };
        match (found, wanted) {
            (Some(at), _) => Ok(readable.swap_remove(at)),
            (None, Some(wanted)) => {
                let newest = readable.iter().filter_map(|(_, reader)| reader.version());
                let newest = newest.reduce(|a, b| if a.is_older_than(&b) { b } else { a });
                Err(NotYet::Behind { wanted, newest })
            }
            (None, None) => Err(route.cold()),
        }
    }

    /// The version of what was read, if it may be the answer.
    ///
    /// # Errors
    ///
    /// [`NotYet`] if the cell lost access or was listed again meanwhile, or the version is not as new as wanted.
    pub(super) fn confirm(
        &self,
        route: &Route<'_>,
        candidate: &Candidate<'_>,
        version: Option<&ResourceVersion>,
    ) -> Result<ResourceVersion, NotYet> {
        if !self.is_undisturbed(candidate) {
            return Err(NotYet::Disturbed);
        }
        if wants_latest(&route.asked.at) && !route.is_new_enough(candidate, version) {
            return Err(route.unproven(&route.candidates));
        }
        version.cloned().ok_or_else(|| route.cold())
    }

    /// Whether the cell stands as it did when it was chosen.
    pub(super) fn is_undisturbed(&self, candidate: &Candidate<'_>) -> bool {
        self.from.reports.glance(candidate.key).is_some_and(|report| {
            let chosen = &candidate.report;
            candidate.may_be_read(&report)
                && report.synced_at == chosen.synced_at
                && report.lost == chosen.lost
        })
    }

    /// The version that was written through this process and must be in the answer.
    fn floor(&self, route: &Route<'_>) -> Option<ResourceVersion> {
        match route.consistency {
            Consistency::Eventual => None,
            Consistency::Bounded | Consistency::Strict => self.floors.of(route.asked),
        }
    }
}

impl Route<'_> {
    /// What the table of a candidate is asked.
    pub(super) fn wanted(&self, candidate: &Candidate<'_>) -> Wanted {
        self.fields.wanted(self.asked, candidate.key)
    }

    /// Whether the candidate was proved current as lately as its profiles want.
    pub(super) fn is_current(&self, candidate: &Candidate<'_>) -> bool {
        candidate.age.is_some_and(|age| age <= self.max_staleness)
    }

    /// Whether a table of this version answers a request for the latest.
    fn is_new_enough(&self, candidate: &Candidate<'_>, version: Option<&ResourceVersion>) -> bool {
        match self.consistency {
            Consistency::Eventual => true,
            Consistency::Bounded => self.is_current(candidate),
            Consistency::Strict => self
                .proved
                .is_some_and(|(key, proof)| key == candidate.key && proof.covers(version)),
        }
    }

    /// No candidate can be read.
    pub(super) fn cold(&self) -> NotYet {
        NotYet::Cold { wait: self.cold_read_timeout, is_forbidden: false }
    }

    /// What has to be proved so that one of `candidates` can answer; 504 where nothing keeps any of them current.
    pub(super) fn unproven(&self, candidates: &[Candidate<'_>]) -> NotYet {
        let Some(candidate) = candidates.iter().find(|it| it.report.is_kept_current()) else {
            let age = candidates.first().and_then(|it| it.age);
            return self.stale(age, "nothing keeps it current").into();
        };
        let now = Instant::now();
        let since = match (self.consistency, self.proved) {
            (Consistency::Strict, None) => self.began,
            // The last proof has been overtaken.
            (Consistency::Strict, Some(_)) => now,
            (Consistency::Eventual | Consistency::Bounded, _) => {
                now.checked_sub(self.max_staleness).unwrap_or(now)
            }
        };
        NotYet::Unproven {
            cell: Box::new(candidate.key.clone()),
            payer: candidate.payer(),
            since,
            failure: self.stale(candidate.age, "asking the API server has not helped"),
        }
    }

    /// The cache, of this age, may be older than the profile permits; `why` it still is.
    fn stale(&self, age: Option<Duration>, why: &str) -> Failure {
        let known = match age {
            Some(age) => format!("last known to be current {} s ago", age.as_secs()),
            None => "not known to be current".to_owned(),
        };
        let wanted = match self.consistency {
            Consistency::Strict => "its profile wants that proved for each read".to_owned(),
            Consistency::Eventual | Consistency::Bounded => {
                format!("which is more than the {} s of its profile", self.max_staleness.as_secs())
            }
        };
        let mut message = format!("the cache is {known}, {wanted}, and {why}");
        // `Eventual` refuses nothing but to say that an object does not exist, whatever version is asked for.
        if wants_latest(&self.asked.at) && self.consistency != Consistency::Eventual {
            message.push_str("; with resourceVersion=0 it answers from what it has");
        }
        Failure::stale(self.asked.resource.group_resource(), &message, RETRY_AFTER_SECONDS)
    }
}

/// Whether a request wants what is newest, and not a version or any.
const fn wants_latest(at: &At) -> bool {
    matches!(at, At::Latest | At::Continue { version: None, .. })
}
