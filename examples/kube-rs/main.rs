//! Fills a reflector with the `ConfigMaps` of a namespace twice: from the API server, and from
//! kubewarm. It prints how many `ConfigMaps` each reflector holds, and the time until the reflector
//! was ready.
//!
//! `cargo run --example kube-rs -- CACHE_KUBECONFIG [NAMESPACE]`
//!
//! `kubewarm kubeconfig` writes `CACHE_KUBECONFIG`. As kubectl does, the program finds the API
//! server by `$KUBECONFIG` or `~/.kube/config`. Only the kubeconfig differs: both reflectors run
//! the same code.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use std::{
    env,
    error::Error,
    path::Path,
    time::{Duration, Instant},
};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program prints its results")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let kubeconfig = arguments.next().ok_or("usage: kube-rs CACHE_KUBECONFIG [NAMESPACE]")?;
    let namespace = arguments.next().unwrap_or_else(|| "shop".to_owned());
    let api_server = Client::try_default().await?;
    let kubewarm = cache_client(Path::new(&kubeconfig)).await?;
    for (server, client) in [("the API server", api_server), ("kubewarm", kubewarm)] {
        let (count, duration) = fill_reflector(client, &namespace).await?;
        println!("from {server}: {count} ConfigMaps after {duration:.0?}");
    }
    Ok(())
}

/// Returns a client that reads from kubewarm.
async fn cache_client(kubeconfig: &Path) -> Result<Client, Box<dyn Error>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Returns the number of `ConfigMap`s in a new reflector, and the time until the reflector was
/// ready.
async fn fill_reflector(
    client: Client,
    namespace: &str,
) -> Result<(usize, Duration), Box<dyn Error>> {
    let started = Instant::now();
    let config_maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let (store, writer) = reflector::store();
    let events = watcher(config_maps, watcher::Config::default().streaming_lists());
    let reflector = reflector(writer, events.default_backoff());
    let following = tokio::spawn(reflector.for_each(|_| async {}));
    // A server that does not answer must not block the program.
    tokio::time::timeout(Duration::from_mins(1), store.wait_until_ready()).await??;
    let duration = started.elapsed();
    following.abort();
    Ok((store.state().len(), duration))
}
