//! Forecasts the cost of a profile (objects, memory, list requests and time until warm) from
//! sampled objects of its informers. This module performs no I/O.

use super::accepted;
use jiff::Timestamp;
use kubewarm_api::{
    model::{InformerKey, InformerSpec, ResolvedProfile, Verb},
    v1alpha1::{PlanCertainty, PlanStatus, mebibytes},
};
use kubewarm_cache::{
    informer::ListMethod,
    store::{DictionaryKey, SampleUsage},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const MAX_CAVEATS: usize = 4;

/// Speed of lists from the API server, measured for one informer or one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListSpeed {
    /// Number of objects in the largest page of this informer or kind that kubewarm has received.
    pub(super) objects: u64,
    /// Time from the request of the largest page until kubewarm had stored the page's last object.
    pub(super) took: Duration,
    /// Time from the request of the largest page until the response headers arrived.
    pub(super) headers: Duration,
    /// Shortest time from the request of a page until the response headers arrived.
    pub(super) latency: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InformerSample {
    pub(super) objects: u64,
    /// `Estimate` if `objects` is a complete count, `LowerBound` if more objects can exist.
    pub(super) certainty: PlanCertainty,
    /// The method by which the informer would fetch its first list.
    pub(super) method: ListMethod,
    /// Measured speed of lists for this informer. `None` if kubewarm received no page.
    pub(super) speed: Option<ListSpeed>,
    /// Verbs that the informer's identity may not use, according to an access check.
    pub(super) refused: BTreeSet<Verb>,
    /// A message for the user about why the sample is incomplete. `None` if the sample is complete,
    /// or if a missing permission is the reason.
    pub(super) problem: Option<String>,
}

/// Forecast of the cost of a set of informers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostForecast {
    /// Number of informers, without the informers that watch namespaces for namespace selectors.
    pub informers: usize,
    pub objects: u64,
    /// Memory of the informers' stores, in bytes.
    pub bytes: u64,
    /// Number of list requests, including the lists of namespaces for namespace selectors. Each
    /// page counts as one request.
    pub requests: u64,
    /// Expected time until all informers are warm.
    pub took: Duration,
    /// Number of missing permissions. One permission is one verb for one kind in one namespace.
    pub missing: usize,
    /// Certainty of `objects`, `bytes`, `requests` and `took`.
    pub certainty: PlanCertainty,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileForecast {
    /// Time at which kubewarm had sampled the objects of all informers. The Unix epoch if a command
    /// computed the forecast, because only the operator writes the time to `status.plan`.
    pub time: Timestamp,
    /// Name and cost of each target, in the order of the spec. An informer that several targets
    /// share counts for each of them.
    pub targets: Vec<(Arc<str>, CostForecast)>,
    /// Cost of the whole profile. An informer that several targets share counts once.
    pub total: CostForecast,
    /// At most 4 messages for the user about why the forecast can be inaccurate.
    pub caveats: Vec<String>,
    /// The informers whose identity may not list or watch.
    pub refused: Vec<InformerKey>,
}

/// Computes a profile's forecast. `samples` contains the result of the sample lists for
/// each informer. `weights` contains the sampled object sizes of each kind.
///
/// The expected time assumes that each list of a kind is as fast as the kind's largest sampled
/// page. The forecast also assumes that as many lists run in parallel as the profile permits.
pub(super) fn forecast(
    profile: &ResolvedProfile,
    samples: &BTreeMap<InformerKey, InformerSample>,
    weights: &BTreeMap<DictionaryKey, SampleUsage>,
) -> ProfileForecast {
    let results = InformerSamples { found: samples, weights, speeds: speeds(samples) };
    let targets = accepted(profile).map(|target| {
        let cost = results.forecast(target.informers.iter(), target.namespaces.iter());
        (Arc::clone(&target.name), cost)
    });
    let targets = targets.collect();
    let informers = accepted(profile).flat_map(|target| &*target.informers);
    let selectors = accepted(profile).filter_map(|target| target.namespaces.as_ref());
    let total = results.forecast(informers, selectors);
    let mut caveats: Vec<_> = samples
        .iter()
        .filter_map(|(key, sample)| Some(format!("{key}: {}", sample.problem.as_deref()?)))
        .collect();
    caveats.truncate(MAX_CAVEATS);
    let refused = samples.iter().filter(|(_, sample)| !sample.refused.is_empty());
    let refused = refused.map(|(key, _)| key.clone()).collect();
    ProfileForecast { time: Timestamp::default(), targets, total, caveats, refused }
}

struct InformerSamples<'a> {
    found: &'a BTreeMap<InformerKey, InformerSample>,
    weights: &'a BTreeMap<DictionaryKey, SampleUsage>,
    speeds: BTreeMap<DictionaryKey, ListSpeed>,
}

