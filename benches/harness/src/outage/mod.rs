//! The outage in a box: an agent on each node of a large cluster, first directly at the API server,
//! then through kubewarm. A rollout, rest, changes, and restarts of everything.

mod agents;
mod chart;
mod document;
mod population;
mod replica;
mod spent;
mod stage;

use self::{
    agents::{AgentLists, AgentServers, AgentsProcess},
    document::{API_SERVER, OutageFindings},
    population::{PODS, Population},
    replica::{MeasuredReplica, ReplicaFlags},
    stage::{Disturbance, RATES, SceneSamples, Stage},
};
use crate::{
    call::{self, Content},
    cluster::Cluster,
    operator,
    programs::Programs,
    reads::kubeconfig_of,
    report::Origin,
    samples::Samples,
    serving::{PeerFiles, ReadApiCertificate},
    usage,
};
use anyhow::{Context, Result, ensure};
use http::Method;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::{process::Command, time::sleep};

/// The ServiceAccount of kubewarm in the operator's namespace.
const ACCOUNT: &str = "kubewarm";
/// The largest number of agents: each needs an address of 127.10.0.0/16.
const MOST_AGENTS: u32 = 65_000;
/// The time after a start until informers, status writes and allocators are idle.
const SETTLE: Duration = Duration::from_secs(10);

/// The options of the run.
#[derive(Clone, Debug, clap::Args)]
pub struct OutagePlan {
    /// Numbers of agents, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [300, 1_000, 2_000])]
    agents: Vec<u32>,
    /// The values of kubewarm's flag `--authorization`, separated by commas. The chart shows the
    /// last one.
    #[arg(
        long,
        value_delimiter = ',',
        default_values = ["reviews", "shared-reviews", "rbac"]
    )]
    authorization: Vec<String>,
    /// Rounds that medians are taken of.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The document. The chart is written next to it.
    #[arg(long, default_value = "docs/outage.md")]
    out: PathBuf,
}

impl OutagePlan {
    /// The document.
    #[must_use]
    pub fn out(&self) -> &Path {
        &self.out
    }
}

/// Measures all numbers of agents at the API server and at kubewarm, in interleaved rounds, and
/// writes the document after each round.
///
/// # Errors
///
/// The first step that failed. The samples until then are in `outage.json` next to the logs.
///
/// # Cost
///
/// For each round and number of agents, on two cores: about 4 minutes at the API server, and 6 for
/// each value of `--authorization`.
pub async fn run(plan: &OutagePlan, programs: &Programs) -> Result<()> {
    let most = plan.agents.iter().copied().max().context("no number of agents")?;
    ensure!(most <= MOST_AGENTS, "at most {MOST_AGENTS} agents can have an address");
    ensure!(plan.agents.iter().all(|count| *count > 0), "0 agents have nothing to measure");
    fs::create_dir_all(&programs.logs)?;
    // An agent has a connection, and during the first requests up to three.
    usage::raise_file_limit(most.saturating_mul(4).saturating_add(2_000), "--agents")?;
    let cluster = Cluster::start().await?;
    let outage = OutageCluster::prepare(&cluster, programs, Population { agents: most }).await?;
    let mut findings = OutageFindings {
        origin: Origin::of_this_run(PODS.count, 0),
        agents: plan.agents.clone(),
        authorizations: plan.authorization.clone(),
        nodes: outage.population.nodes(),
        samples: Samples::default(),
    };
    for round in 1..=plan.rounds {
        for &count in &plan.agents {
            let started = Instant::now();
            let measured = outage.round(count, &plan.authorization, &mut findings.samples).await;
            findings.save(programs)?;
            measured.with_context(|| format!("with {count} agents in round {round}"))?;
            tracing::info!(round, count, seconds = started.elapsed().as_secs(), "measured");
        }
        findings.origin.rounds = round;
        findings.save(programs)?;
        findings.write_document(&plan.out)?;
    }
    Ok(())
}

/// Writes the document again from the samples of the last run.
///
/// # Errors
///
/// If there are no samples, or the document cannot be written.
pub fn report(programs: &Programs, out: &Path) -> Result<()> {
    OutageFindings::load(programs)?.write_document(out)
}

/// A large cluster, in which kubewarm has the permissions of its chart.
struct OutageCluster<'a> {
    cluster: &'a Cluster,
    programs: &'a Programs,
    peers: PeerFiles,
    population: Population,
    /// The credentials of kubewarm's ServiceAccount.
    kubeconfig: PathBuf,
    /// The nodes and tokens of all agents.
    identities: PathBuf,
}

