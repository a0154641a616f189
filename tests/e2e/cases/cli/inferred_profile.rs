//! `kubewarm profile` prints a profile of what a ServiceAccount may list and watch.

use std::process::{Command, Output};

use crate::operator::{NAMESPACE, Running};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const RIGHTS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: inferred}
rules:
- {apiGroups: [''], resources: [nodes, services], verbs: [list, watch]}
- {apiGroups: [''], resources: [secrets], verbs: [get, list]}
- {apiGroups: [''], resources: [pods], resourceNames: [one], verbs: [list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: ['*']}
";

fn inferred(world: &World, account: &str) -> Result<Output, Failure> {
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["profile", "--for", account, "--kubeconfig"])
        .arg(world.cluster.kubeconfig())
        .output()?;
    Ok(output)
}

#[test]
fn the_profile_of_a_service_account_contains_what_it_may_list_and_watch() -> Outcome {
    let world = &Running::shared()?.world;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    let account = format!("system:serviceaccount:{shop}:checkout");
    world.cluster.run(["create", "serviceaccount", "checkout", "-n", &shop])?;
    let nothing = inferred(world, &account)?;
    let error = String::from_utf8_lossy(&nothing.stderr);
    assert!(
        nothing.status.code() == Some(2) && error.contains("may list and watch no kind"),
        "{error}"
    );

    world.cluster.apply(RIGHTS)?;
    let subject = format!("--serviceaccount={shop}:checkout");
    let name = format!("inferred-{shop}");
    world.cluster.run([
        "create",
        "clusterrolebinding",
        &name,
        "--clusterrole=inferred",
        &subject,
    ])?;
    let verbs = ["--verb=list", "--verb=watch", "--resource=configmaps"];
    world.cluster.run([&["create", "role", "reads", "-n", &other][..], &verbs].concat())?;
    world.cluster.run([
        "create",
        "rolebinding",
        "reads",
        "-n",
        &other,
        "--role=reads",
        &subject,
    ])?;
    let text = eventually(SOON, || {
        let output = inferred(world, &account)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !error.contains("leases") || error.contains("omits leases.coordination.k8s.io"),
            "{error}"
        );
        let is_whole = ["configmaps", "nodes", "services"].iter().all(|kind| text.contains(kind));
        if is_whole && error.contains("omits leases") {
            Ok(text)
        } else {
            Err(format!("{text}{error}").into())
        }
    })?;
    for absent in ["secrets", "pods", "leases"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    // Only a profile of the operator namespace answers requests for all namespaces.
    world.cluster.apply(&text)?;
    let wide = format!("{shop}.checkout");
    let profile = Profile { world, namespace: NAMESPACE, name: &wide };
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}
