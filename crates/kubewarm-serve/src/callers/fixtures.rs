//! A fake API server for tests. A function of the test scripts the results of TokenReviews and
//! access reviews.

use super::{
    CallerGate, DecisionObserver, ListenerLimits, ReaderLimits, ReviewClient, UserPermits,
    caller_digest::DigestKey,
    limit_key::{LimitKey, POD_UID},
    limits::quarter,
};
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use kubewarm_api::model::RequestFault;
use kubewarm_client::KeyedSemaphore;
use kubewarm_client::{AuthenticationResult, AuthorizationResult, BearerCredentials, CallerInfo};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::sleep};

/// The key in a user's `extra` under which the API server writes the ID of the user's token.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The scripted result of a TokenReview or access review.
pub(crate) enum ReviewAnswer {
    /// The token belongs to this user, and access is allowed.
    Allowed(&'static str),
    /// The token belongs to this user, and access is denied.
    Denied(&'static str),
    /// The token belongs to this user. The function scripts access reviews by the object's name.
    ByName(&'static str, fn(Option<&str>) -> Self),
    /// The token is invalid.
    Unknown,
    /// The token's owner has no permission to send the TokenReview or access review. The text is
    /// the API server's message.
    Refused(&'static str),
    /// The TokenReview or access review fails with this fault.
    Nothing(RequestFault),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeReviewCounts {
    /// The number of TokenReviews.
    pub(crate) who: Arc<AtomicUsize>,
    /// The number of access reviews.
    pub(crate) may: Arc<AtomicUsize>,
    /// The maximum number of concurrent TokenReviews and access reviews so far.
    pub(crate) most: Arc<AtomicUsize>,
}

/// Returns the result of a TokenReview or access review for a token and a verb. The verb is empty
/// for a TokenReview.
pub(crate) type FakeReviewFn = fn(&str, &str) -> ReviewAnswer;

pub(super) struct FakeReviews {
    pub(super) say: Arc<Mutex<FakeReviewFn>>,
    pub(super) count: FakeReviewCounts,
    pub(super) delay: Duration,
    pub(super) has_callers_token: bool,
    pub(crate) now: Arc<AtomicUsize>,
}

impl FakeReviews {
    pub(super) fn new(say: FakeReviewFn) -> Self {
        Self {
            say: Arc::new(Mutex::new(say)),
            count: FakeReviewCounts::default(),
            delay: Duration::ZERO,
            has_callers_token: false,
            now: Arc::default(),
        }
    }

    fn later<T: Send + 'static>(
        &self,
        answer: impl FnOnce() -> Result<T, RequestFault> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, RequestFault>> {
        let (now, most, delay) = (Arc::clone(&self.now), Arc::clone(&self.count.most), self.delay);
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            sleep(delay).await;
            now.fetch_sub(1, Ordering::Relaxed);
            answer()
        })
    }
}

impl ReviewClient for FakeReviews {
    fn sends_callers_token(&self) -> bool {
        self.has_callers_token
    }

    fn authenticate(
        &self,
        presented: Arc<BearerCredentials>,
    ) -> BoxFuture<'static, Result<AuthenticationResult, RequestFault>> {
        let (say, asked) = (Arc::clone(&self.say), Arc::clone(&self.count.who));
        self.later(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let say = *say.lock();
            match say(&presented.token, "") {
                ReviewAnswer::Allowed(name)
                | ReviewAnswer::Denied(name)
                | ReviewAnswer::ByName(name, _) => {
                    // Each token has its own `credential-id`, like bound tokens of a
                    // ServiceAccount, so `extra` differs although the user is the same.
                    let token = vec![presented.token.to_string()];
                    let mut extra = BTreeMap::from([(CREDENTIAL.to_owned(), token.clone())]);
                    if presented.token.starts_with("pod-") {
                        extra.insert(POD_UID.to_owned(), token);
                    }
                    let user = CallerInfo { name: name.to_owned(), extra, ..CallerInfo::default() };
                    Ok(AuthenticationResult::Known(Arc::new(user)))
                }
                ReviewAnswer::Unknown => Ok(AuthenticationResult::Unknown),
                ReviewAnswer::Refused(message) => {
                    Ok(AuthenticationResult::Refused { message: message.to_owned() })
                }
                ReviewAnswer::Nothing(fault) => Err(fault),
            }
        })
    }

    fn authorize(
        &self,
        presented: Option<Arc<BearerCredentials>>,
        spec: SubjectAccessReviewSpec,
    ) -> BoxFuture<'static, Result<AuthorizationResult, RequestFault>> {
        let (say, asked) = (Arc::clone(&self.say), Arc::clone(&self.count.may));
        self.later(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let (of_resource, object) = spec
                .resource_attributes
                .map(|attributes| (attributes.verb, attributes.name))
                .unwrap_or_default();
            let verb = of_resource.or_else(|| spec.non_resource_attributes?.verb);
            let user = spec.user.unwrap_or_default();
            // `say` receives the token that the review carries or that `extra` names, or the
            // user's name if a certificate authenticated the user.
            let carried = presented.map(|presented| presented.token.to_string());
            let named = spec.extra.and_then(|extra| extra.get(CREDENTIAL)?.first().cloned());
            let shown = carried.or(named);
            let say = *say.lock();
            let (token, verb) = (shown.as_ref().unwrap_or(&user), verb.unwrap_or_default());
            let answer = say(token, &verb);
            let answer = if let ReviewAnswer::ByName(_, say) = answer {
                say(object.as_deref())
            } else {
                answer
            };
            match answer {
                ReviewAnswer::Allowed(name) => {
                    assert_eq!(user, name, "the review names the user of the token");
                    Ok(AuthorizationResult::Allowed)
                }
                ReviewAnswer::Denied(_)
                | ReviewAnswer::ByName(..)
                | ReviewAnswer::Unknown
                | ReviewAnswer::Refused(_) => Ok(AuthorizationResult::Denied { reason: None }),
                ReviewAnswer::Nothing(fault) => Err(fault),
            }
        })
    }
}

