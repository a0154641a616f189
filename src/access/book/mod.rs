//! What is known of every cell, by place, and which check of it is due when. Pure.

mod place;
#[cfg(test)]
mod tests;

pub(super) use self::place::is_permanent;
use self::place::{Cell, Place};
use super::{
    excess::Excess,
    rule::{Input, Order},
    rules::{Spot, spot},
    standing::CellAccess,
};
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Completeness, Fault, NamespaceCheck, Reason, Verb};
use kubewarm_cache::informer::OwnAccess;
use kubewarm_client::{Buckets, KeyedPermit, KeyedSemaphore, ReviewedRules, WorkQueue};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Between two trials that go on as before.
const CALM: Duration = Duration::from_mins(5);
/// After one whose namespace does not exist: no review shows that it does again.
const ABSENT: Duration = Duration::from_mins(1);
/// After one that decided nothing.
const RETRY: Duration = Duration::from_secs(20);
/// The first requests of a cell's informer are its first trial. Where there is none, that is by then.
const NO_INFORMER: Duration = Duration::from_secs(1);
/// A list takes longer, or has to wait for its turn: the trial does not wait for it any more.
const INFORMER: Duration = Duration::from_secs(10);

/// Between two reviews of a place, or of a cell where those of its place are incomplete.
const REVIEW: Duration = Duration::from_secs(20);
/// A cell that should have been heard of for longer is late.
const LATE: Duration = Duration::from_secs(10);

/// Checks under way: a server that is slow already is not asked more. There is no rate for the process:
/// with one, a lost right would be noticed the later the more accounts there are.
const UNDER_WAY: usize = 64;
/// Of these, of one namespace, so that a slow webhook of one tenant holds up nobody else.
const NAMESPACE_UNDER_WAY: usize = UNDER_WAY / 8;

/// How an informer is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whether a refusal may mean that its namespace is gone.
    pub namespace_check: NamespaceCheck,
    /// The namespace of a profile that declares the informer. Its bucket pays for the requests.
    pub payer: Arc<str>,
}

/// A check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(Check),
    vis(pub),
    doc = "What a request was for, as a label of metrics.",
    derive(Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray),
    strum(serialize_all = "snake_case")
)]
pub(super) enum Job {
    /// The real list and watch of an informer.
    #[strum_discriminants(
        doc = "The real list and watch of an informer.",
        strum(serialize = "request")
    )]
    Trial(CellKey),
    /// A review of all rules of a place.
    #[strum_discriminants(doc = "A review of all rules of a place.")]
    RulesReview(Spot),
    /// A review of one verb of an informer.
    #[strum_discriminants(doc = "A review of one verb of an informer.")]
    AccessReview(CellKey),
}

/// What a check came to.
#[derive(Debug)]
pub(super) enum Found {
    /// Of an informer.
    Access(Input),
    /// Of a place.
    Rules(ReviewedRules),
}

/// Everything known. Bounded by the cells that are wanted.
#[derive(Debug)]
pub(super) struct Book {
    places: BTreeMap<Spot, Place>,
    queue: WorkQueue<Job>,
    /// Which bound the requests of one namespace, these among others.
    buckets: Buckets,
    under_way: KeyedSemaphore<Arc<str>>,
    /// A random number in `0.0..1.0`.
    spread: fn() -> f64,
}

impl Book {
    /// One whose checks draw on these buckets.
    pub(super) fn new(buckets: Buckets, spread: fn() -> f64) -> Self {
        Self {
            places: BTreeMap::new(),
            queue: WorkQueue::new(RETRY, CALM),
            buckets,
            under_way: KeyedSemaphore::new(UNDER_WAY, NAMESPACE_UNDER_WAY),
            spread,
        }
    }

