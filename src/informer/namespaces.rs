//! Whether namespaces exist: one look at each, shared by its cells of one identity.
//!
//! A list of a namespace that does not exist is empty and successful, and so is a watch of one. So
//! every cell that holds nothing looks for its namespace now and then: 2,000 of them would ask 67
//! times a second for what 20 answers say.

use crate::{
    cluster::{Existence, existence},
    model::Identity,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::time::Instant;

/// Whose look, and at which namespace: what one may see is nothing to another.
type Asked = (Identity, String);

/// Remembers the last look at each namespace, by identity. Bounded by what is watched.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    lanes: Mutex<HashMap<Asked, Arc<Lane>>>,
}

/// One looks at a time; the others wait for the answer.
type Lane = tokio::sync::Mutex<Option<Sighting>>;

#[derive(Clone, Copy, Debug)]
struct Sighting {
    asked_at: Instant,
    answered_at: Instant,
    seen: Existence,
}

impl Namespaces {
    /// What the API server says of the namespace `name` to `identity`, whose client this is, in an
    /// answer to a request that was sent no earlier than `since`.
    ///
    /// # Cost
    ///
    /// That of [`existence`], or the wait for somebody else's.
    pub(super) async fn existence(
        &self,
        client: &kube::Client,
        identity: &Identity,
        name: &str,
        since: Instant,
    ) -> Existence {
        let waiting_since = Instant::now();
        let asked = (identity.clone(), name.to_owned());
        let lane = Arc::clone(self.lanes.lock().entry(asked).or_default());
        let mut last = lane.lock().await;
        if let Some(sighting) = last.filter(|sighting| sighting.asked_at >= since) {
            // Whoever comes later than a failure asks again: it is of no use to a retry.
            if sighting.seen != Existence::Unknown || sighting.answered_at >= waiting_since {
                return sighting.seen;
            }
        }
        let asked_at = Instant::now();
        let seen = existence(client, name).await;
        *last = Some(Sighting { asked_at, answered_at: Instant::now(), seen });
        seen
    }

    /// Forgets a namespace that no cell of the identity watches any more.
    pub(super) fn forget(&self, identity: &Identity, name: &str) {
        self.lanes.lock().remove(&(identity.clone(), name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use http::{Request, Response};
    use kube::client::Body;
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };
    use tower::service_fn;

    /// Answers after a second with `code`, and counts.
    fn counting(code: u16) -> (kube::Client, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let service = service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(Response::builder().status(code).body(Body::empty()).unwrap())
            }
        });
        (kube::Client::new(service, "default"), count)
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_once_share_one_look() {
        let (client, count) = counting(200);
        let namespaces = Namespaces::default();
        let now = Instant::now();
        let look = || namespaces.existence(&client, &Identity::Operator, "shop", now);
        let seen = join_all((0..50).map(|_| look())).await;
        assert!(seen.iter().all(|seen| *seen == Existence::Present), "{seen:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_answer_than_wanted_is_not_taken() {
        let (client, count) = counting(404);
        let namespaces = Namespaces::default();
        let look = |since| namespaces.existence(&client, &Identity::Operator, "shop", since);
        let begin = Instant::now();
        look(begin).await;
        look(begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(look(Instant::now()).await, Existence::Absent);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        namespaces.forget(&Identity::Operator, "shop");
        look(begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_by_those_who_waited_for_it_alone() {
        let (client, count) = counting(503);
        let namespaces = Namespaces::default();
        let begin = Instant::now();
        let look = || namespaces.existence(&client, &Identity::Operator, "shop", begin);
        join_all((0..5).map(|_| look())).await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        look().await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_learns_what_another_sees() {
        let (client, count) = counting(200);
        let namespaces = Namespaces::default();
        let begin = Instant::now();
        let account = Identity::ServiceAccount { namespace: "shop".into(), name: "reader".into() };
        namespaces.existence(&client, &Identity::Operator, "shop", begin).await;
        namespaces.existence(&client, &account, "shop", begin).await;
        namespaces.existence(&client, &account, "cart", begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
