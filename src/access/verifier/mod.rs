//! Checks, all the time, whether every declared cell may still be read, as its identity.

#[cfg(test)]
mod tests;

use super::{
    book::{Book, Found, Job, Wanted},
    evidence::Word,
    identities::Identities,
    reports::{AccessReports, Check, CheckOutcome},
    rules::attributes,
    standing::{CellAccess, Disagreement, Standing},
};
use futures::FutureExt as _;
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Fault, Reason};
use kubewarm_cache::informer::{Answer, Changes, Reports, Trial};
use kubewarm_client::{Buckets, Clients, is_allowed, rules_of};
use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Rules are asked for by namespace. No namespace can have this name, so what is allowed there is
/// what is granted across the cluster.
const NOWHERE: &str = ":cluster:";
/// Changes that come together are looked at together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Between two attempts to begin what has to wait for its turn.
const PAUSE: Duration = Duration::from_millis(25);
/// How often the declared cells are asked for, at the least.
const LOOK: Duration = Duration::from_secs(1);
/// The share of a core that looking may take: after a look comes a rest of 20 times its length.
const REST: u32 = 20;

/// What is declared, as far as verification is concerned.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// To be checked.
    pub wanted: Vec<Wanted>,
    /// Needed as well, so that it is no excess; not checked.
    pub unchecked: Vec<CellKey>,
}

/// Everything that verification reads, writes and asks.
pub struct Surroundings {
    /// What bounds the requests for one namespace, checks among others.
    pub buckets: Buckets,
    /// Clients that act as the cells' identities.
    pub clients: Arc<dyn Clients>,
    /// What is declared now; `None` while nobody knows, and where it is what it was when last asked.
    pub declared: Box<dyn FnMut() -> Option<Declared> + Send>,
    /// What the cells' informers say, and whom to tell.
    pub reports: Reports,
    /// When they say something new.
    pub changes: Changes,
    /// How long access may go unverified; [`super::PATIENCE`], which tests shorten.
    pub patience: Duration,
    /// Counts each check.
    pub count: Box<dyn Fn(Check, CheckOutcome) + Send>,
}

/// The task that verifies.
pub struct Verifier {
    around: Surroundings,
    reports: AccessReports,
    identities: Identities,
    jobs: JoinSet<(Job, Instant, Found)>,
    /// How long the last look took.
    cost: Duration,
}

impl Verifier {
    /// Nothing is known, and nothing is sent before [`Verifier::run`].
    #[must_use]
    pub fn new(around: Surroundings) -> Self {
        let book = Book::new(around.buckets.clone(), fastrand::f64);
        let reports = AccessReports::new(book);
        let identities = Identities::new(Arc::clone(&around.clients));
        Self { around, reports, identities, jobs: JoinSet::new(), cost: Duration::ZERO }
    }

    /// A view that outlives the verifier.
    #[must_use]
    pub fn reports(&self) -> AccessReports {
        self.reports.clone()
    }

