//! A controller that reads from kubewarm and writes to the API server: `tests/clients/manager`, which
//! docs/controllers.md quotes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testbed::{GoClients, Process};

use super::documented::{self, CONTROLLERS};
use super::{SOON, Scene, kubeconfig};
use crate::api::Served;
use crate::figures::Exposition;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World, eventually, file};

/// Of the page.
const NAMESPACE: &str = "shop";
const ACCOUNT: &str = "settings-controller";
/// Marks the profile of Secrets, which the page declares last.
const DECLARED: &str = "secretData: Allow";

/// What the controller is given.
struct Controller<'a> {
    world: &'a World,
    program: PathBuf,
    api: PathBuf,
    cache: PathBuf,
}

impl<'a> Controller<'a> {
    fn of(world: &'a World, served: &Served) -> Result<Self, Failure> {
        let program = GoClients::locate_or_build()?.program("manager");
        let api = world.cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)?;
        let cache = kubeconfig(served, &api)?;
        Ok(Self { world, program, api, cache })
    }

    /// Starts it; `secrets` is how it sees those.
    fn start(&self, secrets: &str) -> Result<Process, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("-kubeconfig").arg(&self.api).args(["-namespace", NAMESPACE]);
        command.args(["-secrets", secrets, "-sync-timeout", "15s"]).arg(&self.cache);
        let process = self.world.cluster.process("manager", &command, |_| true);
        process.start()?;
        Ok(process)
    }
}

/// Sets what the `ConfigMap` says, and waits until the controller has written it into the Secret.
fn is_written(world: &World, currency: &str) -> Outcome {
    let data = format!(r#"{{"data":{{"currency":"{currency}"}}}}"#);
    world.cluster.run(["patch", "configmap", "red", "-n", NAMESPACE, "-p", &data])?;
    await_secret(world, currency)
}

fn await_secret(world: &World, currency: &str) -> Outcome {
    let shown = "go-template={{.data.currency | base64decode}}";
    eventually(SOON, || {
        let found = world.cluster.run(["get", "secret", "red", "-n", NAMESPACE, "-o", shown])?;
        if found == currency { Ok(()) } else { Err(format!("{found:?}").into()) }
    })
}

/// Deletes the Secret, which a controller that watches it writes again.
fn is_written_again(world: &World, currency: &str) -> Outcome {
    world.cluster.run(["delete", "secret", "red", "-n", NAMESPACE])?;
    await_secret(world, currency)
}

#[test]
fn a_manager_reads_from_the_cache_and_writes_to_the_api_server() -> Outcome {
    let scene = Scene::start(World::lease()?)?;
    let page = fs::read_to_string(file(CONTROLLERS))?;
    let all = documented::blocks(&page, "yaml");
    let (later, first): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.contains(DECLARED));
    for manifests in first {
        scene.world.cluster.apply(manifests)?;
    }
    let Scene { world, served, .. } = scene;
    let controller = Controller::of(&world, &served)?;
    declared_kinds_come_from_the_cache(&controller, &served)?;
    an_undeclared_kind_is_refused(&controller, &page)?;
    a_second_cluster_watches_it(&controller)?;
    a_profile_declares_it(&controller, &later)?;
    drop(served);
    kubewarm_forwards_it(&world)
}

fn declared_kinds_come_from_the_cache(controller: &Controller<'_>, served: &Served) -> Outcome {
    let world = controller.world;
    let process = controller.start("read")?;
    is_written(world, "EUR")?;
    is_written(world, "USD")?;
    let watches = Exposition::read(&served.operator)?.sum("kubewarm_http_watch_clients", &[]);
    assert!(watches >= 1.0, "{watches} watches at kubewarm");
    let lease = ["get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"];
    assert!(!world.cluster.run(lease)?.is_empty(), "nobody leads");
    process.term()?;
    Ok(())
}

/// The page quotes the log.
fn an_undeclared_kind_is_refused(controller: &Controller<'_>, page: &str) -> Outcome {
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

fn a_second_cluster_watches_it(controller: &Controller<'_>) -> Outcome {
    let process = controller.start("cluster")?;
    is_written(controller.world, "CHF")?;
    is_written_again(controller.world, "CHF")?;
    process.term()?;
    Ok(())
}

/// The program that was refused works once a profile declares the kind.
fn a_profile_declares_it(controller: &Controller<'_>, profiles: &[&str]) -> Outcome {
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

/// It works, too, where kubewarm forwards what no profile declares.
fn kubewarm_forwards_it(world: &World) -> Outcome {
    let served = Served::start(world, &["--forward"])?;
    let controller = Controller::of(world, &served)?;
    let process = controller.start("owned")?;
    is_written(world, "JPY")?;
    is_written_again(world, "JPY")?;
    process.term()?;
    Ok(())
}
