//! Tests a new installation until its profile is Ready, and the texts that users read meanwhile.

use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::eventually;

use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// The time limit of an installation: ten times the target in docs/performance.md.
const INSTALLED: Duration = Duration::from_secs(150);

#[test]
fn a_release_of_two_makes_its_profile_ready_and_reads_well() -> Outcome {
    let test = "a_release_of_two_makes_its_profile_ready_and_reads_well";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    // After a restart of the API server, this can take a minute.
    NodeRelease::uninstall_earlier(&world)?;
    let began = Instant::now();
    let (release, notes) = NodeRelease::reinstall(&world, PAIR)?;
    release.await_ready()?;
    let took = began.elapsed();
    report(&format!(
        "from `helm install --wait` with two replicas to a Ready profile: {took:.1?}"
    ))?;
    assert!(took < INSTALLED, "{took:?}");

    let pods = release.pods()?;
    assert_eq!(pods.len(), 2, "{pods:?}");
    assert!(pods.iter().all(|pod| pod.is_ready && pod.restarts == 0), "{pods:?}");
    // The lease can name a replica of an earlier test's release, so the test waits for a replica of
    // this one.
    let leader = eventually(SOON, || {
        let leader = release.leader()?;
        let is_here = pods.iter().any(|pod| pod.name == leader);
        if is_here { Ok(leader) } else { Err(format!("{leader} leads, of {pods:?}").into()) }
    })?;

    follow_notes(&world, &notes)?;
    for pod in &pods {
        let log = world.run(&format!("logs {} --namespace={NAMESPACE}", pod.name))?;
        assert_log(&log, pod.name == leader);
    }
    assert_event(&world)?;
    refuses_what_is_not_restricted(&world)
}

/// Runs the commands that Helm's notes print, except commands that do not end by themselves.
fn follow_notes(world: &NodeWorld, notes: &str) -> Outcome {
    let expected = "is installed in namespace kubewarm-system, for the profiles of all namespaces";
    assert!(notes.replace('\n', " ").contains(expected), "{notes}");
    assert!(!notes.contains("WARNING"), "{notes}");
    let rbac = "kubectl warm rbac sample -n shop --operator-namespace kubewarm-system";
    let (review, grant) = (format!("{rbac} --diff\n"), format!("{rbac} | kubectl apply -f -\n"));
    let positions = (notes.find(&review), notes.find(&grant));
    assert!(positions.0.is_some() && positions.0 < positions.1, "the review comes first: {notes}");
    assert!(!notes.contains(".status."), "no command applies a status: {notes}");
    // Commands with a pipe, a file or a variable need a shell.
    let is_for_a_shell = |line: &&str| line.contains(['>', '&', '$', '|']);
    let commands = notes.lines().filter(|line| !is_for_a_shell(line));
    let commands = commands.filter_map(|line| line.strip_prefix("kubectl "));
    // Commands of the kubectl plugin (`kubectl warm`) do not run here, because the plugin is not on
    // the PATH.
    let commands = commands.filter(|command| !command.starts_with("warm "));
    let endless = |command: &&str| command.ends_with(" -w") || command.starts_with("port-forward ");
    let (endless, commands): (Vec<_>, Vec<_>) = commands.partition(endless);
    assert_eq!((endless.len(), commands.len()), (2, 1), "{notes}");
    let outputs: Result<Vec<_>, _> =
        commands.iter().map(|command| world.run(&command.replace('\'', ""))).collect();
    let outputs = outputs?;
    assert!(outputs[0].contains("successfully rolled out"), "{outputs:?}");
    Ok(())
}

/// A log names the limits and the identity that the process found, and contains no warning.
fn assert_log(log: &str, leads: bool) {
    // Three quarters of 256Mi in bytes, without the last digits, which vary.
    let mut words = vec!["admin listening", "memory limit, in bytes stores=2013265", "reading as"];
    words.push(if leads { "leading" } else { "following" });
    for text in words {
        assert!(log.contains(text), "no {text:?} in\n{log}");
    }
    let is_complaint = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    assert_eq!(log.lines().find(is_complaint), None, "{log}");
    // A log is readable only if it is short and has no colours.
    assert!(log.lines().count() < 30 && !log.contains('\x1b'), "{log}");
}

/// `kubectl describe` shows that the profile became Ready.
fn assert_event(world: &NodeWorld) -> Outcome {
    eventually(SOON, || {
        let shown = world.run("describe cprof sample --namespace=shop")?;
        let is_event = |line: &&str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.starts_with(&["Normal", "Ready"]) && line.contains("kubewarm")
        };
        let event = shown.lines().find(is_event).map(drop);
        event.ok_or_else(|| Failure::from(format!("no Event in\n{shown}")))
    })
}

/// The namespace admits only pods of the restricted standard. This function checks that it rejects
/// other pods, so kubewarm's running pods show that they meet the standard.
fn refuses_what_is_not_restricted(world: &NodeWorld) -> Outcome {
    let root = "run root --image=localhost/root:1 --dry-run=server --namespace";
    let Err(refusal) = world.run(&format!("{root}={NAMESPACE}")) else {
        return Err("a pod that runs as root was admitted".into());
    };
    assert!(refusal.to_string().contains("violates PodSecurity \"restricted"), "{refusal}");
    let label = world.get(&format!("namespace {NAMESPACE}"))?;
    let enforced = &label["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, &Value::from("restricted"));
    Ok(())
}
