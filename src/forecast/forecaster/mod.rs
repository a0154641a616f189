//! Keeps the forecasts of all profiles in mode `Plan` up to date.
//!
//! The forecaster computes a profile's forecast when the profile enters mode `Plan` or is edited,
//! and then every 10 minutes. The forecaster also computes a forecast soon after an informer
//! without access gets access.

#[cfg(test)]
mod tests;

use super::{ForecastSampler, ProfileForecast, accepted, is_accepted, sampler::ProfileSample};
use jiff::Timestamp;
use kubewarm_api::model::{InformerKey, ProfileRef, ResolvedProfile, has_same_informers};
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

/// Interval between two forecasts of one profile, because the number of objects in the cluster
/// changes.
const HOLDS: Duration = Duration::from_mins(10);
/// Delay before the next forecast of a profile whose namespace selectors now match other namespaces
/// than its informers read. Within this delay, the controller declares the missing informers.
const AGAIN: Duration = Duration::from_secs(5);
/// Minimum interval between two forecasts of one profile if the second forecast starts because an
/// informer got access. It limits the requests if permissions change often.
const REGRANTED: Duration = Duration::from_secs(15);
/// Interval at which the forecaster starts the forecasts that are due.
const TICK: Duration = Duration::from_secs(1);
/// Maximum number of profiles whose objects kubewarm samples in parallel, which limits the load of
/// the API server.
const AT_ONCE: usize = 4;
/// Maximum number of profiles in one namespace whose objects kubewarm samples in parallel, so that
/// one tenant's profiles do not delay all others.
const NAMESPACE_AT_ONCE: usize = 1;
/// Delay before each request for a profile's forecast. At most 4 forecasts run in parallel, so the
/// forecaster sends at most 20 requests per second. For one namespace it sends at most 5 per
/// second.
pub const REQUEST_PAUSE: Duration = Duration::from_millis(200);

/// Handle that receives the profiles in mode `Plan` and returns their forecasts. Clones share the
/// profiles and forecasts.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    state: Arc<Mutex<ForecastQueue>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct ForecastQueue {
    entries: BTreeMap<ProfileRef, ForecastEntry>,
    queue: WorkQueue<ProfileRef>,
    names: BTreeMap<InformerKey, Vec<Arc<str>>>,
}

#[derive(Debug)]
struct ForecastEntry {
    resolved: Arc<ResolvedProfile>,
    /// Forecast of the profile's current spec. `None` before kubewarm has computed this forecast.
    forecast: Option<Arc<ProfileForecast>>,
    /// Time at which the last forecast of `resolved` ended.
    sampled_at: Option<Instant>,
}

impl Default for ForecastQueue {
    fn default() -> Self {
        // A work queue needs two retry delays, but uses them only after failures. No forecast
        // counts as failed, so the values do not matter.
        let queue = WorkQueue::new(AGAIN, HOLDS);
        Self { entries: BTreeMap::new(), queue, names: BTreeMap::new() }
    }
}

impl Forecaster {
    /// Replaces the set of profiles in mode `Plan`. Drops the forecasts of profiles that are not in
    /// `planned`.
    pub fn set_planned(&self, planned: impl IntoIterator<Item = Arc<ResolvedProfile>>) {
        let mut state = self.state.lock();
        let mut known = std::mem::take(&mut state.entries);
        for resolved in planned {
            let profile = resolved.profile.clone();
            let is_of_generation = |old: &ForecastEntry| {
                old.resolved.uid == resolved.uid && old.resolved.generation == resolved.generation
            };
            let old = known.remove(&profile).filter(is_of_generation);
            let entry = match old {
                Some(old)
                    if has_same_informers(&old.resolved.targets, &resolved.targets)
                        && has_same_informers(accepted(&old.resolved), accepted(&resolved)) =>
                {
                    old
                }
                old => {
                    state.queue.add_at(profile.clone(), Instant::now());
                    let forecast = old.and_then(|old| old.forecast);
                    ForecastEntry { resolved, forecast, sampled_at: None }
                }
            };
            state.entries.insert(profile, entry);
        }
        let ForecastQueue { entries, queue, names } = &mut *state;
        queue.retain(|profile| entries.contains_key(profile));
        let targets = || entries.values().flat_map(|entry| accepted(&entry.resolved));
        names.retain(|key, _| {
            targets().filter_map(|target| target.namespaces.as_ref()).any(|spec| spec.key == *key)
        });
    }

    pub fn get(&self, profile: &ProfileRef) -> Option<Arc<ProfileForecast>> {
        self.state.lock().entries.get(profile)?.forecast.clone()
    }

    /// Returns the namespaces that a namespace selector matches, or `None` before kubewarm has
    /// listed these namespaces.
    pub fn names(&self, selector: &InformerKey) -> Option<Vec<Arc<str>>> {
        self.state.lock().names.get(selector).cloned()
    }

