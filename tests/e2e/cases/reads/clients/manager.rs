//! Tests `examples/controller-runtime`, a controller that reads from kubewarm and writes to the API
//! server. docs/controllers.md shows parts of this program.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testbed::{GoExample, Process};

use super::documented::{self, CONTROLLERS};
use super::{ClientsFixture, SOON, kubeconfig};
use crate::api::Served;
use crate::figures::Exposition;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World, eventually, file};

/// The namespace on the page.
const NAMESPACE: &str = "shop";
const ACCOUNT: &str = "settings-controller";
/// A text of the page's profile for Secrets. The test applies this profile last, because it first
/// tests the controller without it.
const DECLARED: &str = "secretData: Allow";

/// The controller's program, and its kubeconfigs for the API server and the cache.
struct ManagerProgram<'a> {
    world: &'a World,
    program: PathBuf,
    api: PathBuf,
    cache: PathBuf,
}

impl<'a> ManagerProgram<'a> {
    fn of(world: &'a World, served: &Served) -> Result<Self, Failure> {
        let program = GoExample::ControllerRuntime.locate_or_build()?;
        let api = world.cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)?;
        let cache = kubeconfig(served, &api)?;
        Ok(Self { world, program, api, cache })
    }

    /// Starts the controller. `secrets` selects how it watches Secrets.
    fn start(&self, secrets: &str) -> Result<Process, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("-kubeconfig").arg(&self.api).args(["-namespace", NAMESPACE]);
        command.args(["-secrets", secrets, "-sync-timeout", "15s"]).arg(&self.cache);
        let process = self.world.cluster.process("manager", &command, |_| true);
        process.start()?;
        Ok(process)
    }
}

/// Changes the `ConfigMap`, and waits until the controller has written the value into the Secret.
fn is_written(world: &World, currency: &str) -> Outcome {
    let data = format!(r#"{{"data":{{"currency":"{currency}"}}}}"#);
    world.cluster.run(["patch", "configmap", "red", "-n", NAMESPACE, "-p", &data])?;
    await_secret(world, currency)
}

fn await_secret(world: &World, currency: &str) -> Outcome {
    let shown = "go-template={{.data.currency | base64decode}}";
    eventually(SOON, || {
        let value = world.cluster.run(["get", "secret", "red", "-n", NAMESPACE, "-o", shown])?;
        if value == currency { Ok(()) } else { Err(format!("{value:?}").into()) }
    })
}

/// Deletes the Secret, and waits until the controller has created it again from its watch.
fn is_written_again(world: &World, currency: &str) -> Outcome {
    world.cluster.run(["delete", "secret", "red", "-n", NAMESPACE])?;
    await_secret(world, currency)
}

#[test]
fn a_manager_reads_from_the_cache_and_writes_to_the_api_server() -> Outcome {
    let scene = ClientsFixture::start(World::lease()?)?;
    let page = fs::read_to_string(file(CONTROLLERS))?;
    let all = documented::blocks(&page, "yaml");
    let (later, first): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|block| block.contains(DECLARED));
    for manifests in first {
        scene.world.cluster.apply(manifests)?;
    }
    let ClientsFixture { world, served, .. } = scene;
    let controller = ManagerProgram::of(&world, &served)?;
    declared_kinds_come_from_the_cache(&controller, &served)?;
    an_undeclared_kind_is_refused(&controller, &page)?;
    a_second_cluster_watches_it(&controller)?;
    a_profile_declares_it(&controller, &later)?;
    drop(served);
    kubewarm_forwards_it(&world)
}

fn declared_kinds_come_from_the_cache(controller: &ManagerProgram<'_>, served: &Served) -> Outcome {
    let world = controller.world;
    let process = controller.start("read")?;
    is_written(world, "EUR")?;
    is_written(world, "USD")?;
    let watches = Exposition::read(&served.operator)?.sum("kubewarm_read_watches", &[]);
    assert!(watches >= 1.0, "{watches} watches at kubewarm");
    let lease = ["get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"];
    assert!(!world.cluster.run(lease)?.is_empty(), "no replica holds the lease");
    process.term()?;
    Ok(())
}

/// The controller's log must contain the lines that the page shows.
fn an_undeclared_kind_is_refused(controller: &ManagerProgram<'_>, page: &str) -> Outcome {
    let process = controller.start("owned")?;
    let status = process.wait(Duration::from_mins(2))?;
    let log = process.log();
    assert!(!status.success(), "{log}");
    let [shown] = documented::blocks(page, "text")[..] else {
        return Err("docs/controllers.md must have one log".into());
    };
    for line in shown.lines() {
        assert!(log.contains(line.trim_matches('…')), "no {line:?} in\n{log}");
    }
    Ok(())
}

fn a_second_cluster_watches_it(controller: &ManagerProgram<'_>) -> Outcome {
    let process = controller.start("cluster")?;
    is_written(controller.world, "CHF")?;
    is_written_again(controller.world, "CHF")?;
    process.term()?;
    Ok(())
}

/// The controller works after a profile declares the kind that kubewarm refused before.
fn a_profile_declares_it(controller: &ManagerProgram<'_>, profiles: &[&str]) -> Outcome {
    let world = controller.world;
    let [manifests] = profiles else {
        return Err("docs/controllers.md must have one profile of Secrets".into());
    };
    world.cluster.apply(manifests)?;
    let profile = Profile { world, namespace: NAMESPACE, name: "secrets" };
    profile.await_condition("Ready", "True", None, SOON)?;
    let process = controller.start("owned")?;
    is_written(world, "SEK")?;
    is_written_again(world, "SEK")?;
    process.term()?;
    world.cluster.run(["delete", "cprof", "secrets", "-n", NAMESPACE])?;
    Ok(())
}

/// With `--forward`, the controller also works without the profile for Secrets, because kubewarm
/// forwards requests for undeclared kinds.
fn kubewarm_forwards_it(world: &World) -> Outcome {
    let served = Served::start(world, &["--forward"])?;
    let controller = ManagerProgram::of(world, &served)?;
    let process = controller.start("owned")?;
    is_written(world, "JPY")?;
    is_written_again(world, "JPY")?;
    process.term()?;
    Ok(())
}
