//! A question of a person to a server, and its whole answer: for the commands, which ask once.

use super::api_client::{Answer, ApiClient, ApiRequest};
use kube::Client;
use kubewarm_api::model::Fault;
use serde_json::Value;
use std::time::Duration;

/// Definitions and lists of profiles are the largest.
const MAX_BYTES: usize = 64 << 20;
const TIME: Duration = Duration::from_secs(15);

/// Everything of a kind, in one answer.
const MAX_BYTES_OF_ALL: usize = 512 << 20;
const TIME_OF_ALL: Duration = Duration::from_mins(1);

/// Asks for `path`, which must be encoded already.
///
/// # Errors
///
/// The fault of the request, never for a status.
///
/// # Cost
///
/// One request of at most 15 s and 64 MiB.
pub async fn get(client: &Client, path: &str) -> Result<Answer, Fault> {
    bounded(ApiClient::new(client).get(path)).send().await
}

/// The same in the form that `accept` says, for all objects of a kind.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// One request of at most 60 s and 512 MiB, all of which is held.
pub async fn get_all(client: &Client, path: &str, accept: &'static str) -> Result<Answer, Fault> {
    let request = ApiClient::new(client).get(path).accept(accept);
    request.within(TIME_OF_ALL).at_most(MAX_BYTES_OF_ALL).send().await
}

/// Has everything checked that is checked when `object` is created at `path`, and creates nothing.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// As for [`get`].
pub async fn dry_run(client: &Client, path: &str, object: &Value) -> Result<Answer, Fault> {
    let request = ApiClient::new(client).post(format!("{path}?dryRun=All"), object.to_string());
    bounded(request).send().await
}

fn bounded(request: ApiRequest) -> ApiRequest {
    request.accept("application/json, */*").within(TIME).at_most(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};
    use kube::client::Body;

    #[tokio::test]
    async fn nothing_is_created_by_a_dry_run() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            assert_eq!(request.method(), Method::POST);
            assert_eq!(request.uri(), "/api/v1/namespaces?dryRun=All");
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
        });
        let client = Client::new(service, "default");
        let answer = dry_run(&client, "/api/v1/namespaces", &Value::Null).await;
        assert_eq!(answer.unwrap().status, 200);
    }
}
