//! Who we are to the API server.

use super::api_client::ApiClient;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kubewarm_api::model::{Fault, Reason, Subject};

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;

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
    // A user with thousands of groups still fits into an answer.
    let answer = ApiClient::new(client).post(PATH, REVIEW).send().await?;
    let review: SelfSubjectReview = answer.json()?;
    let username = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    match username {
        Some(username) if !username.is_empty() => Ok(Subject::from_username(&username)),
        Some(_) | None => Err(Fault::new(Reason::Malformed, "the SelfSubjectReview names no user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request, Response};
    use kube::client::Body;
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
