//! Measures managers of controller-runtime that reconcile all pods. The managers keep different
//! objects in memory.

use crate::{
    child,
    reads::{ManagedFields, MeasuredServer, Reading},
    samples::Samples,
};
use anyhow::Result;
use serde::Deserialize;

/// What a manager of the Go peer prints.
#[derive(Debug, Deserialize)]
struct ManagerResult {
    seconds: f64,
    p50_seconds: f64,
    p99_seconds: f64,
    rss_kb: f64,
}

/// Measures each manager, `rounds` times.
///
/// # Errors
///
/// If a manager does not reconcile all pods within three minutes.
///
/// # Cost
///
/// About a minute a round with 50,000 pods.
pub(crate) async fn measure(
    reading: &Reading<'_>,
    rounds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let served =
        MeasuredServer::start(reading, ManagedFields::Kept, &["--authorization=rbac"]).await?;
    let (address, authority) = reading.cluster.apiserver()?;
    let api = (address, authority.as_path());
    let kubewarm = (served.address, served.authority.as_path());
    for _ in 0..rounds {
        for (name, kind, (address, authority)) in [
            ("api.typed", "typed", api),
            ("typed", "typed", kubewarm),
            ("metadata", "metadata", kubewarm),
            ("none", "none", kubewarm),
            ("api.none", "none", api),
        ] {
            let kubeconfig = reading.write_kubeconfig(address, authority)?;
            let mut command = reading.peer();
            command.args(["manager", kind]).arg(kubeconfig).arg(reading.corpus.count.to_string());
            let result: ManagerResult = child::once(name, &mut command).await?;
            let mut push =
                |figure: &str, value| samples.push(&format!("managers.{name}.{figure}"), value);
            push("rss_mib", result.rss_kb / 1024.0);
            push("reconciles_per_second", f64::from(reading.corpus.count) / result.seconds);
            push("get.p50_seconds", result.p50_seconds);
            push("get.p99_seconds", result.p99_seconds);
        }
    }
    served.end(reading.cluster).await
}
