//! Output and exit codes of `kubewarm status` and `kubewarm wait`. The test writes the statuses in
//! place of an operator.

use std::process::{Command, Output, Stdio};

use testbed::ControlPlane;

use crate::world::{Outcome, World};

const PROFILE: &str = "\
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: checkout, namespace: NAMESPACE}
spec:
  targets:
  - name: pods
    resource: pods
";

/// A status that is ready for generation 1. Its message contains a control sequence that would
/// clear a terminal, if a command did not escape it.
const READY: &str = r#"{"status": {"observedGeneration": 1, "warmTargets": "1/1", "objects": 3,
  "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
  "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
  "targets": [{"name": "pods", "objects": 3, "conditions": [{"type": "Warm", "status": "False",
  "reason": "Syncing", "message": "\u001b[2J", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}"#;

fn kubewarm(cluster: &ControlPlane, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
    command
}

fn result_of(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn play_operator(cluster: &ControlPlane, namespace: &str) -> Outcome {
    let ready = READY.replace('\n', "");
    let subresource = "--subresource=status";
    cluster.run([
        "patch",
        "cprof/checkout",
        "-n",
        namespace,
        subresource,
        "--type=merge",
        "-p",
        &ready,
    ])?;
    Ok(())
}

#[test]
fn wait_ends_when_the_profile_is_ready_and_not_before() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("waiting")?;
    let wait = |timeout| kubewarm(&world.cluster, &["wait", "checkout", "-n", &namespace, timeout]);

    let (code, _, stderr) = result_of(&wait("--timeout=0").output()?);
    assert_eq!(code, Some(1), "{stderr}");
    let (code, _, stderr) = result_of(&wait("--timeout=1").output()?);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("there is no CacheProfile"), "{stderr}");

    let waiting = wait("--timeout=60").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    world.cluster.apply(&PROFILE.replace("NAMESPACE", &namespace))?;
    play_operator(&world.cluster, &namespace)?;
    let (code, _, stderr) = result_of(&waiting.wait_with_output()?);
    assert_eq!(code, Some(0), "{stderr}");
    Ok(())
}

#[test]
fn status_exits_by_readiness_and_cannot_steer_a_terminal() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("looking")?;
    let status = |more: &[&str]| {
        let args = [&["status", "-n", &namespace], more].concat();
        kubewarm(&world.cluster, &args).output().map(|output| result_of(&output))
    };
    let (code, _, stderr) = status(&[])?;
    assert_eq!(code, Some(1), "{stderr}");
    let (code, _, stderr) = status(&["absent"])?;
    assert_eq!(code, Some(2), "{stderr}");

    world.cluster.apply(&PROFILE.replace("NAMESPACE", &namespace))?;
    play_operator(&world.cluster, &namespace)?;
    for format in [&[][..], &["-o", "json"], &["-o", "yaml"]] {
        let (code, shown, stderr) = status(format)?;
        assert_eq!(code, Some(0), "{stderr}");
        assert!(shown.contains("checkout") && !shown.contains('\u{1b}'), "{shown}");
    }
    Ok(())
}

#[test]
fn run_warns_of_an_environment_variable_that_no_flag_has() -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["run", "--kubeconfig", "/nowhere"])
        .env("KUBEWARM_NAMESPACE_SHARE", "50")
        .env("KUBEWARM_USER_QUOTA", "50")
        .output()?;
    let (code, _, stderr) = result_of(&output);
    assert_eq!(code, Some(2), "{stderr}");
    let warning = stderr.lines().find(|line| line.contains("KUBEWARM_NAMESPACE_SHARE"));
    let warning = warning.ok_or(stderr.as_str())?;
    assert!(warning.contains("WARN") && warning.contains("`kubewarm run --help`"), "{warning}");
    assert!(!stderr.contains("KUBEWARM_USER_QUOTA"), "{stderr}");
    Ok(())
}
