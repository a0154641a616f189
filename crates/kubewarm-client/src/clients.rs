//! Which client acts as which identity.

use kube::{Client, client::Body};
use kubewarm_api::model::{Fault, Identity, Reason};
use std::sync::Arc;
use tower::service_fn;

/// Hands out the client of each identity. A port: one implementation mints tokens, others act as
/// one identity only.
pub trait Clients: Send + Sync + 'static {
    /// The client that acts as `identity`, for list and watch: it never retries by itself, nor times
    /// out on its own. Two identities' clients share neither credentials nor connections.
    ///
    /// The identity's connections and credentials live as long as one of these handles, so whoever
    /// is done with an identity drops its own. Must be called within a tokio runtime; sends nothing.
    fn client_for(&self, identity: &Identity) -> Arc<Client>;
}

/// A process that acts as itself alone: requests as anyone else fail before they are sent.
#[derive(Clone)]
pub struct OperatorOnly(Arc<Client>);

impl OperatorOnly {
    /// `client` is what the operator acts with.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Arc::new(client))
    }
}

impl Clients for OperatorOnly {
    fn client_for(&self, identity: &Identity) -> Arc<Client> {
        match identity {
            Identity::Operator => Arc::clone(&self.0),
            Identity::ServiceAccount { .. } => {
                let message = format!("this process does not act as {identity}");
                Arc::new(refusing(Fault::new(Reason::TokenRequestDenied, message)))
            }
        }
    }
}

/// A client whose every request fails with `fault`, without being sent.
pub(super) fn refusing(fault: Fault) -> Client {
    let service = service_fn(move |_: http::Request<Body>| {
        std::future::ready(Err::<http::Response<Body>, _>(fault.clone()))
    });
    Client::new(service, "default")
}

impl std::fmt::Debug for OperatorOnly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client holds credentials.
        f.debug_struct("OperatorOnly").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use std::convert::Infallible;

    #[tokio::test]
    async fn nobody_else_acts_with_the_operators_client() {
        let server = |_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
        };
        let clients = OperatorOnly::new(Client::new(service_fn(server), "default"));
        let other = Identity::ServiceAccount { namespace: "shop".into(), name: "reader".into() };
        let ask = async |identity: &Identity| {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            clients.client_for(identity).send(request).await.map(|answer| answer.status())
        };
        assert!(ask(&Identity::Operator).await.is_ok());
        let refused = ask(&other).await.unwrap_err().to_string();
        assert!(refused.contains("does not act as ServiceAccount shop/reader"), "{refused}");
    }
}
