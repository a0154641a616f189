//! Measures many small informers: twenty custom kinds in many namespaces.

use crate::{
    call,
    cluster::Cluster,
    exposition, load,
    operator::{self, OperatorProcess},
    programs::Programs,
    samples::Samples,
};
use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// The API group of the kinds.
pub(crate) const GROUP: &str = "informers.bench.kubewarm.io";
const KINDS: u32 = 20;
/// The number of namespaces with objects. With 20 kinds, they make 200 informers.
const FULL: u32 = 10;
/// The number of objects of each of these 200 informers.
const OBJECTS: u32 = 20;
/// The number of namespaces without objects. With 20 kinds, they make 2,000 informers.
const IDLE: u32 = 100;
/// The number of namespaces that one profile names; a target can name at most 64.
const NAMESPACES_A_PROFILE: u32 = 50;
/// The pause before a measurement. After it, lists, status writes and allocators are idle.
const SETTLE: Duration = Duration::from_secs(10);
/// The duration of the measurement of idle informers, long enough for at least one bookmark of each
/// watch.
const IDLE_FOR: Duration = Duration::from_mins(1);

/// Creates the kinds and one namespace with objects, for 20 informers.
///
/// # Errors
///
/// The first request that failed.
pub async fn create_few(client: &Client) -> Result<()> {
    kinds(client).await?;
    load::namespace(client, &full(0)).await?;
    let objects = (0..KINDS).flat_map(|kind| (0..OBJECTS).map(move |at| object(kind, 0, at)));
    load::objects(client, objects).await
}

/// Measures the start of the operator without a profile, and its idle memory with a small one.
///
/// # Errors
///
/// If it is not ready in time.
pub async fn measure_start(
    cluster: &Cluster,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    let mut empty = OperatorProcess::start(programs, cluster.kubeconfig(), "start")?;
    samples.push("start.seconds", empty.ready().await?.as_secs_f64());
    empty.end().await?;

    let client = cluster.client();
    operator::declare(client, "few", &targets(&[full(0)])).await?;
    let mut operator = OperatorProcess::start(programs, cluster.kubeconfig(), "start")?;
    operator.ready().await?;
    sleep(SETTLE).await;
    samples.push("start.rss_mib", operator.usage()?.rss_kib / 1024.0);
    operator.end().await?;
    operator::withdraw(client, "few").await
}

/// Creates the kinds and namespaces with objects, for 200 informers.
///
/// # Errors
///
/// The first request that failed.
pub async fn create_full(client: &Client) -> Result<()> {
    kinds(client).await?;
    for index in 0..FULL {
        load::namespace(client, &full(index)).await?;
    }
    let objects = (0..KINDS).flat_map(|kind| {
        (0..FULL).flat_map(move |index| (0..OBJECTS).map(move |at| object(kind, index, at)))
    });
    load::objects(client, objects).await
}

/// Creates the kinds and namespaces without objects, for 2,000 informers.
///
/// # Errors
///
/// The first request that failed.
pub async fn create_idle(client: &Client) -> Result<()> {
    kinds(client).await?;
    for index in 0..IDLE {
        load::namespace(client, &idle(index)).await?;
    }
    Ok(())
}

/// Starts the operator with 200 informers, and counts its requests to the API server.
///
/// # Errors
///
/// If it is not ready in time.
pub async fn measure_full(
    cluster: &Cluster,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    let client = cluster.client();
    operator::declare(client, "full", &full_targets()).await?;
    let before = requests(client).await?;
    let mut operator = OperatorProcess::start(programs, cluster.kubeconfig(), "informers")?;
    operator.ready().await?;
    let after = requests(client).await?;
    samples.push("informers.seconds", operator.warmup_seconds().await?);
    samples.push("informers.requests_per_informer", (after - before) / f64::from(KINDS * FULL));
    operator.end().await?;
    operator::withdraw(client, "full").await
}

/// Starts the operator without a profile, adds 2,000 informers, and measures their cost while no
/// object changes.
///
/// # Errors
///
/// If it is not ready in time.
pub async fn measure_idle(
    cluster: &Cluster,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    let mut empty = OperatorProcess::start(programs, cluster.kubeconfig(), "informers")?;
    empty.ready().await?;
    sleep(SETTLE).await;
    let base = empty.usage()?;
    empty.end().await?;

    let client = cluster.client();
    let names: Vec<u32> = (0..IDLE).step_by(NAMESPACES_A_PROFILE as usize).collect();
    for first in &names {
        let namespaces: Vec<_> = (*first..first + NAMESPACES_A_PROFILE).map(idle).collect();
        operator::declare(client, &format!("idle-{first}"), &targets(&namespaces)).await?;
    }
    let mut operator = OperatorProcess::start(programs, cluster.kubeconfig(), "informers")?;
    operator.ready().await?;
    samples.push("idle.seconds", operator.warmup_seconds().await?);
    sleep(SETTLE).await;
    let before = operator.usage()?;
    sleep(IDLE_FOR).await;
    let after = operator.usage()?;
    let informers = f64::from(KINDS * IDLE);
    samples.push("idle.kib_per_informer", (after.rss_kib - base.rss_kib) / informers);
    let cpu = after.cpu_seconds - before.cpu_seconds;
    samples.push("idle.core_share", cpu / IDLE_FOR.as_secs_f64());
    operator.end().await?;
    for first in names {
        operator::withdraw(client, &format!("idle-{first}")).await?;
    }
    Ok(())
}

async fn kinds(client: &Client) -> Result<()> {
    for kind in 0..KINDS {
        operator::define(client, GROUP, &plural(kind), &format!("Cell{kind:02}")).await?;
    }
    Ok(())
}

/// The API server's requests for these kinds: the finished ones and the open watches.
async fn requests(client: &Client) -> Result<f64> {
    let text = call::get_text(client, "/metrics").await?;
    let label = format!("group=\"{GROUP}\"");
    let names = ["apiserver_request_total", "apiserver_longrunning_requests"];
    Ok(names.into_iter().flat_map(|name| exposition::values(&text, name, &label)).sum())
}

/// The targets of the 200 informers with objects.
pub(crate) fn full_targets() -> Vec<Value> {
    targets(&(0..FULL).map(full).collect::<Vec<_>>())
}

fn targets(namespaces: &[String]) -> Vec<Value> {
    (0..KINDS)
        .map(|kind| {
            json!({
                "name": plural(kind),
                "group": GROUP, "resource": plural(kind),
                "scope": {"type": "Namespaces", "namespaces": namespaces},
            })
        })
        .collect()
}

fn plural(kind: u32) -> String {
    format!("informer{kind:02}s")
}

fn full(index: u32) -> String {
    format!("informers-full-{index:03}")
}

fn idle(index: u32) -> String {
    format!("informers-idle-{index:03}")
}

fn object(kind: u32, namespace: u32, at: u32) -> (String, Value) {
    let path = format!("/apis/{GROUP}/v1/namespaces/{}/{}", full(namespace), plural(kind));
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("Cell{kind:02}"),
        "metadata": {"name": format!("informer-{at:02}"), "labels": {"row": at.to_string()}},
        "spec": {"size": kind * at, "colour": "green"},
    });
    (path, object)
}
