//! Who may ask for what is not for everybody: callers with a bearer token, as the API server decides.

use super::{admin::text, decisions::Decisions, places::Places};
use crate::{
    cluster::{Call, Decision},
    model::{Fault, Reason, Subject},
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use zeroize::Zeroizing;

/// The longest token, in bytes: those of clusters have some 2 KiB.
const MAX_TOKEN: usize = 16 * 1024;
/// How long the API server may take: scrapes give up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// A refusal keeps its place so long: whoever tries tokens tries few.
const REFUSAL: Duration = Duration::from_millis(250);
/// How much of a caller's name is repeated, in characters.
const MAX_NAME: usize = 253;

/// Asks the API server about a call.
pub type Decide = Box<dyn Fn(Call) -> BoxFuture<'static, Result<Decision, Fault>> + Send + Sync>;

/// Lets callers in whom the API server knows and who may.
pub struct Guard {
    decide: Decide,
    decisions: Mutex<Decisions>,
    places: Places,
    /// Whether the last question had no answer.
    failing: AtomicBool,
}

/// There is no randomness to make a key of: the kernel gives none.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gives no random numbers, which --metrics-auth needs")]
pub struct NoRandomness;

impl Guard {
    /// One that has asked nobody yet.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn new(decide: Decide) -> Result<Self, NoRandomness> {
        let decisions = Mutex::new(Decisions::new().map_err(|_| NoRandomness)?);
        Ok(Self { decide, decisions, places: Places::default(), failing: AtomicBool::default() })
    }

    /// Lets `request` pass if its bearer token is of somebody who may ask for `path`; else what to
    /// answer: 401, 403 or, where that is not known, 503, each with what to do.
    pub(super) async fn admit(
        &self,
        request: &HttpRequest,
        path: &'static str,
    ) -> Result<(), HttpResponse> {
        let verb = request.method().as_str().to_ascii_lowercase();
        let token = token(request).map_err(|problem| unauthorized(problem, &verb, path))?;
        if request.headers().keys().any(|name| name.as_str().starts_with("impersonate-")) {
            let said = "impersonation is not possible here; send a token of the account itself\n";
            return Err(text(StatusCode::FORBIDDEN, said));
        }
        let call = Call { token, verb, path };
        let began = Instant::now();
        let (known, tag) = {
            let decisions = self.decisions.lock();
            let tag = decisions.tag(&call);
            (decisions.get(&tag, began), tag)
        };
        let verb = call.verb.clone();
        if let Some(decision) = known {
            return refusal(decision, &verb, path).map_or(Ok(()), Err);
        }
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        let Some(_place) = self.places.take(peer.to_canonical()) else {
            return Err(unavailable("too many callers are asked about; try again in a second\n"));
        };
        let decided = timeout(PATIENCE, (self.decide)(call)).await.unwrap_or_else(|_| {
            Err(Fault::new(Reason::TimedOut, format!("no decision within {PATIENCE:?}")))
        });
        self.tell(decided.as_ref().err());
        let refused = match decided {
            Ok(decision) => {
                self.decisions.lock().put(tag, decision.clone(), began);
                refusal(decision, &verb, path)
            }
            Err(fault) => Some(undecided(&fault)),
        };
        match refused {
            None => Ok(()),
            Some(refusal) => {
                sleep(REFUSAL).await;
                Err(refusal)
            }
        }
    }

    /// Logs that callers cannot be asked about, and that they can be again; not each time.
    fn tell(&self, fault: Option<&Fault>) {
        let was_failing = self.failing.swap(fault.is_some(), Ordering::Relaxed);
        match fault {
            Some(fault) if !was_failing => {
                tracing::warn!(%fault, "nobody can say who may read metrics; callers get 503");
            }
            None if was_failing => tracing::info!("callers are told apart again"),
            Some(_) | None => {}
        }
    }
}

/// The token of the one `Authorization` header, or what is wrong with it.
fn token(request: &HttpRequest) -> Result<Zeroizing<String>, &'static str> {
    let mut headers = request.headers().get_all(header::AUTHORIZATION);
    let (Some(value), None) = (headers.next(), headers.next()) else {
        return Err("one header Authorization is needed");
    };
    let parts = value.to_str().ok().and_then(|value| value.split_once(' '));
    match parts {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => match token.trim() {
            "" => Err("the token is empty"),
            token if token.len() > MAX_TOKEN => Err("the token is longer than 16 KiB"),
            token => Ok(Zeroizing::new(token.to_owned())),
        },
        Some(_) | None => Err("Authorization has no bearer token"),
    }
}

/// What to answer to whoever is not allowed.
fn refusal(decision: Decision, verb: &str, path: &str) -> Option<HttpResponse> {
    match decision {
        Decision::Allowed => None,
        Decision::UnknownToken => {
            let problem = "the API server does not accept this token; it may have ended, or be for \
                           somebody else";
            Some(unauthorized(problem, verb, path))
        }
        Decision::Forbidden { user } => {
            let who: String = user.chars().take(MAX_NAME).flat_map(char::escape_debug).collect();
            let subject = match Subject::from_username(&who) {
                Subject::ServiceAccount { namespace, name } => {
                    format!("--serviceaccount={namespace}:{name}")
                }
                Subject::User(_) | Subject::Group(_) => "--user=NAME".to_owned(),
            };
            let said = format!(
                "{who} may not {verb} {path}; whoever administers the cluster can allow it:\n\
                 kubectl create clusterrole NAME --verb={verb} --non-resource-url={path}\n\
                 kubectl create clusterrolebinding NAME --clusterrole=NAME {subject}\n"
            );
            Some(text(StatusCode::FORBIDDEN, said))
        }
    }
}

