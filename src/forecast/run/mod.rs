//! Keeps the forecasts of all profiles that are only planned: made when ordered, and anew after 10
//! minutes, or once more of it may be read.

#[cfg(test)]
mod tests;

use super::{Forecast, Surveyor, accepted, is_accepted, survey::Round};
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, Declared, ProfileRef, same_cells};
use kubewarm_client::{KeyedSemaphore, WorkQueue};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, interval},
};
use tokio_util::sync::CancellationToken;

/// How long a forecast holds.
const HOLDS: Duration = Duration::from_mins(10);
/// After the namespaces of a selector were found: until the order names their cells.
const AGAIN: Duration = Duration::from_secs(5);
/// The least between two forecasts of one order, whatever its permissions do.
const REGRANTED: Duration = Duration::from_secs(15);
/// How often orders are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Profiles that are looked at at the same time, and of these those of one namespace.
const AT_ONCE: usize = 4;
const NAMESPACE_AT_ONCE: usize = 1;
/// The rest before each request of the operator's surveyor: with the bounds above at most 20 requests a second, 5 for
/// one namespace.
pub const REST: Duration = Duration::from_millis(200);

/// Planned profiles in, forecasts out. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Forecasts {
    book: Arc<Mutex<Book>>,
    changed: watch::Sender<()>,
}

/// Bounded by the profiles and the selectors that are ordered.
#[derive(Debug)]
struct Book {
    orders: BTreeMap<ProfileRef, Entry>,
    queue: WorkQueue<ProfileRef>,
    names: BTreeMap<CellKey, Vec<Arc<str>>>,
}

#[derive(Debug)]
struct Entry {
    order: Arc<Declared>,
    /// Of this generation of the profile.
    forecast: Option<Arc<Forecast>>,
    /// When it was looked at last.
    looked_at: Option<Instant>,
}

impl Default for Book {
    fn default() -> Self {
        // What cannot be found out is said in the forecast, so that none fails.
        let queue = WorkQueue::new(AGAIN, HOLDS);
        Self { orders: BTreeMap::new(), queue, names: BTreeMap::new() }
    }
}

impl Forecasts {
    /// Takes all profiles that are planned; what was found for others is forgotten.
    pub fn order(&self, planned: impl IntoIterator<Item = Arc<Declared>>) {
        let mut book = self.book.lock();
        let mut known = std::mem::take(&mut book.orders);
        for order in planned {
            let profile = order.profile.clone();
            let is_of_generation = |old: &Entry| {
                old.order.uid == order.uid && old.order.generation == order.generation
            };
            let old = known.remove(&profile).filter(is_of_generation);
            let entry = match old {
                Some(old)
                    if same_cells(&old.order.targets, &order.targets)
                        && same_cells(accepted(&old.order), accepted(&order)) =>
                {
                    old
                }
                old => {
                    book.queue.add_at(profile.clone(), Instant::now());
                    let forecast = old.and_then(|old| old.forecast);
                    Entry { order, forecast, looked_at: None }
                }
            };
            book.orders.insert(profile, entry);
        }
        let Book { orders, queue, names } = &mut *book;
        queue.retain(|profile| orders.contains_key(profile));
        let targets = || orders.values().flat_map(|entry| accepted(&entry.order));
        names.retain(|key, _| {
            targets().filter_map(|target| target.namespaces.as_ref()).any(|spec| spec.key == *key)
        });
    }

    /// What was found for the generation of a profile that was ordered last.
    #[must_use]
    pub fn get(&self, profile: &ProfileRef) -> Option<Arc<Forecast>> {
        self.book.lock().orders.get(profile)?.forecast.clone()
    }

    /// The namespaces that a selector finds; `None` before they have been listed.
    #[must_use]
    pub fn names(&self, selector: &CellKey) -> Option<Vec<Arc<str>>> {
        self.book.lock().names.get(selector).cloned()
    }

