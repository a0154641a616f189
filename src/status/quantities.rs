use super::informer::{InformerState, ObservedInformer};
use crate::forecast::ProfileForecast;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewarm_api::v1alpha1::{
    InformerCounts, LatencyStatus, PlanCertainty, PlanStatus, QuantilesStatus, RelistStatus,
};
use kubewarm_cache::informer::{InformerReport, LatencyQuantiles};
use std::{fmt::Write as _, time::Duration};

/// Removes the fraction of a second, because the API server does not store the fraction.
pub(super) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Converts to milliseconds and rounds up, so that no measured duration becomes 0.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(i64::MAX)
}

pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn small(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the forecast in the form of `status.plan`, for a profile in mode `Plan`. `known` is the
/// forecast in the current status, for the same generation of the profile. If only the time
/// differs, the function returns `known`, so that a repeated forecast causes no status write.
pub(super) fn plan(forecast: &ProfileForecast, known: Option<&PlanStatus>) -> PlanStatus {
    let new = forecast.total.status();
    let timed = known.filter(|known| known.time.is_some());
    match timed {
        Some(known) if PlanStatus { time: None, ..known.clone() } == new => known.clone(),
        Some(_) | None => PlanStatus { time: Some(seconds(forecast.time)), ..new },
    }
}

/// Returns the costs of a profile in mode `Plan` as a sentence, from `plan`, the forecast in the
/// profile's status. The sentence includes the caveats of `forecast`, which is `None` if this
/// process has not completed a forecast. If `plan` has no certainty, its numbers are lower bounds.
/// `rbac` is the command that prints the RBAC manifests.
pub(super) fn costs(plan: &PlanStatus, forecast: Option<&ProfileForecast>, rbac: &str) -> String {
    let PlanStatus {
        informers,
        objects,
        memory,
        requests,
        time_to_warm_milliseconds,
        missing_permissions,
        certainty,
        time: _,
    } = plan;
    let about = match certainty {
        Some(PlanCertainty::Estimate) => "about",
        Some(PlanCertainty::LowerBound) | None => "at least",
    };
    let took = time_to_warm_milliseconds.and_then(|millis| u64::try_from(millis).ok());
    let time = took.map_or_else(
        || "an unknown time".to_owned(),
        |millis| format!("{:.1} s", Duration::from_millis(millis).as_secs_f64()),
    );
    let mut text = format!(
        "planned only, nothing is watched; warming it would take {about} {} informers, {} objects, {} \
         of memory, {} requests for lists and {time}",
        informers.unwrap_or_default(),
        objects.unwrap_or_default(),
        memory.as_deref().unwrap_or("0"),
        requests.unwrap_or_default(),
    );
    if let Some(missing @ 1..) = missing_permissions {
        let _infallible = write!(text, "; {missing} permissions are missing, run `{rbac} --diff`");
    }
    for caveat in forecast.into_iter().flat_map(|forecast| &forecast.caveats) {
        let _infallible = write!(text, "; {caveat}");
    }
    text + "; set spec.mode to Active to warm it"
}

/// Counts the informers by their state in the status. Each informer has exactly one state, so the
/// counts add up to the total.
pub(super) fn informers(informers: &[ObservedInformer<'_>]) -> InformerCounts {
    let count = |state: InformerState| {
        small(informers.iter().filter(|informer| informer.state == state).count())
    };
    InformerCounts {
        total: small(informers.len()),
        synced: count(InformerState::Synced),
        syncing: count(InformerState::Syncing),
        stale: count(InformerState::Stale),
        forbidden: count(InformerState::Forbidden),
        missing: count(InformerState::Missing),
        limited: count(InformerState::Limited),
        failing: count(InformerState::Failing),
    }
}

/// Returns the latencies of list pages, watch events and reads: for each quantile, the maximum over
/// all informers. Returns `None` if no latency was measured.
pub(super) fn latency(informers: &[ObservedInformer<'_>]) -> Option<LatencyStatus> {
    let largest = |latency: fn(&InformerReport) -> Option<LatencyQuantiles>| {
        informers
            .iter()
            .filter_map(ObservedInformer::report)
            .filter_map(latency)
            .reduce(|a, b| LatencyQuantiles { p50: a.p50.max(b.p50), p99: a.p99.max(b.p99) })
    };
    let quantiles = |latency: LatencyQuantiles| QuantilesStatus {
        p50: i32::try_from(millis(latency.p50)).unwrap_or(i32::MAX),
        p99: i32::try_from(millis(latency.p99)).unwrap_or(i32::MAX),
    };
    let latency = LatencyStatus {
        list_page: largest(|report| report.list_latency).map(quantiles),
        event: largest(|report| report.event_latency).map(quantiles),
        read: largest(|report| report.read_latency).map(quantiles),
    };
    (latency != LatencyStatus::default()).then_some(latency)
}

/// Returns the most recent relist among all informers.
pub(super) fn last_relist(informers: &[ObservedInformer<'_>]) -> Option<RelistStatus> {
    let relists = informers.iter().filter_map(|informer| informer.report()?.last_relist);
    relists.max_by_key(|relist| relist.at).map(|relist| RelistStatus {
        time: seconds(relist.at),
        reason: relist.reason.as_str().to_owned(),
        replaced_objects: count(relist.replaced),
        deleted_objects: count(relist.deleted_objects),
    })
}
