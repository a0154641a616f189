//! Profiles in the mode Plan: the forecast must match what the profile needs after it is activated.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::figures;
use crate::operator::{NAMESPACE, Operator, Running};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// More objects than a forecast reads.
const OBJECTS: usize = 1_500;

fn spec(mode: &str, namespace: &str) -> String {
    format!(
        "{{mode: {mode}, targets: [
          {{name: settings, resource: configmaps,
            scope: {{type: Namespaces, namespaces: [{namespace}]}}}},
          {{name: blue, resource: configmaps,
            scope: {{type: Namespaces, namespaces: [{namespace}]}},
            labelSelector: {{matchLabels: {{colour: blue}}}}}}]}}"
    )
}

/// `ConfigMaps` of about 2 KB whose contents are similar but not equal. Half of them are blue.
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
                    "  key-{line}: a value that all of them have up to its last part {odd:x}"
                )?;
            }
        }
        world.cluster.apply(&text)?;
    }
    Ok(())
}

/// The exit code of `kubewarm plan` and its output.
fn kubewarm_plan(
    kubeconfig: &Path,
    args: &[&str],
) -> Result<(Option<i32>, String, String), Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.arg("plan").args(args).arg("--kubeconfig").arg(kubeconfig);
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn number(plan: &Value, field: &str) -> Result<u64, Failure> {
    plan[field].as_u64().ok_or_else(|| format!("no {field} in {plan:#}").into())
}

#[test]
fn the_forecast_matches_what_warming_needs() -> Outcome {
    // The test has a control plane of its own. kubewarm trains a dictionary from the first objects
    // of a kind, and objects of other tests would change it.
    let world = &World::lease()?;
    let operator = &Operator::start(world)?;
    Operator::grant_reading(world)?;
    let namespace = world.namespace("planned")?;
    fill(world, &namespace)?;
    let profile = Profile::apply(world, NAMESPACE, "planned", &spec("Plan", &namespace))?;
    let planned = profile.await_that(SOON, |profile| profile.pointer("/status/plan").map(drop))?;
    profile.await_condition("Ready", "Unknown", Some("Plan"), SOON)?;
    profile.await_condition("Warm", "False", Some("Plan"), SOON)?;
    let watched = |operator: &Operator| -> Result<Vec<Value>, Failure> {
        let mut informers = figures::informers(operator)?;
        informers.retain(|informer| informer["namespace"] == namespace.as_str());
        Ok(informers)
    };
    assert_eq!(watched(operator)?.len(), 0, "nothing is watched");
    let plan = planned.pointer("/status/plan").ok_or("no plan")?;
    assert!(plan["time"].is_string(), "{plan:#}");
    // One object more than the test created: the namespace's own `kube-root-ca.crt`.
    let objects = u64::try_from(OBJECTS + OBJECTS / 2 + 1)?;
    assert_eq!((number(plan, "informers")?, number(plan, "objects")?), (2, objects), "{plan:#}");
    assert_eq!(number(plan, "requests")?, 2, "{plan:#}");
    assert_eq!(number(plan, "missingPermissions")?, 0, "{plan:#}");

    let listed = |operator: &Operator| -> Result<f64, Failure> {
        let figures = figures::Exposition::read(operator)?;
        Ok(figures.sum("kubewarm_upstream_list_pages_total", &["resource=\"configmaps\""]))
    };
    let before = listed(operator)?;
    Profile::apply(world, NAMESPACE, "planned", &spec("Active", &namespace))?;
    let warm = profile.await_condition("Ready", "True", None, SOON)?;
    assert!(warm.pointer("/status/plan").is_none(), "{warm:#}");
    let millis = warm["status"]["timeToWarmMilliseconds"].as_u64().ok_or("no time")?;
    assert_eq!(warm["status"]["objects"].as_u64(), Some(objects));
    let requests = f64::from(u32::try_from(number(plan, "requests")?)?);
    assert!((listed(operator)? - before - requests).abs() < 0.5, "{plan:#}");
    // The bound is loose, because the machine may be busy.
    let forecast = number(plan, "timeToWarmMilliseconds")?;
    assert!(forecast <= 2_000 + millis * 10, "{forecast} ms forecast, {millis} ms");

    // The status rounds to 1 MiB, the command does not.
    let (code, stdout, stderr) = kubewarm_plan(
        world.cluster.kubeconfig(),
        &["planned", "-n", NAMESPACE, "--live", "--output=json"],
    )?;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let live: Value = serde_json::from_str(&stdout)?;
    let total = &live["total"];
    assert_eq!(number(total, "objects")?, objects, "{live:#}");
    assert_eq!(number(total, "missingPermissions")?, 0, "{live:#}");
    let forecast = number(total, "bytes")?;
    // The store has its final size only after compression, which runs after the list and takes
    // longer on a busy machine.
    eventually(SOON, || {
        let bytes: u64 =
            watched(operator)?.iter().filter_map(|informer| informer["bytes"].as_u64()).sum();
        let is_near = forecast * 5 >= bytes * 4 && forecast * 4 <= bytes * 5;
        if is_near { Ok(()) } else { Err(format!("{forecast} of {bytes} bytes").into()) }
    })?;
    let mebibytes = |text: &Value| text.as_str()?.strip_suffix("Mi")?.parse::<u64>().ok();
    let shown = mebibytes(&plan["memory"]).ok_or("no memory")?;
    assert!(shown.abs_diff(forecast.div_ceil(1 << 20)) <= 1, "{shown}Mi, {forecast} bytes");
    Ok(())
}

