//! Authorizes requests to protected routes. The API server must accept the client's bearer token,
//! and the token's user must have `get` on the route's path.

use super::admin::text;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
};
use kubewarm_api::model::{FaultReason, RequestFault, Subject};
use kubewarm_serve::callers::{CallerCredentials, CallerGate, CallerRejection, RequestKind};
use kubewarm_serve::review;
use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr},
};

/// Maximum length of the user name that a response contains, in characters.
const MAX_NAME: usize = 253;

/// Checks whether the owner of the bearer token may request `path`.
///
/// # Errors
///
/// Returns the response to send: 401, 403 or 503. A 503 means that the API server did not answer
/// the TokenReview or the access review. The body of the response contains the next step for the
/// client.
pub(super) async fn admit(
    callers: &CallerGate,
    request: &HttpRequest,
    path: &'static str,
) -> Result<(), HttpResponse> {
    let verb = request.method().as_str().to_ascii_lowercase();
    let headers = request.headers().iter();
    let credentials = CallerCredentials::from_headers(
        headers.map(|(name, value)| (name.as_str(), value.as_bytes())),
    )
    .map_err(|problem| unauthorized(problem, &verb, path))?;
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let review = review::path(&verb, path);
    let admitted = callers.admit(&credentials, &review, peer, RequestKind::Read).await;
    admitted.map(drop).map_err(|refused| refusal(refused, &verb, path))
}

fn refusal(refused: CallerRejection, verb: &str, path: &str) -> HttpResponse {
    match refused {
        CallerRejection::Unauthorized => {
            let problem = "the API server does not accept this token; it may have expired, or have \
                           another audience";
            unauthorized(problem, verb, path)
        }
        CallerRejection::Impersonation => {
            let body = "impersonation is not possible here; send a token of the account itself\n";
            text(StatusCode::FORBIDDEN, body)
        }
        CallerRejection::Limited(_) | CallerRejection::AgentsLimited { .. } => {
            unavailable("too many reviews of callers are in progress; try again in a second\n")
        }
        CallerRejection::Undecided(fault) => undecided(&fault),
        CallerRejection::Forbidden { user, .. } => {
            let who: String = user.chars().take(MAX_NAME).flat_map(char::escape_debug).collect();
            let subject = match Subject::from_username(&who) {
                Subject::ServiceAccount { namespace, name } => {
                    format!("--serviceaccount={namespace}:{name}")
                }
                Subject::User(_) | Subject::Group(_) => "--user=NAME".to_owned(),
            };
            let body = format!(
                "{who} may not {verb} {path}; a cluster administrator can grant it:\n\
                 kubectl create clusterrole NAME --verb={verb} --non-resource-url={path}\n\
                 kubectl create clusterrolebinding NAME --clusterrole=NAME {subject}\n"
            );
            text(StatusCode::FORBIDDEN, body)
        }
    }
}

