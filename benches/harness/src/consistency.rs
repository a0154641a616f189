//! Measures reads with each consistency (`Bounded`, `Strict`) from stores of several sizes: how
//! long a read waits, and which requests kubewarm sends to the API server.

use crate::{
    call::{self, Content},
    cluster::Cluster,
    exposition,
    load_client::LoadClient,
    operator,
    programs::Programs,
    quantile::quantile,
    reads::MeasuredServer,
    samples::Samples,
};
use anyhow::{Result, ensure};
use http::Method;
use kube::Client;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};

/// The numbers of objects of the stores, each in a namespace of its own.
const SIZES: [u32; 3] = [200, 2_000, 50_000];
const ACCOUNT: &str = "reader";
/// The Lease that the bench writes. Each write raises the API server's newest version, without an
/// event for the measured stores, so a strict read must wait for a freshness check.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kubewarm-system/leases/written";
/// How long one kind of read of one store is measured, and the maximum number of its reads.
const LASTS: Duration = Duration::from_secs(10);
const READS: usize = 500;
/// The time between two writes while the cluster is busy: 100 writes a second.
const WRITE_EVERY: Duration = Duration::from_millis(10);

/// A measured combination: the consistency of the profile, and flags of kubewarm.
struct ReadMode {
    name: &'static str,
    consistency: &'static str,
    flags: &'static [&'static str],
}

const MODES: [ReadMode; 3] = [
    ReadMode { name: "bounded", consistency: "Bounded", flags: &[] },
    ReadMode { name: "strict", consistency: "Strict", flags: &[] },
    ReadMode { name: "forwarded", consistency: "Strict", flags: &["--forward"] },
];

/// Creates the objects and the reader.
///
/// # Errors
///
/// If the API server refuses an object.
///
/// # Cost
///
/// About a minute.
pub(crate) async fn create(client: &Client) -> Result<()> {
    for size in SIZES {
        crate::load::namespace(client, &namespace(size)).await?;
        let path = format!("/api/v1/namespaces/{}/configmaps", namespace(size));
        let objects = (0..size).map(|number| {
            let object =
                json!({"metadata": {"name": name(number)}, "data": {"n": number.to_string()}});
            (path.clone(), object)
        });
        crate::load::objects(client, objects).await?;
    }
    let core = format!("/api/v1/namespaces/{}/serviceaccounts", operator::NAMESPACE);
    crate::load::create(client, &core, &json!({"metadata": {"name": ACCOUNT}})).await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": ACCOUNT},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
    });
    crate::load::create(client, &format!("{rbac}/clusterroles"), &role).await?;
    let binding = json!({
        "metadata": {"name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": operator::NAMESPACE}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
    });
    crate::load::create(client, &format!("{rbac}/clusterrolebindings"), &binding).await?;
    let lease = json!({"metadata": {"name": "written"}, "spec": {}});
    let (leases, _) = LEASE.rsplit_once('/').unwrap_or_default();
    crate::load::create(client, leases, &lease).await
}

/// Measures all modes and sizes.
///
/// # Errors
///
/// If kubewarm does not start, or the API server refuses a read.
///
/// # Cost
///
/// About eight minutes.
pub(crate) async fn measure(
    cluster: &Cluster,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    let token = cluster.token(operator::NAMESPACE, ACCOUNT).await?;
    let (address, authority) = cluster.apiserver()?;
    let api = LoadClient::new(address, &authority, &token)?;
    for is_busy in [false, true] {
        MeasuredReads { cluster, mode: "api", is_busy }.measure(&api, samples).await?;
    }
    for mode in MODES {
        let targets = SIZES.map(|size| {
            json!({
                "name": namespace(size), "resource": "configmaps",
                "scope": {"type": "Namespaces", "namespaces": [namespace(size)]},
            })
        });
        let spec = json!({"reads": {"consistency": mode.consistency}, "targets": targets});
        operator::declare_spec(cluster.client(), "reads", &spec).await?;
        let served =
            MeasuredServer::launch(programs, cluster.kubeconfig(), &token, mode.flags).await?;
        for is_busy in [false, true] {
            let reads = MeasuredReads { cluster, mode: mode.name, is_busy };
            reads.measure(&served.client, samples).await?;
        }
        served.end(cluster).await?;
        tracing::info!(mode = mode.name, "measured");
    }
    summarize(samples);
    Ok(())
}

