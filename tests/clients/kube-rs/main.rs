//! Starts a reflector twice: cold, from the API server, and warm, from kubewarm. It prints the time until
//! the first result of each.
//!
//! `cargo run --example warmstart -- KUBECONFIG CACHE_KUBECONFIG [NAMESPACE]`, where `kubewarm kubeconfig`
//! wrote the second kubeconfig. Both starts run the same code.

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
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let usage = "usage: warmstart KUBECONFIG CACHE_KUBECONFIG [NAMESPACE]";
    let cold = PathBuf::from(arguments.next().ok_or(usage)?);
    let warm = PathBuf::from(arguments.next().ok_or(usage)?);
    let namespace = arguments.next().and_then(|it| it.into_string().ok());
    for (from, kubeconfig) in [("cold, from the API server:", cold), ("warm, from kubewarm:", warm)]
    {
        let (count, took) = first_answer(&kubeconfig, namespace.as_deref()).await?;
        println!("{from:<26} {count:>6} objects after {} ms", took.as_millis());
    }
    Ok(())
}

/// Returns the result of a reconciler's first read, and the time that a new process waits for it.
async fn first_answer(
    kubeconfig: &Path,
    namespace: Option<&str>,
) -> Result<(usize, Duration), Box<dyn Error>> {
    let started = Instant::now();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let api: Api<ConfigMap> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let (store, writer) = reflector::store();
    let events = watcher(api, watcher::Config::default().streaming_lists()).default_backoff();
    let following = tokio::spawn(reflector(writer, events).for_each(|_| async {}));
    store.wait_until_ready().await?;
    let answer = (store.state().len(), started.elapsed());
    following.abort();
    Ok(answer)
}
