//! Tests `helm test` with both versions of Helm.

use crate::release::{NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome};

/// The kinds of all objects that `helm test` may create.
const KINDS: &str = "pods,serviceaccounts,roles,rolebindings";
const MADE: &str = "--selector=app.kubernetes.io/component=helm-test";

/// The objects of `helm test` that still exist.
fn left(world: &NodeWorld) -> Result<String, Failure> {
    world.run(&format!("get {KINDS} --all-namespaces {MADE} --output=name"))
}

fn assert_prints(output: &str) {
    for words in [
        "✔ authenticates you as system:serviceaccount:kubewarm-system:kubewarm-test",
        "✔ 2 of 2 replicas of Deployment kubewarm-system/kubewarm are ready",
        " leads, and renewed the Lease ",
        "nothing is wrong; ",
    ] {
        assert!(output.contains(words), "no {words:?} in\n{output}");
    }
}

#[test]
fn helm_4_prints_what_the_test_printed_and_leaves_nothing_of_it() -> Outcome {
    let test = "helm_4_prints_what_the_test_printed_and_leaves_nothing_of_it";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    assert_prints(&NodeRelease::with(&world, PAIR)?.test_from_within()?);
    assert_eq!(left(&world)?, "");
    Ok(())
}

#[test]
fn helm_3_prints_what_the_test_printed_and_leaves_nothing_of_it() -> Outcome {
    let test = "helm_3_prints_what_the_test_printed_and_leaves_nothing_of_it";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let [helm, _] = &world.helms;
    let (release, _) = NodeRelease::reinstall_with(helm, &world, PAIR)?;
    release.await_ready()?;
    assert_prints(&release.test_from_within()?);
    assert_eq!(left(&world)?, "");
    release.uninstall()
}
