//! Who calls us, and whether they may: what the API server says of a bearer token.

use super::review::{post, without_status};
use crate::model::Fault;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::Client;
use std::fmt;
use zeroize::Zeroizing;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What somebody asks of us over HTTP, and with which token.
pub struct Call {
    /// The token, without `Bearer`. Never shown.
    pub token: Zeroizing<String>,
    /// The HTTP method in lower case, as RBAC has it.
    pub verb: String,
    /// The path, without a query: RBAC's `nonResourceURLs`.
    pub path: &'static str,
}

/// What the API server says of a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The caller may.
    Allowed,
    /// It does not know the token.
    UnknownToken,
    /// It knows the caller, who may not.
    Forbidden {
        /// The caller's name.
        user: String,
    },
}

/// Whether `call` is permitted; whoever asks needs `create` on `tokenreviews` and on
/// `subjectaccessreviews`. A token counts if it is for the API server itself.
///
/// # Errors
///
/// The fault of a request; [`crate::model::Reason::Malformed`] for an answer without a status.
///
/// # Cost
///
/// Two requests, one after the other, each of at most 10 s.
pub async fn decide(client: &Client, call: &Call) -> Result<Decision, Fault> {
    let spec = TokenReviewSpec { token: call.token.to_string(), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer: TokenReview = post(client, TOKENS, &review).await?.json()?;
    let status = answer.status.ok_or_else(|| without_status("TokenReview"))?;
    let named = |user: &UserInfo| user.username.as_ref().is_some_and(|name| !name.is_empty());
    let user = status.user.filter(|user| status.authenticated == Some(true) && named(user));
    let Some(UserInfo { username, uid, groups, extra }) = user else {
        return Ok(Decision::UnknownToken);
    };
    let asked =
        NonResourceAttributes { path: Some(call.path.to_owned()), verb: Some(call.verb.clone()) };
    let spec = SubjectAccessReviewSpec {
        non_resource_attributes: Some(asked),
        user: username.clone(),
        uid,
        groups,
        extra,
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer: SubjectAccessReview = post(client, ACCESS, &review).await?.json()?;
    let status = answer.status.ok_or_else(|| without_status("SubjectAccessReview"))?;
    if status.allowed && status.denied != Some(true) {
        return Ok(Decision::Allowed);
    }
    Ok(Decision::Forbidden { user: username.unwrap_or_default() })
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, path, .. } = self;
        f.debug_struct("Call").field("verb", verb).field("path", path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::{convert::Infallible, sync::Arc};
    use tower::service_fn;

    /// What an API server that answers these, in turn, makes of a call; and what it was sent.
    async fn decided(answers: &[Value]) -> (Result<Decision, Fault>, Vec<(String, Value)>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (noted, answers) = (Arc::clone(&sent), answers.to_vec());
        let service = service_fn(move |request: Request<Body>| {
            let (noted, answers) = (Arc::clone(&noted), answers.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut noted = noted.lock();
                let answer = answers.get(noted.len()).map(ToString::to_string).unwrap_or_default();
                noted.push((path, serde_json::from_slice(&body).unwrap()));
                Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        let call =
            Call { token: "t0k3n".to_owned().into(), verb: "get".to_owned(), path: "/metrics" };
        assert!(!format!("{call:?}").contains("t0k3n"));
        let found = decide(&Client::new(service, "default"), &call).await;
        let sent = sent.lock().clone();
        (found, sent)
    }

    fn known(user: &Value) -> Value {
        json!({"spec": {}, "status": {"authenticated": true, "user": user}})
    }

    #[tokio::test]
    async fn the_whole_identity_of_the_token_is_asked_about() {
        let user = json!({"username": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
        let allowed = json!({"spec": {}, "status": {"allowed": true}});
        let (found, sent) = decided(&[known(&user), allowed]).await;
        assert_eq!(found, Ok(Decision::Allowed));
        let [(tokens, token), (access, asked)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((&**tokens, &token["spec"]), (TOKENS, &json!({"token": "t0k3n"})));
        let expected = json!({
            "user": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        });
        assert_eq!((&**access, &asked["spec"]), (ACCESS, &expected));
    }

    #[tokio::test]
    async fn a_token_that_is_not_known_asks_for_nothing() {
        for status in [
            json!({}),
            json!({"authenticated": false, "user": {"username": "jane"}}),
            json!({"authenticated": true, "user": {"username": ""}}),
            json!({"authenticated": true}),
            json!({"error": "invalid bearer token"}),
        ] {
            let (found, sent) = decided(&[json!({"spec": {}, "status": status})]).await;
            assert_eq!((found, sent.len()), (Ok(Decision::UnknownToken), 1), "{status}");
        }
    }

    #[tokio::test]
    async fn what_is_not_allowed_or_denied_as_well_is_forbidden() {
        let user = json!({"username": "jane"});
        for status in [json!({"allowed": false}), json!({"allowed": true, "denied": true})] {
            let answer = json!({"spec": {}, "status": status});
            let (found, _) = decided(&[known(&user), answer]).await;
            assert_eq!(found, Ok(Decision::Forbidden { user: "jane".to_owned() }));
        }
    }

    #[tokio::test]
    async fn without_an_answer_there_is_no_decision() {
        let (found, _) = decided(&[json!({"spec": {}})]).await;
        assert_eq!(found.unwrap_err().reason(), Reason::Malformed);
        let (found, _) = decided(&[known(&json!({"username": "jane"}))]).await;
        assert_eq!(found.unwrap_err().reason(), Reason::Malformed);
    }
}
