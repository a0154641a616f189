//! Which client acts as which identity.

use kube::Client;
use kubewarm_api::model::Identity;
use std::sync::Arc;

/// Returns the client of each identity. A port: `Accounts` mints tokens, and `kubewarm plan` acts as the user of
/// the command.
pub trait Clients: Send + Sync + 'static {
    /// The client that acts as `identity`, for list and watch: it never retries by itself, nor times
    /// out on its own. Two identities' clients share neither credentials nor connections.
    ///
    /// The identity's connections and credentials live as long as one of these handles, so whoever
    /// is done with an identity drops its own. Must be called within a tokio runtime; sends nothing.
    fn client_for(&self, identity: &Identity) -> Arc<Client>;
}
