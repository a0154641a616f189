//! From nothing to a profile that is Ready, and what people read meanwhile.

use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::eventually;

use crate::release::{NAMESPACE, PAIR, Release};
use crate::world::{Failure, Outcome, SOON, World, tell};

/// Ten times what docs/performance.md promises.
const INSTALLED: Duration = Duration::from_secs(150);

#[test]
fn a_release_of_two_makes_its_profile_ready_and_reads_well() -> Outcome {
    let test = "a_release_of_two_makes_its_profile_ready_and_reads_well";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    let began = Instant::now();
    let (release, notes) = Release::anew(&world, PAIR)?;
    release.await_ready()?;
    let took = began.elapsed();
    tell(&format!("from `helm install --wait` with two replicas to a Ready profile: {took:.1?}"))?;
    assert!(took < INSTALLED, "{took:?}");

    let pods = release.pods()?;
    assert_eq!(pods.len(), 2, "{pods:?}");
    assert!(pods.iter().all(|pod| pod.is_ready && pod.restarts == 0), "{pods:?}");
    // The lease may be of a replica of another test's release.
    let leader = eventually(SOON, || {
        let leader = release.leader()?;
        let is_here = pods.iter().any(|pod| pod.name == leader);
        if is_here { Ok(leader) } else { Err(format!("{leader} leads, of {pods:?}").into()) }
    })?;

    follow_notes(&world, &notes)?;
    for pod in &pods {
        let log = world.run(&format!("logs {} --namespace={NAMESPACE}", pod.name))?;
        assert_tells(&log, pod.name == leader);
    }
    assert_event(&world)?;
    refuses_what_is_not_restricted(&world)
}

/// The commands that Helm's notes tell work, but for those that go on for ever.
fn follow_notes(world: &World, notes: &str) -> Outcome {
    let told = "is installed in namespace kubewarm-system, for the profiles of all namespaces";
    assert!(notes.replace('\n', " ").contains(told), "{notes}");
    assert!(!notes.contains("WARNING"), "{notes}");
    // Of reads from elsewhere, which take a shell.
    let is_for_a_shell = |line: &&str| line.contains(['>', '&', '$']);
    let commands = notes.lines().filter(|line| !is_for_a_shell(line));
    let commands = commands.filter_map(|line| line.strip_prefix("kubectl "));
    let goes_on = |command: &&str| command.ends_with(" -w") || command.starts_with("port-forward ");
    let (endless, commands): (Vec<_>, Vec<_>) = commands.partition(goes_on);
    assert_eq!((endless.len(), commands.len()), (2, 2), "{notes}");
    let said: Result<Vec<_>, _> =
        commands.iter().map(|command| world.run(&command.replace('\'', ""))).collect();
    let said = said?;
    assert!(said[0].contains("successfully rolled out"), "{said:?}");
    Ok(())
}

/// A log says what was found out about the surroundings and what is done, and complains of nothing.
fn assert_tells(log: &str, leads: bool) {
    // Three quarters of 256Mi, and a bit of rounding.
    let mut told = vec!["admin listening", "memory limit, in bytes stores=2013265", "reading as"];
    told.push(if leads { "leading" } else { "following" });
    for words in told {
        assert!(log.contains(words), "no {words:?} in\n{log}");
    }
    let is_complaint = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    assert_eq!(log.lines().find(is_complaint), None, "{log}");
    // Lines that are coloured or cut, or come by the hundred, are read by nobody.
    assert!(log.lines().count() < 30 && !log.contains('\x1b'), "{log}");
}

/// `kubectl describe` shows that the profile became Ready.
fn assert_event(world: &World) -> Outcome {
    eventually(SOON, || {
        let shown = world.run("describe cprof sample --namespace=shop")?;
        let is_event = |line: &&str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.starts_with(&["Normal", "Ready"]) && line.contains("kubewarm")
        };
        let found = shown.lines().find(is_event).map(drop);
        found.ok_or_else(|| Failure::from(format!("no Event in\n{shown}")))
    })
}

/// So what runs there has passed.
fn refuses_what_is_not_restricted(world: &World) -> Outcome {
    let root = "run root --image=localhost/root:1 --dry-run=server --namespace";
    let Err(refusal) = world.run(&format!("{root}={NAMESPACE}")) else {
        return Err("a pod that runs as root was let in".into());
    };
    assert!(refusal.to_string().contains("violates PodSecurity \"restricted"), "{refusal}");
    let label = world.get(&format!("namespace {NAMESPACE}"))?;
    let enforced = &label["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, &Value::from("restricted"));
    Ok(())
}
