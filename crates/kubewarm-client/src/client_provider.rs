//! The port through which informers get one API client per identity.

use kube::Client;
use kubewarm_api::model::Identity;
use std::sync::Arc;

/// Returns one API client per identity.
///
/// In the operator, `Accounts` implements this trait with tokens of ServiceAccounts. `kubewarm plan` implements it
/// with the credentials of the user who runs the command.
pub trait ClientProvider: Send + Sync + 'static {
    /// Returns the client that authenticates as `identity`, for list and watch. It neither retries nor times out.
    ///
    /// Clients of two identities share neither credentials nor connections. Dropping the last clone of the returned
    /// `Arc` also drops the connections and the credentials of a ServiceAccount.
    ///
    /// Must be called within a tokio runtime. Sends no request.
    fn client_for(&self, identity: &Identity) -> Arc<Client>;
}
