//! Profiles that are only planned: what is forecast, and what warming them then takes.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::figures;
use crate::operator::{NAMESPACE, Operator, Running};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

const SOON: Duration = Duration::from_mins(2);
/// More than a forecast looks at.
const OBJECTS: usize = 1_500;

fn spec(mode: &str, namespace: &str) -> String {
    format!(
        "{{mode: {mode}, targets: [
          {{name: settings, resource: {{resource: configmaps}},
            scope: {{type: Namespaces, namespaces: [{namespace}]}}}},
          {{name: blue, resource: {{resource: configmaps}},
            scope: {{type: Namespaces, namespaces: [{namespace}]}},
            labelSelector: {{matchLabels: {{colour: blue}}}}}}]}}"
    )
}

/// `ConfigMaps` of about 2 KB that have much, but not all, in common; half of them blue.
fn fill(world: &World, namespace: &str) -> Outcome {
    for chunk in 0..OBJECTS / 250 {
        let mut text = String::new();
        for number in chunk * 250..(chunk + 1) * 250 {
            let colour = if number % 2 == 0 { "blue" } else { "red" };
            writeln!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number:05}, namespace: \
                 {namespace}, labels: {{colour: {colour}, app: app-{}}}}}\ndata:",
                number % 40
            )?;
            for line in 0..20 {
                let odd = (number + 1).wrapping_mul(0x9e37_79b9).rotate_left(line) % 99_991;
                writeln!(
                    text,
                    "  key-{line}: a value that all of them have, but for its end {odd:x}"
                )?;
            }
        }
        world.cluster.apply(&text)?;
    }
    Ok(())
}

fn number(plan: &Value, field: &str) -> Result<u64, Failure> {
    plan[field].as_u64().ok_or_else(|| format!("no {field} in {plan:#}").into())
}

#[test]
fn what_was_forecast_is_what_warming_takes() -> Outcome {
    let Running { world, operator } = Running::shared()?;
    let namespace = world.namespace("planned")?;
    fill(world, &namespace)?;
    let profile = Profile::apply(world, NAMESPACE, "planned", &spec("Plan", &namespace))?;
    let planned = profile.await_that(SOON, |profile| profile.pointer("/status/plan").map(drop))?;
    profile.await_condition("Ready", "False", Some("PlanOnly"), SOON)?;
    profile.await_condition("Warm", "False", Some("PlanOnly"), SOON)?;
    let watched = |operator: &Operator| -> Result<Vec<Value>, Failure> {
        let mut cells = figures::cells(operator)?;
        cells.retain(|cell| cell["namespace"] == namespace.as_str());
        Ok(cells)
    };
    assert_eq!(watched(operator)?.len(), 0, "nothing is watched");
    let plan = planned.pointer("/status/plan").ok_or("no plan")?;
    // The namespace's own kube-root-ca.crt is one of them.
    let objects = u64::try_from(OBJECTS + OBJECTS / 2 + 1)?;
    assert_eq!((number(plan, "cells")?, number(plan, "objects")?), (2, objects), "{plan:#}");
    assert_eq!((number(plan, "requests")?, number(plan, "missing")?), (2, 0), "{plan:#}");

    Profile::apply(world, NAMESPACE, "planned", &spec("Active", &namespace))?;
    let warm = profile.await_condition("Ready", "True", None, SOON)?;
    assert!(warm.pointer("/status/plan").is_none(), "{warm:#}");
    let millis = warm["status"]["timeToWarmMilliseconds"].as_u64().ok_or("no time")?;
    assert_eq!(warm["status"]["objects"].as_u64(), Some(objects));
    // Only loosely, on a machine that others use.
    let seconds = number(plan, "seconds")?;
    assert!(seconds <= 2 + millis / 100, "{seconds} s forecast, {millis} ms");
    let mebibytes = |text: &Value| -> Result<u64, Failure> {
        Ok(text.as_str().ok_or("no text")?.trim_end_matches("Mi").parse()?)
    };
    let (forecast, actual) = (mebibytes(&plan["memory"])?, mebibytes(&warm["status"]["memory"])?);
    // Both are rounded up to 1 MiB.
    assert!(forecast.abs_diff(actual) <= 1 + actual / 4, "{forecast}Mi forecast, {actual}Mi");
    Ok(())
}

#[test]
fn what_may_not_be_read_is_counted_and_nothing_else_is_asked_of_it() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("closed")?;
    let _operator = Operator::start(&world)?;
    let profile = Profile::apply(
        &world,
        &namespace,
        "closed",
        "{mode: Plan, targets: [
        {name: settings, resource: {resource: configmaps}},
        {name: pods, resource: {resource: pods}}]}",
    )?;
    let missing = |count: u64| {
        move |profile: &Value| {
            (profile.pointer("/status/plan/missing")?.as_u64()? == count).then_some(())
        }
    };
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), SOON)?;
    // List and watch, of two kinds.
    let refused = profile.await_that(SOON, missing(4))?;
    let conditions = refused.pointer("/status/conditions").ok_or("no conditions")?.to_string();
    assert!(conditions.contains("4 permissions are missing"), "{conditions}");
    assert!(conditions.contains("at least 2 cells"), "{conditions}");

    profile.await_manifests()?;
    profile.grant()?;
    // An edit is looked at at once.
    world.cluster.run([
        "patch",
        "cprof",
        "closed",
        "-n",
        &namespace,
        "--type=merge",
        "-p",
        r#"{"spec":{"warmup":{"pageSize":400}}}"#,
    ])?;
    profile.await_that(SOON, missing(0))?;
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    Ok(())
}
