//! Checks, all the time, whether every declared cell may still be read, as its identity.

#[cfg(test)]
mod tests;

use super::{
    book::{Book, Check, Found, Job, Wanted, is_permanent},
    reports::AccessReports,
    rule::{Input, Order},
    rules::attributes,
    standing::{CellAccess, Standing},
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use kube::Client;
use kubewarm_api::model::{CellKey, Fault, Identity, MetricOutcome, Reason, Verb};
use kubewarm_cache::informer::{Changes, Reports, Trial};
use kubewarm_client::{Buckets, Clients, KeyedPermit, is_allowed, rules_of};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};
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
const PAUSE: Duration = Duration::from_millis(100);
/// How often the declared cells are asked for, at the least.
const LOOK: Duration = Duration::from_secs(1);
/// The share of a core that looking may take: after a look comes a rest of 20 times its length.
const REST: u32 = 20;

/// Everything that verification reads, writes and asks.
pub struct Surroundings {
    /// What bounds the requests for one namespace, checks among others.
    pub buckets: Buckets,
    /// Clients that act as the cells' identities.
    pub clients: Arc<dyn Clients>,
    /// The cells to check now; `None` while nobody knows, and where they are what they were when last asked.
    pub wanted: Box<dyn FnMut() -> Option<BTreeMap<CellKey, Wanted>> + Send>,
    /// The cells that the operator itself needs. They are not checked, and no excess.
    pub own: Arc<[CellKey]>,
    /// What the cells' informers say, and whom to tell.
    pub reports: Reports,
    /// When they say something new.
    pub changes: Changes,
    /// How long access may go unverified; [`super::PATIENCE`], which tests shorten.
    pub patience: Duration,
    /// Counts each check.
    pub count: Box<dyn Fn(Check, MetricOutcome) + Send>,
}

/// The task that verifies.
pub struct Verifier {
    around: Surroundings,
    reports: AccessReports,
    /// An account's client and its token go with the last handle. Where no cell runs, of a profile that is
    /// planned or stopped, nobody else has one between two checks, and each would ask for a token.
    clients: BTreeMap<Identity, Arc<Client>>,
    jobs: JoinSet<(Job, Instant, Result<Found, Fault>, KeyedPermit)>,
    /// How long the last look took.
    cost: Duration,
}

impl Verifier {
    /// Nothing is known, and nothing is sent before [`Verifier::run`].
    #[must_use]
    pub fn new(around: Surroundings) -> Self {
        let book = Book::new(around.buckets.clone(), fastrand::f64);
        let reports = AccessReports::new(book);
        let (clients, jobs) = (BTreeMap::new(), JoinSet::new());
        Self { around, reports, clients, jobs, cost: Duration::ZERO }
    }

    /// A view that outlives the verifier.
    #[must_use]
    pub fn reports(&self) -> AccessReports {
        self.reports.clone()
    }