fn unauthorized(problem: &str, verb: &str, path: &str) -> HttpResponse {
    let said = format!(
        "{problem}; send Authorization: Bearer with the token of an account of this cluster that may \
         {verb} the nonResourceURL {path}\n"
    );
    let mut response = text(StatusCode::UNAUTHORIZED, said);
    let challenge = header::HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// Of what went wrong only the word: the caller may be anybody.
fn undecided(fault: &Fault) -> HttpResponse {
    let reason = fault.reason();
    let said = if reason == Reason::Forbidden {
        "kubewarm may not ask whose token this is; `kubewarm rbac --operator --metrics-auth` prints \
         what it needs\n"
            .to_owned()
    } else {
        format!(
            "the API server does not say whose token this is ({reason}); try again, and see \
             kubewarm's log\n"
        )
    };
    unavailable(said)
}

fn unavailable(said: impl Into<String>) -> HttpResponse {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, said);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("failing", &self.failing).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        Admin,
        sample::{LOCAL, REMOTE, admin, ask, get, key},
    };
    use actix_web::test::TestRequest;
    use std::sync::{Arc, atomic::AtomicUsize};

    /// What becomes of these tokens: `good`, `weak`, `lost`; others are not known.
    fn decision(call: &Call) -> Result<Decision, Fault> {
        match call.token.as_str() {
            "good" if call.verb == "get" => Ok(Decision::Allowed),
            "good" | "weak" => Ok(Decision::Forbidden { user: "jane\u{1b}".to_owned() }),
            "scraper" => {
                Ok(Decision::Forbidden { user: "system:serviceaccount:mon:prometheus".to_owned() })
            }
            "lost" => Err(Fault::new(Reason::Unreachable, "10.9.8.7 refused")),
            "mute" => Err(Fault::new(Reason::Forbidden, "kubewarm cannot create tokenreviews")),
            _ => Ok(Decision::UnknownToken),
        }
    }

    /// An admin address with a guard, and how often it has asked.
    fn guarded() -> (Arc<Admin>, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let decide: Decide = Box::new(move |call| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(decision(&call)))
        });
        let plain = Arc::into_inner(admin(Some(vec![key("pods", "b")]))).unwrap();
        let guard = Some(Guard::new(decide).unwrap());
        (Arc::new(Admin { guard, ..plain }), asked)
    }

    fn with(path: &str, token: &str) -> TestRequest {
        get(path).insert_header(("authorization", format!("Bearer {token}")))
    }

    #[actix_web::test]
    async fn metrics_are_for_those_who_may_get_them_wherever_they_ask_from() {
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
    async fn a_header_that_is_none_asks_nobody() {
        let (admin, asked) = guarded();
        let long = "x".repeat(MAX_TOKEN + 1);
        let twice = with("/metrics", "good").append_header(("authorization", "Bearer good"));
        let basic = get("/metrics").insert_header(("authorization", "Basic Z29vZA=="));
        for request in [get("/metrics"), twice, basic, with("/metrics", &long)] {
            assert_eq!(ask(&admin, "10.0.0.7:9", request).await.0, StatusCode::UNAUTHORIZED);
        }
        let acting = with("/metrics", "good").insert_header(("Impersonate-User", "jane"));
        assert_eq!(ask(&admin, "10.0.0.7:9", acting).await.0, StatusCode::FORBIDDEN);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[actix_web::test]
    async fn a_decision_is_asked_for_once_until_it_ends_and_no_answer_is_none() {
        tokio::time::pause();
        let (admin, asked) = guarded();
        for (token, waited, expected) in [
            ("good", 9, 1),
            ("good", 2, 1),
            ("good", 0, 2),
            ("bad", 4, 3),
            ("bad", 1, 3),
            ("bad", 0, 4),
            ("lost", 0, 5),
            ("lost", 0, 6),
        ] {
            let _answer = ask(&admin, "10.0.0.7:9", with("/metrics", token)).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{token}");
            tokio::time::advance(Duration::from_secs(waited)).await;
        }
    }

    #[actix_web::test]
    async fn a_refusal_takes_its_time_and_an_answer_that_does_not_come_is_none() {
        tokio::time::pause();
        let (admin, _) = guarded();
        let began = Instant::now();
        ask(&admin, "10.0.0.7:9", with("/metrics", "bad")).await;
        assert!((REFUSAL..2 * REFUSAL).contains(&began.elapsed()), "{:?}", began.elapsed());
        let never: Decide = Box::new(|_| Box::pin(std::future::pending()));
        let plain = Arc::into_inner(admin).unwrap();
        let admin = Arc::new(Admin { guard: Some(Guard::new(never).unwrap()), ..plain });
        let began = Instant::now();
        let (code, body) = ask(&admin, "10.0.0.7:9", with("/metrics", "good")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("(TimedOut)"), "{body}");
        assert!(began.elapsed() >= PATIENCE + REFUSAL, "{:?}", began.elapsed());
    }

    #[actix_web::test]
    async fn who_may_looks_inside_from_anywhere_and_a_loopback_peer_as_before() {
        tokio::time::pause();
        let (admin, _) = guarded();
        let put = |token: &str| {
            let put = TestRequest::put().uri("/debug/log-level").set_payload("debug");
            put.insert_header(("authorization", format!("Bearer {token}")))
        };
        for (peer, request, expected) in [
            ("127.0.0.1:9", get("/debug/cells"), 200),
            ("10.0.0.7:9", get("/debug/cells"), 401),
            ("10.0.0.7:9", with("/debug/cells", "weak"), 403),
            ("10.0.0.7:9", with("/debug/cells", "good"), 200),
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
