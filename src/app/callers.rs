//! `--metrics-auth`: whoever asks for metrics is asked about at the API server.

use super::Error;
use crate::{
    callers::{Address, Callers, Note},
    cli::RunArgs,
    cluster::Connection,
    metrics::Metrics,
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
pub(super) fn guard(
    args: &RunArgs,
    connection: &Connection,
    metrics: &Metrics,
) -> Result<Option<Guard>, Error> {
    if !args.metrics_auth {
        return Ok(None);
    }
    let reviewer = Arc::new(connection.reviewer(&[])?);
    let callers = Callers::new(reviewer, Address::Admin, Handle::current(), note(metrics))?;
    Ok(Some(Guard::new(callers)))
}

/// What is decided about callers, for the metrics.
pub(super) fn note(metrics: &Metrics) -> Note {
    let metrics = metrics.callers().clone();
    Box::new(move |by, decision, took| metrics.decided(by, decision, took))
}
