//! Access reviews with `--authorization=shared-reviews`.

use super::*;
use k8s_openapi::{
    api::authorization::v1::{FieldSelectorAttributes, SubjectAccessReviewSpec},
    apimachinery::pkg::apis::meta::v1::FieldSelectorRequirement,
};

const TTL: Duration = Duration::from_secs(10);

/// A `CallerGate` that shares access reviews, the script of its reviews, and the number of reviews.
fn sharing(say: FakeReviewFn) -> (CallerGate, Arc<Mutex<FakeReviewFn>>, FakeReviewCounts) {
    let fake = FakeReviews::new(say);
    let say = Arc::clone(&fake.say);
    let (callers, count) = reading(fake);
    (callers.with_authorization(AuthorizationMode::SharedReviews), say, count)
}

/// Gets the pod `name`. Returns the time at which kubewarm sent the access review.
async fn get(callers: &CallerGate, token: &str, name: &str) -> Result<Instant, CallerRejection> {
    let (token, get) = (credentials(token, &[]), action("get", Some(name)));
    let admitted = callers.admit(&token, &get, PEER, RequestKind::Read).await;
    admitted.map(|admitted| admitted.authorized_at)
}

fn forbidden() -> CallerRejection {
    CallerRejection::Forbidden { user: "jane".to_owned(), reason: None }
}

/// Allows a shared review, which names no token.
fn jane(_: &str, _: &str) -> ReviewAnswer {
    ReviewAnswer::Allowed("jane")
}

#[tokio::test(start_paused = true)]
async fn one_review_permits_each_name_and_each_token_of_the_user_for_10_seconds() {
    let (callers, say, count) = sharing(jane);
    let asked = Instant::now();
    for (at, name) in ["web", "db", "web"].into_iter().enumerate() {
        for token in ["first", "second"] {
            assert_eq!(get(&callers, token, name).await, Ok(asked), "{name}, {at}");
        }
        assert_eq!(counts(&count), (2, 1), "{name}");
    }
    *say.lock() = |_, verb| {
        if verb.is_empty() { ReviewAnswer::Allowed("jane") } else { ReviewAnswer::Denied("jane") }
    };
    let mut elsewhere = action("get", Some("web"));
    elsewhere.resource_attributes.as_mut().unwrap().namespace = Some("bank".to_owned());
    let first = credentials("first", &[]);
    let result = callers.admit(&first, &elsewhere, PEER, RequestKind::Read).await;
    assert_eq!(result.unwrap_err(), forbidden(), "another namespace");
    advance(TTL.mul_f64(0.99)).await;
    assert_eq!(get(&callers, "third", "api").await, Ok(asked), "the decision is still cached");
    advance(TTL.mul_f64(0.01)).await;
    assert_eq!(get(&callers, "first", "api").await, Err(forbidden()));
}

#[tokio::test(start_paused = true)]
async fn without_permission_for_all_names_each_name_is_reviewed() {
    let (callers, _, count) = sharing(|_, _| {
        ReviewAnswer::ByName("jane", |name| match name {
            Some("web") => ReviewAnswer::Allowed("jane"),
            _ => ReviewAnswer::Denied("jane"),
        })
    });
    let began = Instant::now();
    for (name, expected, asked) in [
        ("web", Ok(began), 2),
        ("db", Err(forbidden()), 3),
        ("web", Ok(began), 3),
        ("db", Err(forbidden()), 3),
    ] {
        assert_eq!(get(&callers, "good", name).await, expected, "{name}");
        assert_eq!(counts(&count), (1, asked), "{name}");
    }
    advance(TTL).await;
    assert_eq!(get(&callers, "good", "web").await, Ok(Instant::now()));
    assert_eq!(counts(&count), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn without_permission_for_the_user_alone_each_token_is_reviewed() {
    // The API server permits one token of the user, as for a scoped token.
    let (callers, _, count) = sharing(|token, verb| match (token, verb) {
        (_, "") | ("scoped", _) => ReviewAnswer::Allowed("jane"),
        _ => ReviewAnswer::Denied("jane"),
    });
    assert!(get(&callers, "scoped", "web").await.is_ok());
    assert_eq!(get(&callers, "other", "web").await, Err(forbidden()));
    assert_eq!(counts(&count), (2, 3), "the shared denial is cached");
}

#[tokio::test(start_paused = true)]
async fn open_watches_and_further_accesses_share_reviews_too() {
    let (callers, _, count) = sharing(jane);
    for token in ["first", "second"] {
        let (token, watch) = (credentials(token, &[]), action("watch", None));
        let admitted = callers.admit(&token, &watch, PEER, RequestKind::Watch(1)).await.unwrap();
        let caller = callers.authenticate_again(&token, PEER, &admitted.caller).await.unwrap();
        for name in [None, Some("web"), Some("db")] {
            assert!(callers.authorize(&caller, &action("watch", name)).await.is_ok());
        }
    }
    assert_eq!(counts(&count), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_shared_review_fails_the_request() {
    let (callers, _, count) = sharing(|_, _| {
        ReviewAnswer::ByName("jane", |name| match name {
            None => ReviewAnswer::Nothing(RequestFault::new(FaultReason::Unreachable, "refused")),
            Some(_) => ReviewAnswer::Allowed("jane"),
        })
    });
    for asked in [1, 2] {
        let result = get(&callers, "good", "web").await;
        assert!(matches!(result, Err(CallerRejection::Undecided(_))), "{result:?}");
        assert_eq!(counts(&count), (1, asked));
    }
}

#[test]
fn a_shared_review_keeps_who_does_what_where() {
    let requirement = FieldSelectorRequirement {
        key: "spec.nodeName".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec!["node-1".to_owned()]),
    };
    let mut access = action("list", Some("web"));
    let attributes = access.resource_attributes.as_mut().unwrap();
    attributes.field_selector = Some(FieldSelectorAttributes {
        requirements: Some(vec![requirement]),
        ..FieldSelectorAttributes::default()
    });
    let exact = SubjectAccessReviewSpec {
        user: Some("jane".to_owned()),
        uid: Some("1".to_owned()),
        groups: Some(vec!["dev".to_owned()]),
        extra: Some([("scopes".to_owned(), vec!["read".to_owned()])].into()),
        resource_attributes: access.resource_attributes,
        non_resource_attributes: None,
    };
    let kept = SubjectAccessReviewSpec {
        extra: None,
        resource_attributes: action("list", None).resource_attributes,
        ..exact.clone()
    };
    assert_eq!(authorizer::shared_review(&exact), kept);
}