/// Returns the speed of each kind's largest page, because large pages measure the time per object
/// best. The latency is the shortest of all kinds.
fn speeds(samples: &BTreeMap<InformerKey, InformerSample>) -> BTreeMap<DictionaryKey, ListSpeed> {
    let all = || samples.iter().filter_map(|(key, sample)| Some((key, sample.speed?)));
    let latency = all().map(|(_, speed)| speed.latency).min().unwrap_or_default();
    let mut speeds = BTreeMap::<DictionaryKey, ListSpeed>::new();
    for (key, speed) in all() {
        let kind = speeds.entry(dictionary_key(key)).or_default();
        if speed.objects >= kind.objects {
            *kind = ListSpeed { latency, ..speed };
        }
    }
    speeds
}

pub(super) fn dictionary_key(key: &InformerKey) -> DictionaryKey {
    (key.resource.clone(), key.projection)
}

impl InformerSamples<'_> {
    fn forecast<'s>(
        &self,
        informers: impl Iterator<Item = &'s InformerSpec>,
        selectors: impl Iterator<Item = &'s InformerSpec>,
    ) -> CostForecast {
        let informers: BTreeMap<_, _> = informers.map(|spec| (&spec.key, spec)).collect();
        let selectors: BTreeMap<_, _> = selectors.map(|spec| (&spec.key, spec)).collect();
        let mut cost = CostForecast { informers: informers.len(), ..CostForecast::default() };
        let mut kinds = BTreeMap::<DictionaryKey, u64>::new();
        let mut missing = BTreeSet::new();
        let (mut longest, mut sum, mut before) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for (key, spec) in selectors.iter().chain(&informers) {
            let Some(sample) = self.found.get(*key) else {
                cost.certainty = PlanCertainty::LowerBound;
                continue;
            };
            let place = (key.resource.group_resource(), key.scope.namespace());
            missing.extend(sample.refused.iter().map(|verb| (place, *verb)));
            cost.certainty = cost.certainty.max(sample.certainty);
            let requests = requests(spec, sample);
            cost.requests = cost.requests.saturating_add(requests);
            let took = self.list_duration(key, sample, requests);
            if informers.contains_key(*key) {
                cost.objects = cost.objects.saturating_add(sample.objects);
                let kind = kinds.entry(dictionary_key(key)).or_default();
                *kind = kind.saturating_add(sample.objects);
                longest = longest.max(took);
                sum = sum.saturating_add(took);
            } else {
                // If the target has a namespace selector, its lists start only after the list of
                // namespaces has ended.
                before = before.max(took);
            }
        }
        for (kind, objects) in kinds {
            let weight = self.weights.get(&kind).copied().unwrap_or_default();
            cost.bytes = cost.bytes.saturating_add(weight.scaled_to(objects));
        }
        let lists = informers
            .values()
            .next()
            .map(|informer| informer.settings.list_slot_owner.max_concurrent_lists);
        let at_once = lists.unwrap_or(1).clamp(1, informers.len().max(1));
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
        cost.took = before.saturating_add(longest.max(sum / at_once));
        cost.missing = missing.len();
        cost
    }

    fn list_duration(&self, key: &InformerKey, sample: &InformerSample, requests: u64) -> Duration {
        let Some(speed) = self.speeds.get(&dictionary_key(key)) else { return Duration::ZERO };
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let waiting = speed.latency.saturating_mul(count(requests));
        // The time until the headers of a page includes the API server's wait for its watch cache
        // or its read from etcd. A paged list repeats this time for each page, so only the latency
        // is subtracted. A complete list waits only once, and `waiting` already counts this wait.
        let before = match sample.method {
            ListMethod::PagedList => speed.latency,
            ListMethod::List | ListMethod::WatchList => speed.headers,
        };
        let sending = speed.took.saturating_sub(before).as_nanos();
        let objects = u128::from(sample.objects);
        let all = sending.saturating_mul(objects) / u128::from(speed.objects.max(1));
        waiting.saturating_add(Duration::from_nanos(u64::try_from(all).unwrap_or(u64::MAX)))
    }
}

