//! Tests that a control plane starts, survives kills and restores, and leaves nothing behind.

use std::process::Command;
use std::time::Duration;

use testbed::ControlPlane;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The resource version of a consistent list. `kubectl get` would not print the version of a list.
fn newest(cluster: &ControlPlane) -> Result<u64, Box<dyn std::error::Error>> {
    let list = cluster.run(["get", "--raw", "/api/v1/namespaces/default/configmaps?limit=1"])?;
    let (_, rest) = list.split_once(r#""resourceVersion":""#).ok_or("no version in the list")?;
    let (version, _) = rest.split_once('"').ok_or("no end of the version")?;
    Ok(version.parse()?)
}

#[test]
fn a_control_plane_survives_kills_and_restores_and_leaves_nothing_behind() -> Outcome {
    let cluster = ControlPlane::builder().with_controller_manager().with_audit_log().start()?;
    let version = cluster.run(["version"])?;
    assert!(version.contains(&format!("Server Version: v{}", testbed::KUBERNETES_VERSION)));

    let snapshot = cluster.folder().join("snapshot");
    cluster.snapshot(&snapshot)?;
    let before = newest(&cluster)?;
    // These writes raise the version by more than a restarting control plane does, so that the
    // version is lower after the restore.
    let items: Vec<String> = (0..100)
        .map(|n| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: made-{n}}}}}"))
        .collect();
    cluster.apply(&format!("{{apiVersion: v1, kind: List, items: [{}]}}", items.join(",")))?;
    let after = newest(&cluster)?;
    assert!(before < after, "{before} is not below {after}");

    cluster.apiserver().restart()?;
    cluster.compact()?;
    cluster.etcd().freeze()?;
    assert!(cluster.run(["get", "configmap", "made-7", "--request-timeout=1s"]).is_err());
    cluster.etcd().thaw()?;
    cluster.run(["get", "configmap", "made-7"])?;

    cluster.restore(&snapshot)?;
    let restored = newest(&cluster)?;
    assert!(restored < after, "{restored} is not below {after}");
    let gone = cluster.run(["get", "configmap", "made-7"]).map_err(|error| error.to_string());
    assert!(gone.is_err_and(|message| message.contains("NotFound")));

    let audit = std::fs::read_to_string(cluster.audit_log())?;
    assert!(audit.contains("/api/v1/namespaces/default/configmaps"));

    let folder = cluster.folder().to_owned();
    let etcd = cluster.etcd().id().ok_or("etcd runs")?;
    drop(cluster);
    assert!(!folder.exists(), "{} is still there", folder.display());
    assert!(!std::path::Path::new(&format!("/proc/{etcd}")).exists());
    Ok(())
}

#[test]
fn users_and_service_accounts_are_authenticated_and_have_no_permissions() -> Outcome {
    let cluster = ControlPlane::builder().start()?;
    cluster.run(["create", "serviceaccount", "reader"])?;
    for (kubeconfig, name) in [
        (cluster.user_kubeconfig("jane", Some("developers"))?, "jane"),
        (
            cluster.service_account_kubeconfig("default", "reader")?,
            "system:serviceaccount:default:reader",
        ),
    ] {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let who = cluster.run(["auth", "whoami", &kubeconfig])?;
        assert!(who.contains(name), "{who}");
        let secrets = cluster.run(["get", "secrets", &kubeconfig]).map_err(|e| e.to_string());
        assert!(secrets.is_err_and(|message| message.contains("Forbidden")));
    }
    Ok(())
}

#[test]
fn a_process_that_ends_early_is_reported_with_its_log() -> Outcome {
    let cluster = ControlPlane::builder().start()?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo out of luck; exit 3"]);
    let broken = cluster.process("broken", &command, |log| log.contains("ready"));
    let message = broken.start().map_err(|error| error.to_string());
    assert!(
        message.is_err_and(|text| text.contains("exit status: 3") && text.contains("out of luck"))
    );

    command = Command::new("sh");
    command.args(["-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"]);
    let obedient = cluster.process("obedient", &command, |log| log.contains("ready"));
    obedient.start()?;
    obedient.request_end()?;
    assert!(obedient.wait(Duration::from_secs(5))?.success());
    Ok(())
}