/// A `CallerGate` with the read API's default limits, and the function that scripts the results of
/// its TokenReviews and access reviews. A test can replace this function at any time.
pub(crate) fn changing(say: FakeReviewFn) -> (CallerGate, Arc<Mutex<FakeReviewFn>>) {
    let (callers, say, _) = changing_counted(say);
    (callers, say)
}

/// As [`changing`], also with the numbers of reviews.
pub(crate) fn changing_counted(
    say: FakeReviewFn,
) -> (CallerGate, Arc<Mutex<FakeReviewFn>>, FakeReviewCounts) {
    let fake = FakeReviews::new(say);
    let (say, count) = (Arc::clone(&fake.say), fake.count.clone());
    (of(fake, &ListenerLimits::for_reads(ReaderLimits::default())), say, count)
}

pub(super) fn of(fake: FakeReviews, limits: &ListenerLimits) -> CallerGate {
    noted(fake, limits, Box::new(|_, _, _| ()))
}

pub(super) fn noted(
    fake: FakeReviews,
    limits: &ListenerLimits,
    note: DecisionObserver,
) -> CallerGate {
    CallerGate::new(Arc::new(fake), limits, Handle::current(), note).unwrap()
}

/// Creates the permits of each user in `names`. All users have `all` permits in total, and one user
/// has at most a quarter of them.
pub(crate) fn user_permits<const N: usize>(all: usize, names: [&str; N]) -> [UserPermits; N] {
    let (permits, key) = (KeyedSemaphore::new(all, quarter(all)), DigestKey::generate().unwrap());
    names.map(|name| {
        let user = CallerInfo { name: name.to_owned(), ..CallerInfo::default() };
        UserPermits { permits: permits.clone(), user: LimitKey::User(key.of_name(&user).unwrap()) }
    })
}

/// An access review for pods in the namespace `shop`.
pub(crate) fn pods(verb: &str, name: Option<&str>) -> SelfSubjectAccessReviewSpec {
    let pods = ResourceAttributes {
        verb: Some(verb.to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("pods".to_owned()),
        namespace: Some("shop".to_owned()),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReviewSpec { resource_attributes: Some(pods), non_resource_attributes: None }
}
