//! Sets up the authorization of scrapers, as `--metrics-auth` requires.

use super::Error;
use crate::{
    cli::{MetricsAuth, RunArgs},
    metrics::Metrics,
    server::Scrapers,
};
use kubewarm_client::Connection;
use kubewarm_serve::callers::{CallerLimits, Callers, Note};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Error for flags that exclude each other: token reviews and access reviews need a ClusterRole.
const NO_REVIEWS: &str = "--metrics-auth=delegated does not go with --watch-namespaces: TokenReviews and \
    SubjectAccessReviews are cluster-scoped, so that no Role can let kubewarm create them; leave it out, or let a \
    NetworkPolicy say who reaches --admin-addr (networkPolicy.scrapers of the chart) and set --metrics-auth=none";

/// Returns an error for flags that exclude each other.
pub(super) fn check(args: &RunArgs) -> Result<(), Error> {
    if args.metrics_auth == MetricsAuth::Delegated && !args.watch_namespaces.is_empty() {
        return Err(Error::Flags(NO_REVIEWS));
    }
    Ok(())
}

/// Returns who may read `/metrics`.
pub(super) fn scrapers(
    args: &RunArgs,
    connection: &Connection,
    metrics: &Metrics,
) -> Result<Scrapers, Error> {
    match args.metrics_auth {
        MetricsAuth::Loopback => return Ok(Scrapers::Loopback),
        MetricsAuth::None => return Ok(Scrapers::Anybody),
        MetricsAuth::Delegated => {}
    }
    let reviewer = Arc::new(connection.reviewer(&[])?);
    let callers = Callers::new(reviewer, &CallerLimits::admin(), Handle::current(), note(metrics));
    Ok(Scrapers::Reviewed(Box::new(callers.map_err(Error::Serve)?)))
}

/// Returns a callback that records decisions about callers as metrics.
pub(super) fn note(metrics: &Metrics) -> Note {
    let metrics = metrics.operator().clone();
    Box::new(move |source, outcome, took| metrics.observe_authorization(source, outcome, took))
}
