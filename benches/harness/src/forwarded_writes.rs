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
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// The number of ServiceAccounts, each with a token and a `ConfigMap` of its own.
const WRITERS: usize = 24;
/// The pause before a write: longer than the 10 s for which a TokenReview counts.
const SILENCE: Duration = Duration::from_secs(11);
/// How often each writer is silent in a round. After one silence it writes at kubewarm, after the
/// other at the API server.
const TIMES: usize = 2;

/// The number of pairs of writes of the busy caller, to a `ConfigMap` and to a Lease. 5 of them are
/// above the 99th percentile.
const PAIRS: usize = 500;

/// Measures both servers, `rounds` times.
///
/// # Errors
///
/// If a write fails.
///
/// # Cost
///
/// About 45 s a round.
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
        let writer = writers.first().context("no writers")?;
        for (name, path) in [("write", &writer.path), ("lease", &writer.lease)] {
            let [direct, forwarded] = writer.write_pairs(path).await?;
            samples.push(&format!("forwarded.{name}.api.p99_seconds"), quantile(&direct, 0.99));
            samples.push(&format!("forwarded.{name}.p99_seconds"), quantile(&forwarded, 0.99));
            let more = quantile(&forwarded, 0.99) - quantile(&direct, 0.99);
            samples.push(&format!("forwarded.{name}.more_p99_seconds"), more);
        }
    }
    served.end(reading.cluster).await
}

/// A ServiceAccount that writes its `ConfigMap` at either server.
struct SilentWriter {
    /// The `ConfigMap`.
    path: String,
    /// The Lease, which all writers share.
    lease: String,
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
            ],
        });
        let leases =
            format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", operator::NAMESPACE);
        load::create(client, &leases, &json!({"metadata": {"name": "writer"}})).await?;
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

    /// Writes in pairs, one at each server, in turns. Pauses as long as a pair took, so that the
    /// servers have half of the possible load. Returns the times at the API server and at kubewarm,
    /// in seconds.
    async fn write_pairs(&self, path: &str) -> Result<[Vec<f64>; 2]> {
        let (mut direct, mut forwarded) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            let body = || annotation(pair);
            let seconds = if pair % 2 == 0 {
                let first = self.api.merge_patch(path, body()?).await?;
                (first, self.kubewarm.merge_patch(path, body()?).await?)
            } else {
                let first = self.kubewarm.merge_patch(path, body()?).await?;
                (self.api.merge_patch(path, body()?).await?, first)
            };
            direct.push(seconds.0);
            forwarded.push(seconds.1);
            sleep(Duration::from_secs_f64(seconds.0 + seconds.1)).await;
        }
        Ok([direct, forwarded])
    }

    /// Writes a new value. Returns the time until the response, in seconds.
    async fn write(&self, server: &LoadClient) -> Result<f64> {
        let value = fastrand::u64(..).to_string();
        let patch = serde_json::to_vec(&json!({"data": {"value": value}}))?;
        server.merge_patch(&self.path, patch).await
    }
}

/// A patch whose value is new in each pair.
fn annotation(pair: usize) -> Result<Vec<u8>> {
    let value = format!("{pair}-{}", fastrand::u64(..));
    Ok(serde_json::to_vec(&json!({"metadata": {"annotations": {"value": value}}}))?)
}
