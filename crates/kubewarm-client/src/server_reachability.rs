//! Records when the API server last answered a request. All clients of one connection share this
//! time. So an informer can retry when another client has reached the server again, instead of
//! waiting for the informer's own backoff.

use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use std::sync::Arc;
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, service_fn};

/// When a client sent the latest request that the API server answered. `None` until the first
/// answer. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct ServerReachability(Arc<watch::Sender<Option<Instant>>>);

impl ServerReachability {
    /// Returns a client that sends the requests of `client`, and records which of them the API
    /// server answers.
    pub fn observe(&self, client: Client) -> Client {
        let (reachability, namespace) = (self.clone(), client.default_namespace().to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let (client, reachability) = (client.clone(), reachability.clone());
            async move {
                let sent_at = Instant::now();
                let response = client.send(request).await;
                reachability.record(sent_at, &response);
                response.map_err(BoxError::from)
            }
        });
        Client::new(service, namespace)
    }

    /// Records the result of a request that was sent at `sent_at`.
    pub(super) fn record<B, E>(&self, sent_at: Instant, response: &Result<Response<B>, E>) {
        if response.as_ref().is_ok_and(|response| is_answer(response.status())) {
            self.record_answer(sent_at);
        }
    }

    /// Records that the API server has answered a request that was sent at `sent_at`.
    pub fn record_answer(&self, sent_at: Instant) {
        self.0.send_if_modified(|answered| {
            let is_newer = *answered < Some(sent_at);
            if is_newer {
                *answered = Some(sent_at);
            }
            is_newer
        });
    }

    /// Returns when a client sent the latest request that the API server answered. `None` before
    /// the first answer.
    pub fn last_answer(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits until the API server has answered a request that was sent after `since`. The response
    /// to an earlier request does not count, because the server can have failed after it executed
    /// that request.
    pub async fn answered_since(&self, since: Instant) {
        let mut states = self.0.subscribe();
        // The receiver never sees the end of the channel, because `self` holds the sender.
        let _always_open = states.wait_for(|answered| *answered > Some(since)).await;
    }
}

/// Whether the response shows that the API server works. A 5xx does not, because a load balancer
/// can send it without an API server. A 401, 403 or 429 does not either: an API server that starts
/// can reject requests until it has read its Roles.
fn is_answer(status: StatusCode) -> bool {
    let is_rejected = [401, 403, 429].contains(&status.as_u16());
    !is_rejected && !status.is_server_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::{convert::Infallible, time::Duration};

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_from_the_time_of_its_request() {
        let reachability = ServerReachability::default();
        let response = |code: u16| Response::builder().status(code).body(()).unwrap();
        let start = Instant::now();
        let second = |number| start + Duration::from_secs(number);
        let is_answered_since = |at| reachability.answered_since(at).now_or_never().is_some();
        reachability.record::<(), _>(second(1), &Err("refused"));
        for code in [401, 403, 429, 500, 502, 503] {
            reachability.record::<_, &str>(second(1), &Ok(response(code)));
            assert!(!is_answered_since(start), "{code}");
        }
        for code in [200, 404, 409] {
            reachability.record::<_, &str>(second(u64::from(code)), &Ok(response(code)));
            assert!(is_answered_since(second(u64::from(code) - 1)), "{code}");
            assert!(!is_answered_since(second(u64::from(code))), "{code}");
        }
        reachability.record::<_, &str>(second(3), &Ok(response(200)));
        assert!(is_answered_since(second(408)), "an earlier request changes nothing");
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken_by_the_response_to_another_client() {
        let (reachability, since) = (ServerReachability::default(), Instant::now());
        let waiting = tokio::spawn({
            let reachability = reachability.clone();
            async move { reachability.answered_since(since).await }
        });
        let answer = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let client = reachability.observe(Client::new(answer, "ns"));
        assert_eq!(client.default_namespace(), "ns");
        client.send(Request::new(Body::empty())).await.unwrap();
        waiting.await.unwrap();
    }
}
