//! Measures growth: `kubewarm run` at a scripted server, with more and more objects, watches and
//! profiles. Each size has an operator of its own.

mod chart;
pub(crate) mod growth;
mod pods;
mod server;

pub use self::{pods::ScriptedCluster, server::serve};

use crate::{
    child::CacheProcess,
    load_client::Load,
    programs::Programs,
    reads::{MeasuredServer, SETTLE, kubeconfig_of},
    report::{Origin, Part},
    samples::Samples,
    usage,
    watchers::WatchClients,
    write::WriteResult,
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};
use tokio::{process::Command, select, time};

const OBJECTS: [u32; 4] = [50_000, 200_000, 1_000_000, 5_000_000];
const WATCHES: [u32; 3] = [100, 1_000, 10_000];
/// One watch stands for none, because the axes of the charts are logarithmic. From [`NODES`]
/// watches on, each change is sent to exactly one watch.
const NODE_WATCHES: [u32; 4] = [1, NODES, 1_000, 10_000];
/// The number of nodes of the scripted server's pods.
const NODES: u32 = 500;
const PROFILES: [u32; 3] = [10, 100, 1_000];
/// The number of pods in each namespace in the sweeps of objects and watches. The scripted server
/// makes smaller namespaces only for the sweep of profiles.
const OF_NAMESPACE: u32 = 2_500;
const OF_PROFILE: u32 = 50;
/// The time limit for one size. Five million pods take about five minutes on two cores.
const STEP: Duration = Duration::from_mins(20);
/// Changes per second in the sweeps of objects and of watches by node, and the duration of the
/// changes in all sweeps, in seconds.
const RATE: u32 = 500;
const SECONDS: u32 = 10;
/// Events that all watches together receive in a second, at every size.
const DELIVERIES: u32 = 10_000;
/// The duration of the measurement at rest, longer than the API server's interval of bookmarks (1
/// minute).
const REST: Duration = Duration::from_secs(70);

/// The limits of the operator that are not its defaults, each with the reason.
const FLAGS: [(&str, &str, &str); 4] = [
    ("--memory-limit", "0", "the memory is measured, and no target must stop before"),
    ("--max-connections", "12000", "each watch has a connection"),
    ("--max-watches", "12000", "the default is 4096"),
    ("--user-quota", "100", "one user opens all watches"),
];

/// Limits of the sizes, for a quick run.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleLimits {
    /// The largest number of objects.
    #[arg(long, default_value_t = 5_000_000)]
    max_objects: u32,
    /// The largest number of watches.
    #[arg(long, default_value_t = 10_000)]
    max_watchers: u32,
    /// The largest number of profiles.
    #[arg(long, default_value_t = 1_000)]
    max_profiles: u32,
    /// The document. The charts are written next to it.
    #[arg(long, default_value = "docs/performance.md")]
    out: PathBuf,
}

/// Measures all sizes up to `limits`, and writes the section about growth and its charts.
///
/// # Errors
///
/// The first step that failed. The samples until then are in `scale.json` next to the logs.
pub async fn run(limits: &ScaleLimits, programs: &Programs) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    // Each watch is a socket in either process.
    usage::raise_file_limit(limits.max_watchers.saturating_add(500), "--max-watchers")?;
    for (flag, value, reason) in FLAGS {
        tracing::info!("{flag} {value}: {reason}");
    }
    let origin = Origin::of_this_run(limits.max_objects, 1);
    let mut part = Part { origin, plain: Samples::default() };
    for (sizes, all, max) in [
        ("objects", &OBJECTS[..], limits.max_objects),
        ("watches", &WATCHES, limits.max_watchers),
        ("node-watches", &NODE_WATCHES, limits.max_watchers),
        ("profiles", &PROFILES, limits.max_profiles),
    ] {
        for &size in all.iter().filter(|size| **size <= max) {
            let measured =
                time::timeout(STEP, measure(sizes, size, programs, &mut part.plain)).await;
            let measured = measured.context("not complete after 20 minutes").flatten();
            measured.with_context(|| format!("with {size} {sizes}"))?;
            part.plain.push(&format!("{sizes}.size"), size.into());
            fs::write(programs.logs.join("scale.json"), serde_json::to_vec_pretty(&part)?)?;
            tracing::info!("measured {size} {sizes}");
        }
    }
    growth::write(&part, &limits.out)
}

async fn measure(sizes: &str, size: u32, programs: &Programs, to: &mut Samples) -> Result<()> {
    let (namespaces, per_namespace, profiles) = match sizes {
        "objects" => (size / OF_NAMESPACE, OF_NAMESPACE, 1),
        "watches" | "node-watches" => (OBJECTS[0] / OF_NAMESPACE, OF_NAMESPACE, 1),
        _ => (size, OF_PROFILE, size),
    };
    let cluster = ScriptedCluster { namespaces, per_namespace, profiles };
    let mut step = ScaleStep::start(cluster, programs).await?;
    match sizes {
        "objects" => step.objects(to).await?,
        "watches" => step.watches(size, to).await?,
        "node-watches" => step.node_watches(size, to).await?,
        _ => step.profiles(to).await?,
    }
    step.end().await
}

/// The scripted server, and an operator that is ready.
struct ScaleStep {
    api: CacheProcess,
    served: MeasuredServer,
    cluster: ScriptedCluster,
}

