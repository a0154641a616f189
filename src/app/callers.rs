//! `--metrics-auth`: whoever asks for metrics is asked about at the API server.

use super::Error;
use crate::{
    callers::{Address, Callers},
    cli::RunArgs,
    cluster::Connection,
    server::Guard,
};
use std::sync::Arc;
use tokio::runtime::Handle;

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
    let reviewer = Arc::new(connection.reviewer(&[])?);
    Ok(Some(Guard::new(Callers::new(reviewer, Address::Admin, Handle::current())?)))
}
