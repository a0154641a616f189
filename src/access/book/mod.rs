//! Every cell's evidence, every place's rules, and which check is due when. Pure.

mod place;
#[cfg(test)]
mod tests;

use self::place::{Place, is_permanent};
use super::{
    evidence::{Evidence, Word, jittered},
    excess::Needed,
    limits::{Candidate, CheckLimits, Class},
    rules::place,
    standing::CellAccess,
};
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Fault, Identity, NamespaceCheck, Verb};
use kubewarm_cache::informer::{OwnAccess, Trial};
use kubewarm_client::{Buckets, Completeness, KeyedPermit, ReviewedRules};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Between two reviews of a place, or of a cell where those of its place are incomplete.
const REVIEW: Duration = Duration::from_secs(20);
/// A check that is due, or a cell that should have been heard of, for longer is late.
const LATE: Duration = Duration::from_secs(10);

/// Whose rules, and where; `None`: across the cluster.
pub(super) type Spot = (Identity, Option<Arc<str>>);

/// A cell to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub key: CellKey,
    /// Whether a refusal may mean that its namespace is gone.
    pub namespace_check: NamespaceCheck,
    /// The namespace of a profile that declares it, whose turn the requests take.
    pub payer: Arc<str>,
}

/// A check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Job {
    /// The real list and watch.
    Trial(CellKey, NamespaceCheck),
    /// The rules of a place.
    Rules(Spot),
    /// A review of one verb.
    Review(CellKey, Verb),
}

/// A check that may be due: looking for those that are must not copy the keys of all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ready<'a> {
    Trial(&'a CellKey, NamespaceCheck),
    Rules(&'a Spot),
    Review(&'a CellKey, Verb),
}

impl<'a> From<&'a Job> for Ready<'a> {
    fn from(job: &'a Job) -> Self {
        match job {
            Job::Trial(key, check) => Self::Trial(key, *check),
            Job::Rules(spot) => Self::Rules(spot),
            Job::Review(key, verb) => Self::Review(key, *verb),
        }
    }
}

impl From<Ready<'_>> for Job {
    fn from(ready: Ready<'_>) -> Self {
        match ready {
            Ready::Trial(key, check) => Self::Trial(key.clone(), check),
            Ready::Rules(spot) => Self::Rules(spot.clone()),
            Ready::Review(key, verb) => Self::Review(key.clone(), verb),
        }
    }
}

/// What a check came to.
#[derive(Debug)]
pub(super) enum Found {
    Trial(Trial),
    Rules(Result<ReviewedRules, Fault>),
    Review(Result<bool, Fault>),
}

/// Everything known. Bounded by the cells that are wanted.
#[derive(Debug)]
pub(super) struct Book {
    cells: BTreeMap<CellKey, Cell>,
    spots: BTreeMap<Spot, Place>,
    /// Cells that count for what is needed, and are not checked.
    unchecked: Vec<CellKey>,
    needed: BTreeMap<Spot, Needed>,
    /// With the namespace that each is charged to.
    under_way: BTreeMap<Job, (Arc<str>, KeyedPermit)>,
    limits: CheckLimits,
    /// A random number in `0.0..1.0`.
    spread: fn() -> f64,
}

#[derive(Debug)]
struct Cell {
    payer: Arc<str>,
    check: NamespaceCheck,
    spot: Spot,
    evidence: Evidence,
    /// The next review of its own, and of which verb; `None` while the rules of its place will do.
    review: Option<Instant>,
    verb: Verb,
}

impl Book {
    /// One whose checks draw on these buckets.
    pub(super) fn new(buckets: Buckets, spread: fn() -> f64) -> Self {
        Self {
            cells: BTreeMap::new(),
            spots: BTreeMap::new(),
            unchecked: Vec::new(),
            needed: BTreeMap::new(),
            under_way: BTreeMap::new(),
            limits: CheckLimits::new(buckets),
            spread,
        }
    }