    /// Checks these informers from now on, and no others. `unchecked` are needed, too.
    pub(super) fn want(
        &mut self,
        wanted: BTreeMap<CellKey, Wanted>,
        unchecked: &[CellKey],
        now: Instant,
    ) {
        for place in self.places.values_mut() {
            place.cells.retain(|key, _| wanted.contains_key(key));
        }
        for (key, wanted) in wanted {
            let spot = spot(&key);
            let place = self.places.entry(spot.clone()).or_insert_with(|| {
                self.queue.add_at(Job::RulesReview(spot), now);
                Place::default()
            });
            if let Some(cell) = place.cells.get_mut(&key) {
                cell.wanted = wanted;
                continue;
            }
            if place.completeness() == Some(Completeness::Incomplete) {
                self.queue.add_at(Job::AccessReview(key.clone()), now);
            }
            self.queue.add_at(Job::Trial(key.clone()), now + INFORMER);
            place.cells.insert(key, Cell::new(wanted, now));
        }
        self.places.retain(|_, place| !place.cells.is_empty());
        let places = &self.places;
        self.queue.retain(|job| match job {
            Job::Trial(key) | Job::AccessReview(key) => cell_in(places, key).is_some(),
            Job::RulesReview(spot) => places.contains_key(spot),
        });
        let mut needed = BTreeMap::<_, BTreeSet<_>>::new();
        for key in self.places.values().flat_map(|place| place.cells.keys()).chain(unchecked) {
            needed.entry(spot(key)).or_default().insert(key.resource.group_resource().clone());
        }
        for (spot, place) in &mut self.places {
            // What is needed across the cluster is needed here, too.
            let across = (spot.0.clone(), None);
            let all = [spot, &across].into_iter().filter_map(|spot| needed.get(spot)).flatten();
            let all = all.cloned().collect();
            if place.needed != all {
                place.needed = all;
                place.compare();
            }
        }
    }

    /// The checks that begin now; each must be answered by [`Book::found`]. What something has called for
    /// goes first, then what may be lost, then what never was readable: a profile that is only planned has
    /// thousands of cells for nothing.
    ///
    /// # Cost
    ///
    /// Looks at every cell.
    pub(super) fn begin(&mut self, now: Instant) -> Vec<(Job, KeyedPermit)> {
        let places = &self.places;
        let class = |job: &Job| match job {
            Job::Trial(key) | Job::AccessReview(key) => cell_in(places, key).map(|cell| {
                (!(cell.is_urgent && matches!(job, Job::Trial(_))), !cell.access.is_held())
            }),
            Job::RulesReview(spot) => places.get(spot).map(|place| (true, !place.is_held())),
        };
        let mut full = BTreeSet::new();
        let begun = self.queue.take_by(now, class, |job| {
            let (cell, cost) = match job {
                Job::Trial(key) => (cell_in(places, key)?, 2),
                Job::AccessReview(key) => (cell_in(places, key)?, 1),
                Job::RulesReview(spot) => (places.get(spot)?.cells.values().next()?, 1),
            };
            let payer = &cell.wanted.payer;
            if full.contains(payer) {
                return None;
            }
            let permit = self.under_way.try_acquire(payer);
            let permit = permit.filter(|_| self.buckets.draw(payer, cost, now).is_ok());
            if permit.is_none() {
                // What does not fit waits, instead of letting the cheaper ones pass for ever.
                full.insert(Arc::clone(payer));
            }
            permit
        });
        for (job, _) in &begun {
            if let Job::Trial(key) = job
                && let Some(cell) = self.cell(key)
            {
                (cell.is_urgent, cell.waits_since) = (false, None);
            }
        }
        begun
    }

    /// Whether a refusal of the informer may mean that its namespace is gone.
    pub(super) fn namespace_check(&self, key: &CellKey) -> NamespaceCheck {
        cell_in(&self.places, key).map_or(NamespaceCheck::Known, |cell| cell.wanted.namespace_check)
    }

    /// The verbs that a review of the informer is about: at least one.
    pub(super) fn in_question(&self, key: &CellKey) -> Vec<Verb> {
        cell_in(&self.places, key)
            .map_or_else(|| vec![Verb::Watch], |cell| cell.access.in_question())
    }

