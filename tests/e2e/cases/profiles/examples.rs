//! The shipped examples with their shipped roles.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::operator::Operator;
use crate::profile::{Profile, message};
use crate::world::{Failure, Outcome, SOON, World, file, yaml_files};

/// The namespaces of the examples and of their targets. Two carry the label that one example
/// selects.
const CLUSTER: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: autoscaler}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: billing}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: orders, labels: {kubewarm.io/warm: platform}}
---
apiVersion: v1
kind: Namespace
metadata: {name: payments, labels: {kubewarm.io/warm: platform}}
";

#[test]
fn every_example_becomes_ready_with_its_roles() -> Outcome {
    let world = World::lease()?;
    let _operator = Operator::start(&world)?;
    world.cluster.apply(CLUSTER)?;
    for path in yaml_files("deploy/rbac")?.iter().chain(&yaml_files("deploy/examples")?) {
        world.cluster.run(["apply", "-f", &path.to_string_lossy()])?;
    }
    let all: Value =
        serde_json::from_str(&world.cluster.run(["get", "cprof", "-A", "-o", "json"])?)?;
    let profiles = all["items"].as_array().ok_or("no list")?;
    assert_eq!(profiles.len(), 6, "{all:#}");
    for object in profiles {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let profile = Profile { world: &world, namespace: text("namespace"), name: text("name") };
        // The status of the profile `platform` names the namespaces of its selector only after
        // kubewarm has listed namespaces, which needs a permission.
        if profile.name == "platform" {
            profile.await_manifests()?;
            profile.grant()?;
        }
        profile.await_condition("Ready", "True", None, SOON)?;
    }
    Ok(())
}

/// The command of the example's init container, with the pod's account. `timeout` replaces the
/// timeout of the example.
fn init_container(world: &World, timeout: Option<&str>) -> Result<Command, Failure> {
    let deployment = world.get("billing", "deployment", "billing-controller")?;
    let pod = &deployment["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().ok_or("no account")?;
    let arguments = pod["initContainers"][0]["args"].as_array().ok_or("no arguments")?;
    let arguments = arguments.iter().filter_map(Value::as_str).map(|argument| match timeout {
        Some(timeout) if argument.starts_with("--timeout=") => timeout,
        Some(_) | None => argument,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command
        .args(arguments)
        // These arguments are the values that the pod would read from its mounted files.
        .args(["-n", "billing", "--kubeconfig"])
        .arg(world.cluster.service_account_kubeconfig("billing", account)?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

#[test]
fn a_controller_starts_when_its_kinds_are_listable_and_permitted_and_not_before() -> Outcome {
    let world = World::lease()?;
    let _operator = Operator::start(&world)?;
    let example = file("deploy/examples/warm-before-start.yaml");
    world.cluster.run(["apply", "-f", &example.to_string_lossy()])?;
    let profile = Profile { world: &world, namespace: "billing", name: "billing-controller" };
    profile.await_condition("Ready", "False", Some("PermissionsMissing"), SOON)?;
    let lacking = "not allowed to list and watch configmaps of the core API group in namespace \
                   \"billing\" as system:serviceaccount:kubewarm-system:kubewarm; run \
                   `kubectl warm rbac billing-controller -n billing --operator-namespace \
                   kubewarm-system --diff`";
    // Until kubewarm's access check has ended, the condition contains only the 403 of the
    // informer's list, and not all missing permissions.
    profile.await_that(SOON, |object| message(object, "Ready").contains(lacking).then_some(()))?;

    let late = init_container(&world, Some("--timeout=2s"))?.output()?;
    let stderr = String::from_utf8_lossy(&late.stderr);
    assert_eq!(late.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains(lacking), "{stderr}");

    let waiting = init_container(&world, None)?.spawn()?;
    let roles = file("deploy/rbac/warm-before-start.yaml");
    world.cluster.run(["apply", "-f", &roles.to_string_lossy()])?;
    let ended = waiting.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    // `kubewarm wait` uses its permission to watch the profile. If it lacked this permission, it
    // would print HTTP 403 and poll.
    assert!(!stderr.contains("HTTP 403"), "{stderr}");

    // The account can read only that one profile.
    let kubeconfig = world.cluster.service_account_kubeconfig("billing", "billing-controller")?;
    let all = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["status", "-n", "billing", "--kubeconfig"])
        .arg(kubeconfig)
        .output()?;
    let stderr = String::from_utf8_lossy(&all.stderr);
    assert_eq!(all.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("HTTP 403"), "{stderr}");
    Ok(())
}
