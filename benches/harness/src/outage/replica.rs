//! A replica of kubewarm with the permissions of its chart.

use super::population::{ACCOUNT, AGENTS};
use crate::{
    operator::OperatorProcess,
    programs::Programs,
    serving::{self, PeerFiles},
};
use anyhow::Result;
use std::{net::SocketAddr, path::Path};

/// A replica that serves the agents.
#[derive(Debug)]
pub(crate) struct MeasuredReplica {
    pub(crate) operator: OperatorProcess,
    pub(crate) address: SocketAddr,
}

/// The flags of all replicas.
#[derive(Debug)]
pub(crate) struct ReplicaFlags<'a> {
    pub(crate) programs: &'a Programs,
    /// The credentials of kubewarm's own ServiceAccount.
    pub(crate) kubeconfig: &'a Path,
    /// The certificate of all replicas, and how they copy stores from each other.
    pub(crate) peers: &'a PeerFiles,
    /// The value of `--authorization`. Empty if no replica starts.
    pub(crate) authorization: &'a str,
    /// The agents that one replica must be able to serve alone.
    pub(crate) agents: u32,
}

impl ReplicaFlags<'_> {
    /// Starts a replica at a free address beside the replica at `peer`, and waits until it is
    /// ready.
    ///
    /// # Errors
    ///
    /// If it is not ready within two minutes.
    pub(crate) async fn start(
        &self,
        name: &str,
        peer: Option<SocketAddr>,
    ) -> Result<MeasuredReplica> {
        self.start_at(serving::free_address()?, name, peer).await
    }

    /// As [`start`](Self::start), at the address of a replica that has ended.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) async fn start_at(
        &self,
        address: SocketAddr,
        name: &str,
        peer: Option<SocketAddr>,
    ) -> Result<MeasuredReplica> {
        let mut flags = self.peers.certificate.flags(address).to_vec();
        // Without a peer, nobody listens at the address.
        let nobody = serving::free_address()?;
        flags.extend(self.peers.flags(peer.unwrap_or(nobody)));
        flags.push(format!("--authorization={}", self.authorization));
        flags.extend(raised_limits(self.agents));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut operator =
            OperatorProcess::start_with(self.programs, self.kubeconfig, name, &flags)?;
        operator.ready().await?;
        Ok(MeasuredReplica { operator, address })
    }
}

/// The limits that are not the defaults. `--address-connections` stays, because each agent has a
/// client address of its own.
pub(crate) fn raised_limits(agents: u32) -> [String; 4] {
    // An agent has three watches on one connection. After a restart, the old ones can still count.
    // All agents together can use three quarters.
    let room = agents.saturating_mul(8).max(4_096);
    [
        format!("--max-connections={room}"),
        format!("--max-watches={room}"),
        format!("--max-requests-inflight={room}"),
        format!("--agents={AGENTS}/{ACCOUNT}"),
    ]
}
