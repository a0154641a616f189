//! Who we are to the API server.

use super::answer::{Bounds, ask};
use crate::model::{Fault, Reason, Subject};
use http::{Method, Request, header};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Client, client::Body};
use std::time::Duration;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
/// A user with thousands of groups still fits.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), body_bytes: 1 << 20 };

/// The subject that `client` authenticates as; every authenticated user may ask.
///
/// # Errors
///
/// The fault of the request; [`Reason::Malformed`] if the answer names nobody.
///
/// # Cost
///
/// One request.
pub async fn whoami(client: &Client) -> Result<Subject, Fault> {
    let mut request = Request::new(Body::from(REVIEW.as_bytes().to_vec()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let json = header::HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
    request.headers_mut().insert(header::ACCEPT, json);
    let review: SelfSubjectReview = ask(client, request, BOUNDS).await?.json()?;
    let username = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    match username {
        Some(username) if !username.is_empty() => Ok(Subject::from_username(&username)),
        Some(_) | None => Err(Fault::new(Reason::Malformed, "the SelfSubjectReview names no user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use std::convert::Infallible;
    use tower::service_fn;

    async fn answered(body: &'static str) -> Result<Subject, Fault> {
        let service = service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.method(), Method::POST);
            assert_eq!(request.uri().path(), PATH);
            Ok::<_, Infallible>(Response::new(Body::from(body.as_bytes().to_vec())))
        });
        whoami(&Client::new(service, "default")).await
    }

    #[tokio::test]
    async fn the_reviewed_user_is_the_subject() {
        let account = r#"{"metadata":{},"status":{"userInfo":
            {"username":"system:serviceaccount:shop:kubewarm","groups":["a"]}}}"#;
        let expected =
            Subject::ServiceAccount { namespace: "shop".into(), name: "kubewarm".into() };
        assert_eq!(answered(account).await, Ok(expected));
    }

    #[tokio::test]
    async fn an_answer_without_a_name_is_a_fault() {
        let fault = answered(r#"{"metadata":{},"status":{"userInfo":{}}}"#).await.unwrap_err();
        assert_eq!(fault.reason(), Reason::Malformed);
    }
}