impl ScaleStep {
    async fn start(cluster: ScriptedCluster, programs: &Programs) -> Result<Self> {
        let ScriptedCluster { namespaces, per_namespace, profiles } = cluster;
        let mut command = Command::new(&programs.bench);
        command.args(["scripted-server", "--namespaces", &namespaces.to_string()]);
        command.args(["--per-namespace", &per_namespace.to_string()]);
        command.args(["--profiles", &profiles.to_string()]);
        let (mut api, address): (CacheProcess, SocketAddr) =
            CacheProcess::start("the scripted server", &mut command, STEP).await?;
        let kubeconfig = programs.logs.join("scale.kubeconfig");
        let mut content = kubeconfig_of(address, &kubeconfig, "token");
        content["clusters"][0]["cluster"] = json!({"server": format!("http://{address}")});
        fs::write(&kubeconfig, content.to_string())?;
        let flags: Vec<_> = FLAGS.iter().flat_map(|(flag, value, _)| [*flag, *value]).collect();
        let served = select! {
            served = MeasuredServer::launch(programs, &kubeconfig, "token", &flags) => served?,
            error = api.ended() => return Err(error),
        };
        let objects = served.operator.metric("kubewarm_objects", r#"resource="pods""#).await?;
        let all = f64::from(cluster.count());
        ensure!((objects - all).abs() < 0.5, "the operator is ready with {objects} of {all} pods");
        Ok(Self { api, served, cluster })
    }

    async fn objects(&mut self, to: &mut Samples) -> Result<()> {
        let operator = &self.served.operator;
        to.push("objects.kib", operator.usage()?.rss_kib / f64::from(self.cluster.count()));
        to.push("objects.seconds", operator.warmup_seconds().await?);
        let paths = self.cluster.lists_by_label(100).into();
        let lists = self.served.client.send(Load { paths, connections: 1, lasts: SETTLE }).await?;
        to.push("objects.list_us", lists.p50 * 1e6);
        to.push("objects.event_us", self.change_us(RATE).await?);
        Ok(())
    }

    async fn watches(&mut self, count: u32, to: &mut Samples) -> Result<()> {
        let before = self.served.operator.usage()?;
        let since = self.cluster.count().to_string();
        // One token, because this figure is about events and not about reviews.
        let tokens = vec!["token".to_owned(); usize::try_from(count)?];
        let audience =
            WatchClients::gather(&self.served.client, &tokens, &since, |_| String::new()).await?;
        time::sleep(SETTLE).await;
        let opened = self.served.operator.usage()?;
        to.push("watches.kib", (opened.rss_kib - before.rss_kib) / f64::from(count));
        let command = format!("events {} {SECONDS}", DELIVERIES / count);
        let lag = audience.hear(self.api.ask(&command)).await?;
        to.push("watches.lag_s", lag.p99_seconds);
        let cpu = self.served.operator.usage()?.cpu_seconds - opened.cpu_seconds;
        to.push("watches.event_us", cpu / f64::from(DELIVERIES * SECONDS) * 1e6);
        Ok(())
    }

    /// Each watch selects the pods of one node, as an agent on this node does. What the watches
    /// cost at rest does not count.
    async fn node_watches(&mut self, count: u32, to: &mut Samples) -> Result<()> {
        let since = self.cluster.count().to_string();
        let tokens = vec!["token".to_owned(); usize::try_from(count)?];
        let selector = |number| format!("&fieldSelector=spec.nodeName%3Dnode-{number:03}");
        let audience = WatchClients::gather(&self.served.client, &tokens, &since, selector).await?;
        time::sleep(SETTLE).await;
        let at_rest = self.change_us(0).await?;
        to.push("node-watches.change_us", self.change_us(RATE).await? - at_rest);
        audience.leave().await
    }

    /// The operator's CPU time while the server sends `rate` changes a second, in µs, divided by
    /// the number of changes at [`RATE`].
    async fn change_us(&mut self, rate: u32) -> Result<f64> {
        let operator = &self.served.operator;
        let before = operator.usage()?;
        let _written: WriteResult = self.api.ask(&format!("events {rate} {SECONDS}")).await?;
        // This wait lets the operator receive the last events.
        time::sleep(Duration::from_secs(1)).await;
        let cpu = operator.usage()?.cpu_seconds - before.cpu_seconds;
        let events = f64::from(rate * SECONDS);
        let received = operator.metric("kubewarm_upstream_watch_events_total", "").await?;
        ensure!(received >= events, "the operator received {received} of {events} events");
        Ok(cpu / f64::from(RATE * SECONDS) * 1e6)
    }

    async fn profiles(&self, to: &mut Samples) -> Result<()> {
        let (count, before) = (f64::from(self.cluster.profiles), self.served.operator.usage()?);
        to.push("profiles.seconds", self.served.operator.warmup_seconds().await?);
        to.push("profiles.kib", before.rss_kib / count);
        time::sleep(REST).await;
        let cpu = self.served.operator.usage()?.cpu_seconds - before.cpu_seconds;
        to.push("profiles.rest_us", cpu / REST.as_secs_f64() / count * 1e6);
        Ok(())
    }

    async fn end(self) -> Result<()> {
        let operator = self.served.operator;
        let fallbacks = operator.metric("kubewarm_upstream_protobuf_fallbacks_total", "").await?;
        ensure!(fallbacks < 1.0, "the operator read pods in JSON: correct scale/pods.rs");
        operator.end().await?;
        self.api.end().await
    }
}