    /// Marked as changed when names or forecasts are new.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The orders that are due and that `admit` lets in, which are under way from now on: also those of
    /// which a cell was refused that `may_read` now.
    fn due<P>(
        &self,
        may_read: &impl Fn(&CellKey) -> bool,
        admit: impl Fn(&ProfileRef) -> Option<P>,
        now: Instant,
    ) -> Vec<(Arc<Declared>, P)> {
        let mut book = self.book.lock();
        let Book { orders, queue, .. } = &mut *book;
        for (profile, entry) in &*orders {
            let is_rested = entry.looked_at.is_some_and(|at| at + REGRANTED <= now);
            if is_rested && entry.forecast.iter().flat_map(|f| &f.refused).any(may_read) {
                queue.add_at(profile.clone(), now);
            }
        }
        let taken = queue.take(now, admit);
        let order = |(profile, permit)| Some((Arc::clone(&orders.get(&profile)?.order), permit));
        taken.into_iter().filter_map(order).collect()
    }

    fn done(&self, order: &Arc<Declared>, forecast: Option<Forecast>, now: Instant) {
        let mut book = self.book.lock();
        let Book { orders, queue, .. } = &mut *book;
        queue.done(&order.profile);
        // Another order that came meanwhile is due already.
        if let Some(entry) = orders.get_mut(&order.profile)
            && Arc::ptr_eq(&entry.order, order)
        {
            let pause = if forecast.is_some() { HOLDS } else { AGAIN };
            queue.add_at(order.profile.clone(), now + pause);
            entry.looked_at = Some(now);
            entry.forecast = forecast.map(Arc::new).or_else(|| entry.forecast.take());
        }
        drop(book);
        self.changed.send_replace(());
    }

    fn found(&self, selector: &CellKey, names: Vec<Arc<str>>) {
        self.book.lock().names.insert(selector.clone(), names);
        self.changed.send_replace(());
    }
}

/// Keeps forecasts until `stop`; asks nothing unless `leads` says that this replica writes statuses. Asks through
/// `surveyor`, and once more where a cell was refused that `may_read` says is allowed by now.
///
/// Cancel safe.
pub async fn run(
    forecasts: Forecasts,
    surveyor: Surveyor,
    leads: impl Fn() -> bool,
    may_read: impl Fn(&CellKey) -> bool,
    stop: CancellationToken,
) {
    let surveyor = Arc::new(surveyor);
    let permits = KeyedSemaphore::new(AT_ONCE, NAMESPACE_AT_ONCE);
    let admit = |profile: &ProfileRef| permits.try_acquire(&profile.namespace);
    let mut under_way = JoinSet::new();
    let mut ticks = interval(LOOK);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = under_way.join_next() => {}
            _ = ticks.tick() => {}
        }
        if !leads() {
            continue;
        }
        for (order, permit) in forecasts.due(&may_read, admit, Instant::now()) {
            let (forecasts, surveyor) = (forecasts.clone(), Arc::clone(&surveyor));
            under_way.spawn(async move {
                let forecast = look(&forecasts, &surveyor, &order).await;
                drop(permit);
                forecasts.done(&order, forecast, Instant::now());
            });
        }
    }
}

/// `None` if the profile declares cells of other namespaces than its selectors match.
async fn look(forecasts: &Forecasts, surveyor: &Surveyor, profile: &Declared) -> Option<Forecast> {
    let mut is_current = true;
    let mut round = Round::of(profile);
    let mut listed: BTreeMap<&CellKey, Vec<Arc<str>>> = BTreeMap::new();
    for target in &profile.targets {
        let Some(selector) = &target.namespaces else { continue };
        if !listed.contains_key(&selector.key) {
            // What went wrong is met again by the survey, which says so.
            let Ok(names) = surveyor.names(&selector.key, &mut round).await else { continue };
            forecasts.found(&selector.key, names.clone());
            listed.insert(&selector.key, names);
        }
        let names = listed.get(&selector.key).into_iter().flatten();
        let matched: BTreeSet<_> = names.map(|name| &**name).collect();
        let declared: BTreeSet<_> =
            target.cells.iter().filter_map(|cell| cell.key.extent.namespace()).collect();
        // A target that is refused declares no cells, however many namespaces match.
        is_current &= declared == matched || !is_accepted(target);
    }
    if !is_current {
        return None;
    }
    let found = surveyor.survey_in(profile, round).await;
    Some(Forecast { time: Timestamp::now(), ..found })
}