    /// Runs until `stop`. What is under way then is aborted.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.around.changes.subscribe();
        let mut look_at = Instant::now();
        loop {
            let now = Instant::now();
            if look_at <= now {
                self.look();
                look_at = Instant::now() + (self.cost * REST).max(LOOK);
            }
            self.begin();
            let next = self.reports.book.read().next(now).unwrap_or(look_at);
            // Checks whose turn has not come are looked at again soon, not at once.
            let wake = next.max(now + PAUSE).min(look_at);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = self.jobs.join_next() => {
                    if let Ok((job, sent, found)) = ended {
                        self.take(job, sent, found);
                    }
                }
                Ok(()) = changes.changed() => {
                    look_at = look_at.min(Instant::now() + DEBOUNCE.max(self.cost * REST));
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Brings the book in line with what is declared, and with what the informers say.
    fn look(&mut self) {
        let began = Instant::now();
        let declared = (self.around.declared)();
        if let Some(Declared { wanted, .. }) = &declared {
            self.identities.want(wanted.iter().map(|cell| &cell.key.identity));
        }
        let mut book = self.reports.book.write();
        if let Some(Declared { wanted, unchecked }) = declared {
            book.want(wanted, unchecked, began);
        }
        let reports = &self.around.reports;
        let mut told = book.informed(|key| reports.own_access(key), began, Timestamp::now());
        told.extend(book.lapse(self.around.patience, began));
        // A cell that was made after its refusal has not been told. Once told, it is open no more: the
        // change that this makes is the last.
        let untold = book.refusals(|key| reports.is_open(key));
        drop(book);
        for (key, verb, fault) in untold {
            self.around.reports.lost(&key, verb, &fault);
        }
        if !told.is_empty() {
            self.tell(told);
        }
        self.cost = began.elapsed();
    }

    /// Begins whatever is due and fits into the bounds.
    fn begin(&mut self) {
        let jobs = self.reports.book.write().due(Instant::now());
        for job in jobs {
            let clients = Arc::clone(&self.around.clients);
            self.jobs.spawn(async move {
                let sent = Instant::now();
                let found = AssertUnwindSafe(carry_out(&job, &*clients)).catch_unwind().await;
                let found = found.unwrap_or_else(|_panic| {
                    let fault = Fault::new(Reason::Internal, "a check panicked; see the log");
                    failed(&job, fault)
                });
                (job, sent, found)
            });
        }
    }

    /// Takes a result in, and tells what follows.
    fn take(&mut self, job: Job, sent: Instant, found: Found) {
        let (check, outcome) = counted(&found);
        (self.around.count)(check, outcome);
        let cell = match &job {
            Job::Trial(key, _) | Job::Review(key, _) => Some(key.clone()),
            Job::Rules(_) => None,
        };
        let access = |cell: &Option<CellKey>| self.reports.get(cell.as_ref()?);
        let before = access(&cell);
        let words = {
            let mut book = self.reports.book.write();
            book.found(job, sent, found, Instant::now(), Timestamp::now())
        };
        if let (Some(key), Some(before), Some(after)) = (&cell, before, access(&cell)) {
            log(key, &before, &after);
        }
        self.tell(words);
    }

    /// Tells what follows from what was learned, and everybody that something was.
    fn tell(&self, words: Vec<(CellKey, Word)>) {
        for (key, word) in words {
            match word {
                Word::Lost(verb, fault) => self.around.reports.lost(&key, verb, &fault),
                Word::Returned => self.around.reports.returned(&key),
            }
        }
        self.reports.changes.notify();
    }
}

async fn carry_out(job: &Job, clients: &dyn Clients) -> Found {
    match job {
        Job::Trial(key, check) => {
            let client = clients.client_for(&key.identity);
            Found::Trial(Trial::of(&client, key, *check).await)
        }
        Job::Rules((identity, here)) => {
            let client = clients.client_for(identity);
            Found::Rules(rules_of(&client, here.as_deref().unwrap_or(NOWHERE)).await)
        }
        Job::Review(key, verb) => {
            let client = clients.client_for(&key.identity);
            Found::Review(is_allowed(&client, attributes(key, *verb)).await)
        }
    }
}

/// The result of a check that came to nothing.
fn failed(job: &Job, fault: Fault) -> Found {
    match job {
        Job::Trial(..) => {
            let undecided = || Answer::Undecided(fault.clone());
            let (list, watch) = (undecided(), undecided());
            Found::Trial(Trial { sent: Instant::now(), requests: 0, list, watch })
        }
        Job::Rules(_) => Found::Rules(Err(fault)),
        Job::Review(..) => Found::Review(Err(fault)),
    }
}

fn counted(found: &Found) -> (Check, CheckOutcome) {
    let of = |allowed| if allowed { CheckOutcome::Allowed } else { CheckOutcome::Refused };
    match found {
        Found::Trial(trial) => {
            let is_allowed = trial.list == Answer::Allowed && trial.watch == Answer::Allowed;
            let decided = trial.refusal().is_some() || is_allowed;
            let outcome = if decided { of(is_allowed) } else { CheckOutcome::Undecided };
            (Check::Trial, outcome)
        }
        Found::Rules(Ok(_)) => (Check::RulesReview, CheckOutcome::Allowed),
        Found::Rules(Err(_)) => (Check::RulesReview, CheckOutcome::Undecided),
        Found::Review(Ok(allowed)) => (Check::AccessReview, of(*allowed)),
        Found::Review(Err(_)) => (Check::AccessReview, CheckOutcome::Undecided),
    }
}

/// Says once what has changed.
fn log(key: &CellKey, before: &CellAccess, after: &CellAccess) {
    match (&before.standing, &after.standing) {
        (
            Standing::Verifying | Standing::Unverified(_) | Standing::Refused(_),
            Standing::Granted { .. },
        ) => {
            tracing::info!(cell = %key, "access verified");
        }
        (
            Standing::Verifying | Standing::Granted { .. } | Standing::Unverified(_),
            Standing::Refused(refused),
        ) => {
            let (verbs, message) = (&refused.verbs, &refused.message);
            tracing::warn!(cell = %key, ?verbs, reason = %refused.reason, %message, "access refused");
        }
        _ => {}
    }
    if before.disagreement != after.disagreement
        && let Some(Disagreement { verb, review }) = after.disagreement
    {
        tracing::warn!(cell = %key, ?verb, ?review, "a review says otherwise than the real request, which counts");
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("reports", &self.reports).finish_non_exhaustive()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("under_way", &self.jobs.len()).finish_non_exhaustive()
    }
}
