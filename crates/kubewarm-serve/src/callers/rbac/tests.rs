//! Decisions by rules, their verification, and the fallback to access reviews.

use super::{
    fixtures::{FakeRules, RuledCallers, by_rules},
    *,
};
use crate::callers::{
    AuthorizationMode, CallerCredentials, CallerGate, RequestKind,
    fixtures::{ReviewAnswer, pods},
};
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::CallerInfo;
use std::net::{IpAddr, Ipv4Addr};
use tokio::time::advance;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

fn allow(_: &str, _: &str) -> ReviewAnswer {
    ReviewAnswer::Allowed("jane")
}

/// A webhook authorizer that denies everything.
fn deny(_: &str, verb: &str) -> ReviewAnswer {
    if verb.is_empty() { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Denied("jane") }
}

fn unreachable(_: &str, verb: &str) -> ReviewAnswer {
    let fault = RequestFault::new(FaultReason::Unreachable, "refused");
    if verb.is_empty() { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Nothing(fault) }
}

fn credentials(token: &str, more: &[(&'static str, &'static str)]) -> CallerCredentials {
    let bearer = format!("Bearer {token}");
    let more = more.iter().map(|(name, value)| (*name, value.as_bytes()));
    let headers = [("authorization", bearer.as_bytes())].into_iter().chain(more);
    CallerCredentials::from_headers(headers).unwrap()
}

async fn send(
    callers: &CallerGate,
    token: &str,
    access: &SelfSubjectAccessReviewSpec,
) -> Result<Instant, CallerRejection> {
    let admitted = callers.admit(&credentials(token, &[]), access, PEER, RequestKind::Read).await;
    admitted.map(|admitted| admitted.authorized_at)
}

/// Lists pods with the token `a`.
async fn list(callers: &CallerGate) -> Result<Instant, CallerRejection> {
    send(callers, "a", &pods("list", None)).await
}

fn forbidden() -> CallerRejection {
    CallerRejection::Forbidden { user: "jane".to_owned(), reason: None }
}

impl RuledCallers {
    /// The number of access reviews so far.
    fn reviews(&self) -> usize {
        self.count.may.load(Ordering::Relaxed)
    }

