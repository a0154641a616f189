//! The scenes: what happens to the servers while agents follow one of them.

use super::{
    agents::{AgentScene, AgentsProcess},
    population::Population,
    replica::{MeasuredReplica, ReplicaFlags},
    spent::{ServerCosts, ServerCounters},
};
use crate::{cluster::Cluster, samples::Samples, write};
use anyhow::Result;
use std::{
    mem,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The duration of the scenes in which nothing happens.
pub(crate) const REST: Duration = Duration::from_mins(1);
/// Changes a second.
pub(crate) const RATES: [u32; 2] = [50, 200];
/// The duration of the changes, in seconds.
pub(crate) const CHANGE_SECONDS: u32 = 20;
/// The time limit until all agents are in step. kubewarm needed 87 s for 2,000 agents.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// The time for which all agents must stay in step. A watch that the server ends with 410 is open
/// only for a moment.
const STABLE: Duration = Duration::from_secs(10);
/// The same after a restart of the API server that agents at kubewarm need not notice. kubewarm
/// ends watches that it could not review for 30 s.
const UNNOTICED: Duration = Duration::from_secs(35);
/// The time limit for the last events after the last change.
const LATE_EVENTS: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What agents have to cope with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// All agents start at once.
    Rollout,
    /// The API server is killed and started again.
    ApiserverRestart,
    /// The replica of kubewarm is killed and started again at its address.
    KubewarmRestart,
    /// Each replica of kubewarm is replaced by a new one, one after another.
    RollingUpdate,
}

/// Agents at one server, and the results.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) population: Population,
    pub(crate) agents: AgentsProcess,
    /// The number of agents.
    pub(crate) count: u32,
    /// The replicas of kubewarm; none if the agents follow the API server.
    pub(crate) replicas: Vec<MeasuredReplica>,
    pub(crate) flags: &'a ReplicaFlags<'a>,
    pub(crate) samples: SceneSamples<'a>,
}

/// Samples of one number of agents at one server.
pub(crate) struct SceneSamples<'a> {
    pub(crate) samples: &'a mut Samples,
    /// The first part of their names, such as `1000.kubewarm`.
    pub(crate) prefix: String,
}

impl SceneSamples<'_> {
    fn push(&mut self, scene: &str, figure: &str, value: f64) {
        self.samples.push(&format!("{}.{scene}.{figure}", self.prefix), value);
    }

    fn push_costs(&mut self, scene: &str, costs: &ServerCosts) {
        let ServerCosts {
            requests,
            apiserver_cpu_seconds,
            apiserver_mib,
            kubewarm_cpu_seconds,
            kubewarm_mib,
        } = costs;
        self.push(scene, "lists", requests.lists);
        self.push(scene, "watches", requests.watches);
        self.push(scene, "token_reviews", requests.token_reviews);
        self.push(scene, "access_reviews", requests.access_reviews);
        self.push(scene, "requests", requests.all);
        self.push(scene, "apiserver_cpu_seconds", *apiserver_cpu_seconds);
        for (figure, value) in [
            ("apiserver_mib", apiserver_mib),
            ("kubewarm_cpu_seconds", kubewarm_cpu_seconds),
            ("kubewarm_mib", kubewarm_mib),
        ] {
            if let Some(value) = value {
                self.push(scene, figure, *value);
            }
        }
    }

    fn push_agents(&mut self, scene: &str, seen: &AgentScene) {
        self.push(scene, "refused", seen.refused.into());
        self.push(scene, "failed", seen.failed.into());
        self.push(scene, "ended", seen.ended.into());
    }
}

