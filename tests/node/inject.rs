//! `kubewarm inject` lets the pods of a Deployment read from kubewarm, and undoes it.

use std::fs;
use std::process::Command;

use serde_json::Value;
use testbed::eventually;

use crate::account::{PROFILE_RULES, service_account};
use crate::injected::{self, injecting_release, served};
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON};

/// A program that watches profiles by its in-cluster configuration. `more` are fields of its pods.
fn watcher(kind: &str, name: &str, more: &str) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      {more}
      serviceAccountName: watcher
      terminationGracePeriodSeconds: 0
      containers:
      - name: program
        image: localhost/kubewarm:dev
        args: [wait, sample, --namespace, shop, --for, condition=Ready=False, --timeout, 1h]
"
    )
}

/// The user of the program's ServiceAccount.
const WATCHER: &str = "system:serviceaccount:shop:watcher";

/// Runs `kubewarm COMMAND -n shop` and returns what it printed, also to standard error.
fn kubewarm(world: &NodeWorld, command: &str) -> Result<String, Failure> {
    injected::kubewarm(world, "shop", command)
}

/// The injected manifest, with an address that no Service has.
fn injected_offline(world: &NodeWorld, manifest: &str) -> Result<String, Failure> {
    let file = world.cluster().folder().join("lost.yaml");
    fs::write(&file, manifest)?;
    let command = format!("inject --offline --cluster-ip 10.96.0.200 -f {}", file.display());
    Ok(kubewarm(world, &command)?
        .split("offline: not checked")
        .next()
        .unwrap_or_default()
        .to_owned())
}

fn kubewarm_json(world: &NodeWorld) -> Result<Value, Failure> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    process.args(["forwarded", "-o", "json", "--operator-namespace", NAMESPACE, "--kubeconfig"]);
    process.arg(world.cluster().kubeconfig());
    Ok(serde_json::from_slice(&world.node.command(&process).output()?.stdout)?)
}

#[test]
fn injected_pods_read_from_kubewarm_until_undone() -> Outcome {
    let test = "injected_pods_read_from_kubewarm_until_undone";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    injecting_release(&world)?;
    world.cluster().apply(&service_account("shop", "watcher", PROFILE_RULES))?;
    world.cluster().apply(&watcher("Deployment", "watcher", ""))?;
    world.cluster().apply(&watcher("DaemonSet", "on-the-node", "hostNetwork: true"))?;
    world.run("rollout status deployment/watcher --namespace=shop --timeout=600s")?;
    let before = world.get("deployment watcher --namespace=shop")?;

    let command = format!("inject deployment/watcher --operator-namespace {NAMESPACE}");
    let stream = kubewarm(&world, &command)?;
    for kind in ["Namespace", "CacheProfile", "Role", "RoleBinding", "Deployment"] {
        assert!(stream.contains(&format!("kind: {kind}\n")), "{kind} in {stream}");
    }
    assert_eq!(
        world.get("deployment watcher --namespace=shop")?,
        before,
        "printing changes nothing"
    );
    // Nobody can answer the question here.
    let unanswered = kubewarm(&world, &format!("{command} --apply"));
    assert!(unanswered.is_err_and(|error| error.to_string().contains("confirm with --yes")));

    let applied = kubewarm(&world, &format!("{command} --apply --yes"))?;
    for part in ["+ spec.template.spec.hostAliases: ", "is injected", "kubewarm served "] {
        assert!(applied.contains(part), "{part} in {applied}");
    }
    let injected = world.get("deployment watcher --namespace=shop")?;
    kubewarm(&world, &format!("{command} --apply --yes"))?;
    let again = world.get("deployment watcher --namespace=shop")?;
    assert_eq!(
        again["metadata"]["generation"], injected["metadata"]["generation"],
        "twice is as once"
    );
    let count = served(&world, WATCHER)?;
    assert!(count > 0, "{applied}");
    let checked = kubewarm(&world, &format!("{command} --check"))?;
    for part in [
        "with the Service's address",
        "verify kubewarm as kubernetes.default.svc",
        "verify the API server as kubernetes.default.svc",
        "from its stores",
    ] {
        assert!(checked.contains(part), "{part} in {checked}");
    }

    // The kubelet adds aliases to pods of the node's network too.
    let daemon = format!("inject daemonset/on-the-node --operator-namespace {NAMESPACE}");
    let applied = kubewarm(&world, &format!("{daemon} --apply --yes"))?;
    assert!(applied.contains("kubewarm served "), "{applied}");
    eventually(SOON, || {
        let now = served(&world, WATCHER)?;
        if now > count { Ok(()) } else { Err(format!("{now} after {count}").into()) }
    })?;

    // A pod whose alias leads nowhere, as after a new installation with another address.
    let stale = injected_offline(&world, &watcher("Deployment", "lost", ""))?;
    world.cluster().apply(&stale)?;
    eventually(SOON, || {
        let checked = kubewarm(&world, &format!("check --operator-namespace {NAMESPACE}"));
        let checked = checked.unwrap_or_else(|error| error.to_string());
        let is_named = checked
            .lines()
            .any(|line| line.contains("lead to an address") && line.contains("shop/lost-"));
        if is_named { Ok(()) } else { Err(checked.into()) }
    })?;
    let lost = format!("inject deployment/lost --operator-namespace {NAMESPACE} --check");
    let error = kubewarm(&world, &lost).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("its alias leads to 10.96.0.200, but the Services have"), "{error}");
    world.run("delete deployment/lost --namespace=shop --wait=false")?;

    kubewarm(&world, "inject deployment/watcher --undo --apply --yes")?;
    let undone = world.get("deployment watcher --namespace=shop")?;
    assert_eq!(undone["spec"], before["spec"]);
    world.run("delete deployment/watcher daemonset/on-the-node --namespace=shop --wait=false")?;
    world.run("delete cacheprofile watcher --namespace=shop")?;
    Ok(())
}