    /// When [`Book::begin`] may have something to begin; `None` if nothing is planned.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.next()
    }

    /// Takes in what a check came to that was sent then.
    pub(super) fn found(
        &mut self,
        job: &Job,
        sent: Instant,
        found: Result<Found, Fault>,
        now: Instant,
        wall: Timestamp,
    ) {
        self.queue.done(job);
        let (key, input) = match (job, found) {
            (Job::RulesReview(spot), Ok(Found::Rules(rules))) => {
                return self.ruled(spot, sent, Ok(rules), now, wall);
            }
            (Job::RulesReview(spot), Err(fault)) => {
                return self.ruled(spot, sent, Err(fault), now, wall);
            }
            (Job::Trial(key) | Job::AccessReview(key), Ok(Found::Access(input))) => (key, input),
            (Job::Trial(key) | Job::AccessReview(key), Err(fault)) => {
                (key, Input::Undecided { sent, fault })
            }
            (_, Ok(_)) => {
                return tracing::error!(?job, "the answer is to another check: this is a bug");
            }
        };
        let Some(place) = self.places.get_mut(&spot(key)) else { return };
        let is_reviewed = place.completeness() == Some(Completeness::Incomplete);
        let Some(cell) = place.cells.get_mut(key) else { return };
        let is_trial = matches!(job, Job::Trial(_));
        let Wanted { namespace_check, payer } = &cell.wanted;
        let period = match (job, &input) {
            (Job::Trial(_), Input::Refused { fault, .. }) => {
                if *namespace_check == NamespaceCheck::Ask {
                    // The trial has asked for the namespace, too.
                    self.buckets.charge(payer, 1, now);
                }
                if fault.reason() == Reason::NamespaceNotFound { ABSENT } else { CALM }
            }
            (Job::Trial(_), Input::Undecided { .. }) => RETRY,
            (Job::Trial(_), _) => CALM,
            (Job::RulesReview(_) | Job::AccessReview(_), _) => REVIEW,
        };
        if is_reviewed || is_trial {
            self.queue.hasten(job.clone(), now + jittered(period, (self.spread)()));
        }
        cell.take(input, key, &mut self.queue, now, wall);
    }

    /// Takes in what the informers say, and that time passes. Which gates are to be opened or closed.
    pub(super) fn look(
        &mut self,
        own: impl Fn(&CellKey) -> Option<OwnAccess>,
        patience: Duration,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<(CellKey, Order)> {
        let mut orders = Vec::new();
        for (key, cell) in self.places.values_mut().flat_map(|place| &mut place.cells) {
            let own = own(key);
            if let Some(own) = &own {
                let is_news = cell.refused_since != own.refused_since;
                cell.refused_since = own.refused_since;
                if is_news && own.refused_since.is_some() {
                    cell.take(Input::Suspected { sent: now }, key, &mut self.queue, now, wall);
                }
                if let Some(sent) = own.verified_at {
                    cell.take(Input::Verified { sent }, key, &mut self.queue, now, wall);
                }
            }
            if let Some(since) = cell.waits_since.filter(|_| !cell.is_urgent) {
                let (own, waits) = match &own {
                    Some(own) => (own.allowed_at, own.is_starting),
                    None => (None, now < since + NO_INFORMER),
                };
                if let Some(sent) = own.filter(|sent| *sent + CALM > now) {
                    cell.waits_since = None;
                    cell.take(Input::Allowed { sent }, key, &mut self.queue, now, wall);
                    // What is warm at the same time is not to be tried at the same time.
                    let pause = CALM.mul_f64(f64::midpoint(1.0, (self.spread)()));
                    self.queue.add_at(Job::Trial(key.clone()), now + pause);
                } else if !waits {
                    cell.waits_since = None;
                    self.queue.hasten(Job::Trial(key.clone()), now);
                }
            }
            cell.take(Input::Tick { patience }, key, &mut self.queue, now, wall);
            let order = own.zip(cell.access.order());
            let order = order.filter(|(own, order)| own.is_open != order.is_ok());
            orders.extend(order.map(|(_, order)| (key.clone(), order)));
        }
        orders
    }

    /// What the gate of a cell is to do; `None` if nobody can say.
    pub(super) fn order(&self, key: &CellKey) -> Option<Order> {
        cell_in(&self.places, key)?.access.order()
    }

    /// What is known of a cell.
    pub(super) fn access(&self, key: &CellKey, now: Instant) -> Option<CellAccess> {
        let cell = cell_in(&self.places, key)?;
        Some(cell.access.report(jittered(REVIEW, 1.0) + LATE, now))
    }

    /// What is too much in a place; `None` before its rules are known.
    pub(super) fn excess(&self, spot: &Spot) -> Option<Arc<Excess>> {
        self.places.get(spot)?.excess.clone()
    }

    fn cell(&mut self, key: &CellKey) -> Option<&mut Cell> {
        self.places.get_mut(&spot(key))?.cells.get_mut(key)
    }
}

fn cell_in<'a>(places: &'a BTreeMap<Spot, Place>, key: &CellKey) -> Option<&'a Cell> {
    places.get(&spot(key))?.cells.get(key)
}

/// Lengthened by up to a tenth, so that what begins together does not go on together.
fn jittered(period: Duration, spread: f64) -> Duration {
    period.mul_f64(1.0 + spread / 10.0)
}
