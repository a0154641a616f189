//! Sets up the authorization of scrapers, as `--metrics-auth` requires.

use super::AppError;
use crate::{
    cli::{MetricsAuth, RunArgs},
    metrics::ProcessMetrics,
    server::MetricsAccess,
};
use kubewarm_client::ApiServerConnection;
use kubewarm_serve::callers::{CallerAdmission, CallerLimits, DecisionObserver};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Error for flags that exclude each other: token reviews and access reviews need a ClusterRole.
const NO_REVIEWS: &str = "--metrics-auth=delegated does not go with --watch-namespaces: TokenReviews and \
    SubjectAccessReviews are cluster-scoped, so that no Role can let kubewarm create them; leave it out, or let a \
    NetworkPolicy say who reaches --admin-addr (networkPolicy.scrapers of the chart) and set --metrics-auth=none";

/// Returns an error for flags that exclude each other.
pub(super) fn check(args: &RunArgs) -> Result<(), AppError> {
    if args.metrics_auth == MetricsAuth::Delegated && !args.watch_namespaces.is_empty() {
        return Err(AppError::Flags(NO_REVIEWS));
    }
    Ok(())
}

/// Returns who may read `/metrics`.
pub(super) fn scrapers(
    args: &RunArgs,
    connection: &ApiServerConnection,
    metrics: &ProcessMetrics,
) -> Result<MetricsAccess, AppError> {
    match args.metrics_auth {
        MetricsAuth::Loopback => return Ok(MetricsAccess::Loopback),
        MetricsAuth::None => return Ok(MetricsAccess::Anybody),
        MetricsAuth::Delegated => {}
    }
    let reviewer = Arc::new(connection.new_reviewer(&[])?);
    let callers = CallerAdmission::new(
        reviewer,
        &CallerLimits::for_admin(),
        Handle::current(),
        note(metrics),
    );
    Ok(MetricsAccess::Reviewed(Box::new(callers.map_err(AppError::Serve)?)))
}

/// Returns a callback that records decisions about callers as metrics.
pub(super) fn note(metrics: &ProcessMetrics) -> DecisionObserver {
    let metrics = metrics.operator().clone();
    Box::new(move |source, outcome, took| metrics.observe_authorization(source, outcome, took))
}
