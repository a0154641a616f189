//! A leader that dies is followed by the other replica.

use std::time::{Duration, Instant};

use testbed::eventually;

use crate::object::Pod;
use crate::release::{PAIR, Release};
use crate::world::{Failure, Outcome, SOON, World, tell};

/// As values.yaml promises.
const TAKEN_OVER: Duration = Duration::from_secs(20);
const WRITTEN: [&str; 2] = ["kubewarm_status_writes_total{", r#"outcome="written""#];

/// The leader, and the other.
fn roles(release: &Release<'_>) -> Result<(Pod, Pod), Failure> {
    let leader = release.leader()?;
    let mut pods = release.pods()?;
    pods.sort_by_key(|pod| pod.name != leader);
    match <[Pod; 2]>::try_from(pods) {
        Ok([first, second]) if first.name == leader => Ok((first, second)),
        Ok(pods) => Err(format!("{leader} leads, which is none of {pods:?}").into()),
        Err(pods) => Err(format!("not two pods: {pods:?}").into()),
    }
}

#[test]
fn another_takes_over_within_20_s_and_writes_alone() -> Outcome {
    let Some(world) = World::enter("another_takes_over_within_20_s_and_writes_alone")? else {
        return Ok(());
    };
    let node = world.node;
    let cluster = world.cluster();
    let release = Release::with(&world, PAIR)?;
    let (old, new) = roles(&release)?;

    node.kill_container(&old.container)?;
    let killed = Instant::now();
    eventually(SOON, || {
        let leader = release.leader()?;
        if leader == new.name { Ok(()) } else { Err(format!("{leader} leads").into()) }
    })?;
    let took = killed.elapsed();
    tell(&format!("from the leader's end to another's lead: {took:.1?}"))?;
    assert!(took < TAKEN_OVER, "{took:?}");

    // The container was started anew, as a follower.
    let old = eventually(SOON, || {
        let (leader, other) = roles(&release)?;
        assert_eq!((&leader.name, leader.restarts), (&new.name, new.restarts), "its lead is kept");
        let is_back = other.is_ready && other.restarts == old.restarts + 1;
        if is_back { Ok(other) } else { Err(format!("{other:?}").into()) }
    })?;
    let written = release.sum(&new, &WRITTEN)?;
    let targets = r#"{"spec": {"targets": [{"name": "configmaps", "resource": {"resource": "configmaps"},
        "labelSelector": {"matchLabels": {"app": "none"}}}]}}"#;
    let patch = ["patch", "cprof", "sample", "--namespace=shop", "--type=merge", "-p"];
    cluster.run(patch.iter().chain(&[targets]))?;
    release.await_ready()?;
    // Metrics may be a second old.
    eventually(SOON, || {
        let now = release.sum(&new, &WRITTEN)?;
        if now > written { Ok(()) } else { Err(format!("{now}, and {written} before").into()) }
    })?;
    assert_eq!(release.sum(&old, &WRITTEN)?.to_string(), "0", "a follower wrote a status");

    let all = r#"{"spec": {"targets": [{"name": "configmaps", "resource": {"resource": "configmaps"}}]}}"#;
    cluster.run(patch.iter().chain(&[all]))?;
    release.await_ready()
}
