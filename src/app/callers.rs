//! Sets up the authorization of clients that read `/metrics`, according to `--metrics-auth`.

use super::AppError;
use crate::{
    cli::{MetricsAuth, RunArgs},
    metrics::MetricsRegistry,
    server::MetricsAccess,
};
use kubewarm_client::ApiServerConnection;
use kubewarm_serve::callers::{CallerGate, DecisionObserver, ListenerLimits};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Error for `--metrics-auth=delegated` with `--watch-namespaces`. Only a ClusterRole permits
/// TokenReviews and SubjectAccessReviews, and with `--watch-namespaces` kubewarm has no
/// ClusterRole.
const NO_REVIEWS: &str = "--metrics-auth=delegated excludes --watch-namespaces: TokenReviews and \
    SubjectAccessReviews are cluster-scoped, so no Role can grant them; leave the flag out, or restrict --admin-addr \
    with a NetworkPolicy (networkPolicy.scrapers of the chart) and set --metrics-auth=none";

pub(super) fn validate_flags(args: &RunArgs) -> Result<(), AppError> {
    if args.metrics_auth == MetricsAuth::Delegated && !args.watch_namespaces.is_empty() {
        return Err(AppError::Flags(NO_REVIEWS));
    }
    Ok(())
}

pub(super) fn metrics_access(
    args: &RunArgs,
    connection: &ApiServerConnection,
    metrics: &MetricsRegistry,
) -> Result<MetricsAccess, AppError> {
    match args.metrics_auth {
        MetricsAuth::Loopback => return Ok(MetricsAccess::Loopback),
        MetricsAuth::None => return Ok(MetricsAccess::Unrestricted),
        MetricsAuth::Delegated => {}
    }
    let reviewer = Arc::new(connection.new_reviewer(&[])?);
    let callers = CallerGate::new(
        reviewer,
        &ListenerLimits::for_admin(),
        Handle::current(),
        decision_observer(metrics),
    );
    Ok(MetricsAccess::Reviewed(Box::new(callers.map_err(AppError::Serve)?)))
}

/// Returns a callback that updates the metrics. The callback receives each authorization decision
/// about a client: the source of the decision, the outcome and the duration.
pub(super) fn decision_observer(metrics: &MetricsRegistry) -> DecisionObserver {
    let metrics = metrics.operator().clone();
    Box::new(move |source, outcome, took| metrics.observe_authorization(source, outcome, took))
}
