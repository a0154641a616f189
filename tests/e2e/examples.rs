//! The shipped examples, with the roles that are shipped beside them.

use std::time::Duration;

use serde_json::Value;

use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Outcome, World, yaml_files};

const SOON: Duration = Duration::from_mins(2);
/// Where the examples live and look; two of the namespaces carry the label that one of them asks for.
const CLUSTER: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: autoscaler}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: orders, labels: {kubewarm.io/warm: platform}}
---
apiVersion: v1
kind: Namespace
metadata: {name: payments, labels: {kubewarm.io/warm: platform}}
";

#[test]
fn every_example_becomes_ready_with_the_roles_beside_it() -> Outcome {
    let world = World::alone()?;
    let _operator = Operator::start(&world)?;
    world.cluster.apply(CLUSTER)?;
    for path in yaml_files("deploy/rbac")?.iter().chain(&yaml_files("deploy/examples")?) {
        world.cluster.run(["apply", "-f", &path.to_string_lossy()])?;
    }
    let all: Value =
        serde_json::from_str(&world.cluster.run(["get", "cprof", "-A", "-o", "json"])?)?;
    let profiles = all["items"].as_array().ok_or("no list")?;
    assert_eq!(profiles.len(), 5, "{all:#}");
    for found in profiles {
        let text = |name: &str| found["metadata"][name].as_str().unwrap_or_default();
        let profile = Profile { world: &world, namespace: text("namespace"), name: text("name") };
        // Which namespaces a selector finds only the cluster knows.
        if profile.name == "platform" {
            profile.await_manifests()?;
            profile.grant()?;
        }
        profile.await_condition("Ready", "True", None, SOON)?;
    }
    Ok(())
}
