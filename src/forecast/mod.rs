//! Forecasts the cost of a profile in mode `Plan` from a sample of objects, before any informer
//! runs.

mod cost_forecast;
#[cfg(test)]
pub(crate) mod fixtures;
mod forecaster;
mod sampler;

pub use self::{
    cost_forecast::{CostForecast, ProfileForecast},
    forecaster::{Forecaster, REQUEST_PAUSE, run},
    sampler::ForecastSampler,
};

use kubewarm_api::model::{ResolvedProfile, ResolvedTarget};

/// Returns the targets of a profile that kubewarm accepts, in the order of the spec. A target that
/// kubewarm does not accept runs no informers, so forecasts ignore it.
pub fn accepted(profile: &ResolvedProfile) -> impl Iterator<Item = &ResolvedTarget> {
    profile.targets.iter().filter(|target| is_accepted(target))
}

fn is_accepted(target: &ResolvedTarget) -> bool {
    matches!(target.resolved, Some(Ok(_)))
}
