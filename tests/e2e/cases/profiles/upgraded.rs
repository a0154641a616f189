//! An upgrade from a version whose CRD had another default of `managedFields`. The API server has
//! stored the old default in the profiles.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::operator::Operator;
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

const SPEC: &str = "{targets: [{name: accounts, resource: serviceaccounts},
  {name: settings, resource: configmaps, indexes: [{name: a, fieldPath: metadata.labels.a}]}]}";

/// The lines of the CRD with the new default, and with the old one.
const DEFAULTS: [[&str; 2]; 2] = [
    [
        "                        managedFields: Keep\n",
        "                        managedFields: Drop\n",
    ],
    ["                          default: Keep\n", "                          default: Drop\n"],
];

/// Replaces the CRD, and waits until the API server completes new profiles with this default.
fn define(world: &World, namespace: &str, crd: &str, default: &str) -> Outcome {
    let path = world.cluster.folder().join("crd.yaml");
    std::fs::write(&path, crd)?;
    world.cluster.run(["replace", "-f", &path.to_string_lossy()])?;
    eventually(SOON, || {
        let probe =
            Profile::apply(world, namespace, "probe", "{targets: [{name: a, resource: pods}]}")?;
        let fields = fields(&probe.read()?, 0);
        world.cluster.run(["delete", "cprof", "probe", "-n", namespace])?;
        if fields == default { Ok(()) } else { Err(fields.to_string().into()) }
    })
}

fn fields(profile: &Value, at: usize) -> Value {
    profile["spec"]["targets"][at]["projection"]["managedFields"].clone()
}

/// The message of the condition `Accepted` of a target.
fn accepted(profile: &Value, name: &str) -> Option<String> {
    let conditions = target(profile, name)?.get("conditions")?.as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Accepted")?;
    condition["message"].as_str().map(str::to_owned)
}

/// Runs a command that a message or `check` names, with the test's kubectl and the administrator's
/// kubeconfig.
fn run(world: &World, command: &str) -> Outcome {
    let kubectl = world.cluster.kubectl_program();
    let folder = kubectl.parent().unwrap_or_else(|| Path::new("/"));
    let path = std::env::join_paths(
        [folder.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let mut shell = Command::new("bash");
    shell.args(["-euc", command]).env("PATH", path).env("KUBECONFIG", world.cluster.kubeconfig());
    let output = shell.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn check(world: &World) -> Result<String, Failure> {
    let mut check = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    check.args(["check", "--kubeconfig"]).arg(world.cluster.kubeconfig());
    Ok(String::from_utf8(check.output()?.stdout)?)
}

#[test]
fn a_profile_of_the_old_crd_is_reported_with_the_command_that_keeps_managed_fields() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("shop")?;
    let new = std::fs::read_to_string(file("crds/kubewarm.io_cacheprofiles.yaml"))?;
    let old = DEFAULTS.iter().fold(new.clone(), |crd, [new, old]| {
        assert!(crd.contains(new), "no {new:?}");
        crd.replace(new, old)
    });
    define(&world, &namespace, &old, "Drop")?;
    let profile = Profile::apply(&world, &namespace, "orders", SPEC)?;
    let again = Profile::apply(&world, &namespace, "again", SPEC)?;
    define(&world, &namespace, &new, "Keep")?;
    assert_eq!(fields(&profile.read()?, 1), json!("Drop"));
    // kubectl replaces the whole list of targets, because its items differ from the manifest's
    // items.
    Profile::apply(&world, &namespace, "again", SPEC)?;
    assert_eq!(fields(&again.read()?, 1), json!("Keep"));

    let _operator = Operator::start(&world)?;
    Operator::grant_reading(&world)?;
    let ready = profile.await_condition("Ready", "True", None, SOON)?;
    let message = accepted(&ready, "settings").unwrap_or_default();
    assert!(message.contains("kubectl patch cprof orders"), "{message}");
    let checked = check(&world)?;
    assert!(checked.contains("drops managedFields of accounts, settings"), "{checked}");

    // The command of the condition changes one target, and the command of `check` changes the
    // others.
    let command = message.split('`').nth(1).ok_or("no command")?;
    run(&world, command)?;
    let both = [0, 1].map(|at| fields(&profile.read().unwrap_or_default(), at));
    assert_eq!(both, [json!("Drop"), json!("Keep")]);
    let checked = check(&world)?;
    let command = checked.lines().map(str::trim).find(|line| line.starts_with("kubectl patch"));
    run(&world, command.ok_or_else(|| format!("no command in {checked}"))?)?;
    assert!(!check(&world)?.contains("drops managedFields"));
    profile.await_that(SOON, |profile| {
        let message = accepted(profile, "settings")?;
        (!message.contains("managedFields")).then_some(())
    })?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}
