//! Tests that the kubelet does not restart kubewarm while the API server does not answer.

use std::thread::sleep;
use std::time::Duration;

use testbed::eventually;

use crate::release::{NodeRelease, PAIR};
use crate::world::{NodeWorld, Outcome, SOON};

/// Values with short liveness probes. If they failed, the kubelet would end a container after three
/// probes within 6 s.
const STRICT: &str = "probes:
  liveness: {periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 3}
";
/// The duration of the outage. It is longer than the probes' failure threshold, the duration of
/// leases, and the timeouts of requests and watches.
const SILENCE: Duration = Duration::from_secs(45);

#[test]
fn the_kubelet_restarts_no_pod_while_the_api_server_is_silent() -> Outcome {
    let test = "the_kubelet_restarts_no_pod_while_the_api_server_is_silent";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    let release = NodeRelease::with(&world, &format!("{PAIR}{STRICT}"))?;
    let before = release.pods()?;
    assert_eq!(before.len(), 2, "{before:?}");

    cluster.apiserver().freeze()?;
    // The API server is frozen. This time must pass, so that probes could fail.
    sleep(SILENCE);
    let warm = before.iter().filter(|pod| release.is_warm(pod)).count();
    cluster.apiserver().thaw()?;
    assert_eq!(warm, 2, "each replica stays warm");

    // The same containers must still run, and none of them may have been restarted.
    eventually(SOON, || {
        let after = release.pods()?;
        if after == before { Ok(()) } else { Err(format!("{after:?}, before {before:?}").into()) }
    })?;
    eventually(SOON, || release.leader())?;
    release.await_ready()
}