    /// Runs until `stop`. What is under way then is aborted.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.around.changes.subscribe();
        let (mut look_at, mut begin_at) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if look_at <= now {
                self.look();
                look_at = Instant::now() + (self.cost * REST).max(LOOK);
            }
            if begin_at <= now {
                let began = Instant::now();
                self.begin();
                begin_at = Instant::now() + began.elapsed() * REST;
            }
            let next = self.reports.book.read().next().unwrap_or(look_at);
            // Checks whose turn has not come are looked at again soon, not at once.
            let wake = next.max(now + PAUSE).max(begin_at).min(look_at);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = self.jobs.join_next() => {
                    if let Ok((job, sent, found, _permit)) = ended {
                        self.take(&job, sent, found);
                    }
                }
                Ok(()) = changes.changed() => {
                    look_at = look_at.min(Instant::now() + DEBOUNCE.max(self.cost * REST));
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Brings the book in line with what is declared, and with what the informers say, and their gates in line
    /// with the book: also that of an informer which began to exist after its refusal.
    fn look(&mut self) {
        let began = Instant::now();
        let wanted = (self.around.wanted)();
        if let Some(wanted) = &wanted {
            let identities: BTreeSet<_> = wanted.keys().map(|key| &key.identity).collect();
            self.clients.retain(|identity, _| identities.contains(identity));
            for identity in identities {
                let client = || self.around.clients.client_for(identity);
                self.clients.entry(identity.clone()).or_insert_with(client);
            }
        }
        let mut book = self.reports.book.write();
        if let Some(wanted) = wanted {
            book.want(wanted, &self.around.own, began);
        }
        let reports = &self.around.reports;
        let own = |key: &CellKey| reports.own_access(key);
        let orders = book.look(own, self.around.patience, began, Timestamp::now());
        drop(book);
        for (key, order) in orders {
            self.tell(&key, order);
        }
        self.cost = began.elapsed();
    }

    /// Begins whatever is due and fits into the bounds.
    fn begin(&mut self) {
        let mut book = self.reports.book.write();
        let begun = book.begin(Instant::now());
        for (job, permit) in begun {
            let sent = Instant::now();
            let check = self.check(job.clone(), sent, &book);
            self.jobs.spawn(async move {
                let found = AssertUnwindSafe(check).catch_unwind().await;
                let found = found.unwrap_or_else(|_panic| {
                    Err(Fault::new(Reason::Internal, "a check panicked; see the log"))
                });
                (job, sent, found, permit)
            });
        }
    }

    /// What a check sends, as the identity that it is about.
    fn check(
        &self,
        job: Job,
        sent: Instant,
        book: &Book,
    ) -> BoxFuture<'static, Result<Found, Fault>> {
        let (Job::Trial(CellKey { identity, .. })
        | Job::AccessReview(CellKey { identity, .. })
        | Job::RulesReview((identity, _))) = &job;
        let client = self.clients.get(identity).cloned();
        let client = client.unwrap_or_else(|| self.around.clients.client_for(identity));
        match job {
            Job::Trial(key) => {
                let check = book.namespace_check(&key);
                async move { Ok(Found::Access(Trial::of(&client, &key, check).await.into())) }
                    .boxed()
            }
            Job::RulesReview((_, here)) => async move {
                let here = here.as_deref().unwrap_or(NOWHERE);
                rules_of(&client, here).await.map(Found::Rules)
            }
            .boxed(),
            Job::AccessReview(key) => {
                let verbs = book.in_question(&key);
                async move {
                    let verb = verbs.first().copied().unwrap_or(Verb::Watch);
                    let input = match is_allowed(&client, attributes(&key, verb)).await {
                        Ok(true) => Input::Reviewed { sent, refused: Vec::new() },
                        Ok(false) => Input::Reviewed { sent, refused: verbs },
                        // The server has no such reviews, or not for this: nothing is lacking.
                        Err(fault) if is_permanent(fault.reason()) => Input::Answered { sent },
                        Err(fault) => Input::Undecided { sent, fault },
                    };
                    Ok(Found::Access(input))
                }
                .boxed()
            }
        }
    }

    /// Takes a result in, and tells what follows. Only a trial decides about a gate.
    fn take(&mut self, job: &Job, sent: Instant, found: Result<Found, Fault>) {
        (self.around.count)(Check::from(job), outcome(&found));
        let key = match job {
            Job::Trial(key) | Job::AccessReview(key) => Some(key),
            Job::RulesReview(_) => None,
        };
        let access = || self.reports.get(key?);
        let before = access();
        self.reports.book.write().found(job, sent, found, Instant::now(), Timestamp::now());
        if let (Some(key), Some(before), Some(after)) = (key, before, access()) {
            log(key, &before, &after);
        }
        let is_trial = matches!(job, Job::Trial(_));
        let key = key.filter(|_| is_trial);
        let order = key.and_then(|key| Some((key, self.reports.book.read().order(key)?)));
        if let Some((key, order)) = order {
            self.tell(key, order);
        }
    }

    /// Closes the gate of a cell, or opens it. An informer whose own request was refused, by a server that
    /// lags, tries again at once.
    fn tell(&self, key: &CellKey, order: Order) {
        let reports = &self.around.reports;
        match (order, reports.own_access(key)) {
            (Err((verb, fault)), _) => reports.lost(key, verb, &fault),
            (Ok(()), Some(own)) if !own.is_open || own.refused_since.is_some() => {
                reports.returned(key);
            }
            (Ok(()), _) => {}
        }
    }
}

fn outcome(found: &Result<Found, Fault>) -> MetricOutcome {
    match found {
        Ok(Found::Rules(_) | Found::Access(Input::Allowed { .. })) => MetricOutcome::Success,
        Ok(Found::Access(Input::Reviewed { refused, .. })) if refused.is_empty() => {
            MetricOutcome::Success
        }
        Ok(Found::Access(Input::Reviewed { .. } | Input::Refused { .. })) => MetricOutcome::Rejected,
        Ok(Found::Access(_)) | Err(_) => MetricOutcome::Error,
    }
}

/// Says once what has changed.
fn log(key: &CellKey, before: &CellAccess, after: &CellAccess) {
    use Standing::{Granted, Refused};
    match (&before.standing, &after.standing) {
        (Granted { .. }, Granted { .. }) | (Refused(_), Refused(_)) => {}
        (_, Granted { .. }) => tracing::info!(cell = %key, "access verified"),
        (_, Refused(refused)) => {
            let (verbs, message) = (&refused.verbs, &refused.message);
            tracing::warn!(cell = %key, ?verbs, reason = %refused.reason, %message, "access refused");
        }
        _ => {}
    }
    if before.overruled != after.overruled
        && let Some(allowed) = after.overruled
    {
        tracing::warn!(cell = %key, allowed, "a review says otherwise than the real request, which counts");
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
