//! The clients of all identities that are wanted, held between the requests.

use kube::Client;
use kubewarm_api::model::Identity;
use kubewarm_client::Clients;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Holds a client for each identity.
///
/// An account's client and its token go with the last handle. Where no cell runs, of a profile that
/// is planned or stopped, nobody else has one between two checks, and each would ask for a token.
pub(super) struct Identities {
    clients: Arc<dyn Clients>,
    /// Bounded by the identities that are wanted.
    held: BTreeMap<Identity, Arc<Client>>,
}

impl Identities {
    /// Holds none yet.
    pub(super) fn new(clients: Arc<dyn Clients>) -> Self {
        Self { clients, held: BTreeMap::new() }
    }

    /// Holds these from now on, and no others.
    pub(super) fn want<'a>(&mut self, wanted: impl Iterator<Item = &'a Identity>) {
        let mut before = std::mem::take(&mut self.held);
        for identity in wanted {
            if !self.held.contains_key(identity) {
                let known = before.remove(identity);
                let client = known.unwrap_or_else(|| self.clients.client_for(identity));
                self.held.insert(identity.clone(), client);
            }
        }
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The clients hold credentials.
        f.debug_set().entries(self.held.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::{convert::Infallible, future::pending, sync::Weak};

    /// Every client that was made.
    #[derive(Default)]
    struct Made(Mutex<Vec<(Identity, Weak<Client>)>>);

    impl Clients for Made {
        fn client_for(&self, identity: &Identity) -> Arc<Client> {
            let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
                pending::<Result<http::Response<kube::client::Body>, Infallible>>()
            });
            let client = Arc::new(Client::new(silent, "default"));
            self.0.lock().push((identity.clone(), Arc::downgrade(&client)));
            client
        }
    }

    #[tokio::test]
    async fn an_identity_has_one_client_from_the_first_profile_that_wants_it_to_the_last() {
        let account =
            |name: &str| Identity::ServiceAccount { namespace: "shop".into(), name: name.into() };
        let (a, b) = (account("a"), account("b"));
        let made = Arc::new(Made::default());
        let mut identities = Identities::new(Arc::clone(&made) as Arc<dyn Clients>);
        let mut after = |wanted: &[&Identity]| {
            identities.want(wanted.iter().copied());
            let made = made.0.lock();
            let living = made.iter().filter(|(_, client)| client.strong_count() > 0);
            let living: Vec<_> = living.map(|(identity, _)| identity.clone()).collect();
            (made.len(), living)
        };
        assert_eq!(after(&[&a, &a]), (1, vec![a.clone()]));
        assert_eq!(after(&[&b, &a]), (2, vec![a.clone(), b.clone()]));
        assert_eq!(after(&[&b]), (2, vec![b.clone()]));
        assert_eq!(after(&[&a, &b]), (3, vec![b.clone(), a.clone()]), "a new client, a new token");
        assert_eq!(after(&[]), (3, vec![]));
    }
}
