//! Tests that at least one replica is warm at every moment of a rolling update.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, report};

#[test]
fn a_rolling_update_leaves_a_warm_replica_at_every_moment() -> Outcome {
    let test = "a_rolling_update_leaves_a_warm_replica_at_every_moment";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let release = NodeRelease::with(&world, PAIR)?;
    let before = release.pods()?;
    let ended = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    let cold = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let at = Instant::now();
                // Pods that are being deleted do not receive requests.
                let pods = release.pods().map_err(|error| error.to_string())?;
                // One pod can end between the list and this check, but another pod must still be
                // warm.
                if !pods.iter().any(|pod| release.is_warm(pod)) {
                    return Err(format!("{:?} ago no pod of {pods:?} was warm", at.elapsed()));
                }
                looks.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let rolled = roll(&world);
        ended.store(true, Ordering::Relaxed);
        let looked = looking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        rolled.and_then(|()| looked.map_err(Failure::from))
    });
    cold?;
    let looks = looks.into_inner();
    report(&format!("{looks} checks for a warm replica"))?;
    assert!(looks > 10, "{looks} looks");
    let after = release.pods()?;
    assert!(after.iter().all(|pod| before.iter().all(|old| old.name != pod.name)), "{after:?}");
    release.await_ready()
}

fn roll(world: &NodeWorld) -> Outcome {
    let deployment = format!("deployment/kubewarm --namespace={NAMESPACE}");
    world.run(&format!("rollout restart {deployment}"))?;
    world.run(&format!("rollout status {deployment} --timeout=2m"))?;
    Ok(())
}