#[test]
fn a_forecast_counts_missing_permissions_without_reading_objects() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("closed")?;
    let _operator = Operator::start(&world)?;
    let profile = Profile::apply(
        &world,
        &namespace,
        "closed",
        "{mode: Plan, targets: [
        {name: settings, resource: configmaps},
        {name: pods, resource: pods}]}",
    )?;
    let missing = |count: u64| {
        move |profile: &Value| {
            (profile.pointer("/status/plan/missingPermissions")?.as_u64()? == count).then_some(())
        }
    };
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), SOON)?;
    // Four permissions are missing: list and watch of two kinds.
    let refused = profile.await_that(SOON, missing(4))?;
    let conditions = refused.pointer("/status/conditions").ok_or("no conditions")?.to_string();
    assert!(conditions.contains("4 permissions are missing"), "{conditions}");
    assert!(conditions.contains("at least 2 informers"), "{conditions}");
    // Without `--live`, the command reports kubewarm's forecast. With `--live`, it makes a forecast
    // with the user's credentials. Both report the missing permissions.
    let kubeconfig = world.cluster.kubeconfig();
    let (code, stdout, stderr) = kubewarm_plan(kubeconfig, &["closed", "-n", &namespace])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("4 permissions are missing"), "{stdout}");
    let (code, stdout, stderr) =
        kubewarm_plan(kubeconfig, &["closed", "-n", &namespace, "--live"])?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let line = format!(
        "✗ system:serviceaccount:{NAMESPACE}:kubewarm may not list, watch pods in namespace \
         {namespace}\n"
    );
    assert!(stdout.contains(&line), "{stdout}");

    profile.await_manifests()?;
    profile.grant()?;
    // The profile recovers without an edit, long before the ten minutes of the next check.
    profile.await_that(SOON, missing(0))?;
    profile.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    Ok(())
}

#[test]
fn a_file_is_planned_without_a_cluster_and_with_one() -> Outcome {
    let Running { world, .. } = Running::shared()?;
    let namespace = world.namespace("filed")?;
    world.cluster.run(["label", "namespace", &namespace, "shop=filed"])?;
    let path = world.cluster.folder().join("planned.yaml");
    std::fs::write(
        &path,
        format!(
            "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {{name: filed, namespace: {NAMESPACE}}}
spec:
  targets:
  - {{name: named, resource: configmaps, scope: {{type: Namespaces, namespaces: [{namespace}]}}}}
  - name: found
    resource: configmaps
    scope: {{type: NamespaceSelector, namespaceSelector: {{matchLabels: {{shop: filed}}}}}}
  - {{name: gone, group: example.org, resource: nothings}}
"
        ),
    )?;
    let file = path.to_string_lossy();
    let (code, stdout, stderr) = kubewarm_plan(Path::new("/no/such/kubeconfig"), &["-f", &file])?;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("without a cluster, the namespaces of found are unknown"), "{stdout}");

    let live = ["-f", &file, "--live", "--output=json"];
    let (code, stdout, stderr) = kubewarm_plan(world.cluster.kubeconfig(), &live)?;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let live: Value = serde_json::from_str(&stdout)?;
    let forecast = &live[0];
    // Both targets share one informer, which also contains kube-root-ca.crt.
    let total = &forecast["total"];
    assert_eq!(number(total, "informers")?, 1, "{live:#}");
    assert_eq!(number(total, "missingPermissions")?, 0, "{live:#}");
    assert_eq!(forecast["targets"][1]["name"], "found");
    let faults = forecast["faults"].to_string();
    assert!(faults.contains("targets[gone]") || faults.contains("example.org"), "{faults}");
    Ok(())
}
