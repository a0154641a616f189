//! Tests `helm test` without a node: a local process runs as the pod's ServiceAccount and with its
//! arguments.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use serde_json::json;
use testbed::{ControlPlane, Helm, eventually, free_port};

use crate::cluster::{Failure, NAMESPACE, Outcome, SOON, chart, helms};
use crate::installs::Release;
use crate::pods::{container, get, operator, report, text};
use crate::scraped::check_scrape_configuration;

/// A label of all objects of the test hook.
const HOOKS: &str = "app.kubernetes.io/component=helm-test";
/// The kinds of all objects that `helm test` may create.
const KINDS: &str = "pods,serviceaccounts,roles,rolebindings";
/// A profile that needs no permissions in addition to the operator's own.
const PROFILE: &str = "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: own, namespace: kubewarm-system}
spec: {targets: [{name: profiles, group: kubewarm.io, resource: cacheprofiles}]}
";
/// The time limit of Helm's test: twice the time limit of its pod.
const PODS: Duration = Duration::from_mins(10);

/// Runs the test pod's command after Helm has created the pod, until `done` receives Helm's result.
/// Returns that result and the command's output.
fn run_pod(
    cluster: &ControlPlane,
    done: &Receiver<Result<String, String>>,
) -> Result<(Result<String, String>, String), Failure> {
    let mut printed = String::new();
    let ended = eventually(PODS, || {
        let pods = get(cluster, &["pods", "-n", NAMESPACE, "-l", HOOKS])?;
        if let Some(pod) = pods["items"].get(0).filter(|pod| pod["status"]["phase"] == "Pending") {
            let output = container(cluster, pod)?.output()?;
            let phase = if output.status.success() { "Succeeded" } else { "Failed" };
            report(cluster, text(pod, "/metadata/name")?, &json!({ "phase": phase }))?;
            let both = [output.stdout, output.stderr].concat();
            printed.push_str(&String::from_utf8_lossy(&both));
        }
        match done.try_recv() {
            Ok(ended) => Ok(ended),
            Err(TryRecvError::Empty) => Err("helm test has not ended".into()),
            Err(TryRecvError::Disconnected) => Ok(Err("helm test panicked".to_owned())),
        }
    })?;
    Ok((ended, printed))
}

/// Runs `helm test` and returns its result and the output of its pod.
fn helm_test(release: &Release<'_>) -> Result<(Result<String, String>, String), Failure> {
    let (sender, done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ended = release.run(&["test", "kubewarm", "--timeout", "5m"], None);
            let _ = sender.send(ended.map_err(|error| error.to_string()));
        });
        run_pod(release.cluster, &done)
    })
}

#[track_caller]
fn assert_lines(printed: &str, lines: &[&str]) {
    for line in lines {
        assert!(printed.lines().any(|one| one.starts_with(line)), "no {line:?} in\n{printed}");
    }
}

/// Waits until a replica leads and is ready. `helm install --wait` waits for readiness only.
fn await_operator(cluster: &ControlPlane) -> Outcome {
    cluster.run(["rollout", "status", "deployment/kubewarm", "-n", NAMESPACE, "--timeout=60s"])?;
    eventually(SOON, || {
        let lease = get(cluster, &["lease", "kubewarm", "-n", NAMESPACE])?;
        text(&lease, "/spec/holderIdentity").map(drop)
    })
}

/// Installs with these values, and checks that the test passes.
fn passes(cluster: &ControlPlane, helm: &Helm, name: &str, values: &str) -> Outcome {
    let path = cluster.folder().join(format!("{name}.yaml"));
    let release = Release { helm, cluster, values: path };
    let (admin, api) = (free_port()?, free_port()?);
    let values = format!("operator: {{adminPort: {admin}}}\nreadApi: {{port: {api}}}\n{values}");
    release.run(&["install", "kubewarm", &chart()], Some(&values))?;
    let (operator, _) = operator(cluster, name)?;
    await_operator(cluster)?;
    let has_profile = !values.contains("watchNamespaces");
    if has_profile {
        cluster.apply(PROFILE)?;
        let ready = ["wait", "--for=condition=Ready", "cprof/own", "--timeout=60s"];
        cluster.run(ready.into_iter().chain(["-n", NAMESPACE]))?;
    }
    let (ended, printed) = helm_test(&release)?;
    ended.map_err(|error| format!("{error}\n{printed}"))?;
    assert_lines(
        &printed,
        &[
            "✔ authenticates you as system:serviceaccount:kubewarm-system:kubewarm-test",
            "✔ 1 of 1 replicas of Deployment kubewarm-system/kubewarm are ready",
            "? not checked: what system:serviceaccount:kubewarm-system:kubewarm may do: ",
            "? not checked: profiles of other namespaces: ",
            "nothing is wrong; ",
        ],
    );
    assert!(printed.contains(" leads, and renewed the Lease "), "{printed}");
    let is_ready = "✔ own -n kubewarm-system is ready, 1/1 targets are warm";
    assert_eq!(printed.contains(is_ready), has_profile, "{printed}");
    assert!(!printed.lines().any(|line| line.starts_with(['!', '✗'])), "{printed}");
    assert_eq!(cluster.run(["get", KINDS, "-A", "-l", HOOKS, "-o", "name"])?, "");
    if name == "scraped" {
        check_scrape_configuration(&release, &admin.to_string())?;
    }
    operator.term()?;
    if name == "stopped" {
        fails(&release)?;
    }
    if has_profile {
        cluster.run(["delete", "cprof", "own", "-n", NAMESPACE])?;
    }
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    assert_eq!(release.left()?, "");
    Ok(())
}

/// Checks that the test fails if the operator does not run.
fn fails(release: &Release<'_>) -> Outcome {
    let (ended, printed) = helm_test(release)?;
    assert!(ended.is_err(), "{printed}");
    assert_lines(&printed, &["✗ no replica leads: the last leader released the Lease"]);
    assert!(printed.contains(" checks failed; "), "{printed}");
    // `helm test` keeps the objects of a failed test until the next test, or until a user deletes
    // them.
    let cluster = release.cluster;
    cluster.run(["delete", KINDS, "-n", NAMESPACE, "-l", HOOKS, "--grace-period=0", "--force"])?;
    Ok(())
}

#[test]
fn helm_test_passes_on_a_healthy_release_and_fails_without_a_leader() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().start()?;
    for namespace in [NAMESPACE, "shop", "orders"] {
        cluster.run(["create", "namespace", namespace])?;
    }
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    cluster.run(["label", "namespace", NAMESPACE, enforce])?;
    let [three, four] = helms()?;
    passes(&cluster, &three, "everywhere", "")?;
    passes(&cluster, &four, "some", "watchNamespaces: [shop, orders]\n")?;
    passes(&cluster, &four, "scraped", "")?;
    passes(&cluster, &three, "stopped", "")?;
    Ok(())
}
