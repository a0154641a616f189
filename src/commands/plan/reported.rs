//! The forecast that the operator has written to the status of a profile in mode Plan.

use super::{
    super::{
        CommandError,
        profile_readiness::{condition, name, name_and_namespace},
    },
    costs::{ForecastCosts, ForecastReport},
};
use kubewarm_api::{
    model::parse_quantity,
    v1alpha1::{CacheProfile, PlanCertainty, PlanStatus},
};

/// Returns the forecast in the status of `profile`.
///
/// # Errors
///
/// [`CommandError`] if the status has no forecast of the newest generation.
pub(super) fn forecast(profile: &CacheProfile) -> Result<ForecastReport, CommandError> {
    let plan = profile.status.as_ref().and_then(|status| {
        let is_current = status.observed_generation == profile.metadata.generation;
        Some((status.plan.as_ref().filter(|_| is_current)?, &status.conditions))
    });
    let Some((plan, conditions)) = plan else { return Err(no_forecast(profile)) };
    let ready = condition(conditions, "Ready");
    let (name, namespace) = name_and_namespace(profile);
    Ok(ForecastReport {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        targets: Vec::new(),
        total: costs(plan),
        faults: Vec::new(),
        notes: ready.map(|ready| ready.message.clone()).into_iter().collect(),
    })
}

fn no_forecast(profile: &CacheProfile) -> CommandError {
    CommandError::new(format!(
        "the status of CacheProfile {} has no plan yet; retry in a minute, or pass --live to sample the cluster \
         now",
        name(profile)
    ))
}

fn costs(plan: &PlanStatus) -> ForecastCosts {
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
    // Older versions of the operator do not write the field `certainty`, so their numbers count as
    // lower bounds.
    let certainty = certainty.unwrap_or(PlanCertainty::LowerBound);
    let count = |number: Option<i64>, certainty| Some((u64::try_from(number?).ok()?, certainty));
    ForecastCosts {
        informers: count(informers.map(i64::from), PlanCertainty::Estimate),
        objects: count(*objects, certainty),
        bytes: memory.as_deref().and_then(parse_quantity).map(|bytes| (bytes, certainty)),
        requests: count(requests.map(i64::from), certainty),
        millis: count(*time_to_warm_milliseconds, certainty),
        missing: count(missing_permissions.map(i64::from), PlanCertainty::Estimate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_certainty_of_the_status() {
        let plan = PlanStatus {
            informers: Some(1),
            objects: Some(7),
            memory: Some("3Mi".to_owned()),
            missing_permissions: Some(0),
            ..PlanStatus::default()
        };
        let costs = |certainty| costs(&PlanStatus { certainty, ..plan.clone() });
        let bound = costs(Some(PlanCertainty::LowerBound));
        assert_eq!(
            (bound.objects, bound.bytes),
            (Some((7, PlanCertainty::LowerBound)), Some((3 << 20, PlanCertainty::LowerBound)))
        );
        assert_eq!(
            (bound.informers, bound.missing),
            (Some((1, PlanCertainty::Estimate)), Some((0, PlanCertainty::Estimate)))
        );
        assert_eq!((bound.requests, bound.millis), (None, None), "a missing number is unknown");
        assert_eq!(
            costs(Some(PlanCertainty::Estimate)).objects,
            Some((7, PlanCertainty::Estimate))
        );
        assert_eq!(
            costs(None).objects,
            Some((7, PlanCertainty::LowerBound)),
            "older versions do not write the certainty"
        );
    }
}
