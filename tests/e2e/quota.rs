//! More profiles in one namespace than are read.

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::cells;
use crate::operator::Operator;
use crate::profile::{Profile, message};
use crate::world::{Outcome, World};

const SOON: Duration = Duration::from_mins(2);
/// Those that are read, and two more.
const PROFILES: usize = 102;
const SPEC: &str = "{targets: [{name: settings, resource: {resource: configmaps}}]}";

#[test]
fn profiles_beyond_the_bound_of_their_namespace_are_told_and_cost_nobody_else_anything() -> Outcome
{
    let world = World::lease()?;
    let (crowd, calm) = (world.namespace("crowd")?, world.namespace("calm")?);
    Operator::grant_reading(&world)?;
    let mut all = String::new();
    // In the order in which they are made: of the same second the first by name is the older one.
    for n in 0..PROFILES {
        write!(
            all,
            "---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: p{n:03}, namespace: {crowd}, annotations: {{note: '{}'}}}}
spec: {SPEC}
",
            "x".repeat(10_000)
        )?;
    }
    world.cluster.apply(&all)?;
    let operator = Operator::start(&world)?;
    let other = Profile::apply(&world, &calm, "other", SPEC)?;
    other.await_condition("Ready", "True", None, SOON)?;
    let of = |name| Profile { world: &world, namespace: &crowd, name };
    for name in ["p000", "p099"] {
        of(name).await_condition("Ready", "True", None, SOON)?;
    }
    for name in ["p100", "p101"] {
        let told = of(name).await_condition("Accepted", "False", Some("InvalidSpec"), SOON)?;
        let told = message(&told, "Accepted");
        assert!(told.contains("100 with 4 MiB") && told.contains("delete profiles"), "{told}");
    }
    let own = cells(&operator)?.into_iter().filter(|cell| cell["resource"] == "cacheprofiles");
    let own: Vec<_> = own.collect();
    let [own] = own.as_slice() else { return Err(format!("{own:#?}").into()) };
    assert_eq!((&own["projection"], &own["objects"]), (&"Profile".into(), &103.into()));

    world.cluster.run(["delete", "cprof", "p050", "-n", &crowd])?;
    of("p100").await_condition("Ready", "True", None, SOON)?;
    let last = of("p101").read()?;
    assert!(message(&last, "Accepted").contains("100 with 4 MiB"), "{last:#}");
    other.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}
