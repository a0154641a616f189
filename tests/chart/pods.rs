//! Runs pods without a node: local processes with the arguments, files and ServiceAccounts of the
//! containers.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use testbed::{ControlPlane, Process, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome, SOON};

const NOT_READY: &str = "there is no pod of the Deployment";
/// Folders in a pod from which kubewarm reads files.
const PLACES: [&str; 2] = ["/etc/kubewarm", "/var/run/secrets/kubernetes.io/serviceaccount"];

pub(crate) fn get(cluster: &ControlPlane, args: &[&str]) -> Result<Value, Failure> {
    let args = [&["get"], args, &["-o", "json"]].concat();
    Ok(serde_json::from_str(&cluster.run(args)?)?)
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str, Failure> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.ok_or_else(|| format!("no {pointer} in {value:#}").into())
}

/// Writes the pod's status as a kubelet would.
pub(crate) fn report(cluster: &ControlPlane, pod: &str, status: &Value) -> Outcome {
    let patch = json!({ "status": status }).to_string();
    let args = ["patch", "pod", pod, "-n", NAMESPACE, "--subresource=status", "-p", &patch];
    cluster.run(args)?;
    Ok(())
}

/// Writes the files of a pod's volumes below the returned folder, which stands for the pod's root.
fn mount(cluster: &ControlPlane, pod: &Value) -> Result<PathBuf, Failure> {
    let root = cluster.folder().join(format!("mounts-{}", text(pod, "/metadata/uid")?));
    for mount in pod["spec"]["containers"][0]["volumeMounts"].as_array().into_iter().flatten() {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let volume = volumes.into_iter().find(|volume| volume["name"] == mount["name"]);
        let volume = volume.ok_or_else(|| format!("{mount} is of no volume"))?;
        let place = text(mount, "/mountPath")?;
        let folder = root.join(place.trim_start_matches('/'));
        std::fs::create_dir_all(&folder)?;
        if volume["projected"].is_object() {
            let account = text(pod, "/spec/serviceAccountName")?;
            let mut create = vec!["create", "token", account, "-n", NAMESPACE];
            let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
            let mut audiences = sources.map(|one| &one["serviceAccountToken"]["audience"]);
            if let Some(audience) = audiences.find_map(Value::as_str) {
                create.extend(["--audience", audience]);
            }
            std::fs::write(folder.join("token"), cluster.run(create)?)?;
        }
        if let Some(name) = volume["secret"]["secretName"].as_str() {
            for item in volume["secret"]["items"].as_array().into_iter().flatten() {
                let content = secret(cluster, name, text(item, "/key")?)?;
                std::fs::write(folder.join(text(item, "/path")?), content)?;
            }
        }
    }
    Ok(root)
}

/// The value of a key in a Secret of the release's namespace.
pub(crate) fn secret(cluster: &ControlPlane, name: &str, key: &str) -> Result<String, Failure> {
    let template = format!("--template={{{{index .data \"{key}\" | base64decode}}}}");
    Ok(cluster.run(["get", "secret", name, "-n", NAMESPACE, "-o", "go-template", &template])?)
}

/// The command of a pod's first container, with its arguments, environment, ServiceAccount and
/// files.
pub(crate) fn container(cluster: &ControlPlane, pod: &Value) -> Result<Command, Failure> {
    let root = mount(cluster, pod)?;
    let here = |value: &str| {
        PLACES.iter().fold(value.to_owned(), |value, place| {
            let there = root.join(place.trim_start_matches('/'));
            value.replace(place, &there.to_string_lossy())
        })
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    let account = text(pod, "/spec/serviceAccountName")?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account)?;
    // In a pod, kubewarm reads its namespace from its token volume.
    let place = ["config", "set-context", "--current", "--namespace", NAMESPACE];
    let mut kubectl = Command::new(cluster.kubectl_program());
    let is_set = kubectl.args(place).arg("--kubeconfig").arg(&kubeconfig).output()?;
    assert!(is_set.status.success(), "{}", String::from_utf8_lossy(&is_set.stderr));
    command
        .env("KUBECONFIG", kubeconfig)
        // The image contains no CA certificates.
        .env("SSL_CERT_FILE", "/nowhere")
        .env("SSL_CERT_DIR", "/nowhere")
        // In a pod, kubewarm reads its namespace from its token volume.
        .env("KUBEWARM_OPERATOR_NAMESPACE", NAMESPACE);
    let container = &pod["spec"]["containers"][0];
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(text(variable, "/name")?, here(text(variable, "/value")?));
    }
    for argument in container["args"].as_array().into_iter().flatten() {
        command.arg(here(argument.as_str().unwrap_or_default()));
    }
    Ok(command)
}

/// Starts the operator of the Deployment's pod, and returns the folder of its files.
pub(crate) fn operator(cluster: &ControlPlane, name: &str) -> Result<(Process, PathBuf), Failure> {
    let selector = "app.kubernetes.io/name=kubewarm";
    let pod = eventually(SOON, || {
        let pods = get(cluster, &["pods", "-n", NAMESPACE, "-l", selector])?;
        pods["items"].get(0).cloned().ok_or_else(|| NOT_READY.into())
    })?;
    let command = container(cluster, &pod)?;
    let process = cluster.process(name, &command, |log| log.contains("admin listening"));
    process.start()?;
    let status = json!({
        "phase": "Running",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    report(cluster, text(&pod, "/metadata/name")?, &status)?;
    let root = cluster.folder().join(format!("mounts-{}", text(&pod, "/metadata/uid")?));
    Ok((process, root))
}
