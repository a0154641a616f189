//! A question of a person to a server, and its whole answer: for the commands, which ask once.

use super::{
    answer::{Answer, Bounds, Timed, ask, ask_timed},
    transport,
};
use crate::model::{Fault, Reason};
use http::{HeaderValue, Method, Request, Uri, header};
use kube::{Client, Config, client::Body};
use serde_json::Value;
use std::time::Duration;

/// `/debug/cells` of ten thousand cells is some 10 MiB.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(15), body_bytes: 64 << 20 };

/// Everything of a kind, in one answer.
const WHOLE: Bounds = Bounds { time: Duration::from_mins(1), body_bytes: 512 << 20 };

/// Why an operator cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Not the URL of an admin address.
    #[error("--operator: expected the URL of an admin address such as http://localhost:9090")]
    Url,
    /// No client could be made.
    #[error("--operator: cannot connect")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

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
    send(client, Method::GET, path, None, Body::empty()).await
}

/// The same in the form that `accept` says, with how long it took.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// One request of at most 60 s and 512 MiB, all of which is held.
pub async fn get_timed(client: &Client, path: &str, accept: &'static str) -> Result<Timed, Fault> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = parsed(path)?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    ask_timed(client, request, WHOLE).await
}

/// The same with a bearer token.
///
/// # Errors
///
/// As for [`get`], and [`Reason::Internal`] for what is no token.
///
/// # Cost
///
/// As for [`get`].
pub async fn get_as(client: &Client, path: &str, token: &str) -> Result<Answer, Fault> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Fault::new(Reason::Internal, "this is no bearer token"))?;
    bearer.set_sensitive(true);
    send(client, Method::GET, path, Some(bearer), Body::empty()).await
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
    let body = Body::from(object.to_string().into_bytes());
    send(client, Method::POST, &format!("{path}?dryRun=All"), None, body).await
}

/// A client for the admin address of an operator, such as the end of a port-forward. It knows no
/// credentials.
///
/// # Errors
///
/// [`OperatorError`] if `url` is not one of HTTP, or has a path.
pub fn operator_client(url: &str) -> Result<Client, OperatorError> {
    let url: Uri = url.parse().map_err(|_| OperatorError::Url)?;
    let is_plain = url.scheme_str() == Some("http") && matches!(url.path(), "" | "/");
    if !is_plain || url.query().is_some() {
        return Err(OperatorError::Url);
    }
    transport::plain(Config::new(url), None)
        .map_err(|source| OperatorError::Client(Box::new(source)))
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    bearer: Option<HeaderValue>,
    body: Body,
) -> Result<Answer, Fault> {
    let mut request = Request::new(body);
    if let Some(bearer) = bearer {
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    *request.method_mut() = method;
    *request.uri_mut() = parsed(path)?;
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    ask(client, request, BOUNDS).await
}

fn parsed(path: &str) -> Result<Uri, Fault> {
    path.parse().map_err(|_| Fault::new(Reason::Internal, format!("{path:?} is no path")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_admin_address_is_http_and_nothing_more() {
        for url in ["http://localhost:9090", "http://[::1]:9090/"] {
            assert!(operator_client(url).is_ok(), "{url}");
        }
        for url in ["localhost:9090", "https://localhost:9090", "http://localhost/metrics", "", "/"]
        {
            assert!(operator_client(url).is_err(), "{url}");
        }
    }

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
