//! Sets up the read API, the HTTP server from which clients read objects. `--api-addr` enables the
//! read API.

use super::{AppError, callers, operator_view::OperatorView};
use crate::{
    cli::{CallerAuthMode, CallerAuthorizationMode, ReadApiArgs, RunArgs},
    metrics::MetricsRegistry,
};
use futures::future::{FutureExt as _, pending};
use kubewarm_cache::informer::FreshnessChecker;
use kubewarm_client::ApiServerConnection;
use kubewarm_serve::{
    ServeError, UserReads, WatcherRegistry,
    callers::{
        AuthorizationMode, CallerGate, ClientCa, ListenerLimits, ReaderLimits, ReviewClient,
    },
    reads::{KindResolver, ReadDependencies, ReadService},
    server::{PeerStores, ReadApi, RequestForwarder, WriteObserver},
};
use kubewarm_wire::PEER_AUDIENCE;
use std::{hash::RandomState, sync::Arc};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Error for `--auth=delegated` with `--watch-namespaces`. Only a ClusterRole permits TokenReviews
/// and SubjectAccessReviews, and with `--watch-namespaces` kubewarm has no ClusterRole.
const NO_DELEGATION: &str = "--auth=delegated excludes --watch-namespaces: TokenReviews and \
    SubjectAccessReviews are cluster-scoped, so no Role can grant them; leave the flag out, or set \
    --auth=caller-token, which needs no permission";
/// Error for `--client-ca-file` with `--auth=caller-token`: a client with a certificate sends no
/// token that kubewarm could use for requests to the API server.
const NO_TOKEN: &str = "--client-ca-file excludes --auth=caller-token, the default with \
    --watch-namespaces: kubewarm sends access reviews with the caller's token, and a client with a certificate \
    has no token; leave it out, or set --auth=delegated, which needs the permissions that `kubewarm rbac --operator \
    --read-api --operator-namespace NAMESPACE` prints";
/// Error for `--audience` with `--auth=caller-token` or `--forward`. With these flags kubewarm
/// sends clients' tokens to the API server, which rejects tokens for kubewarm's audience.
const FOREIGN_AUDIENCE: &str = "--audience excludes --auth=caller-token and --forward: both send \
    the caller's token to the API server, which rejects tokens with another audience; leave out one of the flags";
/// Error for `--peer-address` with `--auth=caller-token`: such an installation has no permission
/// for TokenReviews of its peers' tokens.
const NO_PEER_REVIEW: &str = "--peer-address excludes --auth=caller-token: kubewarm authenticates other replicas by \
    TokenReviews with its own permissions; leave out one of the flags";
/// Error for `--authorization=rbac` with `--watch-namespaces`: kubewarm then has no ClusterRole,
/// but RBAC rules of the whole cluster decide.
const NO_RULES: &str = "--authorization=rbac excludes --watch-namespaces: only a ClusterRole can grant reads of all \
    RBAC rules; leave out one of the flags";
/// Error for `--authorization=rbac` with `--auth=caller-token`: such an installation has no
/// permission for reviews by which kubewarm could verify the rules.
const NO_VERIFICATION: &str = "--authorization=rbac excludes --auth=caller-token: kubewarm verifies RBAC rules by \
    SubjectAccessReviews with its own permissions; leave out one of the flags";

pub(super) fn validate_flags(args: &RunArgs) -> Result<(), AppError> {
    let is_delegated = args.api.auth == Some(CallerAuthMode::Delegated);
    if args.api.api_addr.is_some() && is_delegated && !args.watch_namespaces.is_empty() {
        return Err(AppError::Flags(NO_DELEGATION));
    }
    if args.auth() == CallerAuthMode::CallerToken && args.api.client_ca_file.is_some() {
        return Err(AppError::Flags(NO_TOKEN));
    }
    if args.api.api_addr.is_some() {
        let is_everywhere = args.watch_namespaces.is_empty();
        check_authorization(args.api.authorization, args.auth(), is_everywhere)?;
    }
    if args.api.peer_address.is_some() && args.auth() == CallerAuthMode::CallerToken {
        return Err(AppError::Flags(NO_PEER_REVIEW));
    }
    check_audience(args.auth(), &args.api.audience, args.api.forward)
}

