//! Keeps the forecasts of all planned profiles up to date.
//!
//! A forecast is computed when its profile is planned or edited, then every 10 minutes, and soon
//! after a refused informer gets access.

#[cfg(test)]
mod tests;

use super::{CostSurveyor, ProfileForecast, accepted, is_accepted, survey::ProfileSurvey};
use jiff::Timestamp;
use kubewarm_api::model::{DeclaredProfile, InformerKey, ProfileRef, has_same_informers};
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

/// Interval between two forecasts of one profile.
const HOLDS: Duration = Duration::from_mins(10);
/// Delay after a selector's namespaces were listed, until the controller declares their informers.
const AGAIN: Duration = Duration::from_secs(5);
/// Minimum interval between two forecasts of one profile after a change of permissions.
const REGRANTED: Duration = Duration::from_secs(15);
/// Interval at which due forecasts start.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of profiles that are surveyed in parallel, in total and per namespace.
const AT_ONCE: usize = 4;
const NAMESPACE_AT_ONCE: usize = 1;
/// Delay before each request of the operator's surveyor. With the limits above, it allows at most
/// 20 requests a second, and 5 for one namespace.
pub const REST: Duration = Duration::from_millis(200);

/// Receives planned profiles and returns their forecasts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    book: Arc<Mutex<ForecastState>>,
    changed: watch::Sender<()>,
}

/// Planned profiles with their forecasts. The size is bounded by the number of planned profiles and
/// selectors.
#[derive(Debug)]
struct ForecastState {
    orders: BTreeMap<ProfileRef, ForecastEntry>,
    queue: WorkQueue<ProfileRef>,
    names: BTreeMap<InformerKey, Vec<Arc<str>>>,
}

#[derive(Debug)]
struct ForecastEntry {
    order: Arc<DeclaredProfile>,
    /// Forecast of this generation of the profile.
    forecast: Option<Arc<ProfileForecast>>,
    /// When the last survey ended.
    looked_at: Option<Instant>,
}

impl Default for ForecastState {
    fn default() -> Self {
        // A survey always returns a forecast, so the retry delay is not used.
        let queue = WorkQueue::new(AGAIN, HOLDS);
        Self { orders: BTreeMap::new(), queue, names: BTreeMap::new() }
    }
}

impl Forecaster {
    /// Replaces the set of planned profiles. Forecasts of all other profiles are dropped.
    pub fn order(&self, planned: impl IntoIterator<Item = Arc<DeclaredProfile>>) {
        let mut book = self.book.lock();
        let mut known = std::mem::take(&mut book.orders);
        for order in planned {
            let profile = order.profile.clone();
            let is_of_generation = |old: &ForecastEntry| {
                old.order.uid == order.uid && old.order.generation == order.generation
            };
            let old = known.remove(&profile).filter(is_of_generation);
            let entry = match old {
                Some(old)
                    if has_same_informers(&old.order.targets, &order.targets)
                        && has_same_informers(accepted(&old.order), accepted(&order)) =>
                {
                    old
                }
                old => {
                    book.queue.add_at(profile.clone(), Instant::now());
                    let forecast = old.and_then(|old| old.forecast);
                    ForecastEntry { order, forecast, looked_at: None }
                }
            };
            book.orders.insert(profile, entry);
        }
        let ForecastState { orders, queue, names } = &mut *book;
        queue.retain(|profile| orders.contains_key(profile));
        let targets = || orders.values().flat_map(|entry| accepted(&entry.order));
        names.retain(|key, _| {
            targets().filter_map(|target| target.namespaces.as_ref()).any(|spec| spec.key == *key)
        });
    }

    /// Returns the forecast of the profile's current generation.
    #[must_use]
    pub fn get(&self, profile: &ProfileRef) -> Option<Arc<ProfileForecast>> {
        self.book.lock().orders.get(profile)?.forecast.clone()
    }

    /// Returns the namespaces that a selector matches, or `None` before they have been listed.
    #[must_use]
    pub fn names(&self, selector: &InformerKey) -> Option<Vec<Arc<str>>> {
        self.book.lock().names.get(selector).cloned()
    }

    /// Returns a receiver that is notified of new names and forecasts.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the profiles whose forecast starts now and that `admit` accepts.
    ///
    /// A profile is also due if `may_read` is now true for one of its refused informers.
    fn due<P>(
        &self,
        may_read: &impl Fn(&InformerKey) -> bool,
        admit: impl Fn(&ProfileRef) -> Option<P>,
        now: Instant,
    ) -> Vec<(Arc<DeclaredProfile>, P)> {
        let mut book = self.book.lock();
        let ForecastState { orders, queue, .. } = &mut *book;
        for (profile, entry) in &*orders {
            let is_rested = entry.looked_at.is_some_and(|at| at + REGRANTED <= now);
            if is_rested && entry.forecast.iter().flat_map(|f| &f.refused).any(may_read) {
                queue.add_at(profile.clone(), now);
            }
        }
        let taken = queue.start_due(now, admit);
        let order = |(profile, permit)| Some((Arc::clone(&orders.get(&profile)?.order), permit));
        taken.into_iter().filter_map(order).collect()
    }

    fn done(&self, order: &Arc<DeclaredProfile>, forecast: Option<ProfileForecast>, now: Instant) {
        let mut book = self.book.lock();
        let ForecastState { orders, queue, .. } = &mut *book;
        queue.finish(&order.profile);
        // If the profile changed meanwhile, its next survey is already scheduled.
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

    fn found(&self, selector: &InformerKey, names: Vec<Arc<str>>) {
        self.book.lock().names.insert(selector.clone(), names);
        self.changed.send_replace(());
    }
}

/// Computes forecasts until `stop`, with requests through `surveyor`.
///
/// It sends requests only while `leads` returns true. A forecast is repeated if `may_read` becomes
/// true for one of its refused informers.
///
/// This function is cancel safe.
pub async fn run(
    forecasts: Forecaster,
    surveyor: CostSurveyor,
    leads: impl Fn() -> bool,
    may_read: impl Fn(&InformerKey) -> bool,
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

/// Surveys a profile. Returns `None` if the declared informers do not match the namespaces that the
/// selectors match now.
async fn look(
    forecasts: &Forecaster,
    surveyor: &CostSurveyor,
    profile: &DeclaredProfile,
) -> Option<ProfileForecast> {
    let mut is_current = true;
    let mut round = ProfileSurvey::of(profile);
    let mut listed: BTreeMap<&InformerKey, Vec<Arc<str>>> = BTreeMap::new();
    for target in &profile.targets {
        let Some(selector) = &target.namespaces else { continue };
        if !listed.contains_key(&selector.key) {
            // The survey sends the same request again and reports its error.
            let Ok(names) = surveyor.names(&selector.key, &mut round).await else { continue };
            forecasts.found(&selector.key, names.clone());
            listed.insert(&selector.key, names);
        }
        let names = listed.get(&selector.key).into_iter().flatten();
        let matched: BTreeSet<_> = names.map(|name| &**name).collect();
        let declared: BTreeSet<_> = target
            .informers
            .iter()
            .filter_map(|informer| informer.key.extent.namespace())
            .collect();
        // A refused target declares no informers, even if namespaces match.
        is_current &= declared == matched || !is_accepted(target);
    }
    if !is_current {
        return None;
    }
    let found = surveyor.survey_in(profile, round).await;
    Some(ProfileForecast { time: Timestamp::now(), ..found })
}
