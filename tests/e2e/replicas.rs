//! Several replicas: what a status says of each while they come, die and take over.

use std::time::Duration;

use serde_json::Value;

use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

/// A replica announces itself every 30 s, the leader looks as often, and numbers wait a minute.
const TOLD: Duration = Duration::from_mins(3);
/// Three looks without a renewal, on a busy machine.
const EXPIRED: Duration = Duration::from_mins(4);

/// `name role warm` of each replica in the status.
fn replicas(profile: &Value) -> Option<Vec<String>> {
    let entries = profile.pointer("/status/replicas")?.as_array()?;
    let shown = entries.iter().map(|entry| {
        let field = |name: &str| entry[name].as_str().unwrap_or("-");
        format!("{} {} {}", field("name"), field("role"), field("warmTargets"))
    });
    Some(shown.collect())
}

fn await_replicas(profile: &Profile<'_>, wanted: &[&str], limit: Duration) -> Outcome {
    profile.await_that(limit, |profile| (replicas(profile)? == wanted).then_some(()))?;
    Ok(())
}

fn leases(world: &World) -> Result<String, Failure> {
    let names = "--output=name";
    Ok(world.cluster.run(["get", "leases", "-n", NAMESPACE, "-l", "kubewarm.io/replica", names])?)
}

#[test]
fn a_status_names_the_replicas_that_live_and_who_leads() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("team")?;
    let first = Operator::start_as(&world, "pod-a")?;
    Operator::grant_reading(&world)?;
    let settings = "{targets: [{name: settings, resource: {resource: configmaps}}]}";
    let profile = Profile::apply(&world, &namespace, "settings", settings)?;
    profile.await_condition("Ready", "True", None, Duration::from_mins(1))?;
    await_replicas(&profile, &["pod-a Leader 1/1"], TOLD)?;

    let second = Operator::start_as(&world, "pod-b")?;
    let both = ["pod-a Leader 1/1", "pod-b Follower 1/1"];
    await_replicas(&profile, &both, TOLD)?;
    let seen = profile.read()?;
    let seen = seen.pointer("/status/replicas/1/lastSeenTime").and_then(Value::as_str);
    seen.ok_or("nobody says when the follower was last seen")?.parse::<jiff::Timestamp>()?;

    for replica in [&first, &second] {
        let (_, page) = replica.ask("/readyz?verbose")?;
        assert!(!page.contains("leases of replicas"), "{page}");
    }

    assert!(first.process.term()?.success());
    let left = leases(&world)?;
    assert_eq!(left.trim(), "lease.coordination.k8s.io/kubewarm-replica-pod-b");
    await_replicas(&profile, &["pod-b Leader 1/1"], TOLD)?;

    first.process.start()?;
    await_replicas(&profile, &["pod-a Follower 1/1", "pod-b Leader 1/1"], TOLD)?;

    first.process.kill()?;
    await_replicas(&profile, &["pod-b Leader 1/1"], EXPIRED)
}
