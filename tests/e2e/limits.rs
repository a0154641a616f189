//! Limits on a real API server: what is too large stops or keeps its metadata, and nobody else notices.

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::{Exposition, cells};
use crate::operator::Running;
use crate::profile::{Profile, problems, target};
use crate::world::{Outcome, World};

const PATIENCE: Duration = Duration::from_mins(1);
const CONFIG_MAPS: usize = 400;
const TARGETS: &str = "targets: [{name: big, resource: {resource: configmaps}}, \
                       {name: small, resource: {resource: services}}]";

fn fill(world: &World, namespace: &str) -> Outcome {
    let mut text = String::new();
    for n in 0..CONFIG_MAPS {
        write!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: c{n:04}, namespace: {namespace}}}\ndata: {{n: '{n}'}}\n"
        )?;
    }
    world.cluster.apply(&text)?;
    Ok(())
}

#[test]
fn a_kind_beyond_its_limit_is_stopped_while_it_is_listed_and_nobody_else_notices() -> Outcome {
    let running = Running::shared()?;
    let world = &running.world;
    let namespace = world.namespace("limits")?;
    fill(world, &namespace)?;
    let limited = format!(
        "{{{TARGETS}, warmup: {{listStrategy: Paged, pageSize: 50}}, limits: {{maxObjects: 100}}}}"
    );
    let profile = Profile::apply(world, &namespace, "limited", &limited)?;
    let at = ("WithinLimits", "False", "ObjectsExceeded");
    let seen = profile.await_target("big", at, PATIENCE)?;
    let told = problems(&seen, "big").join("\n");
    let reached = told.split("stopped at ").nth(1).and_then(|rest| rest.split(' ').next());
    let reached: usize = reached.ok_or_else(|| told.clone())?.parse()?;
    assert!((101..200).contains(&reached), "{told}");
    assert!(told.contains("spec.limits.maxObjects"), "{told}");
    let seen = profile.await_condition("Ready", "False", Some("LimitExceeded"), PATIENCE)?;
    assert_eq!(target(&seen, "big").ok_or("no target")?["cells"]["limited"], 1);
    profile.await_target("small", ("Warm", "True", "Synced"), PATIENCE)?;
    let is_ours = |cell: &serde_json::Value| {
        cell["namespace"] == *namespace && cell["resource"] == "configmaps"
    };
    assert!(!cells(&running.operator)?.iter().any(is_ours), "its cell is gone");
    let rejections = ["limit=\"objects\""];
    assert!(
        Exposition::read(&running.operator)?.sum("kubewarm_limit_rejections_total", &rejections)
            > 0.0
    );

    // Another profile's cell of the same kind is its own business.
    let other = Profile::apply(world, &namespace, "unlimited", &format!("{{{TARGETS}}}"))?;
    other.await_condition("Ready", "True", None, PATIENCE)?;
    let seen = profile.read()?;
    assert_eq!(target(&seen, "big").ok_or("no target")?["objects"], 0, "{seen:#}");

    let raised = format!("{{{TARGETS}, limits: {{maxObjects: 1000}}}}");
    Profile::apply(world, &namespace, "limited", &raised)?;
    profile.await_condition("Ready", "True", None, PATIENCE)?;
    profile.await_condition("WithinLimits", "True", Some("BelowLimits"), PATIENCE)?;
    Ok(())
}

#[test]
fn what_does_not_fit_may_keep_its_metadata() -> Outcome {
    let running = Running::shared()?;
    let world = &running.world;
    let namespace = world.namespace("limits")?;
    fill(world, &namespace)?;
    let limits = "limits: {maxObjects: 100, onExceeded: MetadataOnly}";
    let profile = Profile::apply(world, &namespace, "p", &format!("{{{TARGETS}, {limits}}}"))?;
    let at = ("WithinLimits", "False", "ObjectsExceeded");
    profile.await_target("big", at, PATIENCE)?;
    profile.await_target("big", ("Warm", "True", "Synced"), PATIENCE)?;
    let found = cells(&running.operator)?;
    let of_kind = found
        .iter()
        .filter(|cell| cell["namespace"] == *namespace && cell["resource"] == "configmaps");
    let projections: Vec<_> = of_kind.map(|cell| (&cell["projection"], &cell["objects"])).collect();
    let [(projection, objects)] = projections.as_slice() else {
        return Err(format!("{projections:?}").into());
    };
    assert_eq!(*projection, "MetadataOnly");
    // And the ConfigMap that every namespace has.
    assert!(objects.as_u64() >= Some(CONFIG_MAPS as u64), "{objects}");
    Ok(())
}
