//! Tests a client that reads an object through kubewarm, and applies the fields that it extracts
//! from managedFields: the program `tests/clients/apply`.

use std::process::Command;

use serde_json::{Value, json};
use testbed::GoClients;

use super::{SOON, kubeconfig};
use crate::api::{Served, account, let_read};
use crate::figures::Exposition;
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World, eventually};

/// A profile of all `ConfigMaps`.
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
        // Each profile declares only the object with its own name. So no informer of the other
        // profile serves this read.
        let profile = Profile::apply(&world, NAMESPACE, name, &settings(projection))?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let before = gets(&served)?;
        assert_eq!(client.change(name)?, expected, "{name}");
        // The admin server caches the metrics for some seconds.
        eventually(SOON, || {
            let after = gets(&served)?;
            if after > before { Ok(()) } else { Err(format!("{name}: {after} gets").into()) }
        })?;
        if projection.is_empty() {
            let users = Exposition::read(&served.operator)?.sum("kubewarm_read_appliers", &[]);
            assert!(users < 1.0, "{users} appliers");
        } else {
            the_users_who_can_remove_their_fields_are_reported(&client, &profile)?;
        }
        world.cluster.run(["delete", "cprof", name, "-n", NAMESPACE])?;
    }
    Ok(())
}

/// The client has applied the object, a second user may patch it, and a third user may only read
/// it. kubewarm must report the first two, who can remove their own fields.
fn the_users_who_can_remove_their_fields_are_reported(
    client: &Applier<'_>,
    profile: &Profile<'_>,
) -> Outcome {
    let Applier { world, served, namespace } = client;
    for (name, role) in [("editor", "edit"), ("viewer", "view")] {
        let token = account(world, namespace, name)?;
        let subject = format!("--serviceaccount={namespace}:{name}");
        let role = format!("--clusterrole={role}");
        world.cluster.run(["create", "rolebinding", name, "-n", namespace, &role, &subject])?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        eventually(SOON, || match served.server()?.get(&token, &path)? {
            reply if reply.header("kubewarm-informer").is_empty() => {
                Err(format!("{reply:?}").into())
            }
            _ => Ok(()),
        })?;
    }
    let user = |name: &str| format!("system:serviceaccount:{namespace}:{name}");
    let expected = [(user("editor"), json!("MayPatch")), (user("owner"), json!("Applied"))];
    eventually(SOON, || {
        let (_, text) = served.operator.ask("/debug/appliers")?;
        let page: Value = serde_json::from_str(&text)?;
        let all = page["appliers"].as_array().into_iter().flatten();
        let all = all.map(|applier| {
            (applier["user"].as_str().unwrap_or_default().to_owned(), applier["sign"].clone())
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        if all == expected { Ok(()) } else { Err(text.into()) }
    })?;
    eventually(SOON, || {
        let users = Exposition::read(&served.operator)?.sum("kubewarm_read_appliers", &[]);
        if (users - 2.0).abs() < f64::EPSILON { Ok(()) } else { Err(format!("{users}").into()) }
    })?;
    let object = profile.await_that(SOON, |profile| {
        let text = profile["status"]["targets"][0]["conditions"].to_string();
        text.contains("(2 users read it and can apply it)").then_some(())
    })?;
    let status = object["status"].to_string();
    assert!(!status.contains(&user("owner")) && !status.contains(&user("editor")), "{status}");
    Ok(())
}
