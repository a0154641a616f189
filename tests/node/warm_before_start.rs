//! The init container of docs/controllers.md, in a real pod.

use testbed::eventually;

use crate::object::{condition, text};
use crate::release::{NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, file};

/// The command that docs/controllers.md shows, and the beginning of the log that it prints.
const LOGS: &str = "logs -n billing deploy/billing-controller -c wait-until-warm";
const TOLD: &str = "waiting: PermissionsMissing: target \"";

#[test]
fn a_controller_starts_after_its_profile_is_ready() -> Outcome {
    let Some(world) = NodeWorld::enter("a_controller_starts_after_its_profile_is_ready")? else {
        return Ok(());
    };
    NodeRelease::with(&world, PAIR)?;
    let apply = |path| world.run(&format!("apply -f {}", file(path).display()));
    apply("deploy/examples/warm-before-start.yaml")?;
    eventually(SOON, || {
        let log = world.run(LOGS)?;
        if log.contains(TOLD) { Ok(()) } else { Err(Failure::from(log)) }
    })?;
    let pods = world.run("get pods -n billing --output=wide")?;
    assert!(pods.contains("Init:0/1"), "{pods}");

    apply("deploy/rbac/warm-before-start.yaml")?;
    world.run("rollout status deploy/billing-controller -n billing --timeout=60s")?;
    let profile = world.get("cprof billing-controller -n billing")?;
    assert_eq!(condition(&profile, "Ready"), "True", "{profile:#}");
    eventually(SOON, || {
        let log = world.run("logs -n billing deploy/billing-controller")?;
        let is_complete = log.contains("billing-controller") && log.contains("ready");
        if is_complete { Ok(()) } else { Err(Failure::from(log)) }
    })?;
    let pods = world.list("pods -n billing")?;
    let [pod] = pods.as_slice() else { return Err(format!("{pods:#?}").into()) };
    let init = "/status/initContainerStatuses/0";
    assert_eq!(text(pod, &format!("{init}/state/terminated/reason")), "Completed", "{pod:#}");
    assert_eq!(pod.pointer(&format!("{init}/restartCount")), Some(&0.into()), "{pod:#}");
    world.run("delete namespace billing --wait=false")?;
    Ok(())
}
