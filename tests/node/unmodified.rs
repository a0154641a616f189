//! A program that uses only its in-cluster configuration sends its requests to kubewarm, with the
//! pod that docs/operating.md shows. With the same pod, it verifies the API server too.

use std::fs;
use std::process::Command;

use serde_json::Value;
use testbed::eventually;

use crate::account::{PROFILE_RULES, service_account};
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, file};

/// The address of kubewarm's Service on the page.
const EXAMPLE_ADDRESS: &str = "10.96.0.99";

/// Runs the page's pod to its end, with this name and with the API server's names at `address`.
/// Returns what the program printed.
fn run(world: &NodeWorld, name: &str, address: &str) -> Result<String, Failure> {
    let page = fs::read_to_string(file("docs/operating.md"))?;
    let pod = page.split("```").find(|block| block.contains("name: kubewarm-api-ca"));
    let pod = pod.and_then(|block| block.strip_prefix("yaml\n")).ok_or("no pod on the page")?;
    let pod = pod
        .replace(EXAMPLE_ADDRESS, address)
        .replace("name: unmodified,", &format!("name: {name},"));
    assert!(pod.contains(address) && pod.contains(name), "{pod}");
    world.cluster().apply(&pod)?;
    let ended = world.await_that(&format!("pod {name} --namespace=shop"), SOON, |pod| {
        ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
    })?;
    let log = world.run(&format!("logs {name} --namespace=shop"))?;
    assert_eq!(text(&ended, "/status/phase"), "Succeeded", "{log}");
    Ok(log)
}

#[test]
fn an_unmodified_program_in_a_pod_reads_from_kubewarm() -> Outcome {
    let test = "an_unmodified_program_in_a_pod_reads_from_kubewarm";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let values = format!("readApi: {{forward: true}}\ninject: {{enabled: true}}\n{PAIR}");
    let release = NodeRelease::with(&world, &values)?;
    release.await_ready()?;
    world.cluster().apply(&service_account("shop", "unmodified", PROFILE_RULES))?;
    world.run("label namespace shop kubewarm.io/inject= --overwrite")?;
    eventually(SOON, || world.get("configmap kubewarm-api-ca --namespace=shop").map(drop))?;
    let address = |service: &str| -> Result<String, Failure> {
        Ok(text(&world.get(service)?, "/spec/clusterIP").to_owned())
    };
    let kubewarm = address(&format!("service kubewarm --namespace={NAMESPACE}"))?;
    let apiserver = address("service kubernetes --namespace=default")?;
    let through = run(&world, "through-kubewarm", &kubewarm)?;
    assert!(through.contains("sample"), "{through}");
    assert_eq!(
        run(&world, "at-the-api-server", &apiserver)?.lines().count(),
        through.lines().count()
    );

    // kubewarm forwarded the first program's read, because no profile declares profiles.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["forwarded", "--output=json", "--kubeconfig"]).arg(world.cluster().kubeconfig());
    command.args(["--operator-namespace", NAMESPACE]);
    let output = world.node.command(&command).output()?;
    let shown: Value = serde_json::from_slice(&output.stdout)?;
    let entries = shown["forwarded"].as_array().ok_or("no list")?;
    let is_ours = |entry: &&Value| entry["user"] == "system:serviceaccount:shop:unmodified";
    let resource = entries.iter().find(is_ours).map(|entry| &entry["resource"]);
    assert_eq!(resource, Some(&"cacheprofiles".into()), "{shown:#}");
    world.run("delete pods through-kubewarm at-the-api-server --namespace=shop --wait=false")?;
    Ok(())
}
