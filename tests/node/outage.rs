//! An API server that answers nobody: the kubelet sees no reason to start kubewarm anew.

use std::thread::sleep;
use std::time::Duration;

use testbed::eventually;

use crate::release::{PAIR, Release};
use crate::world::{Outcome, SOON, World};

/// The kubelet asks so often, and three answers that fail are the end of a container.
const STRICT: &str = "probes:
  liveness: {periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 3}
";
/// Beyond what the kubelet waits for, leases last, and requests and watches are given.
const SILENCE: Duration = Duration::from_secs(45);

#[test]
fn nothing_is_restarted_because_the_api_server_is_silent() -> Outcome {
    let test = "nothing_is_restarted_because_the_api_server_is_silent";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    let release = Release::with(&world, &format!("{PAIR}{STRICT}"))?;
    let before = release.pods()?;
    assert_eq!(before.len(), 2, "{before:?}");

    cluster.apiserver().freeze()?;
    // That time passes is what is tested.
    sleep(SILENCE);
    let warm = before.iter().filter(|pod| release.is_warm(pod)).count();
    cluster.apiserver().thaw()?;
    assert_eq!(warm, 2, "what is held is served");

    // The same containers, and nobody was missed meanwhile.
    eventually(SOON, || {
        let after = release.pods()?;
        if after == before { Ok(()) } else { Err(format!("{after:?}, before {before:?}").into()) }
    })?;
    eventually(SOON, || release.leader())?;
    release.await_ready()
}