impl<'a> OutageCluster<'a> {
    async fn prepare(
        cluster: &'a Cluster,
        programs: &'a Programs,
        population: Population,
    ) -> Result<Self> {
        let (client, logs) = (cluster.client(), &programs.logs);
        operator::install(client, &programs.kubewarm).await?;
        let profile = population::profile();
        let file = logs.join("outage-profile.json");
        fs::write(&file, profile.to_string())?;
        let file = file.to_str().context("the path of the logs is not UTF-8")?;
        let operator: &[&str] = &["--operator", "--read-api", "--rbac-authorization"];
        for arguments in [operator, &["--filename", file]] {
            cluster.apply(&permissions(&programs.kubewarm, arguments).await?)?;
        }
        let body = serde_json::to_vec(&profile)?;
        call::write(client, Method::POST, operator::PROFILES, Content::Json, body).await?;
        let started = Instant::now();
        population.create(cluster).await?;
        let (identities, kubeconfig) =
            (logs.join("agents.jsonl"), logs.join("kubewarm.kubeconfig"));
        population.write_identities(cluster, &identities).await?;
        tracing::info!(?population, seconds = started.elapsed().as_secs(), "loaded");
        let (address, authority) = cluster.apiserver()?;
        let token = cluster.token(operator::NAMESPACE, ACCOUNT).await?;
        fs::write(&kubeconfig, kubeconfig_of(address, &authority, &token).to_string())?;
        let certificate = ReadApiCertificate::create(logs, "outage")?;
        let token = cluster.peer_token(operator::NAMESPACE, ACCOUNT).await?;
        let peers = PeerFiles::create(logs, certificate, &token)?;
        Ok(Self { cluster, programs, peers, population, kubeconfig, identities })
    }

    async fn round(
        &self,
        count: u32,
        authorizations: &[String],
        samples: &mut Samples,
    ) -> Result<()> {
        let flags = |authorization| ReplicaFlags {
            programs: self.programs,
            kubeconfig: &self.kubeconfig,
            peers: &self.peers,
            authorization,
            agents: count,
        };
        self.direct(&flags(""), samples).await.context("at the API server")?;
        for authorization in authorizations {
            self.through_kubewarm(&flags(authorization), samples).await.with_context(|| {
                format!("through kubewarm with --authorization={authorization}")
            })?;
        }
        Ok(())
    }

    async fn direct(&self, flags: &ReplicaFlags<'_>, samples: &mut Samples) -> Result<()> {
        let mut stage = self.stage(flags, 0, AgentLists::List, samples).await?;
        quiet_and_busy(&mut stage).await?;
        stage.until_in_step("restart", Disturbance::ApiserverRestart).await?;
        stage.end().await?;
        let mut stage = self.stage(flags, 0, AgentLists::WatchList, samples).await?;
        stage.until_in_step("watch-list", Disturbance::Rollout).await?;
        stage.end().await
    }

    async fn through_kubewarm(
        &self,
        flags: &ReplicaFlags<'_>,
        samples: &mut Samples,
    ) -> Result<()> {
        let mut stage = self.stage(flags, 1, AgentLists::List, samples).await?;
        quiet_and_busy(&mut stage).await?;
        stage.until_in_step("restart", Disturbance::KubewarmRestart).await?;
        stage.until_in_step("apiserver-restart", Disturbance::ApiserverRestart).await?;
        stage.end().await?;
        let mut stage = self.stage(flags, 1, AgentLists::WatchList, samples).await?;
        stage.until_in_step("watch-list", Disturbance::Rollout).await?;
        stage.end().await?;
        let mut stage = self.stage(flags, 2, AgentLists::List, samples).await?;
        stage.until_in_step("two-replicas", Disturbance::Rollout).await?;
        stage.until_in_step("rolling-update", Disturbance::RollingUpdate).await?;
        stage.end().await
    }

    /// Agents that have not started yet, at a restarted API server or at new replicas of kubewarm.
    /// The restart frees the API server's memory, so that its growth can be compared.
    async fn stage<'s>(
        &'s self,
        flags: &'s ReplicaFlags<'s>,
        replicas: u32,
        lists: AgentLists,
        samples: &'s mut Samples,
    ) -> Result<Stage<'s>> {
        self.cluster.restart_apiserver()?;
        let (address, authority) = self.cluster.apiserver()?;
        let mut servers = AgentServers { addresses: vec![address], authority };
        let (mut started, mut side) = (Vec::new(), API_SERVER);
        if replicas > 0 {
            for number in 0..replicas {
                let peer = started.first().map(|replica: &MeasuredReplica| replica.address);
                started.push(flags.start(&format!("replica-{number}"), peer).await?);
            }
            side = flags.authorization;
            servers = AgentServers {
                addresses: started.iter().map(|replica| replica.address).collect(),
                authority: self.peers.certificate.authority().to_owned(),
            };
        }
        sleep(SETTLE).await;
        let (programs, count) = (self.programs, flags.agents);
        let agents =
            AgentsProcess::prepare(programs, &self.identities, count, lists, &servers).await?;
        Ok(Stage {
            cluster: self.cluster,
            population: self.population,
            agents,
            count,
            replicas: started,
            flags,
            samples: SceneSamples { samples, prefix: format!("{count}.{side}") },
        })
    }
}

/// The scenes without a restart.
async fn quiet_and_busy(stage: &mut Stage<'_>) -> Result<()> {
    stage.rest("no-agents").await?;
    stage.until_in_step("rollout", Disturbance::Rollout).await?;
    stage.rest("rest").await?;
    for rate in RATES {
        stage.changes(rate).await?;
    }
    Ok(())
}

/// The manifests that `kubewarm rbac` prints.
async fn permissions(kubewarm: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(kubewarm);
    command.args(["rbac", "--operator-namespace", operator::NAMESPACE]).args(arguments);
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubewarm rbac {arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
