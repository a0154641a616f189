//! Access reviews with `--review-all-names`.

use super::*;

const TTL: Duration = Duration::from_secs(10);

/// A `CallerGate` that first sends an access review for all names, the script of its reviews, and
/// the number of reviews.
fn all_names_first(say: FakeReviewFn) -> (CallerGate, Arc<Mutex<FakeReviewFn>>, FakeReviewCounts) {
    let fake = FakeReviews::new(say);
    let say = Arc::clone(&fake.say);
    let (callers, count) = reading(fake);
    (callers.with_all_names_reviews(), say, count)
}

/// Gets the pod `name`. Returns the time at which kubewarm sent the oldest TokenReview or access
/// review.
async fn get(callers: &CallerGate, token: &str, name: &str) -> Result<Instant, CallerRejection> {
    let admitted = callers.admit(&credentials(token, &[]), &action("get", Some(name)), PEER).await;
    admitted.map(|(caller, _)| caller.reviewed_at)
}

fn forbidden() -> CallerRejection {
    CallerRejection::Forbidden { user: "jane".to_owned(), reason: None }
}

#[tokio::test(start_paused = true)]
async fn one_review_of_all_names_permits_each_name_for_10_seconds() {
    let (callers, say, count) = all_names_first(said);
    let asked = Instant::now();
    for name in ["web", "db", "web"] {
        assert_eq!(get(&callers, "good", name).await, Ok(asked));
        assert_eq!(counts(&count), (1, 1), "{name}");
    }
    assert_eq!(get(&callers, "weak", "web").await, Err(forbidden()), "another user");
    *say.lock() = |_, _| ReviewAnswer::Denied("jane");
    let mut elsewhere = action("get", Some("web"));
    elsewhere.resource_attributes.as_mut().unwrap().namespace = Some("bank".to_owned());
    let result = callers.admit(&credentials("good", &[]), &elsewhere, PEER).await;
    assert_eq!(result.unwrap_err(), forbidden(), "another namespace");
    advance(TTL.mul_f64(0.99)).await;
    assert_eq!(get(&callers, "good", "api").await, Ok(asked), "the last decision is still cached");
    advance(TTL.mul_f64(0.01)).await;
    assert_eq!(get(&callers, "good", "api").await, Err(forbidden()));
}

#[tokio::test(start_paused = true)]
async fn without_permission_for_all_names_each_name_is_reviewed() {
    let (callers, _, count) = all_names_first(|_, _| {
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
async fn only_a_get_of_one_object_is_reviewed_for_all_names() {
    let (callers, _, count) = all_names_first(|_, _| {
        ReviewAnswer::ByName("jane", |name| match name {
            None => ReviewAnswer::Allowed("jane"),
            Some(_) => ReviewAnswer::Denied("jane"),
        })
    });
    let (good, get_web) = (credentials("good", &[]), action("get", Some("web")));
    for verb in ["list", "watch"] {
        let result = callers.admit(&good, &action(verb, Some("web")), PEER).await;
        assert_eq!(result.unwrap_err(), forbidden(), "{verb}");
    }
    let (caller, _permit) = callers.admit(&good, &get_web, PEER).await.unwrap();
    assert_eq!(counts(&count), (1, 3));
    assert_eq!(callers.review_also(&caller, &get_web).await, Err(forbidden()));
    assert_eq!(callers.recheck(&good, &get_web, PEER).await, Err(forbidden()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_of_all_names_fails_the_request() {
    let (callers, _, count) = all_names_first(|_, _| {
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
