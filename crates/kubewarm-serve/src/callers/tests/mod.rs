mod forwarded;
mod outage;
mod quotas;
mod shared_reviews;

use super::{
    fixtures::{
        FakeReviewCounts, FakeReviewFn, FakeReviews, ReviewAnswer, noted, of, pods as action,
    },
    review_queue::REVIEW_TIMEOUT,
    *,
};
use futures::future::join_all;
use kubewarm_api::model::FaultReason;
use parking_lot::Mutex;
use std::{net::Ipv4Addr, sync::atomic::Ordering};
use tokio::time::{advance, sleep, timeout};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

/// Returns the result of a TokenReview or access review for a token and a verb. A token that this
/// function does not list is invalid.
fn said(token: &str, verb: &str) -> ReviewAnswer {
    match (token, verb) {
        ("good", "" | "get") => ReviewAnswer::Allowed("jane"),
        ("good" | "weak", _) => ReviewAnswer::Denied("jane"),
        ("unable", _) => ReviewAnswer::Refused("jane cannot create selfsubjectreviews"),
        ("lost", _) => {
            ReviewAnswer::Nothing(RequestFault::new(FaultReason::Unreachable, "refused"))
        }
        _ => ReviewAnswer::Unknown,
    }
}

fn credentials(token: &str, more: &[(&'static str, &'static str)]) -> CallerCredentials {
    let bearer = format!("Bearer {token}");
    let more = more.iter().map(|(name, value)| (*name, value.as_bytes()));
    CallerCredentials::from_headers([("authorization", bearer.as_bytes())].into_iter().chain(more))
        .unwrap()
}

fn reading(fake: FakeReviews) -> (CallerGate, FakeReviewCounts) {
    let count = fake.count.clone();
    (of(fake, &ListenerLimits::for_reads(ReaderLimits::default())), count)
}

