//! `--metrics-auth`: whoever asks for metrics is asked about at the API server.

use super::Error;
use crate::{
    cli::RunArgs,
    cluster::{Connection, decide},
    model::{Fault, Reason},
    server::{Decide, Guard},
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Refuses what cannot work.
pub(super) fn check(args: &RunArgs) -> Result<(), Error> {
    if args.metrics_auth && !args.watch_namespaces.is_empty() {
        return Err(Error::NoReviews);
    }
    Ok(())
}

/// The guard of the admin address, if one is asked for.
pub(super) fn guard(args: &RunArgs, connection: &Connection) -> Result<Option<Guard>, Error> {
    if !args.metrics_auth {
        return Ok(None);
    }
    let (client, runtime) = (connection.client(), Handle::current());
    let asked: Decide = Box::new(move |call| {
        let client = client.clone();
        // On the operator's own threads: its connections must outlive those of the admin server.
        let asking =
            AbortOnDropHandle::new(runtime.spawn(async move { decide(&client, &call).await }));
        Box::pin(async move {
            let ended = asking.await;
            ended.unwrap_or_else(|_| Err(Fault::new(Reason::Internal, "the question broke off")))
        })
    });
    Ok(Some(Guard::new(asked)?))
}
