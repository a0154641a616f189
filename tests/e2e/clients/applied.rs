//! A client that reads an object through kubewarm and applies what it extracts: `tests/clients/apply`.

use std::process::Command;

use serde_json::{Value, json};
use testbed::GoClients;

use super::{SOON, kubeconfig};
use crate::api::{Served, let_read};
use crate::figures::Exposition;
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World};

/// A profile of all ConfigMaps.
fn settings(projection: &str) -> String {
    format!(
        "{{targets: [{{name: settings, resource: configmaps, scope: {{type: AllNamespaces}}{projection}}}]}}"
    )
}

/// A user that may do everything in a namespace, with a kubeconfig for the cache.
struct Applier<'a> {
    world: &'a World,
    served: &'a Served,
    namespace: String,
}

impl<'a> Applier<'a> {
    fn new(world: &'a World, served: &'a Served) -> Result<Self, Failure> {
        let namespace = world.namespace("team")?;
        let owner = format!("--serviceaccount={namespace}:owner");
        world.cluster.run(["create", "serviceaccount", "owner", "-n", &namespace])?;
        let_read(world, (&namespace, "owner"), None)?;
        let binding = ["create", "rolebinding", "owner", "--clusterrole=admin", &owner];
        world.cluster.run([&binding[..], &["-n", &namespace]].concat())?;
        Ok(Self { world, served, namespace })
    }

    /// Runs the program with this object, and returns the object's data.
    fn change(&self, name: &str) -> Result<Value, Failure> {
        let Self { world, served, namespace } = self;
        let user = world.cluster.service_account_kubeconfig(namespace, "owner")?;
        let mut program = Command::new(GoClients::locate_or_build()?.program("apply"));
        program.args(["-namespace", namespace, "-name", name]).arg(kubeconfig(served, &user)?);
        let output = program.output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// The number of gets that kubewarm answered from its stores.
fn gets(served: &Served) -> Result<f64, Failure> {
    let labels = [r#"handler="get""#, r#"code="200""#];
    Ok(Exposition::read(&served.operator)?.sum("kubewarm_read_requests_total", &labels))
}

#[test]
fn a_client_that_applies_what_it_extracts_keeps_its_fields_unless_a_profile_drops_them() -> Outcome
{
    let world = World::lease()?;
    let served = Served::start_as_administrator(&world, &["--forward"])?;
    let client = Applier::new(&world, &served)?;
    for (name, projection, expected) in [
        ("kept", "", json!({"a": "3", "b": "2"})),
        ("dropped", ", projection: {managedFields: Drop}", json!({"a": "3"})),
    ] {
        // Each profile has its own name, so that no informer of the other one serves the read.
        let profile = Profile::apply(&world, NAMESPACE, name, &settings(projection))?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let before = gets(&served)?;
        assert_eq!(client.change(name)?, expected, "{name}");
        assert!(gets(&served)? > before, "{name}: no get was served from the cache");
        world.cluster.run(["delete", "cprof", name, "-n", NAMESPACE])?;
    }
    Ok(())
}
