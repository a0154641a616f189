//! Measures a replica that starts next to another one: it copies the stores, and the same replica
//! lists in turns.

use crate::{
    cluster::Cluster,
    operator::{self, NAMESPACE, OperatorProcess},
    programs::Programs,
    samples::Samples,
    serving::{PeerFiles, ReadApiCertificate, free_address},
};
use anyhow::Result;
use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::time::sleep;

/// The time after which allocators and compression are idle.
const SETTLE: Duration = Duration::from_secs(10);

/// Two replicas that keep the same objects warm.
pub(crate) struct CopyBench<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) programs: &'a Programs,
    /// The name of the objects in the samples.
    pub(crate) name: &'a str,
    pub(crate) targets: &'a [Value],
    /// The label of the metrics' series for these objects.
    pub(crate) label: &'a str,
}

/// How the second replica starts.
#[derive(Clone, Copy)]
enum SecondStart {
    Lists,
    Copies,
}

impl CopyBench<'_> {
    /// Starts one replica, and in each round a second one twice.
    ///
    /// # Errors
    ///
    /// If a replica is not ready in time.
    pub(crate) async fn measure(&self, rounds: u32, samples: &mut Samples) -> Result<()> {
        let client = self.cluster.client();
        operator::declare(client, "copies", self.targets).await?;
        self.cluster.apply(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: kubewarm, namespace: {NAMESPACE}}}}}"
        ))?;
        let certificate = ReadApiCertificate::create(&self.programs.logs, "copies")?;
        let token = self.cluster.peer_token(NAMESPACE, "kubewarm").await?;
        let peers = PeerFiles::create(&self.programs.logs, certificate, &token)?;
        let address = free_address()?;
        // Nobody listens at the address of the first replica's peer.
        let mut first = self.start(&peers, address, free_address()?)?;
        first.ready().await?;
        sleep(SETTLE).await;
        let steady = first.usage()?.rss_kib;
        for round in 0..rounds {
            let mut starts = [SecondStart::Lists, SecondStart::Copies];
            starts.rotate_left(usize::from(round % 2 == 1));
            for start in starts {
                first.reset_peak()?;
                let prefix = match start {
                    SecondStart::Lists => format!("copies.{}.list", self.name),
                    SecondStart::Copies => format!("copies.{}.copy", self.name),
                };
                let peer = match start {
                    SecondStart::Lists => free_address()?,
                    SecondStart::Copies => address,
                };
                let mut second = self.start(&peers, free_address()?, peer)?;
                second.ready().await?;
                let mut push =
                    |figure: &str, value| samples.push(&format!("{prefix}.{figure}"), value);
                push("seconds", second.warmup_seconds().await?);
                let lists = "kubewarm_upstream_list_duration_seconds_count";
                push("lists", second.metric(lists, self.label).await?);
                sleep(SETTLE).await;
                let usage = second.usage()?;
                push("peak_to_steady", usage.peak_kib / usage.rss_kib);
                push("peak_to_steady_of_first", first.usage()?.peak_kib / steady);
                second.end().await?;
            }
            tracing::info!(round, name = self.name, "measured copies");
        }
        first.end().await?;
        operator::withdraw(client, "copies").await
    }

    fn start(
        &self,
        peers: &PeerFiles,
        address: SocketAddr,
        peer: SocketAddr,
    ) -> Result<OperatorProcess> {
        let flags = [&peers.certificate.flags(address)[..], &peers.flags(peer)].concat();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        OperatorProcess::start_with(self.programs, self.cluster.kubeconfig(), "copies", &flags)
    }
}
