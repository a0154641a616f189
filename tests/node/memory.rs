//! A profile that is larger than the pod: kubewarm's own limit stops it, and not the kernel.

use serde_json::json;
use testbed::ControlPlane;

use crate::object::condition;
use crate::release::{PAIR, Release};
use crate::world::{Outcome, SOON, World};

/// Less than the README has for anything: what is beside the tables has least room here.
const SMALL: &str = "replicaCount: 1
operator: {namespaceShare: 100}
resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi}}
rbac:
  read:
  - {resource: configmaps, namespaces: [shop, warehouse]}
";
/// It takes some 65 MiB.
const CROWD: usize = 100;
const TEXT: usize = 900_000;
/// In one request to `kubectl`.
const BATCH: usize = 10;
const BIG: &str = "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: big, namespace: warehouse}
spec: {targets: [{name: configmaps, resource: configmaps}]}
";

#[test]
fn what_is_too_large_for_the_pod_is_stopped_and_the_pod_lives() -> Outcome {
    let test = "what_is_too_large_for_the_pod_is_stopped_and_the_pod_lives";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: warehouse}}")?;
    fill(cluster)?;
    let profile = PAIR.split_once("profiles:").ok_or("no profile")?.1;
    let release = Release::with(&world, &format!("{SMALL}profiles:{profile}"))?;
    let before = release.pods()?;

    cluster.apply(BIG)?;
    let seen = world.await_that("cprof big --namespace=warehouse", 2 * SOON, |profile| {
        condition(profile, "WithinLimits") == "False"
    })?;
    assert_eq!(condition(&seen, "Ready"), "False", "{seen:#}");
    // It is looked at again and again; nobody else notices.
    release.await_ready()?;
    let after = release.pods()?;
    assert_eq!(after, before, "the container was killed");
    assert_eq!(after.first().map(|pod| pod.restarts), Some(0), "{after:?}");
    let [pod] = after.as_slice() else { return Err(format!("{after:?}").into()) };
    assert!(release.is_warm(pod), "{pod:?}");
    world.run("delete namespace warehouse --wait=false")?;
    Ok(())
}

/// Random text, which no compression makes much smaller.
fn fill(cluster: &ControlPlane) -> Outcome {
    let mut random = fastrand::Rng::with_seed(7);
    let mut one = |number: usize| {
        let text: String = (0..TEXT).map(|_| random.alphanumeric()).collect();
        let name = format!("pallet-{number:03}");
        let metadata = json!({"name": name, "namespace": "warehouse"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
    };
    for first in (0..CROWD).step_by(BATCH) {
        let items: Vec<_> = (first..first + BATCH).map(&mut one).collect();
        let path = cluster.folder().join("pallets.json");
        std::fs::write(
            &path,
            json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
        )?;
        cluster.run(["create", "--filename", &path.to_string_lossy()])?;
    }
    Ok(())
}
