//! Sends single requests to the API server for commands such as `kubewarm check` and
//! `kubewarm get`.

use super::api_client::{ApiClient, ApiRequest, ApiResponse};
use kube::Client;
use kubewarm_api::model::RequestFault;
use serde_json::Value;
use std::time::Duration;

/// Limits of `get` and `dry_run`: bytes of the response body, and total time. The largest responses
/// of these functions are CustomResourceDefinitions and lists of profiles.
const MAX_BYTES: usize = 64 << 20;
const TIME: Duration = Duration::from_secs(15);

/// Limits of `get_all`, whose response contains all objects of a kind: bytes of the response body,
/// and total time.
const MAX_BYTES_OF_ALL: usize = 512 << 20;
const TIME_OF_ALL: Duration = Duration::from_mins(1);

/// Sends a `GET` request for `path`, which must be percent-encoded.
///
/// # Errors
///
/// [`RequestFault`] if no complete response arrives. A response with status 4xx or 5xx is not an
/// error.
///
/// # Cost
///
/// One request of at most 15 s, with a response body of at most 64 MiB.
pub async fn get(client: &Client, path: &str) -> Result<ApiResponse, RequestFault> {
    bounded(ApiClient::new(client).get(path)).send().await
}

/// Lists all objects at `path` in one response of the media type `accept`.
///
/// # Errors
///
/// The same as for [`get`].
///
/// # Cost
///
/// One request of at most 60 s, with a response body of at most 512 MiB. kubewarm keeps the whole
/// body in memory.
pub async fn get_all(
    client: &Client,
    path: &str,
    accept: &'static str,
) -> Result<ApiResponse, RequestFault> {
    let request = ApiClient::new(client).get(path).accept(accept);
    request.within(TIME_OF_ALL).at_most(MAX_BYTES_OF_ALL).send().await
}

/// Sends a dry-run `POST` of `object` to `path`: the API server runs validation and admission, and
/// stores nothing.
///
/// # Errors
///
/// The same as for [`get`].
///
/// # Cost
///
/// The same as for [`get`].
pub async fn dry_run(
    client: &Client,
    path: &str,
    object: &Value,
) -> Result<ApiResponse, RequestFault> {
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
    async fn a_dry_run_is_a_post_with_the_dry_run_parameter() {
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
