//! `helm test`: no node is there to run its pods, so that processes do what the pods would do, as their
//! accounts and with their arguments.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{ControlPlane, Helm, Process, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome, SOON, chart, helms};
use crate::installs::Release;

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
const NOT_READY: &str = "there is no pod of the Deployment";
/// Twice what a pod may take.
const PODS: Duration = Duration::from_mins(10);

/// What a pod printed.
struct Ran {
    pod: String,
    said: String,
}

fn get(cluster: &ControlPlane, args: &[&str]) -> Result<Value, Failure> {
    let args = [&["get"], args, &["-o", "json"]].concat();
    Ok(serde_json::from_str(&cluster.run(args)?)?)
}

fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str, Failure> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.ok_or_else(|| format!("no {pointer} in {value:#}").into())
}

/// A port that is free now.
fn free_port() -> Result<u16, Failure> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Says of a pod what its kubelet would.
fn report(cluster: &ControlPlane, pod: &str, status: &Value) -> Outcome {
    let patch = json!({ "status": status }).to_string();
    let args = ["patch", "pod", pod, "-n", NAMESPACE, "--subresource=status", "-p", &patch];
    cluster.run(args)?;
    Ok(())
}

/// A process that does what the first container of a pod would do: its arguments, its environment, its
/// account. `mounts` is where files of the pod lie here.
fn container(
    cluster: &ControlPlane,
    pod: &Value,
    mounts: &[(&str, &Path)],
) -> Result<Command, Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    let account = text(pod, "/spec/serviceAccountName")?;
    command
        .env("KUBECONFIG", cluster.service_account_kubeconfig(NAMESPACE, account)?)
        // As in the image, where no certificates are.
        .env("SSL_CERT_FILE", "/nowhere")
        .env("SSL_CERT_DIR", "/nowhere")
        // In a pod that follows from its token volume.
        .env("KUBEWARM_OPERATOR_NAMESPACE", NAMESPACE);
    let container = &pod["spec"]["containers"][0];
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(text(variable, "/name")?, text(variable, "/value")?);
    }
    for argument in container["args"].as_array().into_iter().flatten() {
        let mut argument = argument.as_str().unwrap_or_default().to_owned();
        for (place, here) in mounts {
            argument = argument.replace(place, &here.to_string_lossy());
        }
        command.arg(argument);
    }
    Ok(command)
}

/// The operator, as its Deployment's pod would run it.
fn operator(cluster: &ControlPlane, name: &str) -> Result<Process, Failure> {
    let selector = "app.kubernetes.io/name=kubewarm";
    let pod = eventually(SOON, || {
        let pods = get(cluster, &["pods", "-n", NAMESPACE, "-l", selector])?;
        pods["items"].get(0).cloned().ok_or_else(|| NOT_READY.into())
    })?;
    let command = container(cluster, &pod, &[])?;
    let process = cluster.process(name, &command, |log| log.contains("admin listening"));
    process.start()?;
    let addresses =
        json!({"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]});
    report(cluster, text(&pod, "/metadata/name")?, &addresses)?;
    Ok(process)
}

/// What a pod of the test finds mounted: the folder of its files, and its token.
fn mounted(cluster: &ControlPlane, pod: &Value) -> Result<[PathBuf; 2], Failure> {
    let folder = cluster.folder().join(format!("mounts-{}", text(pod, "/metadata/uid")?));
    std::fs::create_dir_all(&folder)?;
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let Some(name) = volume["configMap"]["name"].as_str() else { continue };
        let found = get(cluster, &["configmap", name, "-n", NAMESPACE])?;
        for (file, content) in found["data"].as_object().into_iter().flatten() {
            std::fs::write(folder.join(file), content.as_str().unwrap_or_default())?;
        }
    }
    let token = folder.join("token");
    let account = text(pod, "/spec/serviceAccountName")?;
    std::fs::write(&token, cluster.run(["create", "token", account, "-n", NAMESPACE])?)?;
    Ok([folder, token])
}

/// Runs the pods of the test one by one as they come, until `done` says that Helm has ended, with what it
/// said.
fn run_pods(
    cluster: &ControlPlane,
    done: &Receiver<Result<String, String>>,
) -> Result<(Result<String, String>, Vec<Ran>), Failure> {
    let mut ran = Vec::new();
    let ended = eventually(PODS, || {
        let pods = get(cluster, &["pods", "-n", NAMESPACE, "-l", HOOKS])?;
        let waiting = |pod: &&Value| {
            pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        if let Some(pod) = pods["items"].as_array().into_iter().flatten().find(waiting) {
            let [folder, token] = mounted(cluster, pod)?;
            let token_place = "/var/run/secrets/kubernetes.io/serviceaccount/token";
            let mounts = [("/etc/kubewarm", &*folder), (token_place, &*token)];
            let output = container(cluster, pod, &mounts)?.output()?;
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
fn helm_test(release: &Release<'_>) -> Result<(Result<String, String>, Vec<Ran>), Failure> {
    let (sender, done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ended = release.run(&["test", "kubewarm", "--timeout", "5m"], None);
            let _ = sender.send(ended.map_err(|error| error.to_string()));
        });
        run_pods(release.cluster, &done)
    })
}

fn printed<'a>(ran: &'a [Ran], pod: &str) -> Result<&'a str, Failure> {
    let found = ran.iter().find(|one| one.pod == pod).map(|one| one.said.as_str());
    found.ok_or_else(|| format!("{pod} did not run").into())
}

/// Installs with these values, and has it tested.
fn passes(cluster: &ControlPlane, helm: &Helm, name: &str, values: &str) -> Outcome {
    let path = cluster.folder().join(format!("{name}.yaml"));
    let release = Release { helm, cluster, values: path };
    let values = format!("operator: {{adminPort: {}}}\n{values}", free_port()?);
    release.run(&["install", "kubewarm", &chart()], Some(&values))?;
    let operator = operator(cluster, name)?;
    let (ended, ran) = helm_test(&release)?;
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
    assert!(!rights.contains(['!', '?', '✗']), "{rights}");

    for words in ["/kubewarm-test is ready: 1/1 targets are warm", "all as they are documented"] {
        assert!(profile.contains(words), "{profile}");
    }
    let refuses = profile.contains("tells its metrics to nobody without a token");
    assert_eq!(refuses, values.contains("auth"), "{profile}");
    assert!(!profile.contains(['!', '?', '✗']), "{profile}");
    assert_eq!(cluster.run(["get", KINDS, "-A", "-l", HOOKS, "-o", "name"])?, "");
    if name == "broken" {
        fails(&release)?;
    }
    operator.term()?;
    release.run(&["uninstall", "kubewarm", "--wait"], None)?;
    assert_eq!(release.left()?, "");
    Ok(())
}

/// A right too much and one too few, and an operator that does not run.
fn fails(release: &Release<'_>) -> Outcome {
    let cluster = release.cluster;
    cluster.apply(STRAY)?;
    let fewer = r#"[{"op": "remove", "path": "/rules/0"}]"#;
    cluster.run(["patch", "role", "kubewarm", "-n", NAMESPACE, "--type=json", "-p", fewer])?;
    let (ended, ran) = helm_test(release)?;
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
    passes(&cluster, &four, "broken", "")?;
    Ok(())
}
