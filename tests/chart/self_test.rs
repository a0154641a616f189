//! `helm test`: no node is there to run its pods, so that processes do what the pods would do, as their
//! accounts and with their arguments.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{ControlPlane, Helm, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome, chart, helms};
use crate::installs::Release;
use crate::pods::{container, free_port, get, operator, report, text};
use crate::scraped::is_scraped_over_tls;

/// What the hooks' objects have in common.
const HOOKS: &str = "app.kubernetes.io/component=self-test";
/// Everything that `helm test` may create.
const KINDS: &str = "pods,configmaps,serviceaccounts,roles,rolebindings,clusterrolebindings,\
    networkpolicies,cacheprofiles";
/// A right that nobody claims, for kubewarm's account.
const STRAY: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: stray, namespace: kubewarm-system}
rules: [{apiGroups: [''], resources: [pods], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: stray, namespace: kubewarm-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: stray}
subjects: [{kind: ServiceAccount, name: kubewarm, namespace: kubewarm-system}]
";
/// Metrics over TLS, by a certificate of the chart's.
const TLS: &str = "metrics: {renderMode: always, tls: {enabled: true}}\n";
/// Of `readApi`, which stands above.
const AUDIENCE: &str = "  audiences: [kubewarm]\n";
/// Twice what a pod may take.
const PODS: Duration = Duration::from_mins(10);

/// What a pod printed.
struct Ran {
    pod: String,
    said: String,
}

/// Runs the pods of the test one by one as they come, with the read API at `reads`, until `done` says that Helm has ended, with what it
/// said.
fn run_pods(
    cluster: &ControlPlane,
    reads: &str,
    done: &Receiver<Result<String, String>>,
) -> Result<(Result<String, String>, Vec<Ran>), Failure> {
    let mut ran = Vec::new();
    let ended = eventually(PODS, || {
        let pods = get(cluster, &["pods", "-n", NAMESPACE, "-l", HOOKS])?;
        let waiting = |pod: &&Value| {
            pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        if let Some(pod) = pods["items"].as_array().into_iter().flatten().find(waiting) {
            let service = "$(KUBEWARM_SERVICE_HOST):$(KUBEWARM_SERVICE_PORT)";
            let output = container(cluster, pod, &[(service, reads)])?.output()?;
            let name = text(pod, "/metadata/name")?;
            let phase = if output.status.success() { "Succeeded" } else { "Failed" };
            report(cluster, name, &json!({ "phase": phase }))?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            ran.push(Ran { pod: name.to_owned(), said });
        }
        match done.try_recv() {
            Ok(ended) => Ok(ended),
            Err(TryRecvError::Empty) => Err("helm test has not ended".into()),
            Err(TryRecvError::Disconnected) => Ok(Err("helm test panicked".to_owned())),
        }
    })?;
    Ok((ended, ran))
}

/// `helm test`, and what its pods printed.
fn helm_test(
    release: &Release<'_>,
    reads: &str,
) -> Result<(Result<String, String>, Vec<Ran>), Failure> {
    let (sender, done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ended = release.run(&["test", "kubewarm", "--timeout", "5m"], None);
            let _ = sender.send(ended.map_err(|error| error.to_string()));
        });
        run_pods(release.cluster, reads, &done)
    })
}

fn printed<'a>(ran: &'a [Ran], pod: &str) -> Result<&'a str, Failure> {
    let found = ran.iter().find(|one| one.pod == pod).map(|one| one.said.as_str());
    found.ok_or_else(|| format!("{pod} did not run").into())
}

/// Whether no line has the mark of a doubt or a fault. What is told while it waits has none, and may ask.
fn is_all_well(said: &str) -> bool {
    !said.lines().any(|line| line.trim_start().starts_with(['!', '?', '✗']))
}

