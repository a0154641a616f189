//! Tests profiles that are larger than the pod: kubewarm's own limits stop them before the kernel
//! kills the container.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use testbed::ControlPlane;

use crate::object::{Pod, condition};
use crate::release::{NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON};

/// Values for a pod with less memory than the README requires, and so with the least memory for
/// everything except stores.
const SMALL: &str = "replicaCount: 1
operator: {namespaceQuota: 100}
resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi}}
rbac:
  read:
  - {resource: configmaps, namespaces: [shop, warehouse]}
";
/// The number of large objects, which take some 65 MiB in all.
const CROWD: usize = 100;
const TEXT: usize = 900_000;
/// Objects in one `kubectl` request.
const BATCH: usize = 10;
/// Time for the status writes and first lists of all accepted profiles.
const SETTLED: Duration = Duration::from_secs(30);
const BIG: &str = "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: big, namespace: warehouse}
spec: {targets: [{name: configmaps, resource: configmaps}]}
";

#[test]
fn a_profile_larger_than_the_pod_is_stopped_and_the_pod_survives() -> Outcome {
    let test = "a_profile_larger_than_the_pod_is_stopped_and_the_pod_survives";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: warehouse}}")?;
    fill(cluster)?;
    let release = install(&world, SMALL)?;
    let before = release.pods()?;

    cluster.apply(BIG)?;
    let seen = world.await_that("cprof big --namespace=warehouse", SOON, |profile| {
        condition(profile, "WithinLimits") == "False"
    })?;
    assert_eq!(condition(&seen, "Ready"), "False", "{seen:#}");
    // kubewarm tries the target again later. Until then, other profiles must not be affected.
    let pod = survivor(&release, &before)?;
    assert!(release.is_warm(&pod), "{pod:?}");
    world.run("delete namespace warehouse --wait=false")?;
    Ok(())
}

const CROWDED: &str = "replicaCount: 1
resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi}}
rbac:
  read:
  - {resource: configmaps, namespaces: [shop, crowded]}
";
/// The largest number of profiles and targets that the API server and kubewarm accept for one
/// namespace.
const PROFILES: usize = 100;
const TARGETS: usize = 128;

#[test]
fn profiles_whose_own_memory_exceeds_the_pod_are_left_out_and_the_pod_survives() -> Outcome {
    let test = "profiles_whose_own_memory_exceeds_the_pod_are_left_out_and_the_pod_survives";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: crowded}}")?;
    let release = install(&world, CROWDED)?;
    let before = release.pods()?;

    let mut all = String::new();
    for profile in 0..PROFILES {
        let meta = format!("{{name: p{profile:03}, namespace: crowded}}");
        writeln!(
            all,
            "---\napiVersion: kubewarm.io/v1alpha1\nkind: CacheProfile\nmetadata: {meta}\nspec:\n  targets:"
        )?;
        for target in 0..TARGETS {
            // Each target selects other objects, so each needs an informer of its own.
            let labels = format!("{{matchLabels: {{part: p{profile}-{target}}}}}");
            writeln!(
                all,
                "  - {{name: t{target}, resource: configmaps, labelSelector: {labels}}}"
            )?;
        }
    }
    cluster.apply(&all)?;
    let last = format!("cprof p{:03} --namespace=crowded", PROFILES - 1);
    let seen =
        world.await_that(&last, SOON, |profile| condition(profile, "WithinLimits") == "False")?;
    assert_eq!(condition(&seen, "Accepted"), "False", "{seen:#}");
    world.await_that("cprof p000 --namespace=crowded", SOON, |profile| {
        condition(profile, "Accepted") == "True"
    })?;
    // The informers of the accepted profiles start within some seconds.
    std::thread::sleep(SETTLED);
    survivor(&release, &before)?;
    world.run("delete namespace crowded --wait=false")?;
    Ok(())
}

/// Installs a release with these values and the profile of `PAIR`.
fn install<'a>(world: &'a NodeWorld, values: &str) -> Result<NodeRelease<'a>, Failure> {
    let profile = PAIR.split_once("profiles:").ok_or("no profile")?.1;
    NodeRelease::with(world, &format!("{values}profiles:{profile}"))
}

/// Checks that the release's only pod is ready and that its container was never killed. Returns the
/// pod.
fn survivor(release: &NodeRelease<'_>, before: &[Pod]) -> Result<Pod, Failure> {
    release.await_ready()?;
    let after = release.pods()?;
    assert_eq!(after, before, "the container was killed");
    let [pod] = <[Pod; 1]>::try_from(after).map_err(|all| format!("{all:?}"))?;
    assert_eq!(pod.restarts, 0, "{pod:?}");
    let swapped = swapped_kib()?;
    assert!(!swapped.is_empty() && swapped.iter().all(|kib| *kib == 0), "swapped: {swapped:?} KiB");
    Ok(pod)
}

/// For each kubewarm process, the memory that the kernel has moved to swap, in KiB. Swap would hide
/// that a process exceeds its memory.
fn swapped_kib() -> Result<Vec<u64>, Failure> {
    let mut swapped = Vec::new();
    for process in std::fs::read_dir("/proc")? {
        // A process may end while it is read.
        let Ok(status) = std::fs::read_to_string(process?.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:").is_some_and(|name| name.trim() == "kubewarm") {
            let kib = field("VmSwap:").and_then(|text| text.trim().strip_suffix(" kB"));
            swapped.push(kib.ok_or("no VmSwap")?.parse()?);
        }
    }
    Ok(swapped)
}

/// Creates the objects. Their text is random, so compression saves little.
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
