//! Tests reads through the Service while replicas end. A client that retries broken connections
//! sees no failure.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::eventually;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::account::{CONFIG_MAP_RULES, service_account};
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// The object that is read. The reader gets this permission like any other account.
const PATH: &str = "/api/v1/namespaces/shop/configmaps/checkout";
/// The pause of a reader after a read, and its pause before a retry.
const PAUSE: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(500);
/// The number of retries, as in client-go after a broken connection. The test does not retry error
/// responses, because client-go retries rejected lists and watches, but no rejected `get`.
const TRIES: usize = 10;
/// The number of concurrent readers.
const READERS: usize = 4;

/// The shared state of the readers: the number of reads, and the number of retries.
#[derive(Default)]
struct ReadLoad {
    reads: AtomicUsize,
    again: AtomicUsize,
    ended: AtomicBool,
}

/// A kubeconfig for the Service. It uses the Service's address, because the node has no cluster
/// DNS.
fn kubeconfig(world: &NodeWorld) -> Result<Kubeconfig, Failure> {
    world.cluster().apply(&service_account("shop", "reader", CONFIG_MAP_RULES))?;
    let token = world.run("create token reader --namespace=shop --duration=1h")?;
    let service = world.get(&format!("service kubewarm --namespace={NAMESPACE}"))?;
    let port = service["spec"]["ports"][0]["port"].as_u64().ok_or("no port")?;
    let ca = world.get(&format!("configmap kubewarm-ca --namespace={NAMESPACE}"))?;
    let file = world.cluster().folder().join("reads-ca.crt");
    std::fs::write(&file, text(&ca, "/data/ca.crt"))?;
    let config = json!({
        "clusters": [{"name": "warm", "cluster": {
            "server": format!("https://{}:{port}", text(&service, "/spec/clusterIP")),
            "certificate-authority": file,
            "tls-server-name": "kubewarm.kubewarm-system.svc",
        }}],
        "users": [{"name": "reader", "user": {"token": token.trim()}}],
        "contexts": [{"name": "warm", "context": {"cluster": "warm", "user": "reader"}}],
        "current-context": "warm",
    });
    Ok(serde_json::from_value(config)?)
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client, Failure> {
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // With the default, the client would retry error responses, and the test would miss them.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Reads until the load ends. Returns an error if a read failed.
async fn read(client: Client, load: &ReadLoad) -> Result<(), String> {
    while !load.ended.load(Ordering::Relaxed) {
        let mut tries = 0;
        loop {
            let request = http::Request::get(PATH).body(Vec::new()).map_err(|e| e.to_string())?;
            match client.request::<Value>(request).await {
                Ok(object) if object["metadata"]["name"] == "checkout" => break,
                Ok(object) => return Err(format!("read {object}")),
                // The server answered with an error. A client would not retry such a `get`, so this
                // is a failure.
                Err(kube::Error::Api(status)) => return Err(format!("{status:?}")),
                Err(error) if tries == TRIES => return Err(error.to_string()),
                Err(_) => {
                    tries += 1;
                    load.again.fetch_add(1, Ordering::Relaxed);
                    sleep(AGAIN).await;
                }
            }
        }
        load.reads.fetch_add(1, Ordering::Relaxed);
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Runs several readers, each with its own connections.
fn read_all(kubeconfig: &Kubeconfig, load: &ReadLoad) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let readers = (0..READERS).map(|_| async {
            let client = client(kubeconfig.clone()).await.map_err(|error| error.to_string())?;
            read(client, load).await
        });
        futures::future::try_join_all(readers).await.map(drop)
    })
}

/// Runs `work` during reads, which must all succeed. Returns the number of retries.
fn under_load(
    world: &NodeWorld,
    what: &str,
    work: impl FnOnce() -> Outcome,
) -> Result<usize, Failure> {
    let (kubeconfig, load) = (kubeconfig(world)?, ReadLoad::default());
    let done = std::thread::scope(|scope| {
        let reading = scope.spawn(|| world.node.on_network(|| read_all(&kubeconfig, &load)));
        let begun = eventually(SOON, || match load.reads.load(Ordering::Relaxed) {
            0 if reading.is_finished() => Ok(()),
            0 => Err("nothing was read yet".into()),
            _ => Ok(()),
        });
        let worked = begun.and_then(|()| work());
        load.ended.store(true, Ordering::Relaxed);
        let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.and_then(|()| read?.map_err(Failure::from))
    });
    done?;
    let (reads, again) = (load.reads.into_inner(), load.again.into_inner());
    report(&format!("{what}: {reads} reads, {again} retries"))?;
    assert!(reads > 100, "{reads} reads");
    Ok(again)
}

#[test]
fn no_read_fails_while_replicas_are_replaced_and_killed() -> Outcome {
    let test = "no_read_fails_while_replicas_are_replaced_and_killed";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let release = NodeRelease::with(&world, PAIR)?;
    let again = under_load(&world, "a rolling update", || {
        let deployment = format!("deployment/kubewarm --namespace={NAMESPACE}");
        world.run(&format!("rollout restart {deployment}"))?;
        world.run(&format!("rollout status {deployment} --timeout=2m"))?;
        // The last old replica is still terminating for a while.
        eventually(SOON, || {
            let pods = release.pods()?.len();
            let all = world
                .list(&format!("pods --namespace={NAMESPACE} --selector=pod-template-hash"))?;
            if all.len() == pods { Ok(()) } else { Err("an old replica is still there".into()) }
        })
    })?;
    // A replica that the Service no longer lists still answers, and asks clients to close their
    // connections. So few connections may break: at most one for each reader.
    assert!(again <= READERS, "{again} connections broke");

    let pods = release.pods()?;
    let victim = pods.first().ok_or("no pods")?;
    under_load(&world, "a replica that is killed", || {
        world.node.kill_container(&victim.container)?;
        eventually(SOON, || {
            let pods = release.pods()?;
            let risen = pods.iter().find(|pod| pod.name == victim.name).ok_or("the pod is gone")?;
            let is_back = risen.restarts > victim.restarts && risen.is_ready;
            if is_back { Ok(()) } else { Err(format!("{risen:?}").into()) }
        })
    })?;
    release.await_ready()
}
