//! Clients that authenticate as ServiceAccounts, with tokens that the operator requests.
//!
//! The client of a ServiceAccount uses neither the operator's connections nor the operator's
//! credentials. The API server prefers a client certificate to a bearer token. So on a connection
//! with the operator's certificate, a ServiceAccount would read with the operator's permissions.

#[cfg(test)]
mod tests;
mod token;
mod token_cache;
mod token_request;

use self::{token_cache::TokenCache, token_request::ServiceAccountRef};
use super::{ClientProvider, NamespaceBuckets, ServerReachability, transport};
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use kube::{Client, Config, client::Body};
use kubewarm_api::model::{FaultReason, Identity, RequestFault};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _, service_fn};

/// The URL, CA, TLS name and proxy of an API server, without credentials. All clones share the
/// record of when the server last answered one of their clients. So an informer can retry as soon
/// as another client has reached the server.
#[derive(Clone)]
pub(super) struct AnonymousConfig {
    config: Config,
    pub(super) reachability: ServerReachability,
}

/// The API clients of the operator and of the ServiceAccounts that profiles name. Each
/// ServiceAccount has one client, with its own connections and its own token. Dropping the client's
/// last `Arc` also drops the token.
pub struct AccountClients {
    operator: Arc<Client>,
    server: AnonymousConfig,
    buckets: NamespaceBuckets,
    /// One entry for each ServiceAccount in use. `client_for` removes the entries of dropped
    /// clients when it adds an entry, so that the map does not grow without limit.
    handed_out: Mutex<BTreeMap<Identity, Weak<Client>>>,
}

impl AnonymousConfig {
    /// Copies the server's URL, CA, TLS name and proxy from `config`, and nothing else.
    pub(super) fn of(config: &Config) -> Self {
        let mut bare = Config::new(config.cluster_url.clone());
        bare.root_cert.clone_from(&config.root_cert);
        bare.root_cert_file.clone_from(&config.root_cert_file);
        bare.tls_server_name.clone_from(&config.tls_server_name);
        bare.proxy_url.clone_from(&config.proxy_url);
        bare.headers = vec![super::connection::agent()];
        Self { config: bare, reachability: ServerReachability::default() }
    }

    pub(super) fn connect(&self) -> kube::Result<Client> {
        transport::plain(self.config.clone()).map(|client| self.reachability.observe(client))
    }

    /// Creates an HTTP service that forwards requests to the API server unchanged. The service has
    /// its own connection pool, so that no forwarded request uses a connection with the operator's
    /// credentials.
    pub(super) fn pipe(&self) -> kube::Result<transport::StreamingService> {
        let reachability = self.reachability.clone();
        let service = transport::pipe(self)?.map_future(move |responding| {
            let (reachability, sent_at) = (reachability.clone(), Instant::now());
            async move {
                let response = responding.await;
                reachability.record(sent_at, &response);
                response
            }
        });
        Ok(transport::StreamingService::new(service))
    }

    /// Returns the server's URL, CA, TLS name and proxy as a configuration of kube, without
    /// credentials.
    pub(super) const fn as_config(&self) -> &Config {
        &self.config
    }
}

impl AccountClients {
    /// Creates the clients that act as ServiceAccounts at the API server in `config`, for tests.
    /// The client `operator` requests the ServiceAccounts' tokens.
    pub fn of(config: &Config, operator: Client, buckets: NamespaceBuckets) -> Self {
        Self::new(operator, AnonymousConfig::of(config), buckets)
    }

    /// Creates the clients that act as ServiceAccounts at the API server `server`. The client
    /// `operator` requests the ServiceAccounts' tokens. Each token request takes one unit from the
    /// token bucket (rate limit) of the ServiceAccount's namespace.
    pub(super) fn new(
        operator: Client,
        server: AnonymousConfig,
        buckets: NamespaceBuckets,
    ) -> Self {
        Self { operator: Arc::new(operator), server, buckets, handed_out: Mutex::default() }
    }

    fn make(&self, account: ServiceAccountRef) -> Client {
        match self.server.connect() {
            Ok(anonymous) => {
                let (operator, buckets) = (Arc::clone(&self.operator), self.buckets.clone());
                acting_as(TokenCache::new(account, operator, buckets), anonymous)
            }
            // kubewarm has already created the operator's client from the same CA and proxy. So
            // `connect` fails only if a file, such as the CA file, has changed in the meantime. The
            // fault omits kube's error, because tenants can read the fault in the profile's status.
            Err(error) => {
                tracing::warn!(%account, %error, "no client can be made for a ServiceAccount");
                refusing(RequestFault::new(
                    FaultReason::Unreachable,
                    format!(
                        "no client for {account}: the operator's certificates or proxy cannot be used; check \
                         the CA of the API server"
                    ),
                ))
            }
        }
    }
}

impl ClientProvider for AccountClients {
    fn client_for(&self, identity: &Identity) -> Arc<Client> {
        let Identity::ServiceAccount { namespace, name } = identity else {
            return Arc::clone(&self.operator);
        };
        let mut handed_out = self.handed_out.lock();
        if let Some(client) = handed_out.get(identity).and_then(Weak::upgrade) {
            return client;
        }
        handed_out.retain(|_, client| client.strong_count() > 0);
        let account =
            ServiceAccountRef { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let client = Arc::new(self.make(account));
        handed_out.insert(identity.clone(), Arc::downgrade(&client));
        client
    }

    fn reachability(&self) -> ServerReachability {
        self.server.reachability.clone()
    }
}

/// Returns a client that sends nothing and fails each request with `fault`. `make` returns it if
/// kubewarm cannot create a real client, because `client_for` returns no errors.
fn refusing(fault: RequestFault) -> Client {
    let service = service_fn(move |_: Request<Body>| {
        std::future::ready(Err::<Response<Body>, _>(fault.clone()))
    });
    Client::new(service, "default")
}

/// Returns a client that replaces the credentials of each request with the ServiceAccount's token
/// from `keeper`.
fn acting_as(keeper: TokenCache, anonymous: Client) -> Client {
    let namespace = anonymous.default_namespace().to_owned();
    let keeper = Arc::new(keeper);
    let service = service_fn(move |request: Request<Body>| {
        send(Arc::clone(&keeper), anonymous.clone(), request)
    });
    Client::new(service, namespace)
}

/// Sends `request`. If the API server responds with 401 to a token that it accepted before, sends
/// the request once more with a new token: a token becomes invalid, for instance, when its
/// ServiceAccount is deleted and created again.
async fn send(
    keeper: Arc<TokenCache>,
    anonymous: Client,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let again = copy(&request);
    let (token, response) = send_once(&keeper, &anonymous, request).await?;
    if response.status() != StatusCode::UNAUTHORIZED {
        keeper.record_accepted(&token);
        return Ok(response);
    }
    let (true, Some(again)) = (keeper.drop_rejected(&token), again) else { return Ok(response) };
    let (token, response) = send_once(&keeper, &anonymous, again).await?;
    if response.status() == StatusCode::UNAUTHORIZED {
        keeper.drop_rejected(&token);
    } else {
        keeper.record_accepted(&token);
    }
    Ok(response)
}

async fn send_once(
    keeper: &TokenCache,
    anonymous: &Client,
    mut request: Request<Body>,
) -> Result<(Arc<token::AccountToken>, Response<Body>), BoxError> {
    let token = keeper.token().await?;
    let header = token.header().ok_or("the token has characters that a header cannot contain")?;
    request.headers_mut().insert(AUTHORIZATION, header);
    let response = anonymous.send(request).await?;
    Ok((token, response))
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}
