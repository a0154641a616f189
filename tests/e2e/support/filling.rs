//! Creates thousands of `ConfigMaps` with random text.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use serde_json::json;

use crate::world::{Failure, Outcome, World};

/// Parallel writers.
const HANDS: usize = 48;
/// Random bytes per object: 10,000 objects take about 9 MiB in all, 50,000 about 45 MiB.
const TEXT: usize = 1_000;

/// Creates `objects` `ConfigMaps`. The label `half` is alternately `a` and `b`.
pub(crate) async fn fill(world: &World, namespace: &str, objects: usize) -> Outcome {
    let client =
        ApiServerConnection::load(&ConnectionOptions::of_file(world.cluster.kubeconfig()))?
            .client();
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let made = futures::stream::iter(0..objects).map(async |number| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let text: String = (0..TEXT).map(|_| random.alphanumeric()).collect();
        let half = if number.is_multiple_of(2) { "a" } else { "b" };
        let object = serde_json::from_value(json!({
            "metadata": {"name": format!("c{number:05}"), "labels": {"half": half}},
            "data": {"text": text},
        }))?;
        api.create(&PostParams::default(), &object).await?;
        Ok::<_, Failure>(())
    });
    made.buffer_unordered(HANDS).try_collect().await
}
