//! `helm test --logs`, with both versions of Helm.

use crate::release::{NAMESPACE, PAIR, Release};
use crate::world::{Failure, Outcome, World};

/// Helm 3 looks for what pods printed when it has removed those that passed.
const KEPT: &str = "selfTest: {keepPods: true}\n";
/// Everything that `helm test` may create.
const KINDS: &str = "pods,configmaps,serviceaccounts,roles,rolebindings,clusterrolebindings,\
                     networkpolicies,cacheprofiles";
const MADE: &str = "--selector=app.kubernetes.io/component=self-test";

/// What is left of it.
fn left(world: &World) -> Result<String, Failure> {
    world.run(&format!("get {KINDS} --all-namespaces {MADE} --output=name"))
}

fn assert_prints(said: &str) {
    for words in [
        "POD LOGS: kubewarm-rights",
        "✔ in namespace kubewarm-system: ",
        "POD LOGS: kubewarm-test",
        "/kubewarm-test is ready: 1/1 targets are warm",
        "is what the API server says, known to be current ",
    ] {
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
}

#[test]
fn helm_4_prints_the_logs_of_the_test_and_leaves_nothing_of_it() -> Outcome {
    let test = "helm_4_prints_the_logs_of_the_test_and_leaves_nothing_of_it";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    assert_prints(&Release::with(&world, PAIR)?.test_from_within()?);
    assert_eq!(left(&world)?, "");
    Ok(())
}

#[test]
fn helm_3_prints_the_logs_of_the_test_where_its_pods_stay() -> Outcome {
    let test = "helm_3_prints_the_logs_of_the_test_where_its_pods_stay";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    let [helm, _] = &world.helms;
    let (release, _) = Release::anew_by(helm, &world, &format!("{PAIR}{KEPT}"))?;
    release.await_ready()?;
    assert_prints(&release.test_from_within()?);
    assert_eq!(left(&world)?, "pod/kubewarm-rights\npod/kubewarm-test\n");
    world.run(&format!("delete pods --namespace={NAMESPACE} {MADE}"))?;
    release.uninstall()
}
