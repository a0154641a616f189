//! The peer in Rust: a reflector of kube-runtime with `DynamicObject` and a streaming list.
//!
//! `peer-kube-rs KUBECONFIG` speaks the protocol of [`kubewarm_bench::subject`].

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, reflector, watcher},
};
use kubewarm_bench::{
    call,
    lag::{LagRecorder, WRITTEN_AT},
    subject::{self, SyncedCache},
};
use std::{path::PathBuf, sync::Arc, time::Instant};

struct PeerReflector {
    store: reflector::Store<DynamicObject>,
    lag: Arc<LagRecorder>,
}

impl SyncedCache for PeerReflector {
    fn objects(&self) -> u64 {
        self.store.len() as u64
    }

    fn list(&self, key: &str, value: &str) -> Result<u64> {
        let carries = |object: &DynamicObject| {
            object.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
                == Some(value)
        };
        let objects: Vec<_> =
            self.store.state().into_iter().filter(|object| carries(object)).collect();
        Ok(objects.len() as u64)
    }

    fn lag(&self) -> &LagRecorder {
        &self.lag
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let kubeconfig =
        std::env::args_os().nth(1).map(PathBuf::from).context("usage: peer-kube-rs KUBECONFIG")?;
    let client = call::connect(&kubeconfig).await?;
    let pods = ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("", "v1", "Pod"));
    let api: Api<DynamicObject> = Api::all_with(client, &pods);
    let writer = reflector::store::Writer::new(pods);
    let store = writer.as_reader();
    let lag = Arc::new(LagRecorder::default());
    let events = watcher(api, watcher::Config::default().streaming_lists());
    let seen = Arc::clone(&lag);
    let follow =
        reflector(writer, events).default_backoff().applied_objects().for_each(move |object| {
            if let Ok(object) = object {
                let annotations = object.metadata.annotations.as_ref();
                seen.seen(annotations.and_then(|all| all.get(WRITTEN_AT)).map(String::as_str));
            }
            futures::future::ready(())
        });
    let started = Instant::now();
    let following = tokio::spawn(follow);
    store.wait_until_ready().await?;
    let took = started.elapsed();
    subject::serve(&PeerReflector { store, lag }, took).await?;
    following.abort();
    Ok(())
}
