use super::{super::*, fixtures::*};
use crate::forecast::{CostForecast, ProfileForecast};
use jiff::Timestamp;
use kubewarm_api::{model::ProfileMode, v1alpha1::PlanCertainty};
use std::sync::Arc;

fn planned() -> ResolvedProfile {
    ResolvedProfile { mode: ProfileMode::Plan, ..declared(vec![target("pods", &[pods("a")])]) }
}

fn status(
    world: &StatusWorld,
    forecast: Option<&ProfileForecast>,
    previous: Option<&CacheProfileStatus>,
) -> CacheProfileStatus {
    status_of(planned(), world, forecast, previous)
}

fn status_of(
    profile: ResolvedProfile,
    world: &StatusWorld,
    forecast: Option<&ProfileForecast>,
    previous: Option<&CacheProfileStatus>,
) -> CacheProfileStatus {
    let forecast = forecast.cloned().map(Arc::new);
    let observed = ObservedProfile {
        forecast,
        ..ObservedProfile::new(Arc::new(profile), kubewarm_api::manifests::NAMESPACE.into())
    };
    world.compute_of(&observed, previous)
}

fn forecast() -> ProfileForecast {
    let total = CostForecast { informers: 1, objects: 7, missing: 1, ..CostForecast::default() };
    ProfileForecast {
        total: CostForecast { certainty: PlanCertainty::LowerBound, ..total },
        caveats: vec!["pods: too many".to_owned()],
        ..ProfileForecast::default()
    }
}

#[test]
fn a_planned_profile_is_not_warm_even_if_another_profile_runs_its_informers() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let status = status(&world, None, None);
    assert_eq!(state(&status.conditions, "Ready"), "Unknown/Plan");
    assert_eq!(state(&status.conditions, "Warm"), "False/Plan");
    assert_eq!(state(&status.conditions, "Fresh"), "Unknown/NotWarm");
    assert_eq!(state(&status.conditions, "Accepted"), "True/Resolved");
    assert_eq!(state(&status.targets[0].conditions, "Warm"), "False/Plan");
    assert_eq!((status.objects, status.plan), (Some(0), None));
}

#[test]
fn the_forecast_is_reported_until_the_next_one_replaces_it() {
    let world = StatusWorld::new();
    let first = status(&world, Some(&forecast()), None);
    let plan = first.plan.clone().unwrap();
    assert_eq!((plan.informers, plan.objects), (Some(1), Some(7)));
    assert_eq!(plan.missing_permissions, Some(1));
    let text = message(&first.conditions, "Ready");
    for part in ["at least 1 informers", "7 objects", "1 permissions are missing", "pods: too many"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let second = status(&world, None, Some(&first));
    assert_eq!(second.plan, first.plan, "the old plan stays until a new one exists");
    let text = message(&second.conditions, "Ready");
    assert!(text.contains("at least 1 informers"), "the kept plan is still a lower bound: {text}");
    let active = declared(vec![target("pods", &[pods("a")])]);
    assert_eq!(world.compute(&active, Some(&first)).plan, None);
}

#[test]
fn equal_numbers_keep_the_time_of_their_first_measurement() {
    let world = StatusWorld::new();
    let at =
        |seconds| ProfileForecast { time: Timestamp::from_second(seconds).unwrap(), ..forecast() };
    let time = |status: &CacheProfileStatus| {
        status.plan.as_ref()?.time.as_ref().map(|time| time.0.as_second())
    };
    let first = status(&world, Some(&at(1_000)), None);
    assert_eq!(time(&first), Some(1_000));
    let second = status(&world, Some(&at(1_600)), Some(&first));
    assert_eq!(second.plan, first.plan, "an equal plan causes no write");

    let mut other = at(2_200);
    other.total.objects += 1;
    let third = status(&world, Some(&other), Some(&second));
    assert_eq!(time(&third), Some(2_200), "a plan with other numbers has a new time");

    let edited = ResolvedProfile { generation: 4, ..planned() };
    let fourth = status_of(edited.clone(), &world, Some(&at(2_800)), Some(&first));
    assert_eq!(time(&fourth), Some(2_800), "the former plan is of another generation");
    assert_eq!(status_of(edited, &world, None, Some(&first)).plan, None);
}