    /// Checks these cells from now on, and no others. `unchecked` are needed, too.
    pub(super) fn want(&mut self, wanted: Vec<Wanted>, unchecked: Vec<CellKey>, now: Instant) {
        let mut old = std::mem::take(&mut self.cells);
        let mut is_changed = unchecked != self.unchecked;
        self.unchecked = unchecked;
        for Wanted { key, namespace_check, payer } in wanted {
            let known = old.remove(&key);
            is_changed |= known.is_none();
            let mut cell = known.unwrap_or_else(|| Cell {
                payer: Arc::clone(&payer),
                check: namespace_check,
                spot: (key.identity.clone(), place(&key)),
                evidence: Evidence::new(now),
                review: None,
                verb: Verb::List,
            });
            cell.payer = payer;
            cell.check = namespace_check;
            self.cells.insert(key, cell);
        }
        is_changed |= !old.is_empty();
        if is_changed {
            self.survey(now);
        }
    }

    /// The checks that begin now; each must be answered by [`Book::found`].
    ///
    /// # Cost
    ///
    /// Looks at every cell.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Job> {
        let mut due = Vec::new();
        let under_way: BTreeSet<_> = self.under_way.keys().map(Ready::from).collect();
        let mut add = |payer: &Arc<str>, class, urgency, cost, what| {
            if !under_way.contains(&what) {
                due.push(Candidate { payer: Arc::clone(payer), class, urgency, cost, what });
            }
        };
        for (key, cell) in &self.cells {
            if let Some(next) = cell.evidence.due.filter(|next| next.at <= now) {
                // Reviews go before what can wait, and after what cannot; but nothing waits for ever.
                let waits = match (next.urgent, cell.evidence.is_verifying()) {
                    (true, _) => Duration::ZERO,
                    (false, true) => LATE,
                    (false, false) => LATE * 3,
                };
                let class = if next.urgent { Class::Held } else { cell.evidence.class() };
                add(&cell.payer, class, next.at + waits, 2, Ready::Trial(key, cell.check));
            }
            if let Some(at) = cell.review.filter(|at| *at <= now) {
                add(
                    &cell.payer,
                    cell.evidence.class(),
                    at + LATE,
                    1,
                    Ready::Review(key, cell.verb),
                );
            }
        }
        for (spot, place) in &self.spots {
            if let Some(at) = place.due.filter(|at| *at <= now) {
                add(&place.payer, place.class, at + LATE / 2, 1, Ready::Rules(spot));
            }
        }
        let admitted = self.limits.admit(due, now).into_iter();
        let admitted: Vec<_> = admitted
            .map(|(found, permit)| (Job::from(found.what), (found.payer, permit)))
            .collect();
        let mut jobs = Vec::with_capacity(admitted.len());
        for (job, charged) in admitted {
            match &job {
                Job::Trial(key, _) => {
                    if let Some(cell) = self.cells.get_mut(key) {
                        cell.evidence.due = None;
                    }
                }
                Job::Rules(spot) => {
                    if let Some(place) = self.spots.get_mut(spot) {
                        place.due = None;
                    }
                }
                Job::Review(key, _) => {
                    if let Some(cell) = self.cells.get_mut(key) {
                        cell.review = None;
                    }
                }
            }
            self.under_way.insert(job.clone(), charged);
            jobs.push(job);
        }
        jobs
    }

    /// When [`Book::due`] may have something to begin; `None` if nothing is planned.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let of_cell = |cell: &Cell| {
            let trial = cell.evidence.due.map(|due| due.at);
            [trial, cell.review].into_iter().flatten().min()
        };
        let cells = self.cells.values().filter_map(of_cell);
        let earliest = cells.chain(self.spots.values().filter_map(|place| place.due)).min()?;
        Some(earliest.max(now))
    }

    /// Takes the result of a check in, and says what to tell of which cell.
    pub(super) fn found(
        &mut self,
        job: Job,
        sent: Instant,
        found: Found,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<(CellKey, Word)> {
        if let Some((payer, _permit)) = self.under_way.remove(&job) {
            let extra = match &found {
                Found::Trial(trial) => trial.requests.saturating_sub(2),
                Found::Rules(_) | Found::Review(_) => 0,
            };
            self.limits.charge(&payer, extra, now);
        }
        let spread = (self.spread)();
        let mut told = Vec::new();
        match (job, found) {
            (Job::Trial(key, _), Found::Trial(trial)) => {
                if let Some(cell) = self.cells.get_mut(&key) {
                    let words = cell.evidence.tried(&trial, now, wall, spread);
                    told.extend(words.into_iter().map(|word| (key.clone(), word)));
                    if let Some(place) = self.spots.get_mut(&cell.spot) {
                        place.join(&cell.evidence);
                    }
                }
            }
            (Job::Review(key, verb), Found::Review(answer)) => {
                let Some(cell) = self.cells.get_mut(&key) else { return told };
                cell.review.get_or_insert_with(|| now + jittered(REVIEW, spread));
                // A cell has twice as many verbs as reviews: they take turns.
                cell.verb = if verb == Verb::List { Verb::Watch } else { Verb::List };
                match answer {
                    Ok(allowed) => {
                        let words = cell.evidence.reviewed(verb, allowed, sent, now, wall);
                        told.extend(words.into_iter().map(|word| (key.clone(), word)));
                    }
                    Err(fault) if !is_permanent(fault.reason()) => {
                        cell.evidence.doubt(&fault, sent, now);
                    }
                    // The server has no such reviews, or not for this: nothing is lacking.
                    Err(_never_answered) => cell.evidence.heard_of(sent),
                }
            }
            (Job::Rules(spot), Found::Rules(answer)) => {
                self.ruled(&spot, answer, (sent, now, wall), &mut told);
            }
            (Job::Trial(..) | Job::Review(..) | Job::Rules(_), _) => {}
        }
        told
    }

    /// Takes in what the informers' own requests say.
    pub(super) fn informed(
        &mut self,
        own: impl Fn(&CellKey) -> Option<OwnAccess>,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<(CellKey, Word)> {
        let mut told = Vec::new();
        for (key, cell) in &mut self.cells {
            if let Some(own) = own(key) {
                let words = cell.evidence.informed(&own, now, wall, (self.spread)());
                if !words.is_empty()
                    && let Some(place) = self.spots.get_mut(&cell.spot)
                {
                    place.join(&cell.evidence);
                }
                told.extend(words.into_iter().map(|word| (key.clone(), word)));
            }
        }
        told
    }

    /// Closes the gates of those that nobody has verified for `patience`.
    pub(super) fn lapse(&mut self, patience: Duration, now: Instant) -> Vec<(CellKey, Word)> {
        let lapse = |(key, cell): (&CellKey, &mut Cell)| {
            Some((key.clone(), cell.evidence.lapse(patience, now)?))
        };
        self.cells.iter_mut().filter_map(lapse).collect()
    }

    /// What is known of a cell.
    pub(super) fn access(&self, key: &CellKey, now: Instant) -> Option<CellAccess> {
        let cell = self.cells.get(key)?;
        let rules = self.spots.get(&cell.spot).and_then(Place::completeness);
        // Where each cell is reviewed by itself, the verbs take turns.
        let turns = if rules == Some(Completeness::Incomplete) { 2 } else { 1 };
        let period = jittered(REVIEW, 1.0) * turns + LATE;
        Some(cell.evidence.access(cell.evidence.punctuality(period, now)))
    }

    /// The refusals of those cells that pass `only`.
    pub(super) fn refusals(&self, only: impl Fn(&CellKey) -> bool) -> Vec<(CellKey, Verb, Fault)> {
        let refusal = |(key, cell): (&CellKey, &Cell)| {
            let (verb, fault) = cell.evidence.refusal().filter(|_| only(key))?;
            Some((key.clone(), verb, fault))
        };
        self.cells.iter().filter_map(refusal).collect()
    }
}
