use super::*;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::authorization::v1::NonResourceAttributes;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use tower::service_fn;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const OWN_IDENTITY: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const OWN_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Path, credentials and body of each request.
type Sent = Arc<Mutex<Vec<(String, Vec<String>, Value)>>>;

/// Returns a client whose server sends `answers` in this order, and the requests that the server
/// received.
fn answering(answers: &[(u16, Value)]) -> (Client, Sent) {
    let sent = Sent::default();
    let (noted, answers) = (Arc::clone(&sent), answers.to_vec());
    let service = service_fn(move |request: Request<Body>| {
        let (noted, answers) = (Arc::clone(&noted), answers.clone());
        async move {
            let path = request.uri().path().to_owned();
            let shown = request.headers().iter().filter(|(name, _)| {
                **name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-")
            });
            let shown =
                shown.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut noted = noted.lock();
            let (code, answer) = answers.get(noted.len()).cloned().unwrap_or_default();
            noted.push((path, shown, serde_json::from_slice(&body).unwrap()));
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    (Client::new(service, "default"), sent)
}

fn presented() -> BearerCredentials {
    BearerCredentials { token: "t0k3n".to_owned().into() }
}

fn metrics() -> SelfSubjectAccessReviewSpec {
    let path =
        NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
    SelfSubjectAccessReviewSpec { resource_attributes: None, non_resource_attributes: Some(path) }
}

fn operator(client: Client) -> CallerReviewer {
    CallerReviewer::Operator { client, audiences: Arc::default() }
}

fn for_kubewarm(client: Client) -> CallerReviewer {
    CallerReviewer::Operator {
        client,
        audiences: ["kubewarm".to_owned(), "other".to_owned()].into(),
    }
}

#[tokio::test]
async fn a_token_is_accepted_only_for_one_of_the_audiences() {
    let user = json!({"username": "jane"});
    for (fields, counts) in [
        (json!({"audiences": ["kubewarm"]}), true),
        (json!({"audiences": ["x", "other"]}), true),
        (json!({"audiences": ["https://kubernetes.default.svc"]}), false),
        (json!({"audiences": []}), false),
        (json!({}), false),
    ] {
        let mut status = json!({"authenticated": true, "user": user});
        status["audiences"] = fields["audiences"].clone();
        let answers =
            [(200, json!({"status": status})), (200, json!({"status": {"allowed": true}}))];
        let (result, sent) = decided(&answers, for_kubewarm, &presented()).await;
        let expected = counts.then_some(AuthorizationResult::Allowed);
        assert_eq!(result, Ok(expected), "{fields}");
        assert_eq!(sent[0].2["spec"]["audiences"], json!(["kubewarm", "other"]));
    }
}

/// Authenticates and authorizes a caller of `/metrics` against a server that sends `answers` in
/// this order.
///
/// Returns the result of the authorization and the requests that the server received. The result is
/// `None` if the authentication failed.
async fn decided(
    answers: &[(u16, Value)],
    reviewer: fn(Client) -> CallerReviewer,
    presented: &BearerCredentials,
) -> (Result<Option<AuthorizationResult>, RequestFault>, Vec<(String, Vec<String>, Value)>) {
    let (client, sent) = answering(answers);
    let reviewer = reviewer(client);
    let check = async {
        let AuthenticationResult::Known(user) = reviewer.authenticate(presented).await? else {
            return Ok(None);
        };
        reviewer.authorize(Some(presented), user.review(&metrics())).await.map(Some)
    };
    let result = check.await;
    let sent = sent.lock().clone();
    (result, sent)
}

fn known(user: &Value) -> (u16, Value) {
    (200, json!({"spec": {}, "status": {"authenticated": true, "user": user}}))
}

fn status(status: &Value) -> (u16, Value) {
    (200, json!({"spec": {}, "status": status}))
}

fn refused(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "message": "jane may not", "code": code}))
}

