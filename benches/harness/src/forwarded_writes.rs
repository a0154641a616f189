//! Measures writes that kubewarm forwards, and the same writes at the API server. Most callers sent
//! nothing for 11 s before, so kubewarm has no valid TokenReview of their tokens. One caller writes
//! all the time, as a leader election and its controller do.

use crate::{
    load,
    load_client::LoadClient,
    operator,
    quantile::{median, quantile},
    reads::{ManagedFields, MeasuredServer, Reading},
    samples::Samples,
};
use anyhow::{Context, Result};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The number of ServiceAccounts, each with a token and a `ConfigMap` of its own.
const WRITERS: usize = 24;
/// The pause before a write: longer than the 10 s for which a TokenReview counts.
const SILENCE: Duration = Duration::from_secs(11);
/// How often each writer is silent in a round. After one silence it writes at kubewarm, after the
/// other at the API server.
const TIMES: usize = 2;

/// The number of pairs of each measurement of the busy caller. 5 of them are above the 99th
/// percentile.
const PAIRS: usize = 500;

/// Measures both servers, `rounds` times.
///
/// # Errors
///
/// If a write fails.
///
/// # Cost
///
/// About a minute a round.
pub(crate) async fn measure(
    reading: &Reading<'_>,
    rounds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let served = MeasuredServer::start(reading, ManagedFields::Kept, &["--forward"]).await?;
    let writers = SilentWriter::create_all(reading, &served).await?;
    for _ in 0..rounds {
        let (mut direct, mut forwarded) = (Vec::new(), Vec::new());
        for time in 0..TIMES {
            sleep(SILENCE).await;
            // The first writer is not measured. It only wakes both servers, so that neither is
            // measured idle.
            let (awake, silent) = writers.split_first().context("no writers")?;
            for (at, writer) in silent.iter().enumerate() {
                awake.write(&awake.api).await?;
                awake.write(&awake.kubewarm).await?;
                if (at + time) % 2 == 0 {
                    direct.push(writer.write(&writer.api).await?);
                } else {
                    forwarded.push(writer.write(&writer.kubewarm).await?);
                }
            }
        }
        let (direct, forwarded) = (median(&direct), median(&forwarded));
        samples.push("forwarded.api.p50_seconds", direct);
        samples.push("forwarded.p50_seconds", forwarded);
        samples.push("forwarded.more_seconds", forwarded - direct);
        let busy = writers.first().context("no writers")?;
        push(samples, "write", &busy.write_pairs(&busy.path).await?);
        push(samples, "lease", &busy.write_pairs(&busy.lease).await?);
        push(samples, "seen", &busy.seen_pairs().await?);
    }
    served.end(reading.cluster).await
}

/// Records the 99th percentiles of `[api, kubewarm]`, in seconds.
fn push(samples: &mut Samples, name: &str, [api, kubewarm]: &[Vec<f64>; 2]) {
    let [direct, forwarded] = [api, kubewarm].map(|seconds| quantile(seconds, 0.99));
    samples.push(&format!("forwarded.{name}.api.p99_seconds"), direct);
    samples.push(&format!("forwarded.{name}.p99_seconds"), forwarded);
    samples.push(&format!("forwarded.{name}.more_p99_seconds"), forwarded - direct);
}

/// A ServiceAccount that writes its `ConfigMap` at either server.
struct SilentWriter {
    /// The `ConfigMap`.
    path: String,
    /// The Lease, which all writers share.
    lease: String,
    /// The pods of the writers' namespace. The busy writer watches one of them.
    pods: String,
    api: LoadClient,
    kubewarm: LoadClient,
}

