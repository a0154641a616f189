//! Custom resources with the content of pods, for lists that kubewarm stores and serves in JSON.

use crate::{corpus::Corpus, load, operator};
use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};

/// The API group of the custom resource.
pub const GROUP: &str = "bench.kubewarm.io";
/// The plural of the custom resource.
pub const PLURAL: &str = "workloads";
/// The number of objects: enough that a list of them takes more than a millisecond, but few enough
/// that their creation takes only some seconds.
const COUNT: u32 = 5_000;

/// The path of a list of all objects.
#[must_use]
pub fn path() -> String {
    format!("/apis/{GROUP}/v1/{PLURAL}?resourceVersion=0")
}

/// Creates the custom resource and its objects, in the namespaces of the pods.
///
/// # Errors
///
/// The first request that failed.
pub async fn create(client: &Client, corpus: Corpus) -> Result<()> {
    operator::define(client, GROUP, PLURAL, "Workload").await?;
    load::objects(client, (0..COUNT.min(corpus.count)).map(|index| object(corpus, index))).await
}

fn object(corpus: Corpus, index: u32) -> (String, Value) {
    let pod = corpus.pod(index);
    let mut object = pod.object;
    object["apiVersion"] = json!(format!("{GROUP}/v1"));
    object["kind"] = json!("Workload");
    (format!("/apis/{GROUP}/v1/namespaces/{}/{PLURAL}", pod.namespace), object)
}