    /// Sends the first request, which an access review verifies.
    async fn verified(say: crate::callers::fixtures::FakeReviewFn) -> Self {
        let ruled = by_rules(allow);
        assert!(list(&ruled.callers).await.is_ok());
        assert_eq!(ruled.reviews(), 1);
        *ruled.say.lock() = say;
        ruled
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_first_request_of_a_kind_and_one_a_second_are_reviewed() {
    let ruled = by_rules(allow);
    let namespace = |namespace: &str| {
        let mut access = pods("list", None);
        access.resource_attributes.as_mut().unwrap().namespace = Some(namespace.to_owned());
        access
    };
    for (token, access, reviews) in [
        ("a", pods("list", None), 1),
        ("a", pods("list", None), 1),
        // Each pod of a ServiceAccount has its own token, but the same user.
        ("b", pods("list", None), 1),
        ("a", pods("watch", None), 2),
        ("a", pods("get", Some("web")), 3),
        ("b", pods("get", Some("db")), 3),
        ("a", pods("get", None), 4),
    ] {
        assert_eq!(send(&ruled.callers, token, &access).await, Ok(Instant::now()));
        assert_eq!(ruled.reviews(), reviews, "{token} {access:?}");
    }
    assert!(send(&ruled.callers, "a", &namespace("bank")).await.is_ok(), "by review");
    assert_eq!(ruled.reviews(), 5);
    for _ in 0..100 {
        advance(Duration::from_millis(100)).await;
        assert!(list(&ruled.callers).await.is_ok());
    }
    let samples = ruled.reviews() - 5;
    assert!((9..=11).contains(&samples), "{samples} in 10 s");
}

#[tokio::test(start_paused = true)]
async fn what_no_current_rule_allows_is_reviewed_and_cached_for_10_seconds() {
    let ruled = by_rules(allow);
    ruled.rules.revoke();
    for reviews in [1, 1] {
        assert!(list(&ruled.callers).await.is_ok(), "by another authorizer");
        assert_eq!(ruled.reviews(), reviews);
    }
    *ruled.say.lock() = deny;
    advance(Duration::from_secs(10)).await;
    assert_eq!(list(&ruled.callers).await, Err(forbidden()));

    let RuledCallers { callers, rules, say, .. } = RuledCallers::verified(deny).await;
    for age in [None, Some(MAX_RULES_AGE)] {
        *rules.age.lock() = age;
        assert_eq!(list(&callers).await, Err(forbidden()), "{age:?}");
    }
    let almost = MAX_RULES_AGE.mul_f64(0.99);
    *rules.age.lock() = Some(almost);
    assert_eq!(list(&callers).await, Ok(Instant::now() - almost), "the age of the rules counts");
    *say.lock() = allow;
}

#[tokio::test(start_paused = true)]
async fn many_pods_share_a_review_while_the_rules_are_outdated() {
    let ruled = RuledCallers::verified(allow).await;
    *ruled.rules.age.lock() = Some(MAX_RULES_AGE);
    for (token, name) in [("a", "web"), ("b", "db"), ("c", "cache")] {
        assert!(send(&ruled.callers, token, &pods("get", Some(name))).await.is_ok());
        assert_eq!(ruled.reviews(), 2, "{name}");
    }
    ruled.rules.revoke();
    for (token, reviews) in [("a", 3), ("b", 4)] {
        assert!(send(&ruled.callers, token, &pods("watch", None)).await.is_ok());
        assert_eq!(ruled.reviews(), reviews, "no old rule allows the request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_scopes_is_reviewed() {
    let ruled = RuledCallers::verified(deny).await;
    let (token, access) = (credentials("a", &[]), pods("list", None));
    let admitted = ruled.callers.admit(&token, &access, PEER, RequestKind::Read).await.unwrap();
    let mut extra = admitted.caller.user.extra.clone();
    extra.insert("scopes.authorization.openshift.io".to_owned(), vec!["user:info".to_owned()]);
    let user = Arc::new(CallerInfo { extra, ..(*admitted.caller.user).clone() });
    let caller = AuthenticatedCaller { user, ..admitted.caller };
    assert_eq!(ruled.callers.authorize(&caller, &access).await, Err(forbidden()));
}

#[tokio::test(start_paused = true)]
async fn no_rule_authorizes_a_request_with_impersonation_headers() {
    let ruled = RuledCallers::verified(allow).await;
    let token = credentials("a", &[("impersonate-user", "john")]);
    let access = pods("list", None);
    let admitted = ruled.callers.admit(&token, &access, PEER, RequestKind::Read).await;
    assert_eq!(admitted.unwrap_err(), CallerRejection::Impersonation);
}

#[tokio::test(start_paused = true)]
async fn a_revocation_is_reviewed_after_the_api_server_has_it_too() {
    let ruled = RuledCallers::verified(deny).await;
    let revoked = Instant::now();
    ruled.rules.revoke();
    assert_eq!(list(&ruled.callers).await, Err(forbidden()));
    assert_eq!(revoked.elapsed(), SETTLE_TIME);
    ruled.rules.grant();
    assert!(list(&ruled.callers).await.is_ok(), "the denial is not used any more");
    // A review from the time before the revocation does not count.
    *ruled.rules.age.lock() = None;
    *ruled.say.lock() = allow;
    advance(Duration::from_secs(10)).await;
    assert!(list(&ruled.callers).await.is_ok(), "by review");
    *ruled.rules.age.lock() = Some(Duration::ZERO);
    *ruled.say.lock() = deny;
    ruled.rules.revoke();
    assert_eq!(list(&ruled.callers).await, Err(forbidden()));
}

#[tokio::test(start_paused = true)]
async fn three_denials_of_what_unchanged_rules_allow_end_decisions_by_rules() {
    let ruled = by_rules(deny);
    let began = Instant::now();
    assert_eq!(list(&ruled.callers).await, Err(forbidden()), "the review's answer counts");
    let fallback = ruled.rules.rules.wait_for_fallback().await;
    assert_eq!((fallback.reason(), began.elapsed()), ("disagreement", Duration::from_secs(10)));
    assert!(fallback.to_string().contains("user jane may list pods in namespace shop,"));
    assert_eq!(ruled.reviews(), 3);
    *ruled.say.lock() = allow;
    for _ in 0..3 {
        assert!(list(&ruled.callers).await.is_ok());
        assert_eq!(ruled.reviews(), 4, "as without rules");
    }
    advance(Duration::from_secs(10)).await;
    assert!(list(&ruled.callers).await.is_ok());
    assert_eq!(ruled.reviews(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_disagreement_that_ends_or_is_of_other_rules_is_not_confirmed() {
    for (what, say) in [("a new rule", deny as fn(&str, &str) -> ReviewAnswer), ("an allow", allow)]
    {
        let ruled = by_rules(deny);
        assert_eq!(list(&ruled.callers).await, Err(forbidden()));
        sleep(Duration::from_secs(7)).await;
        assert_eq!(ruled.reviews(), 2);
        *ruled.say.lock() = say;
        if what == "a new rule" {
            ruled.rules.change();
        }
        sleep(Duration::from_mins(1)).await;
        assert_eq!((ruled.rules.rules.fallback(), ruled.reviews()), (None, 3), "{what}");
        assert_eq!(list(&ruled.callers).await.is_ok(), what == "an allow", "it is reviewed again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revocation_whose_event_is_late_is_no_disagreement() {
    let ruled = by_rules(deny);
    assert_eq!(list(&ruled.callers).await, Err(forbidden()));
    // The rules get no further proof, and then change.
    for seconds in 1..MAX_RULES_AGE.as_secs() {
        sleep(Duration::from_secs(1)).await;
        *ruled.rules.age.lock() = Some(Duration::from_secs(seconds));
    }
    assert_eq!(ruled.reviews(), 3);
    ruled.rules.revoke();
    *ruled.rules.age.lock() = Some(Duration::ZERO);
    sleep(Duration::from_mins(1)).await;
    assert!(ruled.rules.rules.fallback().is_none());
}

#[tokio::test(start_paused = true)]
async fn after_a_sample_that_is_denied_the_next_request_is_reviewed() {
    let ruled = RuledCallers::verified(deny).await;
    advance(SAMPLE_INTERVAL).await;
    assert!(list(&ruled.callers).await.is_ok(), "the sample follows the answer");
    sleep(Duration::from_millis(1)).await;
    for _ in 0..10 {
        assert_eq!(list(&ruled.callers).await, Err(forbidden()));
        assert_eq!(ruled.reviews(), 3, "the denial is cached, as without rules");
    }
    assert!(ruled.rules.rules.fallback().is_none());
    ruled.rules.rules.wait_for_fallback().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_away_verified_requests_continue_until_the_rules_are_too_old() {
    let ruled = RuledCallers::verified(unreachable).await;
    *ruled.rules.age.lock() = Some(Duration::from_secs(19));
    for _ in 0..10 {
        advance(SAMPLE_INTERVAL).await;
        assert!(list(&ruled.callers).await.is_ok());
    }
    let watch = pods("watch", None);
    let unknown = send(&ruled.callers, "a", &watch).await;
    assert!(matches!(unknown, Err(CallerRejection::Undecided(_))), "{unknown:?}");
    *ruled.rules.age.lock() = Some(MAX_RULES_AGE);
    assert!(matches!(list(&ruled.callers).await, Err(CallerRejection::Undecided(_))));
    assert!(ruled.rules.rules.fallback().is_none());
}

#[tokio::test(start_paused = true)]
async fn rules_that_need_too_much_memory_are_dropped() {
    let rules = FakeRules::new(1);
    let fallback = rules.rules.wait_for_fallback().await;
    assert_eq!(*fallback, RbacFallback::Memory { max_bytes: 1 });
    let authorizer = AuthorizationMode::Rbac(rules.authorizer());
    let (callers, _, count) = crate::callers::fixtures::changing_counted(allow);
    let callers = callers.with_authorization(authorizer);
    rules.grant();
    for _ in 0..2 {
        assert!(list(&callers).await.is_ok());
    }
    assert_eq!(count.may.load(Ordering::Relaxed), 1, "as without rules");
}

#[tokio::test(start_paused = true)]
async fn after_a_fallback_open_watches_send_50_reviews_a_second_for_a_minute() {
    let rules = FakeRules::new(1 << 20);
    let authorizer = rules.authorizer();
    assert_eq!(authorizer.pace_switch().await, Ok(()));
    rules.rules.fall_back(RbacFallback::Memory { max_bytes: 1 });
    let turn = async || {
        let asked = Instant::now();
        authorizer.pace_switch().await.map(|()| asked.elapsed())
    };
    let turns = futures::future::join_all((0..1_000).map(|_| turn())).await;
    let waits: Vec<_> = turns.iter().flatten().collect();
    assert_eq!(waits.len(), 401, "the others would wait for more than 8 s");
    assert_eq!(*waits[400], MAX_REVIEW_WAIT);
    assert_eq!(turns[401], Err(CallerRejection::Limited(ReadLimit::Reviews)));
    advance(SWITCH_TIME).await;
    let turns = futures::future::join_all((0..1_000).map(|_| turn())).await;
    assert!(turns.into_iter().all(|turn| turn == Ok(Duration::ZERO)));
}

#[tokio::test(start_paused = true)]
async fn changes_are_published_half_a_second_later_and_at_most_twice_a_second() {
    let FakeRules { rules, .. } = FakeRules::new(1 << 20);
    let running = Arc::clone(&rules);
    tokio::spawn(async move { running.publish_changes().await });
    sleep(Duration::from_secs(1)).await;
    let mut published = 0;
    let (changed, mut next) = (Instant::now(), Box::pin(rules.next_change()));
    for _ in 0..100 {
        rules.update(|_| cluster_rules::RulesEffect::Changed);
        sleep(Duration::from_millis(10)).await;
        if futures::FutureExt::now_or_never(&mut next).is_some() {
            published += 1;
            next = Box::pin(rules.next_change());
        }
    }
    assert!((1..=2).contains(&published), "{published}");
    next.await;
    assert!(changed.elapsed() <= Duration::from_millis(1_500), "{:?}", changed.elapsed());
}