/// Installs with these values, and has it tested.
fn passes(cluster: &ControlPlane, helm: &Helm, name: &str, values: &str) -> Outcome {
    let path = cluster.folder().join(format!("{name}.yaml"));
    let release = Release { helm, cluster, values: path };
    let (admin, api) = (free_port()?, free_port()?);
    let reads = format!("localhost:{api}");
    let values = format!("operator: {{adminPort: {admin}}}\nreadApi:\n  port: {api}\n{values}");
    release.run(&["install", "kubewarm", &chart()], Some(&values))?;
    let (operator, files) = operator(cluster, name)?;
    let (ended, ran) = helm_test(&release, &reads)?;
    let (rights, profile) = (printed(&ran, "kubewarm-rights")?, printed(&ran, "kubewarm-test")?);
    ended.map_err(|error| format!("{error}\n{rights}\n{profile}"))?;

    let namespaces = if values.contains("watchNamespaces") {
        vec!["kube-system", NAMESPACE, "orders", "shop"]
    } else {
        vec!["kube-system", NAMESPACE]
    };
    let exact: Vec<_> = rights.lines().filter(|line| line.starts_with('✔')).collect();
    assert_eq!(exact.len(), namespaces.len(), "{rights}");
    for (line, namespace) in exact.iter().zip(&namespaces) {
        assert!(line.starts_with(&format!("✔ in namespace {namespace}: ")), "{rights}");
    }
    assert!(is_all_well(rights), "{rights}");

    let read =
        format!("✔ a read at https://{reads} is what the API server says, known to be current ");
    let is_warm = "/kubewarm-test is ready: 1/1 targets are warm";
    for words in [is_warm, "all as they are documented", &read] {
        assert!(profile.contains(words), "{profile}");
    }
    let refuses = profile.contains("tells its metrics to nobody without a token");
    assert_eq!(refuses, values.contains("auth"), "{profile}");
    assert!(is_all_well(profile), "{profile}");
    assert_eq!(cluster.run(["get", KINDS, "-A", "-l", HOOKS, "-o", "name"])?, "");
    if name == "tls" {
        is_scraped_over_tls(&release, &admin.to_string(), &files)?;
    }
    if name == "broken" {
        fails(&release, &reads)?;
    }
    operator.term()?;
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    assert_eq!(release.left()?, "");
    Ok(())
}

/// A right too much and one too few, and an operator that does not run.
fn fails(release: &Release<'_>, reads: &str) -> Outcome {
    let cluster = release.cluster;
    cluster.apply(STRAY)?;
    let fewer = r#"[{"op": "remove", "path": "/rules/0"}]"#;
    cluster.run(["patch", "role", "kubewarm", "-n", NAMESPACE, "--type=json", "-p", fewer])?;
    let (ended, ran) = helm_test(release, reads)?;
    let rights = printed(&ran, "kubewarm-rights")?;
    assert!(ended.is_err(), "{rights}");
    for line in [
        "✗ in namespace kubewarm-system: may not get leases.coordination.k8s.io kubewarm\n",
        "✗ in namespace kubewarm-system: may delete pods, which is not claimed\n",
        "2 of 3 checks failed\n",
    ] {
        assert!(rights.contains(line), "{rights}");
    }
    cluster.run(["delete", "role,rolebinding", "stray", "-n", NAMESPACE])?;
    // What failed stays to be looked at, until the next test or by hand.
    cluster.run(["delete", "pods", "-n", NAMESPACE, "-l", HOOKS, "--grace-period=0", "--force"])?;
    Ok(())
}

#[test]
fn helm_test_passes_where_all_is_well_and_says_what_is_not() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().start()?;
    for namespace in [NAMESPACE, "shop", "orders"] {
        cluster.run(["create", "namespace", namespace])?;
    }
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    cluster.run(["label", "namespace", NAMESPACE, enforce])?;
    let [three, four] = helms()?;
    passes(&cluster, &three, "everywhere", "")?;
    passes(&cluster, &four, "some", "watchNamespaces: [shop, orders]\n")?;
    passes(&cluster, &four, "guarded", "metrics: {auth: {enabled: true}}\n")?;
    passes(&cluster, &four, "tls", TLS)?;
    passes(&cluster, &three, "audience", AUDIENCE)?;
    passes(&cluster, &four, "broken", "")?;
    Ok(())
}