fn check_authorization(
    mode: CallerAuthorizationMode,
    auth: CallerAuthMode,
    is_everywhere: bool,
) -> Result<(), AppError> {
    if mode != CallerAuthorizationMode::Rbac {
        return Ok(());
    }
    if !is_everywhere {
        return Err(AppError::Flags(NO_RULES));
    }
    match auth {
        CallerAuthMode::Delegated => Ok(()),
        CallerAuthMode::CallerToken => Err(AppError::Flags(NO_VERIFICATION)),
    }
}

fn check_audience(
    auth: CallerAuthMode,
    audience: &[String],
    can_forward: bool,
) -> Result<(), AppError> {
    if !audience.is_empty() && (auth == CallerAuthMode::CallerToken || can_forward) {
        return Err(AppError::Flags(FOREIGN_AUDIENCE));
    }
    Ok(())
}

/// Creates the authentication of the read API's clients, according to `--auth`, and their
/// authorization.
pub(super) fn new_caller_gate(
    args: &RunArgs,
    limits: ReaderLimits,
    connection: &ApiServerConnection,
    metrics: &MetricsRegistry,
    authorization: AuthorizationMode,
) -> Result<Arc<CallerGate>, AppError> {
    let reviews: Arc<dyn ReviewClient> = Arc::new(match args.auth() {
        CallerAuthMode::Delegated => connection.new_reviewer(&args.api.audience)?,
        CallerAuthMode::CallerToken => connection.new_caller_token_reviewer()?,
    });
    let agents = args.api.agent_accounts();
    let limits = ListenerLimits { agents, ..ListenerLimits::for_reads(limits) };
    let note = callers::decision_observer(metrics);
    let callers =
        CallerGate::new(reviews, &limits, Handle::current(), note).map_err(AppError::Read)?;
    let callers = callers.with_authorization(authorization);
    let callers = callers.with_reachability(connection.reachability());
    Ok(Arc::new(callers.with_outage_grace(args.api.outage_grace_period)))
}

pub(super) struct ReadApiContext {
    pub(super) callers: Arc<CallerGate>,
    pub(super) freshness_checker: FreshnessChecker,
    pub(super) watchers: WatcherRegistry,
    pub(super) user_reads: UserReads,
    /// The maximum size of the cache of recent changes, which watches share.
    pub(super) change_cache_bytes: usize,
    /// The shutdown cancels this token, which ends all watches of clients.
    pub(super) stop: CancellationToken,
}