    /// Returns a receiver of notifications. The forecaster sends one for each new forecast, and one
    /// for each new list of the namespaces that a selector matches.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the profiles whose forecast starts now, each with a permit from `admit`, which
    /// limits the number of parallel forecasts. If `admit` returns `None` for a due profile, its
    /// forecast starts later.
    ///
    /// A profile is also due if `can_read` returns true for one of its informers that had no access
    /// during the last forecast.
    fn due<P>(
        &self,
        can_read: &impl Fn(&InformerKey) -> bool,
        admit: impl Fn(&ProfileRef) -> Option<P>,
        now: Instant,
    ) -> Vec<(Arc<ResolvedProfile>, P)> {
        let mut state = self.state.lock();
        let ForecastQueue { entries, queue, .. } = &mut *state;
        for (profile, entry) in &*entries {
            let is_rested = entry.sampled_at.is_some_and(|at| at + REGRANTED <= now);
            if is_rested && entry.forecast.iter().flat_map(|f| &f.refused).any(can_read) {
                queue.add_at(profile.clone(), now);
            }
        }
        let taken = queue.start_due(now, admit);
        let resolved =
            |(profile, permit)| Some((Arc::clone(&entries.get(&profile)?.resolved), permit));
        taken.into_iter().filter_map(resolved).collect()
    }

    fn finish(
        &self,
        profile: &Arc<ResolvedProfile>,
        forecast: Option<ProfileForecast>,
        now: Instant,
    ) {
        let mut state = self.state.lock();
        let ForecastQueue { entries, queue, .. } = &mut *state;
        queue.finish(&profile.profile);
        // If the profile changed during the forecast, its next forecast is already scheduled.
        if let Some(entry) = entries.get_mut(&profile.profile)
            && Arc::ptr_eq(&entry.resolved, profile)
        {
            let pause = if forecast.is_some() { HOLDS } else { AGAIN };
            queue.add_at(profile.profile.clone(), now + pause);
            entry.sampled_at = Some(now);
            entry.forecast = forecast.map(Arc::new).or_else(|| entry.forecast.take());
        }
        drop(state);
        self.changed.send_replace(());
    }

    fn set_names(&self, selector: &InformerKey, names: Vec<Arc<str>>) {
        self.state.lock().names.insert(selector.clone(), names);
        self.changed.send_replace(());
    }
}

/// Computes forecasts until `stop` is cancelled. `sampler` sends the requests.
///
/// New forecasts start only while `is_leader` returns true, which means that this process is the
/// leader. kubewarm repeats a profile's forecast if `can_read` returns true for an informer that
/// had no access during the last forecast.
///
/// This function is cancel safe.
pub async fn run(
    forecasts: Forecaster,
    sampler: ForecastSampler,
    is_leader: impl Fn() -> bool,
    can_read: impl Fn(&InformerKey) -> bool,
    stop: CancellationToken,
) {
    let sampler = Arc::new(sampler);
    let permits = KeyedSemaphore::new(AT_ONCE, NAMESPACE_AT_ONCE);
    let admit = |profile: &ProfileRef| permits.try_acquire(&profile.namespace);
    let mut running = JoinSet::new();
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = running.join_next() => {}
            _ = ticks.tick() => {}
        }
        if !is_leader() {
            continue;
        }
        for (profile, permit) in forecasts.due(&can_read, admit, Instant::now()) {
            let (forecasts, sampler) = (forecasts.clone(), Arc::clone(&sampler));
            running.spawn(async move {
                let forecast = forecast_planned(&forecasts, &sampler, &profile).await;
                drop(permit);
                forecasts.finish(&profile, forecast, Instant::now());
            });
        }
    }
}

/// Samples a profile's objects and returns its forecast. Returns `None` if the profile's informers
/// do not match the namespaces that its selectors select now. The controller then first declares
/// the informers for these namespaces.
async fn forecast_planned(
    forecasts: &Forecaster,
    sampler: &ForecastSampler,
    profile: &ResolvedProfile,
) -> Option<ProfileForecast> {
    let mut is_current = true;
    let mut sample = ProfileSample::of(profile);
    let mut listed: BTreeMap<&InformerKey, Vec<Arc<str>>> = BTreeMap::new();
    for target in &profile.targets {
        let Some(selector) = &target.namespaces else { continue };
        if !listed.contains_key(&selector.key) {
            // An error needs no handling here: `forecast_from` sends the same request again, and
            // reports the error in the forecast.
            let Ok(names) = sampler.names(&selector.key, &mut sample).await else { continue };
            forecasts.set_names(&selector.key, names.clone());
            listed.insert(&selector.key, names);
        }
        let names = listed.get(&selector.key).into_iter().flatten();
        let matched: BTreeSet<_> = names.map(|name| &**name).collect();
        let declared: BTreeSet<_> =
            target.informers.iter().filter_map(|informer| informer.key.scope.namespace()).collect();
        // A target that kubewarm does not accept declares no informers, even if namespaces match.
        // So a difference between its informers and the namespaces does not count.
        is_current &= declared == matched || !is_accepted(target);
    }
    if !is_current {
        return None;
    }
    let forecast = sampler.forecast_from(profile, sample).await;
    Some(ProfileForecast { time: Timestamp::now(), ..forecast })
}
