//! Clients stay consistent while servers, profiles and permissions change.

use std::path::Path;

use serde_json::json;
use testbed::GoClients;

use super::go::Followers;
use super::kube_rs::Reflectors;
use super::{ClientsFixture, PROFILE, SOON};
use crate::figures::informers;
use crate::operator::Operator;
use crate::world::{Failure, Outcome, World, eventually};

const WRITES: u32 = 10_000;
/// The number of writes before, during and after each disturbance.
const SOME: u32 = 150;

/// All clients, started in one namespace at the same time.
pub(super) struct Clients {
    go: [Followers; 2],
    rust: Reflectors,
    seed: u32,
}

impl Clients {
    /// Starts the clients with the kubeconfig `through`, and clients of the API server to compare.
    pub(super) fn start(world: &World, through: &Path, team: &str) -> Result<Self, Failure> {
        let programs = GoClients::locate_or_build()?;
        let follow = programs.program("follow");
        let servers = (world.cluster.kubeconfig(), through);
        let both = [true, false].map(|list| Followers::start(&follow, servers, team, list));
        let [streaming, listing] = both;
        let rust = Reflectors::start(servers, team)?;
        Ok(Self { go: [streaming?, listing?], rust, seed: 0 })
    }

    /// Writes at random until `count` writes are done.
    pub(super) fn write(&mut self, count: u32) -> Outcome {
        self.seed += 1;
        let seed = self.seed;
        let written = self.go[0].ask(&format!("write {count} {seed}"))?;
        assert!(written["writes"].as_u64() >= Some(count.into()), "{count}: {written}");
        Ok(())
    }

    /// Waits until all clients hold the objects of the API server.
    pub(super) fn agree(&mut self, when: &str) -> Outcome {
        for followers in &mut self.go {
            followers.agree(when, SOON.as_secs())?;
        }
        self.rust.agree(when, SOON)
    }
}

#[test]
fn clients_stay_consistent_during_faults() -> Outcome {
    let scene = &ClientsFixture::start(World::alone()?)?;
    let ClientsFixture { world, served, team, .. } = scene;
    for number in 0..3 {
        world.cluster.run(["create", "configmap", &format!("kept-{number}"), "-n", team])?;
    }
    let mut clients = Clients::start(world, &scene.through()?, team)?;
    clients.agree("synced")?;
    clients.write(WRITES)?;
    clients.agree("after many writes")?;

    let settings = format!("/api/v1/namespaces/{team}/configmaps");
    let informer = || -> Result<String, Failure> {
        let reply = served.server()?.get(&scene.token, &settings)?;
        Ok(reply.header("kubewarm-informer").to_owned())
    };
    let named = informer()?;
    assert_eq!(informer()?, named);
    served.operator.process.kill()?;
    clients.write(SOME)?;
    served.operator.process.start()?;
    clients.write(SOME)?;
    clients.agree("kubewarm restarted")?;
    // A response header names the informer by a hash. The name differs between processes, because
    // each process hashes with its own key.
    let renamed = informer()?;
    assert!(renamed.len() == named.len() && renamed != named, "{named:?}, then {renamed:?}");

    world.cluster.apiserver().kill()?;
    world.cluster.apiserver().start()?;
    clients.write(SOME)?;
    clients.agree("API server restarted")?;

    served.operator.process.freeze()?;
    clients.write(SOME)?;
    world.cluster.compact()?;
    world.cluster.apiserver().restart()?;
    clients.write(SOME)?;
    served.operator.process.thaw()?;
    clients.agree("etcd compacted while kubewarm stood still")?;

    // After this edit of the profile, another informer replaces the informer that the clients
    // watch.
    let edited = PROFILE.replace("scope:", "projection: {managedFields: Drop}, scope:");
    let profile = scene.declare(&edited)?;
    clients.write(SOME)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    clients.write(SOME)?;
    clients.agree("profile edited")?;
    scene.declare(PROFILE)?.await_condition("Ready", "True", None, SOON)?;

    let reads = served.server()?;
    let watch = reads.watch(&scene.token, &format!("{settings}?watch=1"), "*/*")?;
    world.cluster.run(["delete", "clusterrolebinding", "reader"])?;
    eventually(SOON, || {
        let all = informers(&served.operator)?;
        // After an edit of the profile, two informers of one resource can exist for a moment.
        let is_blocked = |kind| {
            let mut states = all
                .iter()
                .filter(|informer| informer["resource"] == kind)
                .map(|informer| &informer["state"])
                .peekable();
            states.peek().is_some() && states.all(|state| state == "Blocked")
        };
        if is_blocked("configmaps") && is_blocked("parts") {
            Ok(())
        } else {
            Err(format!("{all:?}").into())
        }
    })?;
    // After the loss of access, kubewarm answers 503 and ends the clients' watches.
    assert_eq!(reads.get(&scene.token, &settings)?.code, 503);
    eventually(SOON, || if watch.is_over() { Ok(()) } else { Err("still open".into()) })?;
    clients.write(SOME)?;
    Operator::grant_reading(world)?;
    clients.agree("informers blocked")?;

    no_client_sees_an_existing_object_as_deleted(scene, &mut clients)
}

/// The profile is narrowed, deleted and created again while a controller runs.
fn no_client_sees_an_existing_object_as_deleted(
    scene: &ClientsFixture,
    clients: &mut Clients,
) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/configmaps/kept-0", scene.team);
    let reads = scene.served.server()?;
    let await_code = |wanted| {
        eventually(SOON, || match reads.get(&scene.token, &path)?.code {
            code if code == wanted => Ok(()),
            code => Err(format!("{code}").into()),
        })
    };
    clients.go[0].ask("look")?;
    clients.write(SOME)?;
    let narrow = PROFILE.replacen("scope:", "labelSelector: {matchLabels: {app: web}}, scope:", 1);
    scene.declare(&narrow)?;
    await_code(421)?;
    clients.write(SOME)?;
    scene.world.cluster.run([
        "delete",
        "cprof",
        scene.profile,
        "-n",
        crate::operator::NAMESPACE,
    ])?;
    await_code(421)?;
    clients.write(SOME)?;
    scene.declare(PROFILE)?;
    await_code(200)?;
    clients.agree("profile narrowed, deleted and made again")?;
    let looked = clients.go[0].ask("looked")?;
    assert_eq!((&looked["not_found"], &looked["empty"]), (&json!(0), &json!(0)), "{looked}");
    assert!(looked["found"].as_u64() > Some(100), "{looked}");
    Ok(())
}
