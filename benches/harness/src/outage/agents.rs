//! The process of the agents: `peer agents`.

use crate::{
    child::{CacheProcess, PATIENCE},
    lag::Lag,
    programs::Programs,
};
use anyhow::{Result, ensure};
use serde::Deserialize;
use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use tokio::process::Command;

/// How the agents list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentLists {
    /// A LIST at version 0, then a watch.
    List,
    /// A streaming list, which continues as a watch.
    WatchList,
}

/// Servers of the agents: one, or equal ones.
#[derive(Clone, Debug)]
pub(crate) struct AgentServers {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The file of the CA certificate.
    pub(crate) authority: PathBuf,
}

/// The agents. Dropping this value ends them.
pub(crate) struct AgentsProcess(CacheProcess);

/// What the agents have seen since [`AgentsProcess::begin`].
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct AgentScene {
    /// Agents that are in step now: with three complete lists and three open watches.
    pub(crate) in_step: u32,
    /// How often an agent came into step or lost it.
    pub(crate) transitions: u64,
    /// The time until the last agent came into step; 0 if none did.
    pub(crate) seconds: f64,
    /// The time until the median of these agents came into step.
    pub(crate) p50_seconds: f64,
    /// Answers of 429.
    pub(crate) refused: u32,
    /// Answers of other error codes except 410, and requests without an answer.
    pub(crate) failed: u32,
    /// Watches that ended before their timeout.
    pub(crate) ended: u32,
    /// Changes of pods that an agent received.
    pub(crate) events: u64,
    /// Of these, changes of pods on other nodes.
    pub(crate) stray: u32,
    /// The time from a write to its event.
    pub(crate) lag: Lag,
}

/// The first line of the process.
#[derive(Deserialize)]
struct PreparedAgents {
    agents: u32,
}

impl AgentsProcess {
    /// Prepares the first `count` agents of the file `identities`. They send nothing yet. Errors of
    /// single agents are in `agents.log` in the folder of logs.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub(crate) async fn prepare(
        programs: &Programs,
        identities: &Path,
        count: u32,
        lists: AgentLists,
        servers: &AgentServers,
    ) -> Result<Self> {
        let mut command = Command::new(&programs.go);
        command
            .args(["agents", "--count", &count.to_string()])
            .args(["--servers", &join(&servers.addresses), "--authority"])
            .arg(&servers.authority)
            .arg("--file")
            .arg(identities)
            .stderr(File::create(programs.logs.join("agents.log"))?);
        if lists == AgentLists::WatchList {
            command.arg("--watch-list");
        }
        let (process, prepared): (_, PreparedAgents) =
            CacheProcess::start("the agents", &mut command, PATIENCE).await?;
        ensure!(prepared.agents == count, "{} of {count} agents", prepared.agents);
        Ok(Self(process))
    }

    /// Starts all agents at once.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.0.ask::<serde_json::Value>("start").await.map(drop)
    }

    /// Begins a scene.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        self.0.ask::<serde_json::Value>("begin").await.map(drop)
    }

    /// The scene so far.
    pub(crate) async fn scene(&mut self) -> Result<AgentScene> {
        self.0.ask("scene").await
    }

    /// Replaces the servers of new connections. Open connections stay.
    pub(crate) async fn replace_servers(&mut self, addresses: &[SocketAddr]) -> Result<()> {
        self.0.ask::<serde_json::Value>(&format!("servers {}", join(addresses))).await.map(drop)
    }

    /// Ends the agents.
    pub(crate) async fn end(self) -> Result<()> {
        self.0.end().await
    }
}

fn join(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}
