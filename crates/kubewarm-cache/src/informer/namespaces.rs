//! Whether namespaces exist: one look at each, shared by its cells of one identity.
//!
//! A list of a namespace that does not exist is empty and successful, and so is a watch of one. So
//! every cell that holds nothing looks for its namespace now and then: 2,000 of them would ask 67
//! times a second for what 20 answers say.

use super::lanes::Lanes;
use kubewarm_api::model::Identity;
use kubewarm_client::{Existence, existence};
use tokio::time::Instant;

/// Whose look, and at which namespace: what one may see is nothing to another.
type Asked = (Identity, String);

/// Remembers the last look at each namespace, by identity. Bounded by what is watched.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    lanes: Lanes<Asked, Existence>,
}

impl Namespaces {
    /// What the API server says of the namespace `name` to `identity`, whose client this is, in an
    /// answer to a request that was sent after `since`.
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
        let asked = (identity.clone(), name.to_owned());
        let is_answer = |seen: &Existence| *seen != Existence::Unknown;
        self.lanes.ask(asked, since, is_answer, existence(client, name)).await
    }

    /// Forgets a namespace that no cell of the identity watches any more.
    pub(super) fn forget(&self, identity: &Identity, name: &str) {
        self.lanes.forget(&(identity.clone(), name.to_owned()));
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
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
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

    /// The time, which goes on.
    async fn now() -> Instant {
        let now = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        now
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_once_share_one_look() {
        let (client, count) = counting(200);
        let namespaces = Namespaces::default();
        let begin = now().await;
        let look = || namespaces.existence(&client, &Identity::Operator, "shop", begin);
        let seen = join_all((0..50).map(|_| look())).await;
        assert!(seen.iter().all(|seen| *seen == Existence::Present), "{seen:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_answer_than_wanted_is_not_taken() {
        let (client, count) = counting(404);
        let namespaces = Namespaces::default();
        let look = |since| namespaces.existence(&client, &Identity::Operator, "shop", since);
        let begin = now().await;
        look(begin).await;
        look(begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(look(now().await).await, Existence::Absent);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        namespaces.forget(&Identity::Operator, "shop");
        look(begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_by_those_who_waited_for_it_alone() {
        let (client, count) = counting(503);
        let namespaces = Namespaces::default();
        let begin = now().await;
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
        let begin = now().await;
        let account = Identity::ServiceAccount { namespace: "shop".into(), name: "reader".into() };
        namespaces.existence(&client, &Identity::Operator, "shop", begin).await;
        namespaces.existence(&client, &account, "shop", begin).await;
        namespaces.existence(&client, &account, "cart", begin).await;
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
