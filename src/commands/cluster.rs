//! A cluster: the way to it, and what it serves.

use clap::Args;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::{ConnectError, Connection, Discovery, Served};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// For the documents of all groups.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which cluster is asked, as kubectl has it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// Path of a kubeconfig [default: the in-cluster files, else ~/.kube/config; KUBECONFIG counts
    /// before both].
    #[arg(long, env = "KUBEWARM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Which context of the kubeconfig [default: the current one].
    #[arg(long, env = "KUBEWARM_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl ConnectionArgs {
    /// Finds the cluster; sends nothing yet.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if there is no configuration, or it cannot be used.
    pub fn connect(&self) -> Result<Connection, ConnectError> {
        Connection::load(self.kubeconfig.as_deref(), self.context.as_deref())
    }
}

/// The kinds of whatever server `client` is of.
///
/// # Errors
///
/// The fault of the first request that failed.
pub(super) async fn served(client: Client) -> Result<Arc<Served>, Fault> {
    let discovery = Discovery::new(client);
    let (mut served, mut fault) = (discovery.served(), discovery.fault());
    let first = async {
        tokio::select! {
            // Runs until it is dropped.
            () = discovery.run(CancellationToken::new()) => None,
            Ok(found) = served.wait_for(Option::is_some) => found.clone().map(Ok),
            Ok(found) = fault.wait_for(Option::is_some) => found.clone().map(Err),
        }
    };
    let late = || Fault::new(Reason::TimedOut, "no answer within 15 s");
    timeout(PATIENCE, first).await.ok().flatten().unwrap_or_else(|| Err(late()))
}