impl SilentWriter {
    async fn create_all(reading: &Reading<'_>, served: &MeasuredServer) -> Result<Vec<Self>> {
        let (cluster, client) = (reading.cluster, reading.cluster.client());
        let core = format!("/api/v1/namespaces/{}", operator::NAMESPACE);
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", operator::NAMESPACE);
        let role = json!({
            "metadata": {"name": "writer"},
            "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["patch"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
            ],
        });
        let leases =
            format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", operator::NAMESPACE);
        load::create(client, &leases, &json!({"metadata": {"name": "writer"}})).await?;
        let pods = format!("{core}/pods");
        let spec = json!({"containers": [{"name": "a", "image": "a"}]});
        load::create(client, &pods, &json!({"metadata": {"name": "writer"}, "spec": spec})).await?;
        load::create(client, &format!("{rbac}/roles"), &role).await?;
        let (mut writers, mut subjects) = (Vec::new(), Vec::new());
        for number in 0..WRITERS {
            let name = format!("writer-{number}");
            let named = json!({"metadata": {"name": name}});
            load::create(client, &format!("{core}/serviceaccounts"), &named).await?;
            load::create(client, &format!("{core}/configmaps"), &named).await?;
            let token = cluster.token(operator::NAMESPACE, &name).await?;
            writers.push(Self {
                path: format!("{core}/configmaps/{name}"),
                lease: format!("{leases}/writer"),
                pods: pods.clone(),
                api: reading.api.with_token(&token),
                kubewarm: served.client.with_token(&token),
            });
            subjects.push(json!({
                "kind": "ServiceAccount", "name": name, "namespace": operator::NAMESPACE,
            }));
        }
        let binding = json!({
            "metadata": {"name": "writer"}, "subjects": subjects,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer",
            },
        });
        load::create(client, &format!("{rbac}/rolebindings"), &binding).await?;
        // Both servers know each token after these writes, and the operator's connections are open.
        // So the measured writes cost neither.
        for writer in &writers {
            writer.write(&writer.api).await?;
            writer.write(&writer.kubewarm).await?;
        }
        Ok(writers)
    }

    /// Measures writes of this object in pairs. Returns `[api, kubewarm]`, in seconds.
    async fn write_pairs(&self, path: &str) -> Result<[Vec<f64>; 2]> {
        measure_pairs([&self.api, &self.kubewarm], async |server, value| {
            server.merge_patch(path, annotation(value)?).await
        })
        .await
    }

    /// As [`Self::write_pairs`], from the write until a watch at the same server has received it.
    async fn seen_pairs(&self) -> Result<[Vec<f64>; 2]> {
        let pod = format!("{}/writer", self.pods);
        let watch = format!("{}?watch=1&fieldSelector=metadata.name=writer", self.pods);
        let (api, kubewarm) = (&self.api, &self.kubewarm);
        let open = async |client: &LoadClient| client.watch(&watch, Ipv4Addr::LOCALHOST).await;
        let servers = [(api, open(api).await?), (kubewarm, open(kubewarm).await?)];
        measure_pairs(servers, async |(server, watch), value| {
            let began = Instant::now();
            server.merge_patch(&pod, annotation(value)?).await?;
            receive(watch, value.as_bytes()).await?;
            Ok(began.elapsed().as_secs_f64())
        })
        .await
    }

    /// Writes a new value. Returns the time until the response, in seconds.
    async fn write(&self, server: &LoadClient) -> Result<f64> {
        let value = fastrand::u64(..).to_string();
        let patch = serde_json::to_vec(&json!({"data": {"value": value}}))?;
        server.merge_patch(&self.path, patch).await
    }
}

/// Measures both servers in pairs, with another value each time, and in turns first. Pauses as long
/// as a pair took, so that the servers have half of the possible load. Returns the seconds of each
/// server.
async fn measure_pairs<S>(
    servers: [S; 2],
    mut measure: impl AsyncFnMut(&mut S, &str) -> Result<f64>,
) -> Result<[Vec<f64>; 2]> {
    let mut servers = servers.map(|server| (server, Vec::new()));
    for _ in 0..PAIRS / 2 {
        // After two pairs, the servers are in their first order again.
        for _ in 0..2 {
            let mut sum = 0.0;
            for (server, seconds) in &mut servers {
                let took = measure(server, &fastrand::u64(..).to_string()).await?;
                seconds.push(took);
                sum += took;
            }
            sleep(Duration::from_secs_f64(sum)).await;
            servers.reverse();
        }
    }
    Ok(servers.map(|(_, seconds)| seconds))
}

fn annotation(value: &str) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&json!({"metadata": {"annotations": {"value": value}}}))?)
}

/// Reads a watch until one of its events contains these bytes.
async fn receive(watch: &mut Incoming, bytes: &[u8]) -> Result<()> {
    // An event can arrive in several frames.
    let mut received = Vec::new();
    while memchr::memmem::find(&received, bytes).is_none() {
        let frame = watch.frame().await.context("the watch ended")??;
        received.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    Ok(())
}