/// Returns the read API, and the service that reads the stores for the read API. The caller must
/// run the service.
pub(super) fn new_read_api(
    args: &RunArgs,
    connection: &ApiServerConnection,
    view: &OperatorView,
    metrics: &MetricsRegistry,
    runtime: ReadApiContext,
) -> Result<(Arc<ReadApi>, Arc<ReadService>), AppError> {
    let ReadApiContext {
        callers,
        freshness_checker,
        watchers,
        user_reads,
        change_cache_bytes,
        stop,
    } = runtime;
    let (client, runtime) = (connection.client(), Handle::current());
    let (served, aggregated) = (view.served_resources.clone(), &args.api.serve_aggregated_groups);
    let (declarations, changes) = (view.declarations.clone(), view.declarations.clone());
    let dependencies = ReadDependencies {
        catalog: view.catalog.clone(),
        reports: view.reports.clone(),
        changes: view.changes.clone(),
        freshness_checker,
        informer_metrics: metrics.informers(),
        metrics: metrics.reads().clone(),
        serving_index: Box::new(move || {
            declarations.borrow().as_ref().map(|decided| Arc::clone(&decided.serving_index))
        }),
        serving_index_change: Box::new(move || {
            let mut changes = changes.clone();
            changes.mark_unchanged();
            let change = async move {
                // While kubewarm stops, nothing changes any more.
                if changes.changed().await.is_err() {
                    pending::<()>().await;
                }
            };
            change.boxed()
        }),
        kinds: KindResolver::new(client, served, aggregated, runtime.clone()),
        operator_namespace: Arc::clone(&view.operator_namespace),
        peers: view.peers.clone(),
    };
    let reads = Arc::new(ReadService::new(dependencies, change_cache_bytes));
    let forward = args.api.forward.then(|| new_forwarder(connection, &reads)).transpose()?;
    let forward = forward.map(|forward| forward.with_appliers(view.appliers.clone()));
    let peers = args.api.peers().map(|peers| {
        let reviews = Arc::new(connection.new_reviewer(&[PEER_AUDIENCE.to_owned()])?);
        PeerStores::new(reviews, peers.token_file, view.reports.clone(), runtime.clone())
            .map_err(AppError::Read)
    });
    let peers = peers.transpose()?;
    let api = ReadApi {
        reads: Arc::clone(&reads),
        callers,
        version: view.server_version.clone(),
        runtime,
        forward,
        peers,
        metrics: metrics.reads().clone(),
        tag_key: RandomState::new(),
        user_reads,
        watchers,
        appliers: view.appliers.clone(),
        stop,
    };
    Ok((Arc::new(api), reads))
}

/// Returns the proxy that forwards a client's request to the API server if the stores cannot answer
/// it. After each successful write, the proxy passes the written object's resource version to
/// `reads`.
fn new_forwarder(
    connection: &ApiServerConnection,
    reads: &Arc<ReadService>,
) -> Result<RequestForwarder, AppError> {
    let sink = Arc::clone(reads);
    let wrote: WriteObserver =
        Box::new(move |written, version| sink.record_write(written, &version));
    Ok(RequestForwarder::new(connection.new_upstream_proxy(Handle::current())?, wrote))
}

/// Returns the CA for client certificates of the read API, or `None` without `--client-ca-file`.
pub(super) fn load_client_authority(
    args: &ReadApiArgs,
) -> Result<Option<Arc<ClientCa>>, ServeError> {
    let file = args.client_ca_file.clone();
    file.map(|file| ClientCa::of_file(file).map(Arc::new)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rbac_rules_need_a_cluster_role_and_kubewarms_own_reviews() {
        let (rbac, shared) =
            (CallerAuthorizationMode::Rbac, CallerAuthorizationMode::SharedReviews);
        let (delegated, token) = (CallerAuthMode::Delegated, CallerAuthMode::CallerToken);
        for (mode, auth, is_everywhere, expected) in [
            (shared, token, false, None),
            (rbac, delegated, true, None),
            (rbac, token, true, Some(NO_VERIFICATION)),
            (rbac, token, false, Some(NO_RULES)),
            (rbac, delegated, false, Some(NO_RULES)),
        ] {
            let message = match check_authorization(mode, auth, is_everywhere) {
                Err(AppError::Flags(message)) => Some(message),
                Ok(()) => None,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(message, expected, "{mode:?} {auth:?} {is_everywhere}");
        }
    }

    #[test]
    fn a_token_with_kubewarms_audience_is_sent_to_no_other_server() {
        for (audience, auth, forward, is_refused) in [
            (&["kubewarm"] as &[&str], CallerAuthMode::Delegated, false, false),
            (&[], CallerAuthMode::Delegated, true, false),
            (&[], CallerAuthMode::CallerToken, true, false),
            (&["kubewarm"], CallerAuthMode::Delegated, true, true),
            (&["a", "b"], CallerAuthMode::CallerToken, false, true),
        ] {
            let wanted: Vec<_> = audience.iter().map(|&name| name.to_owned()).collect();
            let result = check_audience(auth, &wanted, forward);
            assert_eq!(
                matches!(result, Err(AppError::Flags(FOREIGN_AUDIENCE))),
                is_refused,
                "{auth:?} {audience:?} {forward}"
            );
        }
    }
}