fn counts(count: &FakeReviewCounts) -> (usize, usize) {
    (count.who.load(Ordering::Relaxed), count.may.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn each_rejection_has_its_reason() {
    let (callers, _) = reading(FakeReviews::new(said));
    let get = action("get", Some("web"));
    let forbidden = |user: &str, reason: Option<&str>| {
        Err(CallerRejection::Forbidden {
            user: user.to_owned(),
            reason: reason.map(ToOwned::to_owned),
        })
    };
    for (token, action, expected) in [
        ("good", &get, Ok("jane")),
        ("good", &action("list", None), forbidden("jane", None)),
        ("weak", &get, forbidden("jane", None)),
        ("bad", &get, Err(CallerRejection::Unauthorized)),
        ("unable", &get, forbidden("", Some("jane cannot create selfsubjectreviews"))),
        (
            "lost",
            &get,
            Err(CallerRejection::Undecided(RequestFault::new(FaultReason::Unreachable, "refused"))),
        ),
    ] {
        let result = callers.admit(&credentials(token, &[]), action, PEER, RequestKind::Read).await;
        let name = result
            .as_ref()
            .map(|admitted| admitted.caller.user.name.as_str())
            .map_err(Clone::clone);
        assert_eq!(name, expected, "{token}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_reported_with_its_source() {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let note: DecisionObserver =
        Box::new(move |by, outcome, took| notes.lock().push((by, outcome, took)));
    let delay = Duration::from_secs(1);
    let callers = noted(
        FakeReviews { delay, ..FakeReviews::new(said) },
        &ListenerLimits::for_reads(ReaderLimits::default()),
        note,
    );
    let (get, list) = (action("get", Some("web")), action("list", None));
    for (token, action, more, expected) in [
        ("good", &get, &[] as &[_], (DecisionSource::ApiServer, MetricOutcome::Success, 2 * delay)),
        ("good", &get, &[], (DecisionSource::Cache, MetricOutcome::Success, Duration::ZERO)),
        ("good", &list, &[], (DecisionSource::ApiServer, MetricOutcome::Rejected, delay)),
        ("good", &list, &[], (DecisionSource::Cache, MetricOutcome::Rejected, Duration::ZERO)),
        ("bad", &get, &[], (DecisionSource::ApiServer, MetricOutcome::Rejected, delay)),
        ("bad", &get, &[], (DecisionSource::Cache, MetricOutcome::Rejected, Duration::ZERO)),
        ("lost", &get, &[], (DecisionSource::ApiServer, MetricOutcome::Error, delay)),
        (
            "good",
            &get,
            &[("impersonate-user", "john")],
            (DecisionSource::Cache, MetricOutcome::Rejected, Duration::ZERO),
        ),
    ] {
        let _admitted =
            callers.admit(&credentials(token, more), action, PEER, RequestKind::Read).await;
        assert_eq!(seen.lock().drain(..).collect::<Vec<_>>(), [expected], "{token}");
    }
    let (good, bad) = (credentials("good", &[]), credentials("bad", &[]));
    let caller = callers.admit(&good, &get, PEER, RequestKind::Read).await.unwrap().caller;
    assert!(callers.authenticate_again(&good, PEER, &caller).await.is_ok());
    assert!(callers.authenticate_again(&bad, PEER, &caller).await.is_err());
    assert!(callers.authorize(&caller, &get).await.is_ok());
    let outcomes: Vec<_> = seen.lock().drain(..).map(|(_, outcome, _)| outcome).collect();
    let success = MetricOutcome::Success;
    let expected = [success, success, MetricOutcome::Rejected, success];
    assert_eq!(outcomes, expected);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_right_or_token_ends_within_10_seconds() {
    let fake = FakeReviews::new(said);
    let say = Arc::clone(&fake.say);
    let (callers, count) = reading(fake);
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let admit = async || callers.admit(&good, &get, PEER, RequestKind::Read).await;
    assert!(admit().await.is_ok());
    for (now, expected) in [
        ((|_, _| ReviewAnswer::Unknown) as FakeReviewFn, CallerRejection::Unauthorized),
        (
            (|_, _| ReviewAnswer::Denied("jane")) as FakeReviewFn,
            CallerRejection::Forbidden { user: "jane".to_owned(), reason: None },
        ),
    ] {
        *say.lock() = said;
        advance(Duration::from_secs(10)).await;
        assert!(admit().await.is_ok());
        *say.lock() = now;
        advance(Duration::from_millis(9_900)).await;
        assert!(admit().await.is_ok(), "the last decision is still cached");
        advance(Duration::from_millis(100)).await;
        assert_eq!(admit().await.unwrap_err(), expected);
        assert_ne!(counts(&count), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_about_all_names_never_answers_a_named_get() {
    let (callers, count) = reading(FakeReviews::new(|_, _| ReviewAnswer::Allowed("jane")));
    let good = credentials("good", &[]);
    for (action, asked) in [
        (action("list", None), 1),
        (action("get", None), 2),
        (action("get", Some("web")), 3),
        (action("get", Some("db")), 4),
        (action("get", Some("web")), 4),
    ] {
        assert!(callers.admit(&good, &action, PEER, RequestKind::Read).await.is_ok());
        assert_eq!(counts(&count), (1, asked), "{action:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_reviews_share_one_request_even_if_the_first_caller_leaves() {
    let delay = Duration::from_secs(1);
    let (callers, count) = reading(FakeReviews { delay, ..FakeReviews::new(said) });
    let (good, get) = (credentials("good", &[]), action("get", Some("web")));
    let leaving = timeout(delay / 2, callers.admit(&good, &get, PEER, RequestKind::Read));
    assert!(leaving.await.is_err());
    let results =
        join_all((0..99).map(|_| callers.admit(&good, &get, PEER, RequestKind::Read))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(counts(&count), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_review_authorizes_a_request_with_impersonation_headers() {
    for has_callers_token in [false, true] {
        let (callers, count) = reading(FakeReviews { has_callers_token, ..FakeReviews::new(said) });
        let get = action("get", Some("web"));
        let good = credentials("good", &[]);
        let caller = callers.admit(&good, &get, PEER, RequestKind::Read).await.unwrap().caller;
        for name in
            ["impersonate-user", "impersonate-uid", "impersonate-extra-x", "impersonate-new"]
        {
            let acting = credentials("good", &[(name, "john")]);
            let result = callers.admit(&acting, &get, PEER, RequestKind::Read).await;
            assert_eq!(result.unwrap_err(), CallerRejection::Impersonation, "{name}");
            let result = callers.authenticate_again(&acting, PEER, &caller).await;
            assert_eq!(result.unwrap_err(), CallerRejection::Impersonation, "{name}");
        }
        assert_eq!(counts(&count), (1, 1), "only the request without these headers is reviewed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_review_decides_nothing_and_is_not_cached() {
    let delay = Duration::from_hours(1);
    let (callers, _) = reading(FakeReviews { delay, ..FakeReviews::new(said) });
    let began = Instant::now();
    let result = callers
        .admit(&credentials("good", &[]), &action("get", None), PEER, RequestKind::Read)
        .await;
    assert!(
        matches!(&result, Err(CallerRejection::Undecided(fault)) if fault.reason() == FaultReason::TimedOut)
    );
    assert!(began.elapsed() >= REVIEW_TIMEOUT, "{:?}", began.elapsed());
    let (callers, count) = reading(FakeReviews::new(said));
    for asked in [1, 2] {
        let result = callers
            .admit(&credentials("lost", &[]), &action("get", None), PEER, RequestKind::Read)
            .await;
        assert!(matches!(result, Err(CallerRejection::Undecided(_))));
        assert_eq!(counts(&count), (asked, 0));
    }
}