/// Adds the samples that the table of the document shows. Of two values, in an idle and in a busy
/// cluster, the table shows the worse one.
fn summarize(samples: &mut Samples) {
    let mut summary = Samples::default();
    for size in SIZES {
        let worse = |mode: &str, value: &str, less: Option<&str>| {
            let median = |mode: &str, load: &str| {
                samples.median(&format!("consistency.{mode}.{load}.{size}.{value}"))
            };
            let more = |load| {
                Some(median(mode, load)? - less.map_or(Some(0.0), |less| median(less, load))?)
            };
            let both = [more("idle"), more("busy")];
            both.into_iter().flatten().max_by(f64::total_cmp).unwrap_or_default()
        };
        for mode in ["strict", "forwarded"] {
            let get = worse(mode, "get.p99_seconds", None);
            summary.push(&format!("consistency.{mode}.{size}.get.p99_seconds"), get);
        }
        let more = worse("forwarded", "list.p99_seconds", Some("api")).max(0.0);
        summary.push(&format!("consistency.forwarded.{size}.list.more_seconds"), more);
    }
    let refused = samples.iter().filter(|(name, _)| name.ends_with(".refused"));
    let refused: f64 = refused.flat_map(|(_, values)| values).sum();
    summary.push("consistency.all_refused", refused);
    samples.replace(&summary);
}

/// All reads at one server.
struct MeasuredReads<'a> {
    cluster: &'a Cluster,
    mode: &'static str,
    /// Whether the bench writes the Lease 100 times a second. Otherwise it writes the Lease once
    /// before each read.
    is_busy: bool,
}

impl MeasuredReads<'_> {
    async fn measure(&self, server: &LoadClient, samples: &mut Samples) -> Result<()> {
        // If this function returns an error, it drops this set, which ends the writer's task.
        let mut writer = JoinSet::new();
        if self.is_busy {
            writer.spawn(write(self.cluster.client().clone()));
        }
        for size in SIZES {
            let path = format!("/api/v1/namespaces/{}/configmaps", namespace(size));
            let one = format!("{path}/{}", name(size / 2));
            for (kind, path) in [("get", one), ("list", path)] {
                self.measure_one(server, (size, kind, &path), samples).await?;
            }
        }
        writer.shutdown().await;
        Ok(())
    }

    async fn measure_one(
        &self,
        server: &LoadClient,
        (size, kind, path): (u32, &str, &str),
        samples: &mut Samples,
    ) -> Result<()> {
        // The first read is not measured, because it waits for an access review.
        let _rehearsed = server.once(path).await;
        let before = self.requests().await?;
        let (mut seconds, mut refused, began) = (Vec::new(), 0, Instant::now());
        while seconds.len() + refused < READS && began.elapsed() < LASTS {
            if !self.is_busy {
                touch(self.cluster.client()).await?;
            }
            match server.once(path).await {
                Ok(read) => seconds.push(read.seconds),
                Err(_) => refused += 1,
            }
            sleep(WRITE_EVERY).await;
        }
        ensure!(!seconds.is_empty(), "{path}: no read was answered");
        let requests = self.requests().await? - before;
        let load = if self.is_busy { "busy" } else { "idle" };
        let prefix = format!("consistency.{}.{load}.{size}.{kind}", self.mode);
        samples.push(&format!("{prefix}.p50_seconds"), quantile(&seconds, 0.5));
        samples.push(&format!("{prefix}.p99_seconds"), quantile(&seconds, 0.99));
        #[expect(clippy::cast_precision_loss, reason = "some hundred reads")]
        let (refused, reads) = (refused as f64, (seconds.len() + refused) as f64);
        samples.push(&format!("{prefix}.reads"), reads);
        samples.push(&format!("{prefix}.refused"), refused);
        samples.push(&format!("{prefix}.requests_per_read"), requests / reads);
        Ok(())
    }

    /// The requests for configmaps that the API server has answered.
    async fn requests(&self) -> Result<f64> {
        let text = call::get_text(self.cluster.client(), "/metrics").await?;
        let label = "resource=\"configmaps\"";
        Ok(exposition::values(&text, "apiserver_request_total", label).sum())
    }
}

async fn write(client: Client) {
    let mut times = interval(WRITE_EVERY);
    loop {
        times.tick().await;
        // This code ignores a failed write, because the next tick writes again.
        drop(touch(&client).await);
    }
}

/// Writes the Lease.
async fn touch(client: &Client) -> Result<()> {
    let holder = json!({"spec": {"holderIdentity": fastrand::u64(..).to_string()}});
    let body = serde_json::to_vec(&holder)?;
    call::write(client, Method::PATCH, LEASE, Content::MergePatch, body).await
}

fn namespace(size: u32) -> String {
    format!("objects-{size}")
}

fn name(number: u32) -> String {
    format!("object-{number:05}")
}
