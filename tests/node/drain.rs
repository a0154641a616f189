//! Tests that a node drain evicts one replica at a time, and that each replica ends by itself.

use std::time::Duration;

use testbed::{ControlPlane, Process, eventually};

use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{NodeWorld, Outcome, SOON};

/// The drain evicts one pod, and the `PodDisruptionBudget` protects the other. The evicted pod has
/// 15 s to end, then the drain stops.
const DRAIN: &str = "drain node --ignore-daemonsets --timeout=15s \
                     --pod-selector=app.kubernetes.io/instance=kubewarm,pod-template-hash";

/// A cordoned node. It is uncordoned when this value is dropped.
struct Cordoned(&'static ControlPlane);

impl Drop for Cordoned {
    fn drop(&mut self) {
        // A failure here is no failure of this test, but makes the next test fail.
        let _ = self.0.run(["uncordon", "node"]);
    }
}

/// A process that prints the name of each pod that ends and its container's exit code.
fn watch_ends(cluster: &ControlPlane) -> Process {
    let ends = r#"jsonpath={.metadata.name}{" ended "}{.status.containerStatuses[0].state.terminated.exitCode}{"\n"}"#;
    let mut command = cluster.kubectl();
    command.args(["get", "pods", "--watch", "--namespace", NAMESPACE, "--output", ends]);
    cluster.process("pods-watch", &command, |log| log.contains("ended"))
}

#[test]
fn a_drain_takes_one_replica_at_a_time_and_each_ends_by_itself() -> Outcome {
    let test = "a_drain_takes_one_replica_at_a_time_and_each_ends_by_itself";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    let release = NodeRelease::with(&world, PAIR)?;
    let before = release.pods()?;
    let watch = watch_ends(cluster);
    watch.start()?;

    let cordoned = Cordoned(cluster);
    let Err(refusal) = world.run(DRAIN) else {
        return Err("the drain evicted the last replica".into());
    };
    assert!(refusal.to_string().contains("disruption budget"), "{refusal}");
    let stayed: Vec<_> = release.pods()?.into_iter().filter(|pod| before.contains(pod)).collect();
    let [stayed] = stayed.as_slice() else { return Err(format!("{stayed:?} stayed").into()) };
    assert!(release.is_warm(stayed), "{stayed:?}");
    eventually(SOON, || {
        let leader = release.leader()?;
        if leader == stayed.name { Ok(()) } else { Err(format!("{leader} leads").into()) }
    })?;
    let gone = before.iter().find(|pod| *pod != stayed).ok_or("no pod was evicted")?;
    let ended = format!("{} ended 0\n", gone.name);
    eventually(Duration::from_secs(5), || {
        let log = watch.log();
        if log.contains(&ended) { Ok(()) } else { Err(format!("no {ended:?} in\n{log}").into()) }
    })?;

    drop(cordoned);
    eventually(SOON, || {
        let pods = release.pods()?;
        let is_whole = pods.len() == 2 && pods.iter().all(|pod| pod.is_ready);
        if is_whole { Ok(()) } else { Err(format!("{pods:?}").into()) }
    })?;
    release.await_ready()
}
