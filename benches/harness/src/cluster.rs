//! The control plane of a run.

use crate::call;
use anyhow::Result;
use kube::Client;
use std::{
    fmt,
    path::{Path, PathBuf},
};
use testbed::ControlPlane;

/// etcd and an API server of our own; they end with this value.
pub struct Cluster {
    control_plane: ControlPlane,
    kubeconfig: PathBuf,
    client: Client,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("control_plane", &self.control_plane)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Builds the control plane if it has not been built yet, and starts it.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started.
    ///
    /// # Cost
    ///
    /// About 4 s; the first build minutes.
    pub async fn start() -> Result<Self> {
        let control_plane =
            tokio::task::spawn_blocking(|| ControlPlane::builder().start()).await??;
        let kubeconfig = control_plane.kubeconfig().to_owned();
        let client = call::connect(&kubeconfig).await?;
        Ok(Self { control_plane, kubeconfig, client })
    }

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Kills the API server and starts it again: its watch cache begins anew, so a watch from an
    /// older version is answered with 410.
    ///
    /// # Errors
    ///
    /// If it does not come back.
    pub fn restart_apiserver(&self) -> Result<()> {
        self.control_plane.apiserver().kill()?;
        Ok(self.control_plane.apiserver().start()?)
    }
}