#[tokio::test]
async fn the_access_review_contains_all_fields_of_the_user() {
    let user = json!({"username": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
    let answers = [known(&user), status(&json!({"allowed": true}))];
    let (result, sent) = decided(&answers, operator, &presented()).await;
    assert_eq!(result, Ok(Some(AuthorizationResult::Allowed)));
    let [(tokens, shown, token), (access, also_shown, review)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert!(shown.is_empty() && also_shown.is_empty(), "a review contains the caller's token");
    assert_eq!((&**tokens, &token["spec"]), (TOKENS, &json!({"token": "t0k3n"})));
    let expected = json!({
        "user": "jane", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!((&**access, &review["spec"]), (ACCESS, &expected));
}

#[tokio::test]
async fn an_invalid_or_anonymous_token_sends_no_access_review() {
    for answer in [
        json!({}),
        json!({"authenticated": false, "user": {"username": "jane"}}),
        json!({"authenticated": true, "user": {"username": ""}}),
        json!({"authenticated": true, "user": {"username": "system:anonymous"}}),
        json!({"authenticated": true}),
        json!({"error": "invalid bearer token"}),
    ] {
        let (result, sent) = decided(&[status(&answer)], operator, &presented()).await;
        assert_eq!((result, sent.len()), (Ok(None), 1), "{answer}");
    }
}

#[tokio::test]
async fn an_action_is_denied_unless_it_is_allowed_and_not_denied() {
    let user = json!({"username": "jane"});
    for (answer, reason) in [
        (json!({"allowed": false}), None),
        (json!({"allowed": false, "reason": ""}), None),
        (json!({"allowed": true, "denied": true, "reason": "closed"}), Some("closed")),
        (json!({"allowed": false, "denied": true}), None),
    ] {
        let answers = [known(&user), status(&answer)];
        let (result, _) = decided(&answers, operator, &presented()).await;
        let reason = reason.map(ToOwned::to_owned);
        assert_eq!(result, Ok(Some(AuthorizationResult::Denied { reason })));
    }
}

#[tokio::test]
async fn a_failed_authorizer_denies_nothing_and_permits_nothing() {
    let user = known(&json!({"username": "jane"}));
    // `denied` is `false` for a failed webhook with `failurePolicy: NoOpinion`, and `true` with
    // `Deny`.
    for denied in [false, true] {
        let error = "webhook timeout";
        let failed = status(&json!({"allowed": false, "denied": denied, "evaluationError": error}));
        let (result, _) = decided(&[user.clone(), failed], operator, &presented()).await;
        assert_eq!(result.unwrap_err().reason(), FaultReason::ServerError);
    }
    // Another authorizer permitted the action, so the failed webhook does not matter.
    let allowed = status(&json!({"allowed": true, "evaluationError": "webhook timeout"}));
    let (result, _) = decided(&[user, allowed], operator, &presented()).await;
    assert_eq!(result, Ok(Some(AuthorizationResult::Allowed)));
}

#[tokio::test]
async fn a_response_without_a_status_is_a_fault() {
    for reviewer in [operator, CallerReviewer::Caller] {
        let nothing = (200, json!({"spec": {}}));
        let (result, _) = decided(&[nothing], reviewer, &presented()).await;
        assert_eq!(result.unwrap_err().reason(), FaultReason::Malformed);
        let (result, _) = decided(&[(500, json!({}))], reviewer, &presented()).await;
        assert_eq!(result.unwrap_err().reason(), FaultReason::ServerError);
    }
    let answers = [known(&json!({"username": "jane"})), (200, json!({"spec": {}}))];
    let (result, _) = decided(&answers, operator, &presented()).await;
    assert_eq!(result.unwrap_err().reason(), FaultReason::Malformed);
}

#[tokio::test]
async fn both_self_reviews_contain_the_callers_token() {
    let answers =
        [status(&json!({"userInfo": {"username": "john"}})), status(&json!({"allowed": true}))];
    let (result, sent) = decided(&answers, CallerReviewer::Caller, &presented()).await;
    assert_eq!(result, Ok(Some(AuthorizationResult::Allowed)));
    let [(who, shown, _), (access, also_shown, review)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!([&**who, &**access], [OWN_IDENTITY, OWN_ACCESS]);
    assert_eq!(*shown, ["authorization: Bearer t0k3n"]);
    assert_eq!(also_shown, shown);
    let expected = json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(review["spec"], expected, "a self review contains more than the action");
}

#[tokio::test]
async fn a_caller_that_the_server_rejects_is_rejected() {
    let presented = presented();
    let (client, _) = answering(&[refused(401)]);
    assert_eq!(
        CallerReviewer::Caller(client).authenticate(&presented).await,
        Ok(AuthenticationResult::Unknown)
    );
    let (client, _) = answering(&[refused(403)]);
    let message = "jane may not".to_owned();
    assert_eq!(
        CallerReviewer::Caller(client).authenticate(&presented).await,
        Ok(AuthenticationResult::Refused { message })
    );
    for code in [401, 403] {
        let answers = [status(&json!({"userInfo": {"username": "jane"}})), refused(code)];
        let (result, _) = decided(&answers, CallerReviewer::Caller, &presented).await;
        assert!(
            matches!(result, Ok(Some(AuthorizationResult::Denied { reason: Some(_) }))),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn a_self_review_without_a_token_is_not_sent() {
    let (client, sent) = answering(&[status(&json!({"allowed": true}))]);
    let user = CallerInfo { name: "jane".to_owned(), ..CallerInfo::default() };
    let result = CallerReviewer::Caller(client).authorize(None, user.review(&metrics())).await;
    assert_eq!(result.unwrap_err().reason(), FaultReason::Internal);
    assert!(sent.lock().is_empty());
}

#[test]
fn a_user_is_added_to_the_group_of_authenticated_users() {
    let groups = |groups: &[&str]| {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        CallerInfo { groups, ..CallerInfo::default() }.with_authenticated_group().groups
    };
    assert_eq!(groups(&["a"]), ["a", "system:authenticated"]);
    assert_eq!(groups(&["system:authenticated", "a"]), ["system:authenticated", "a"]);
    assert_eq!(groups(&["system:unauthenticated"]), ["system:unauthenticated"]);
}

#[test]
fn debug_output_contains_no_token() {
    assert!(!format!("{:?}", presented()).contains("t0k3n"));
}
