//! Defines how informers get one API client for each identity.

use super::ServerReachability;
use kube::Client;
use kubewarm_api::model::Identity;
use std::sync::Arc;

/// Provides one API client for each identity.
///
/// In the operator, [`AccountClients`](crate::AccountClients) implements this trait with tokens of
/// ServiceAccounts. `kubewarm plan` implements the trait with the credentials of the user who runs
/// the command.
pub trait ClientProvider: Send + Sync + 'static {
    /// Returns the client that authenticates as `identity`, for list and watch requests. The client
    /// does not retry, and does not limit the time of a request.
    ///
    /// Clients of two identities share neither credentials nor connections. Dropping the last clone
    /// of the returned `Arc` also drops the connections and the credentials of a ServiceAccount.
    ///
    /// Must be called within a tokio runtime. Sends no request.
    fn client_for(&self, identity: &Identity) -> Arc<Client>;

    /// Returns when the API server last answered a client of this provider, so that an informer can
    /// end its backoff early. The default never records an answer, so that each informer waits for
    /// the end of its backoff.
    fn reachability(&self) -> ServerReachability {
        ServerReachability::default()
    }
}