fn requests(spec: &InformerSpec, sample: &InformerSample) -> u64 {
    match sample.method {
        ListMethod::List | ListMethod::WatchList => 1,
        ListMethod::PagedList => {
            sample.objects.div_ceil(u64::from(spec.settings.lists.page_size.max(1))).max(1)
        }
    }
}

impl CostForecast {
    /// Converts the forecast to `status.plan`, without the field `time`. The conversion rounds
    /// `timeToWarmMilliseconds` up. The field is absent if there are objects but kubewarm measured
    /// the time of no page.
    pub fn status(&self) -> PlanStatus {
        let small = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let millis = self.took.as_nanos().div_ceil(1_000_000);
        let is_timed = millis > 0 || self.objects == 0;
        PlanStatus {
            informers: Some(count(self.informers)),
            objects: Some(i64::try_from(self.objects).unwrap_or(i64::MAX)),
            memory: Some(mebibytes(self.bytes)),
            requests: Some(small(self.requests)),
            time_to_warm_milliseconds: is_timed.then(|| i64::try_from(millis).unwrap_or(i64::MAX)),
            missing_permissions: Some(count(self.missing)),
            certainty: Some(self.certainty),
            time: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::fixtures::{self, declared, spec};

    fn order(targets: &[(&str, &[InformerSpec])]) -> ResolvedProfile {
        let target = |&(name, informers): &(&str, &[InformerSpec])| {
            fixtures::target(name, informers.to_vec())
        };
        declared("a", "p", targets.iter().map(target).collect())
    }

    fn sample(objects: u64, method: ListMethod) -> InformerSample {
        let millis = Duration::from_millis;
        let (took, headers, latency) = (millis(110), millis(30), millis(10));
        let speed = ListSpeed { objects: 100, took, headers, latency };
        let (refused, problem) = (BTreeSet::new(), None);
        let certainty = PlanCertainty::Estimate;
        InformerSample { objects, certainty, method, speed: Some(speed), refused, problem }
    }

    #[test]
    fn very_large_counts_do_not_overflow() {
        let informers = [spec("pods", "a"), spec("pods", "b")];
        let samples = informers
            .each_ref()
            .map(|informer| (informer.key.clone(), sample(u64::MAX, ListMethod::PagedList)));
        let weight = SampleUsage { objects: 1, bytes: u64::MAX, dictionary_bytes: u64::MAX };
        let weights = [(dictionary_key(&informers[0].key), weight)].into();
        let total = forecast(&order(&[("all", &informers)]), &samples.into(), &weights).total;
        assert_eq!((total.objects, total.bytes), (u64::MAX, u64::MAX));
        assert_eq!(total.status().objects, Some(i64::MAX));
    }

    #[test]
    fn shared_informers_count_in_each_target_and_once_in_the_total() {
        let informer = spec("pods", "a");
        let one = std::slice::from_ref(&informer);
        let order = order(&[("one", one), ("two", one)]);
        let samples = [(informer.key.clone(), sample(1_000, ListMethod::List))].into();
        let weight = SampleUsage { objects: 100, bytes: 1_000, dictionary_bytes: 50 };
        let weights = [(dictionary_key(&informer.key), weight)].into();
        let forecast = forecast(&order, &samples, &weights);
        let [(_, one), (_, two)] = forecast.targets.as_slice() else { panic!("two targets") };
        assert_eq!((one, two), (&forecast.total, &forecast.total));
        let CostForecast { informers, objects, bytes, requests, .. } = forecast.total;
        assert_eq!((informers, objects, bytes, requests), (1, 1_000, 10_050, 1));
    }

    #[test]
    fn time_grows_with_objects_and_shrinks_with_parallel_lists() {
        let informers: Vec<_> = ["a", "b", "c", "d"].map(|name| spec("pods", name)).into();
        let order = order(&[("pods", &informers)]);
        // Two of the four lists run in parallel. A list takes 10 ms latency, and 0.8 ms for each of
        // its 1,000 objects. A page of 500 objects takes 10 ms latency, and 1 ms for each object.
        for (method, took) in [(ListMethod::List, 810), (ListMethod::PagedList, 1_020)] {
            let samples =
                informers.iter().map(|informer| (informer.key.clone(), sample(1_000, method)));
            let total = forecast(&order, &samples.collect(), &BTreeMap::new()).total;
            assert_eq!(total.took, Duration::from_millis(2 * took));
        }
    }

    #[test]
    fn pages_are_counted_as_requests() {
        let informer = spec("pods", "a");
        let order = order(&[("pods", std::slice::from_ref(&informer))]);
        for (objects, requests) in [(0, 1), (500, 1), (501, 2)] {
            let samples = [(informer.key.clone(), sample(objects, ListMethod::PagedList))].into();
            assert_eq!(forecast(&order, &samples, &BTreeMap::new()).total.requests, requests);
        }
    }

    #[test]
    fn refused_verbs_are_counted_and_make_the_forecast_a_lower_bound() {
        let informers = [spec("pods", "a"), spec("pods", "b")];
        let order = order(&[("pods", &informers)]);
        let mut refused = sample(0, ListMethod::List);
        refused.refused = [Verb::List, Verb::Watch].into();
        refused.certainty = PlanCertainty::LowerBound;
        let samples = [
            (informers[0].key.clone(), sample(10, ListMethod::List)),
            (informers[1].key.clone(), refused),
        ];
        let total = forecast(&order, &samples.into(), &BTreeMap::new()).total;
        assert_eq!((total.missing, total.objects), (2, 10));
        assert_eq!(total.certainty, PlanCertainty::LowerBound);
        // Without the results of sample lists for each informer, the forecast is only a lower
        // bound.
        let total = forecast(&order, &BTreeMap::new(), &BTreeMap::new()).total;
        assert_eq!((total.informers, total.certainty), (2, PlanCertainty::LowerBound));
    }

    #[test]
    fn memory_and_seconds_in_the_status_are_rounded_up() {
        let took = Duration::from_micros(1_001);
        let cost = CostForecast { bytes: 1, took, missing: 2, ..CostForecast::default() };
        let status = cost.status();
        assert_eq!(status.memory.as_deref(), Some("1Mi"));
        assert_eq!(
            (status.time_to_warm_milliseconds, status.missing_permissions),
            (Some(2), Some(2))
        );
    }

    #[test]
    fn a_time_that_no_page_shows_is_absent() {
        let status = |objects| CostForecast { objects, ..CostForecast::default() }.status();
        assert_eq!(status(1).time_to_warm_milliseconds, None);
        assert_eq!(status(0).time_to_warm_milliseconds, Some(0), "no objects take no time");
    }
}
