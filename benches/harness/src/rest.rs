//! What kubewarm costs the API server while no object changes: 200 informers, and stores of Events,
//! for which the API server sends no bookmarks.

use crate::{
    call,
    cluster::Cluster,
    exposition, informers, load,
    operator::{self, OperatorProcess},
    programs::Programs,
    samples::Samples,
};
use anyhow::Result;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// The numbers of Events in the two stores. kubewarm confirms only the first store by comparisons
/// with a list, because it compares at most 1,000 objects.
const EVENTS: [u32; 2] = [1_000, 50_000];
/// The time after which lists, status writes and allocators are idle.
const SETTLE: Duration = Duration::from_secs(15);
/// The duration of each measurement, long enough for two bookmarks of each watch.
const REST: Duration = Duration::from_mins(2);
/// Lists of metadata whose processor time is measured together: the clock of a process has ticks of
/// 10 ms.
const LISTS: u32 = 20;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Creates the objects.
///
/// # Errors
///
/// The first request that failed.
///
/// # Cost
///
/// About a minute.
pub(crate) async fn create(client: &Client) -> Result<()> {
    informers::create_full(client).await?;
    for size in EVENTS {
        load::namespace(client, &namespace(size)).await?;
        load::objects(client, (0..size).map(|number| event(size, number))).await?;
    }
    Ok(())
}

/// Measures the API server without kubewarm, with 200 informers, and with each store of Events.
///
/// # Errors
///
/// If kubewarm is not ready in time.
///
/// # Cost
///
/// About 10 minutes.
pub(crate) async fn measure(
    cluster: &Cluster,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    sleep(SETTLE).await;
    let base = RestingServer { cluster, base: 0.0 }.measure("nothing", "", samples).await?;
    let server = RestingServer { cluster, base };
    let informers = informers::full_targets();
    let group = format!("group=\"{}\"", informers::GROUP);
    server.with("informers", &informers, (programs, &group), samples).await?;
    for size in EVENTS {
        let target = json!({
            "name": "events", "resource": "events",
            "scope": {"type": "Namespaces", "namespaces": [namespace(size)]},
        });
        let name = format!("events-{size}");
        server.with(&name, &[target], (programs, "resource=\"events\""), samples).await?;
        server.measure_list(size, samples).await?;
    }
    Ok(())
}

/// The API server while no object changes.
struct RestingServer<'a> {
    cluster: &'a Cluster,
    /// The processor cores that the API server uses without kubewarm. This value is subtracted from
    /// each measurement.
    base: f64,
}

impl RestingServer<'_> {
    /// Measures the API server while kubewarm runs informers for `targets`.
    async fn with(
        &self,
        name: &str,
        targets: &[Value],
        (programs, label): (&Programs, &str),
        samples: &mut Samples,
    ) -> Result<()> {
        let client = self.cluster.client();
        operator::declare(client, "rest", targets).await?;
        let mut operator = OperatorProcess::start(programs, self.cluster.kubeconfig(), "rest")?;
        operator.ready().await?;
        sleep(SETTLE).await;
        self.measure(name, label, samples).await?;
        tracing::info!(name, "measured at rest");
        operator.end().await?;
        operator::withdraw(client, "rest").await
    }

    /// Records the lists a minute whose series have `label`, and the cores beyond the base. Returns
    /// the cores.
    async fn measure(&self, name: &str, label: &str, samples: &mut Samples) -> Result<f64> {
        let lists = self.lists(label).await?;
        let cpu = self.cluster.apiserver_usage()?.cpu_seconds;
        sleep(REST).await;
        let cores = (self.cluster.apiserver_usage()?.cpu_seconds - cpu) / REST.as_secs_f64();
        let minutes = REST.as_secs_f64() / 60.0;
        let lists = (self.lists(label).await? - lists) / minutes;
        samples.push(&format!("rest.{name}.lists_per_minute"), lists);
        samples.push(&format!("rest.{name}.core_share"), cores - self.base);
        Ok(cores)
    }

    /// The lists that the API server has answered.
    async fn lists(&self, label: &str) -> Result<f64> {
        let text = call::get_text(self.cluster.client(), "/metrics").await?;
        Ok(exposition::sum(&text, "apiserver_request_total", &["verb=\"LIST\"", label]))
    }

    /// Records the API server's processor time for one list of the metadata of all Events. kubewarm
    /// sends such a list to compare a store that gets no bookmarks.
    async fn measure_list(&self, size: u32, samples: &mut Samples) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}/events", namespace(size));
        let before = self.cluster.apiserver_usage()?.cpu_seconds;
        for _ in 0..LISTS {
            call::get(self.cluster.client(), &path, METADATA).await?.into_body().collect().await?;
        }
        let took = self.cluster.apiserver_usage()?.cpu_seconds - before;
        samples.push(&format!("rest.events-{size}.list_cpu_seconds"), took / f64::from(LISTS));
        Ok(())
    }
}

fn namespace(size: u32) -> String {
    format!("events-{size}")
}

fn event(size: u32, number: u32) -> (String, Value) {
    let path = format!("/api/v1/namespaces/{}/events", namespace(size));
    let object = json!({
        "metadata": {"name": format!("event-{number:05}")},
        "type": "Normal", "reason": "Pulled", "message": "Container image is already present on the machine",
        "involvedObject": {"kind": "Pod", "namespace": namespace(size), "name": format!("pod-{number:05}")},
    });
    (path, object)
}
