//! Which cells answer a read, and what they answer.
//!
//! Whoever asks has been allowed to before anything here is asked. Nothing is fetched: what no profile
//! keeps warm is refused in a way that no client takes for "deleted" or for "empty".

mod allowed;
mod answer;
mod choose;
mod cover;
mod fields;
mod floors;
mod frame;
mod kinds;
mod lease;
mod list;
mod offers;
#[cfg(test)]
mod sample;
mod watch;

pub use self::{
    answer::{Answer, Body, Cut, PART_BYTES, PIECE_BYTES, Pages, Source},
    kinds::{Kind, LookUp, Origin},
    offers::{Offering, Offers},
    watch::{Feed, Piece, Progress},
};

use self::{
    choose::{Doubt, Needs, Proved, wants_latest},
    cover::{Candidate, Coverage},
    fields::Fields,
    floors::Floors,
    watch::Beginning,
};
use crate::metrics::ReadMetrics;
use kubewarm_api::model::{
    CellKey, Fault, ObjectKey, ProfileRef, ResourceInfo, ResourceVersion, WaitFor, WaitOutcome,
};
use kubewarm_cache::{
    informer::{Changes, InformerMetrics, Proofs, Reports},
    store::{Catalog, Object},
};
use kubewarm_wire::{At, Failure, Objects, Written};
use std::{fmt, slice, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long a read waits for a version that has not come yet: as long as the API server does.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a proof that its cell is current.
const PROOF_WAIT: Duration = Duration::from_secs(3);
/// How often it is looked whether it has come. Events come at any moment; nobody is told of each.
const VERSION_POLL: Duration = Duration::from_millis(20);
/// When to try again what is not warm, or not current: a first list, or a probe, takes about as long.
const RETRY_AFTER_SECONDS: u64 = 2;
/// How often changes that watches share are dropped.
const SHARED_PERIOD: Duration = Duration::from_secs(15);
/// How often a read begins anew because its cell lost access, or was listed anew, under its hands.
const MAX_TRIES: usize = 4;

/// What reads are answered from.
pub struct Surroundings {
    /// The tables.
    pub catalog: Catalog,
    /// How the cells stand.
    pub reports: Reports,
    /// Wakes those who wait for one.
    pub changes: Changes,
    /// Proves them current where that is not known.
    pub proofs: Proofs,
    /// Counts how old the tables are that answer, by kind.
    pub ages: Arc<InformerMetrics>,
    /// Counts how long reads wait.
    pub metrics: ReadMetrics,
    /// What profiles offer; `None` before they have been listed. Asked at every read.
    pub offers: Box<dyn Fn() -> Option<Arc<Offers>> + Send + Sync>,
    /// What a kind is.
    pub look_up: LookUp,
    /// The operator's namespace, whose profiles answer for every namespace.
    pub home: Arc<str>,
}

/// Answers reads.
pub struct Reads {
    from: Surroundings,
    floors: Floors,
    /// Changes that watches look at.
    shared: watch::Shared,
}

/// What becomes of one try.
enum Attempt {
    Done(Reply),
    /// None of the cells that could answer is warm.
    Cold,
    /// None of them has come to a version.
    Behind {
        /// Which one.
        wanted: ResourceVersion,
        /// The newest that there is.
        newest: Option<ResourceVersion>,
    },
    /// None of them is known to be as new as asked for.
    Unproven(Box<Doubt>),
    /// What was read may not be answered, because of what happened meanwhile.
    Disturbed,
}

/// What a read comes to.
enum Reply {
    /// Objects.
    Answer(Box<Answer>),
    /// What a watch begins with.
    Watch(Box<Beginning>),
}

impl Reads {
    /// Answers from these.
    #[must_use]
    pub fn new(from: Surroundings) -> Self {
        Self { from, floors: Floors::new(), shared: watch::Shared::default() }
    }

    /// Something was written through this process, and `version` is in the answer to that: whoever reads
    /// there and says nothing of versions waits for it, for at most 3 s and within the next minute.
    pub fn wrote(&self, written: Written, version: &ResourceVersion) {
        self.floors.raise(written, version, Instant::now());
    }

    /// Answers a get or a list; of `profile`'s cells alone, if one is named.
    ///
    /// # Errors
    ///
    /// What the API server would say, and what it has no words for: 421 for what nobody keeps warm, 429
    /// for what is not warm yet, 504 for what is not known to be current.
    ///
    /// # Cost
    ///
    /// Waits for a cell to warm as long as its profiles say, for a version up to 3 s, and for a proof that the
    /// cell is current up to 3 s, which it shares with others.
    pub async fn answer(
        &self,
        asked: &Objects,
        profile: Option<&ProfileRef>,
    ) -> Result<Answer, Failure> {
        let began = Instant::now();
        let mut waited = None;
        let answered = self.tried(asked, profile, (began, &mut waited)).await;
        let took = began.elapsed();
        self.count_wait(waited, (answered.is_ok(), took));
        let Reply::Answer(answer) = answered? else {
            return Err(Failure::internal("a watch was asked for as if it were a list"));
        };
        self.from.reports.read_took(&answer.source.cell, took);
        if let Some(age) = answer.source.age {
            self.from.ages.of(&asked.resource).read(age);
        }
        Ok(Answer { waited: waited.is_some(), ..*answer })
    }

    fn count_wait(&self, waited: Option<WaitFor>, (is_met, took): (bool, Duration)) {
        let Some(reason) = waited else { return };
        let outcome = if is_met { WaitOutcome::Met } else { WaitOutcome::Refused };
        self.from.metrics.waited(reason, outcome, took);
    }

    /// Tries until there is an answer, or nothing left to wait for. Notes what was waited for last.
    async fn tried(
        &self,
        asked: &Objects,
        profile: Option<&ProfileRef>,
        (began, waited): (Instant, &mut Option<WaitFor>),
    ) -> Result<Reply, Failure> {
        let mut changes = self.from.changes.subscribe();
        let of = asked.resource.group_resource();
        let mut disturbed = 0;
        let mut proved: Option<Proved> = None;
        loop {
            changes.mark_unchanged();
            let offers = self.offers()?;
            let coverage = Coverage::of(&offers, asked, profile, &self.from.home)?;
            let cold_wait = coverage.cold_wait();
            match self.attempt(asked, coverage, (began, proved.as_ref())).await? {
                Attempt::Done(reply) => return Ok(reply),
                Attempt::Cold => {
                    let until = began + cold_wait;
                    *waited = Some(WaitFor::Warmth);
                    let is_over = timeout_at(until, changes.changed()).await.is_err();
                    // Somewhere something may change all the time.
                    if is_over || until <= Instant::now() {
                        return Err(Failure::not_warm(of, RETRY_AFTER_SECONDS));
                    }
                }
                Attempt::Behind { wanted, newest } => {
                    if began.elapsed() >= VERSION_WAIT {
                        return Err(Failure::too_large_version(&wanted, newest.as_ref()));
                    }
                    *waited = Some(WaitFor::Version);
                    sleep(VERSION_POLL).await;
                }
                Attempt::Unproven(doubt) => {
                    *waited = Some(WaitFor::Proof);
                    let Doubt { key, payer, since, failure } = *doubt;
                    let proving = self.from.proofs.prove(&key, &payer, since);
                    proved = match timeout_at(began + PROOF_WAIT, proving).await {
                        Ok(Ok(proof)) => Some(Proved { key, proof }),
                        Ok(Err(unproven)) => {
                            tracing::debug!(cell = %key, %unproven, "not proved current");
                            return Err(failure);
                        }
                        Err(_elapsed) => return Err(failure),
                    };
                }
                Attempt::Disturbed => {
                    disturbed += 1;
                    if disturbed >= MAX_TRIES {
                        return Err(Failure::not_warm(of, RETRY_AFTER_SECONDS));
                    }
                }
            }
        }
    }

    /// Every kind that reads may get something of, in the order of the API server's discovery: group, then
    /// version; of `profile` alone, if one is named.
    ///
    /// # Errors
    ///
    /// 503 while the profiles have not been listed, or the API server cannot be asked what a kind is.
    pub async fn kinds(&self, profile: Option<&ProfileRef>) -> Result<Vec<ResourceInfo>, Failure> {
        let offers = self.offers()?;
        let mut kinds = Vec::new();
        for resource in offers.resources(profile) {
            let kind =
                (self.from.look_up)(resource.clone()).await.map_err(|fault| unknown(&fault))?;
            kinds.extend(kind.map(|kind| kind.document.clone()));
        }
        Ok(kinds)
    }

    fn offers(&self) -> Result<Arc<Offers>, Failure> {
        let not_listed = || Failure::unavailable("the CacheProfiles have not been listed yet", 1);
        (self.from.offers)().ok_or_else(not_listed)
    }

    async fn attempt(
        &self,
        asked: &Objects,
        coverage: Coverage<'_>,
        (began, proved): (Instant, Option<&Proved>),
    ) -> Result<Attempt, Failure> {
        let of = asked.resource.group_resource();
        let kind =
            (self.from.look_up)(asked.resource.clone()).await.map_err(|fault| unknown(&fault))?;
        let Some(kind) = kind else {
            return Err(Failure::not_cached(
                of,
                asked.name.as_deref().unwrap_or_default(),
                cover::MAY_FILTER,
            ));
        };
        let fields = Fields::of(asked, &kind, |name| coverage.index(name))?;
        let coverage = coverage.knowing(&kind, &fields)?;
        let now = Instant::now();
        let standing = |key: &CellKey| self.from.reports.glance(key);
        let candidates = coverage.warm(standing, now);
        if candidates.is_empty() {
            return Ok(Attempt::Cold);
        }
        let needs = Needs {
            consistency: coverage.consistency(),
            bound: coverage.max_staleness(),
            began,
            proved,
        };
        if let Some(watching) = &asked.watch {
            return self.begin((asked, watching), (&kind, fields), &candidates, needs).await;
        }
        match &asked.name {
            Some(name) => self.get(asked, name, &kind, &candidates, needs),
            None => self.list(asked, (&kind, &fields), &candidates, needs).await,
        }
    }

    fn get(
        &self,
        asked: &Objects,
        name: &str,
        kind: &Kind,
        candidates: &[Candidate<'_>],
        needs: Needs<'_>,
    ) -> Result<Attempt, Failure> {
        let namespace = asked.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        let (candidate, reader) = match self.chosen(asked, candidates, needs)? {
            Ok(chosen) => chosen,
            Err(attempt) => return Ok(attempt),
        };
        let (found, version) = reader.get_at(&key);
        if wants_latest(&asked.at) && !needs.are_met_by(candidate, version.as_ref()) {
            return needs.unproven(asked, candidates);
        }
        if !self.is_undisturbed(candidate) {
            return Ok(Attempt::Disturbed);
        }
        let of = asked.resource.group_resource();
        let (candidate, object) = match found {
            Some(object) => (candidate, object),
            // "Deleted" is only said by what is known to be current, be it another one that could answer.
            None if needs.is_current(candidate) => return Err(Failure::not_found(of, name)),
            None => match self.known_by(needs, candidates, &key) {
                Some((_, None)) => return Err(Failure::not_found(of, name)),
                Some((other, Some(object))) if matches!(asked.at, At::Any | At::Latest) => {
                    (other, object)
                }
                // This one is asked again when it is proved.
                Some((_, Some(_))) | None => {
                    return needs.unproven(asked, slice::from_ref(candidate));
                }
            },
        };
        let body = frame::whole(kind, &object, asked.form);
        let answer = Answer::new(Body::Whole(body), candidate, needs.bound);
        Ok(Attempt::Done(Reply::Answer(Box::new(answer))))
    }

    /// What the first of `candidates` has under `key` that is known to be current and can be read; `None` if none is.
    fn known_by<'a>(
        &self,
        needs: Needs<'_>,
        candidates: &'a [Candidate<'a>],
        key: &ObjectKey,
    ) -> Option<(&'a Candidate<'a>, Option<Object>)> {
        candidates.iter().filter(|it| needs.is_current(it)).find_map(|candidate| {
            let found = self.from.catalog.reader(candidate.key)?.get(key);
            self.is_undisturbed(candidate).then_some((candidate, found))
        })
    }

    /// Whether the cell stands as it did when it was chosen: access was not lost, and nothing listed
    /// anew, between the question whether it may answer and its answer.
    fn is_undisturbed(&self, candidate: &Candidate<'_>) -> bool {
        self.from.reports.glance(candidate.key).is_some_and(|report| {
            let chosen = &candidate.report;
            candidate.may_be_read(&report)
                && report.synced_at == chosen.synced_at
                && report.lost == chosen.lost
        })
    }

    /// Lets go of what nobody asks for any more, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                sleep(SHARED_PERIOD).await;
                self.shared.clear();
            }
        })
        .await;
    }
}

/// Nobody knows what the kind is.
fn unknown(fault: &Fault) -> Failure {
    tracing::debug!(%fault, "a kind could not be looked up");
    Failure::unavailable("the API server cannot be asked what this kind is; try again", 1)
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("home", &self.home).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("home", &self.from.home).finish_non_exhaustive()
    }
}
