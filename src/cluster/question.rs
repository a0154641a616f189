//! A question of a person to a server, and its whole answer: for the commands, which ask once.

use super::answer::{Answer, Bounds, Timed, ask, ask_timed};
use crate::model::{Fault, Reason};
use http::{HeaderValue, Method, Request, Uri, header};
use kube::{Client, client::Body};
use serde_json::Value;
use std::time::Duration;

/// Definitions and lists of profiles are the largest.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(15), body_bytes: 64 << 20 };

/// Everything of a kind, in one answer.
const WHOLE: Bounds = Bounds { time: Duration::from_mins(1), body_bytes: 512 << 20 };

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
    send(client, Method::GET, path, Body::empty()).await
}

fn in_form(path: &str, accept: &'static str) -> Result<Request<Body>, Fault> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = parsed(path)?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    Ok(request)
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
    ask_timed(client, in_form(path, accept)?, WHOLE).await
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
    send(client, Method::POST, &format!("{path}?dryRun=All"), body).await
}

async fn send(client: &Client, method: Method, path: &str, body: Body) -> Result<Answer, Fault> {
    let mut request = Request::new(body);
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
