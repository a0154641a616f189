//! Sets up the read API, which `--api-addr` enables.

use super::{Error, callers, view::View};
use crate::{
    cli::{ApiArgs, Auth, RunArgs},
    controller::Declarations,
    metrics::Metrics,
};
use kubewarm_cache::informer::Proofs;
use kubewarm_client::{ApiClient, Connection};
use kubewarm_serve::{
    ServeError, Watchers,
    callers::{Authority, CallerLimits, Callers, ReaderLimits, Reviews, random_key},
    certificate::{Certificate, names},
    reads::{Kinds, Offers, Reads, Surroundings},
    server::{Forward, ReadApi, ServerVersion, Wrote},
};
use parking_lot::Mutex;
use std::{path::PathBuf, sync::Arc};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Error for flags that exclude each other: reviews for readers also need a ClusterRole.
const NO_DELEGATION: &str = "--auth=delegated does not go with --watch-namespaces: TokenReviews and \
    SubjectAccessReviews are cluster-scoped, so that no Role can let kubewarm create them; leave it out, or say \
    --auth=caller-token, which takes no permission";
/// Error for flags that exclude each other: a client certificate contains no token for requests to
/// the API server.
const NO_TOKEN: &str = "--client-ca-file does not go with --auth=caller-token, the default with \
    --watch-namespaces: it asks the API server with the caller's own token, and whoever is known by a certificate \
    has none; leave it out, or say --auth=delegated, which takes the permissions that `kubewarm rbac --operator \
    --read-api` prints";
/// Error for flags that exclude each other: the API server rejects tokens with kubewarm's audience.
const FOREIGN_AUDIENCE: &str = "--audience does not go with --auth=caller-token, nor with --forward: both send \
    the caller's token to the API server, which does not accept one that is for somebody else; leave out one of \
    them";

/// Returns an error for flags that exclude each other.
pub(super) fn check(args: &RunArgs) -> Result<(), Error> {
    let is_delegated = args.api.auth == Some(Auth::Delegated);
    if args.api.api_addr.is_some() && is_delegated && !args.watch_namespaces.is_empty() {
        return Err(Error::Flags(NO_DELEGATION));
    }
    if args.auth() == Auth::CallerToken && args.api.client_ca_file.is_some() {
        return Err(Error::Flags(NO_TOKEN));
    }
    check_audience(args.auth(), &args.api.audience, args.api.forward)
}

/// Prevents that tokens with kubewarm's audience are sent to the API server.
fn check_audience(auth: Auth, audience: &[String], forward: bool) -> Result<(), Error> {
    if !audience.is_empty() && (auth == Auth::CallerToken || forward) {
        return Err(Error::Flags(FOREIGN_AUDIENCE));
    }
    Ok(())
}

/// Returns the authentication of readers, or `None` without a read address.
pub(super) fn callers(
    (args, limits): (&RunArgs, ReaderLimits),
    connection: &Connection,
    metrics: &Metrics,
) -> Result<Option<Arc<Callers>>, Error> {
    if args.api.api_addr.is_none() {
        return Ok(None);
    }
    let reviews: Arc<dyn Reviews> = Arc::new(match args.auth() {
        Auth::Delegated => connection.reviewer(&args.api.audience)?,
        Auth::CallerToken => connection.callers_reviewer()?,
    });
    let (limits, note) = (CallerLimits::reads(limits), callers::note(metrics));
    let callers = Callers::new(reviews, &limits, Handle::current(), note).map_err(Error::Read)?;
    Ok(Some(Arc::new(callers)))
}

/// Returns the read API and its store access, which the caller must run. Watches end at the token
/// `stop`.
pub(super) fn api(
    args: &RunArgs,
    (connection, callers): (&Connection, Arc<Callers>),
    (view, proofs): (&View, Proofs),
    metrics: &Metrics,
    (watchers, stop): (Watchers, CancellationToken),
) -> Result<(Arc<ReadApi>, Arc<Reads>), Error> {
    let (client, runtime) = (connection.client(), Handle::current());
    let version = ServerVersion::new(ApiClient::new(&client), runtime.clone());
    let (served, aggregated) = (view.served.clone(), &args.api.serve_aggregated_groups);
    let reads = Arc::new(Reads::new(Surroundings {
        catalog: view.catalog.clone(),
        reports: view.reports.clone(),
        changes: view.changes.clone(),
        proofs,
        ages: metrics.informers(),
        metrics: metrics.reads().clone(),
        offers: offers(view.declarations.clone()),
        kinds: Kinds::new(client, served, aggregated, runtime),
        home: Arc::clone(&view.home),
    }));
    let forward = args.api.forward.then(|| forward(connection, &reads)).transpose()?;
    let api = ReadApi {
        reads: Arc::clone(&reads),
        callers,
        version,
        forward,
        metrics: metrics.reads().clone(),
        names: random_key().map_err(Error::Read)?,
        watchers,
        stop,
    };
    Ok((Arc::new(api), reads))
}

/// Returns the proxy for requests that kubewarm does not serve. It reports successful writes to
/// `reads`.
fn forward(connection: &Connection, reads: &Arc<Reads>) -> Result<Forward, Error> {
    let sink = Arc::clone(reads);
    let wrote: Wrote = Box::new(move |written, version| sink.wrote(written, &version));
    Ok(Forward::new(connection.upstream(Handle::current())?, wrote))
}

/// Returns the certificate of an address: from `files`, or self-signed for all names of the Service
/// in `namespace`.
pub(super) fn certificate(
    files: Option<(PathBuf, PathBuf)>,
    namespace: &str,
) -> Result<Arc<Certificate>, ServeError> {
    let certificate = if let Some((certificate, key)) = files {
        Certificate::of_files(certificate, key)?
    } else {
        let host = std::env::var("HOSTNAME").unwrap_or_default();
        Certificate::self_signed(names(&host, namespace))?
    };
    Ok(Arc::new(certificate))
}

/// Returns the CA for client certificates on the read address, if the flag is set.
pub(super) fn client_authority(args: &ApiArgs) -> Result<Option<Arc<Authority>>, ServeError> {
    let file = args.client_ca_file.clone();
    file.map(|file| Authority::of_file(file).map(Arc::new)).transpose()
}

/// Returns the targets that clients can read, computed once per reconciliation.
fn offers(declarations: Declarations) -> Box<dyn Fn() -> Option<Arc<Offers>> + Send + Sync> {
    let held = Mutex::new((declarations, None));
    Box::new(move || {
        let (declarations, offers) = &mut *held.lock();
        if offers.is_none() || declarations.has_changed().unwrap_or(false) {
            let profiles = declarations.borrow_and_update().clone()?;
            *offers = Some(Arc::new(Offers::of(profiles.iter().map(|it| &it.declared))));
        }
        offers.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_kubewarms_audience_is_sent_to_no_other_server() {
        for (audience, auth, forward, is_refused) in [
            (&["kubewarm"] as &[&str], Auth::Delegated, false, false),
            (&[], Auth::Delegated, true, false),
            (&[], Auth::CallerToken, true, false),
            (&["kubewarm"], Auth::Delegated, true, true),
            (&["a", "b"], Auth::CallerToken, false, true),
        ] {
            let wanted: Vec<_> = audience.iter().map(|&it| it.to_owned()).collect();
            let found = check_audience(auth, &wanted, forward);
            assert_eq!(
                matches!(found, Err(Error::Flags(FOREIGN_AUDIENCE))),
                is_refused,
                "{auth:?} {audience:?} {forward}"
            );
        }
    }
}
