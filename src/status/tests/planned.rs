//! Profiles that are only planned.

use super::{super::*, fixtures::*};
use crate::forecast::{Figures, Forecast};
use kubewarm_api::{model::Mode, v1alpha1::PlanCertainty};
use std::sync::Arc;

fn planned() -> Declared {
    Declared { mode: Mode::Plan, ..declared(vec![target("pods", &[pods("a")])]) }
}

fn status(
    world: &World,
    plan: Option<&Forecast>,
    previous: Option<&CacheProfileStatus>,
) -> CacheProfileStatus {
    let plan = plan.cloned().map(Arc::new);
    let observed = Observed { plan, ..Observed::new(Arc::new(planned())) };
    compute(&observed, previous, world.clock, &|key| {
        world.cells.get(key).cloned().unwrap_or_default()
    })
}

fn forecast() -> Forecast {
    let total = Figures { cells: 1, objects: 7, missing: 1, ..Figures::default() };
    Forecast {
        total: Figures { certainty: PlanCertainty::LowerBound, ..total },
        caveats: vec!["pods: too many".to_owned()],
        ..Forecast::default()
    }
}

#[test]
fn what_others_keep_warm_is_not_warm_for_a_profile_that_is_planned() {
    let mut world = World::new();
    world.runs(pods("a"), world.watching());
    let status = status(&world, None, None);
    assert_eq!(said(&status.conditions, "Ready"), "False/PlanOnly");
    assert_eq!(said(&status.conditions, "Warm"), "False/PlanOnly");
    assert_eq!(said(&status.conditions, "Fresh"), "Unknown/NotWarm");
    assert_eq!(said(&status.conditions, "Accepted"), "True/Resolved");
    assert_eq!(said(&status.targets[0].conditions, "Warm"), "False/PlanOnly");
    assert_eq!((status.objects, status.plan), (Some(0), None));
}

#[test]
fn the_forecast_is_said_in_numbers_and_words_until_the_next_one() {
    let world = World::new();
    let first = status(&world, Some(&forecast()), None);
    let plan = first.plan.clone().unwrap();
    assert_eq!((plan.informers, plan.objects), (Some(1), Some(7)));
    assert_eq!(plan.missing_permissions, Some(1));
    let text = message(&first.conditions, "Ready");
    for part in ["at least 1 informers", "7 objects", "1 permissions are missing", "pods: too many"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let second = status(&world, None, Some(&first));
    assert_eq!(second.plan, first.plan, "of another process, or not made anew yet");
    let text = message(&second.conditions, "Ready");
    assert!(text.contains("at least 1 informers"), "it is no surer than before: {text}");
    let active = declared(vec![target("pods", &[pods("a")])]);
    assert_eq!(world.compute(&active, Some(&first)).plan, None);
}