/// A pod that says nothing of kubewarm.
const BY_LABEL: &str = "apiVersion: v1
kind: Pod
metadata: {name: by-label, namespace: shop}
spec:
  serviceAccountName: by-label
  restartPolicy: Never
  containers:
  - name: program
    image: localhost/kubewarm:dev
    args: [status, sample, --namespace, shop]
";

#[test]
fn a_plain_pod_of_a_labelled_namespace_reads_from_kubewarm() -> Outcome {
    let test = "a_plain_pod_of_a_labelled_namespace_reads_from_kubewarm";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let inject = "inject: {enabled: true, policy: {enabled: true}}";
    let values = format!("readApi: {{forward: true}}\n{inject}\n{PAIR}");
    NodeRelease::with(&world, &values)?.await_ready()?;
    world.cluster().apply(&service_account("shop", "by-label", PROFILE_RULES))?;
    world.run("label namespace shop kubewarm.io/inject=pods --overwrite")?;
    let parameters = format!("configmap kubewarm-inject --namespace={NAMESPACE}");
    world.await_that(&parameters, SOON, |parameters| {
        text(parameters, "/data/namespaces") == "shop"
    })?;
    // The API server's own copy of the parameters is late by milliseconds.
    eventually(SOON, || {
        world.run("delete pod by-label --namespace=shop --ignore-not-found --now")?;
        world.cluster().apply(BY_LABEL)?;
        let pod = world.get("pod by-label --namespace=shop")?;
        let annotations = &pod["metadata"]["annotations"];
        if annotations["kubewarm.io/injected-by-policy"].is_string() {
            return Ok(());
        }
        Err(format!("not injected: {annotations}").into())
    })?;
    let ended = world.await_that("pod by-label --namespace=shop", SOON, |pod| {
        ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
    })?;
    let log = world.run("logs by-label --namespace=shop")?;
    assert_eq!(text(&ended, "/status/phase"), "Succeeded", "{log}");
    assert!(log.contains("sample"), "{log}");
    // No profile declares profiles, so kubewarm forwarded the program's read.
    let report = kubewarm_json(&world)?;
    let entries = report["forwarded"].as_array().ok_or("no list")?;
    let is_ours = |entry: &&Value| entry["user"] == "system:serviceaccount:shop:by-label";
    let resource = entries.iter().find(is_ours).map(|entry| &entry["resource"]);
    assert_eq!(resource, Some(&"cacheprofiles".into()), "{report:#}");
    world.run("delete pod by-label --namespace=shop --wait=false")?;
    world.run("label namespace shop kubewarm.io/inject= --overwrite")?;
    Ok(())
}