impl Stage<'_> {
    /// Measures the servers while nothing happens.
    pub(crate) async fn rest(&mut self, scene: &str) -> Result<()> {
        let before = self.begin().await?;
        sleep(REST).await;
        let costs = self.costs_since(&before).await?;
        let seen = self.agents.scene().await?;
        self.samples.push_costs(scene, &costs);
        self.samples.push_agents(scene, &seen);
        tracing::info!(scene, ?costs, "measured");
        Ok(())
    }

    /// Measures `rate` changes a second of pods on the agents' nodes.
    pub(crate) async fn changes(&mut self, rate: u32) -> Result<()> {
        let scene = format!("changes-{rate}");
        let before = self.begin().await?;
        let path = |number| self.population.status_path(number, self.count);
        let written =
            write::updates_of(self.cluster.client(), rate, CHANGE_SECONDS, path).await?.updates;
        let end = Instant::now() + LATE_EVENTS;
        let mut seen = self.agents.scene().await?;
        while seen.events < written && Instant::now() < end {
            sleep(LOOK_EVERY).await;
            seen = self.agents.scene().await?;
        }
        let costs = self.costs_since(&before).await?;
        self.samples.push_costs(&scene, &costs);
        self.samples.push_agents(&scene, &seen);
        self.samples.push(&scene, "lag_p50_ms", seen.lag.p50_seconds * 1e3);
        self.samples.push(&scene, "lag_p99_ms", seen.lag.p99_seconds * 1e3);
        #[expect(clippy::cast_precision_loss, reason = "some 4,000")]
        self.samples.push(&scene, "lost", written.saturating_sub(seen.events) as f64);
        self.samples.push(&scene, "stray", seen.stray.into());
        tracing::info!(scene, written, ?seen, "measured");
        Ok(())
    }

    /// Measures from the beginning of `disturbance` until all agents are in step.
    pub(crate) async fn until_in_step(
        &mut self,
        scene: &str,
        disturbance: Disturbance,
    ) -> Result<()> {
        let before = self.begin().await?;
        self.cause(disturbance).await?;
        let stable = if self.is_unnoticed(disturbance) { UNNOTICED } else { STABLE };
        let end = Instant::now() + PATIENCE;
        let mut step: Option<(u64, Instant, ServerCosts)> = None;
        let seen = loop {
            let (seen, now) = (self.agents.scene().await?, Instant::now());
            let is_same = step.as_ref().is_some_and(|(at, ..)| *at == seen.transitions);
            if !is_same {
                step = None;
                if seen.in_step == self.count {
                    step = Some((seen.transitions, now, self.costs_since(&before).await?));
                }
            }
            let is_stable = step.as_ref().is_some_and(|(_, since, _)| now - *since >= stable);
            if is_stable || now > end {
                break seen;
            }
            sleep(LOOK_EVERY).await;
        };
        // What agents do not notice can still have a cost later. Otherwise, the time in which they
        // stay in step is no part of the cost.
        let costs = match step {
            Some((_, _, costs)) if !self.is_unnoticed(disturbance) => costs,
            Some(_) | None => self.costs_since(&before).await?,
        };
        self.samples.push_costs(scene, &costs);
        self.samples.push_agents(scene, &seen);
        self.samples.push(scene, "out_of_step", (self.count - seen.in_step).into());
        self.samples.push(scene, "seconds", seen.seconds);
        self.samples.push(scene, "p50_seconds", seen.p50_seconds);
        tracing::info!(scene, ?seen, ?costs, "measured");
        Ok(())
    }

    fn is_unnoticed(&self, disturbance: Disturbance) -> bool {
        disturbance == Disturbance::ApiserverRestart && !self.replicas.is_empty()
    }

    async fn cause(&mut self, disturbance: Disturbance) -> Result<()> {
        match disturbance {
            Disturbance::Rollout => self.agents.start().await,
            Disturbance::ApiserverRestart => self.cluster.restart_apiserver(),
            Disturbance::KubewarmRestart => {
                for (number, old) in mem::take(&mut self.replicas).into_iter().enumerate() {
                    old.operator.kill().await?;
                    let name = format!("restarted-{number}");
                    self.replicas.push(self.flags.start_at(old.address, &name, None).await?);
                }
                Ok(())
            }
            Disturbance::RollingUpdate => {
                for number in 0..self.replicas.len() {
                    // The oldest replica is replaced first.
                    let old = self.replicas.remove(0);
                    let name = format!("updated-{number}");
                    self.replicas.push(self.flags.start(&name, Some(old.address)).await?);
                    let addresses: Vec<_> =
                        self.replicas.iter().map(|replica| replica.address).collect();
                    self.agents.replace_servers(&addresses).await?;
                    old.operator.end().await?;
                }
                Ok(())
            }
        }
    }

    /// Begins a scene.
    async fn begin(&mut self) -> Result<ServerCounters> {
        let before = ServerCounters::begin(self.cluster, &self.replicas).await?;
        self.agents.begin().await?;
        Ok(before)
    }

    async fn costs_since(&self, before: &ServerCounters) -> Result<ServerCosts> {
        Ok(ServerCounters::end(self.cluster, &self.replicas).await?.costs_since(before))
    }

    /// Ends the agents, then the replicas.
    pub(crate) async fn end(self) -> Result<()> {
        self.agents.end().await?;
        for replica in self.replicas {
            replica.operator.end().await?;
        }
        Ok(())
    }
}