fn unauthorized(problem: impl Display, verb: &str, path: &str) -> HttpResponse {
    let body = format!(
        "{problem}; send Authorization: Bearer with the token of an account of this cluster that may \
         {verb} the nonResourceURL {path}\n"
    );
    let mut response = text(StatusCode::UNAUTHORIZED, body);
    let challenge = header::HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// Returns a 503 response after a failed TokenReview or access review. The response contains only
/// the reason of the fault, because the caller is not authenticated and must not learn details.
fn undecided(fault: &RequestFault) -> HttpResponse {
    let reason = fault.reason();
    let body = if reason == FaultReason::Forbidden {
        "kubewarm may not create TokenReviews or SubjectAccessReviews; `kubewarm rbac --operator \
         --metrics-auth --operator-namespace NAMESPACE` prints the permissions that it needs\n"
            .to_owned()
    } else {
        format!(
            "the API server did not review the token ({reason}); try again, and see kubewarm's \
             log\n"
        )
    };
    unavailable(body)
}

fn unavailable(body: impl Into<String>) -> HttpResponse {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, body);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        AdminState, MetricsAccess,
        fixtures::{LOCAL, REMOTE, admin, ask, get, key},
    };
    use actix_web::test::TestRequest;
    use futures::future::{BoxFuture, pending, ready};
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
    use kubewarm_client::{
        AuthenticationResult, AuthorizationResult, BearerCredentials, CallerInfo,
    };
    use kubewarm_serve::callers::{ListenerLimits, ReviewClient};
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };
    use tokio::{runtime::Handle, time::Instant};

    /// Key in a user's `extra` fields. In these tests its value is the user's token, so that the
    /// fake API server can decide by the token in an access review.
    const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

    /// A fake API server that accepts the tokens `good`, `weak` and `scraper`, and permits `get`
    /// only for `good`. TokenReviews of `lost` and `mute` fail, and TokenReviews of `silent` never
    /// end.
    #[derive(Default)]
    struct Scripted {
        requests: Arc<AtomicUsize>,
    }

    impl ReviewClient for Scripted {
        fn sends_callers_token(&self) -> bool {
            false
        }

        fn authenticate(
            &self,
            presented: Arc<BearerCredentials>,
        ) -> BoxFuture<'static, Result<AuthenticationResult, RequestFault>> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let token = &*presented.token;
            let name = match token.as_str() {
                "good" | "weak" => "jane\u{1b}",
                "scraper" => "system:serviceaccount:mon:prometheus",
                "silent" => return Box::pin(pending()),
                "lost" => {
                    let fault = RequestFault::new(FaultReason::Unreachable, "10.9.8.7 refused");
                    return Box::pin(ready(Err(fault)));
                }
                "mute" => {
                    let fault = RequestFault::new(
                        FaultReason::Forbidden,
                        "kubewarm cannot create tokenreviews",
                    );
                    return Box::pin(ready(Err(fault)));
                }
                _ => return Box::pin(ready(Ok(AuthenticationResult::Unknown))),
            };
            let extra = [(CREDENTIAL.to_owned(), vec![token.to_owned()])].into();
            let user = CallerInfo { name: name.to_owned(), extra, ..CallerInfo::default() };
            Box::pin(ready(Ok(AuthenticationResult::Known(Arc::new(user)))))
        }

        fn authorize(
            &self,
            _: Option<Arc<BearerCredentials>>,
            spec: SubjectAccessReviewSpec,
        ) -> BoxFuture<'static, Result<AuthorizationResult, RequestFault>> {
            let verb = spec.non_resource_attributes.and_then(|asked| asked.verb);
            let token = spec.extra.and_then(|extra| extra.get(CREDENTIAL)?.first().cloned());
            let is_allowed = (token.as_deref(), verb.as_deref()) == (Some("good"), Some("get"));
            let verdict = if is_allowed {
                AuthorizationResult::Allowed
            } else {
                AuthorizationResult::Denied { reason: None }
            };
            Box::pin(ready(Ok(verdict)))
        }
    }

    /// Returns an admin server that uses [`Scripted`] for TokenReviews and access reviews, and the
    /// number of TokenReviews.
    fn guarded() -> (Arc<AdminState>, Arc<AtomicUsize>) {
        let scripted = Scripted::default();
        let requests = Arc::clone(&scripted.requests);
        let limits = ListenerLimits::for_admin();
        let note = Box::new(|_, _, _| ());
        let callers =
            CallerGate::new(Arc::new(scripted), &limits, Handle::current(), note).unwrap();
        let plain = Arc::into_inner(admin(Some(vec![key("pods", "b")]))).unwrap();
        let scrapers = MetricsAccess::Reviewed(Box::new(callers));
        (Arc::new(AdminState { scrapers, ..plain }), requests)
    }

    fn with(path: &str, token: &str) -> TestRequest {
        get(path).insert_header(("authorization", format!("Bearer {token}")))
    }

    #[actix_web::test]
    async fn metrics_need_an_authorized_token_from_every_peer() {
        tokio::time::pause();
        let (admin, _) = guarded();
        for peer in LOCAL.iter().chain(&REMOTE) {
            for (request, expected, words) in [
                (get("/metrics"), 401, "send Authorization: Bearer"),
                (with("/metrics", "bad"), 401, "does not accept this token"),
                (with("/metrics", ""), 401, "empty"),
                (with("/metrics", "weak"), 403, "jane\\u{1b} may not get /metrics"),
                (with("/metrics", "lost"), 503, "(ServerUnreachable)"),
                (with("/metrics", "mute"), 503, "kubewarm rbac --operator --metrics-auth"),
                (with("/metrics", "good"), 200, "kubewarm_build_info{"),
                (with("/livez", "bad"), 200, "ok"),
            ] {
                let (code, body) = ask(&admin, peer, request).await;
                assert_eq!(code.as_u16(), expected, "{words}: {body}");
                assert!(body.contains(words) && !body.contains("10.9.8.7"), "{body}");
            }
        }
        let (_, body) = ask(&admin, "10.0.0.7:9", with("/metrics", "scraper")).await;
        assert!(body.contains("--clusterrole=NAME --serviceaccount=mon:prometheus\n"), "{body}");
    }

    #[actix_web::test]
    async fn a_malformed_header_sends_no_review() {
        let (admin, requests) = guarded();
        let long = "x".repeat(16 * 1024 + 1);
        let twice = with("/metrics", "good").append_header(("authorization", "Bearer good"));
        let basic = get("/metrics").insert_header(("authorization", "Basic Z29vZA=="));
        for request in [get("/metrics"), twice, basic, with("/metrics", &long)] {
            assert_eq!(ask(&admin, "10.0.0.7:9", request).await.0, StatusCode::UNAUTHORIZED);
        }
        let acting = with("/metrics", "good").insert_header(("Impersonate-User", "jane"));
        assert_eq!(ask(&admin, "10.0.0.7:9", acting).await.0, StatusCode::FORBIDDEN);
        assert_eq!(requests.load(Ordering::Relaxed), 0);
    }

    #[actix_web::test]
    async fn decisions_are_cached_until_they_expire_and_errors_are_not() {
        tokio::time::pause();
        let (admin, requests) = guarded();
        for (token, waited, expected) in [
            ("good", 9, 1),
            ("good", 2, 1),
            ("good", 0, 2),
            ("bad", 9, 3),
            ("bad", 1, 3),
            ("bad", 0, 4),
            ("lost", 0, 5),
            ("lost", 0, 6),
        ] {
            let _answer = ask(&admin, "10.0.0.7:9", with("/metrics", token)).await;
            assert_eq!(requests.load(Ordering::Relaxed), expected, "{token}");
            tokio::time::advance(Duration::from_secs(waited)).await;
        }
    }

    #[actix_web::test]
    async fn a_review_without_an_answer_times_out() {
        tokio::time::pause();
        let (admin, _) = guarded();
        let began = Instant::now();
        let (code, body) = ask(&admin, "10.0.0.7:9", with("/metrics", "silent")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("(TimedOut)"), "{body}");
        assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[actix_web::test]
    async fn authorized_callers_and_loopback_peers_can_read_debug_routes() {
        tokio::time::pause();
        let (admin, _) = guarded();
        let put = |token: &str| {
            let put = TestRequest::put().uri("/debug/log-level").set_payload("debug");
            put.insert_header(("authorization", format!("Bearer {token}")))
        };
        for (peer, request, expected) in [
            ("127.0.0.1:9", get("/debug/informers"), 200),
            ("10.0.0.7:9", get("/debug/informers"), 401),
            ("10.0.0.7:9", with("/debug/informers", "weak"), 403),
            ("10.0.0.7:9", with("/debug/informers", "good"), 200),
            ("10.0.0.7:9", put("good"), 403),
            ("10.0.0.7:9", with("/debug/pprof", "good"), 403),
        ] {
            let (code, body) = ask(&admin, peer, request).await;
            assert_eq!(code.as_u16(), expected, "{body}");
        }
        for (token, shown) in [("good", true), ("weak", false)] {
            let request = with("/readyz?verbose", token);
            let (_, body) = ask(&admin, "10.0.0.7:9", request).await;
            assert!(body.contains("1 pending"), "{body}");
            assert_eq!(body.contains("namespace b"), shown, "{body}");
        }
    }
}
