//! A cluster: the way to it, and what it serves.

use crate::cli::ConnectionArgs;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::{ConnectError, Connection, Discovery, Served};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// For the documents of all groups.
const PATIENCE: Duration = Duration::from_secs(15);

/// The cluster that `args` name; nothing is sent yet.
pub(super) fn connect(args: &ConnectionArgs) -> Result<Connection, ConnectError> {
    Connection::load(args.kubeconfig.as_deref(), args.context.as_deref())
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
